"""These tests are of the pytest plugin."""
