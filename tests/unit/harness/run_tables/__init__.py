"""These tests are of what faults cost."""
