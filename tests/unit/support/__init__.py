"""These tests are of what other tests rely on."""
