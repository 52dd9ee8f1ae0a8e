"""These tests are of findings and their witnesses."""
