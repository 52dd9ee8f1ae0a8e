"""These kernels check that what waits goes on: groups settle, partitions have leaders, and controllers that were replaced
give way."""
