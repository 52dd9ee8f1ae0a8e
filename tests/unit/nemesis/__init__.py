"""These tests are of faults, their journal and their healing."""
