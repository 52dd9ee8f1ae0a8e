"""This backend runs Kafka as plain processes, each in a network namespace of its own."""
