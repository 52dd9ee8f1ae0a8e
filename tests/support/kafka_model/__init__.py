"""This folder has a model of Kafka that generates valid histories and spoils them."""
