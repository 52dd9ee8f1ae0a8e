"""These tests are of what a person may set."""
