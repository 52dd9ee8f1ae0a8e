"""Histories of what Kafka's verifiable clients printed."""
