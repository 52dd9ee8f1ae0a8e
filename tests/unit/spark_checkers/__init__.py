"""These tests are of the parts of the Spark engine that need no Spark session."""
