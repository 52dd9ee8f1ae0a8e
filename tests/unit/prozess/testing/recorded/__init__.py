"""These tests are of clients of a user's own application, which are recorded."""
