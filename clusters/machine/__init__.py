"""These modules run servers on this machine: their configuration, their network namespaces and their processes."""
