"""These kernels check that what waits goes on: transactions end, producers that have something to send send, groups settle,
partitions have leaders, controllers that were replaced give way, and administrators get answers."""
