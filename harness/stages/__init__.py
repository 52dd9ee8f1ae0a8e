"""The stages: plan → run → check → judge → report. Each reads files and writes files, and can be repeated alone."""
