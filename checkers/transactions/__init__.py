"""These kernels check transactions: isolation, cycles between transactions, and exactly-once copies."""
