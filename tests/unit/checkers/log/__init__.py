"""These tests are of the kernels that compare what was sent with the log."""
