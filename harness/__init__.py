"""Everything that does not depend on how a cluster is run: values, plans, schedules, the history format, interfaces,
guarantees and reports.

Imports none of `clusters`, `nemesis`, `workloads`, `checkers`, `spark_checkers`. What they list is read by
`prozess.harness.plan.catalogue`.
"""
