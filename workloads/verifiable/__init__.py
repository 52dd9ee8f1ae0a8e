"""Kafka's verifiable clients in a trial, and prozess's own on librdkafka that can stand in for them."""
