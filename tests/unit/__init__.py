"""These tests need no cluster and no Java, and their folders mirror the packages."""
