"""These tests are of plain producers and readers."""
