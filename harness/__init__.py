"""What the five middle packages meet in: values, plans, schedules, the history format, protocols, guarantees, stages.

Imports none of `clusters`, `nemesis`, `workloads`, `checkers`, `spark_checkers`; `harness.catalogue` holds their names as
strings, resolved on use.
"""
