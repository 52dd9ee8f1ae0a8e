"""This package runs Kafka, administers it, and breaks its nodes. It knows `harness`, and no other package."""
