"""These backends use a cluster that was there before the run: on machines over ssh, or known by its address alone."""
