"""This folder has a cluster in memory."""
