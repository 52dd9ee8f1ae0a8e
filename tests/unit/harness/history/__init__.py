"""These tests are of how a history is written and read."""
