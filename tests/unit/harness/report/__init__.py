"""These tests are of the reports of a run."""
