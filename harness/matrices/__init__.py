"""A matrix: many trials of one file, one per choice of cluster, schedule and seed, and what all of them together say."""
