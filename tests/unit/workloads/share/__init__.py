"""These tests are of the member of a share group, without a JVM."""
