"""These tests compare a check of pieces with a check of the whole."""
