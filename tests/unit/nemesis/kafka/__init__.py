"""These tests are of faults that Kafka itself carries out."""
