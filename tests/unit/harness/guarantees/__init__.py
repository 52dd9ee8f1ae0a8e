"""These tests are of what Kafka promises and of how a verdict is reached."""
