"""This package measures what each fault cost the clients, and how the cluster reacted to it."""
