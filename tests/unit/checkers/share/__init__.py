"""These tests are of the kernels that judge share groups."""
