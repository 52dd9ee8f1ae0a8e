"""Where Kafka runs, and Kafka administration. Data comes in as `harness` values; no other middle package is known."""
