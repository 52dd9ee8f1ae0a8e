"""These modules hold what is known of a run: the faults that took effect, who led each partition, and what clients and
brokers recorded."""
