"""These modules give a node a disk and a clock of its own, and make both fail."""
