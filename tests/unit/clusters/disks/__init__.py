"""These tests are of the disks, files and clocks of a node."""
