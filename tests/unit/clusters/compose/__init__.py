"""These tests are of clusters whose nodes are containers."""
