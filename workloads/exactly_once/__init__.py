"""Clients that consume, process and produce are here: prozess's own copier, Kafka's, and applications of the user's."""
