"""These kernels check what consumers receive: positions that do not jump, readers that do not stall, and records that
arrive in time."""
