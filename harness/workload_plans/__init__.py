"""Which clients each kind of workload has: one module per kind, named in `harness.catalogue.WORKLOADS`. Pure."""
