"""This package says what an anomaly is: pure functions that look at the arrays of a partition or a cell and return
witnesses. They use no clock, no file and no cluster."""
