"""These tests are of histories that are imported, exported or generated."""
