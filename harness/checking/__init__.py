"""This package runs kernels over partitions and cells, and stores what they find."""
