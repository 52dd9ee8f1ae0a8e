"""The clients of the log workload are here: producers, readers by assignment, and the audit that reads every partition
to its end."""
