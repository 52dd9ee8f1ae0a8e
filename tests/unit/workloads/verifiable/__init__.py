"""These tests are of verifiable clients."""
