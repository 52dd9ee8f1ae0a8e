"""These kernels check consumer groups: who owned a partition, which offsets were committed, and whether every record
was processed."""
