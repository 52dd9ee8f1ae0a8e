"""Processes of a check."""
