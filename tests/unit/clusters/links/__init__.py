"""These tests are of the links between nodes."""
