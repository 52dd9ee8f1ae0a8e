"""These tests are of the kernels that look for anomalies in a history."""
