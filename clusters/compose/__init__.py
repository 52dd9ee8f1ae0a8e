"""This backend runs Kafka in containers of Docker Compose."""
