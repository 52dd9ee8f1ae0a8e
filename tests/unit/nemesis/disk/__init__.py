"""These tests are of faults of disks and files."""
