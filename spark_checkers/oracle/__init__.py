"""These modules state every check a second time in Spark SQL, and compare the results with the kernels."""
