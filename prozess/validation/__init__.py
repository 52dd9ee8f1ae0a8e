"""`prozess validate` predicts what your own configuration files promise, and runs trials of exactly this configuration."""
