"""These tests are of the rules of the guarantee table."""
