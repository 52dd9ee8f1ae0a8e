"""This package records a trial: rows that survive a SIGKILL, the codes in them, and the metrics."""
