"""These tests compare Spark and its SQL with the local engine."""
