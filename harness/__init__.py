"""The ground: values, plans, recording, the history's format, interfaces, guarantees, and the report of one run.

It imports nothing of prozess that stands above it. What registries above it list is read by `prozess.harness.plan.catalogue`.
"""
