"""Histories that no trial of ours recorded: imported from other programs, exported to them, or generated."""
