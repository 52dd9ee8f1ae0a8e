"""Faults: one file each, acting only through the `Node` and `Cluster` protocols of `harness.protocols`."""
