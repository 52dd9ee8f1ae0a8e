"""This package checks histories with Apache Spark: it runs the kernels on Spark's workers, states every check a second
time in SQL, and gives tables over many runs."""
