"""Makes a plan from a trial and a seed: the matrix of combinations, the schedule, and the clients of each workload."""
