"""This folder reads histories of Jepsen's Kafka tests and writes ours as Jepsen would."""
