"""These tests are of the command and of everything that it puts together."""
