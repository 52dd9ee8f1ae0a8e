"""This folder has `prozess watch`, a canary for a real cluster."""
