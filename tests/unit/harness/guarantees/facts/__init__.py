"""These tests are of the facts that the rules ask for."""
