"""Plans the clients of each kind of workload, by pure functions."""
