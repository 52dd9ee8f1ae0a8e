"""These tests are of how a trial and a seed become a plan."""
