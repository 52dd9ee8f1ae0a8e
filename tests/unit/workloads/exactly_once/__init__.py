"""These tests are of applications that copy records from topic to topic."""
