"""This folder has cells and partitions that are written by hand, row by row."""
