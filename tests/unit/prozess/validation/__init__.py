"""These tests are of `prozess validate`."""
