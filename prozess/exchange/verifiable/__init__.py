"""This folder imports the output of Kafka's verifiable clients as histories."""
