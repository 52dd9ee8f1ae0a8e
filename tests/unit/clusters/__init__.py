"""These tests are of the package that makes, breaks and observes clusters."""
