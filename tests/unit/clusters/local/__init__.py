"""These tests are of clusters whose nodes are processes of this machine."""
