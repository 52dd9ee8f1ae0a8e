"""Recorded clients, which a test's own application uses in place of confluent_kafka's or aiokafka's, are here. They
record what they do."""
