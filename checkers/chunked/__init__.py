"""These modules check partitions and cells that are too large for one task in pieces, with the same findings."""
