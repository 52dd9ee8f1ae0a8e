"""These tests are of the stages of one run."""
