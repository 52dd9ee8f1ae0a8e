"""These tests are of how client processes are planned, started and ended."""
