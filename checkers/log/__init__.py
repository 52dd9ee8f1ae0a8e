"""These kernels check a partition's log: every acknowledged record stays in it, once, whole and in order; its replicas
agree; and its leaders were elected from the ISR."""
