"""These tests are of clusters that were there before the run."""
