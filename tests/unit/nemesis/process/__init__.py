"""These tests are of faults that end or suspend processes."""
