"""Campaigns: many trials, for hours, unattended. One after the other, each a process of its own; resumable at any moment."""
