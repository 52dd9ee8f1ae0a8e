"""These modules delay, limit, drop and reset what nodes and clients send one another."""
