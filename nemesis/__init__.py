"""The faults of prozess, one file for each group. They act only through the `Node` and `Cluster` protocols of
`prozess.harness.interfaces`."""
