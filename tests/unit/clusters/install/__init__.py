"""These tests are of how jars, Java and tools come to this machine."""
