"""`prozess watch` is here: a canary for a real cluster."""
