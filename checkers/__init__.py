"""What an anomaly is: pure functions from one partition's arrays to witnesses. No clock, no file, no cluster."""
