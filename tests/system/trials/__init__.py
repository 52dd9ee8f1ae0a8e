"""These tests run whole trials on real Kafka and look at their verdicts."""
