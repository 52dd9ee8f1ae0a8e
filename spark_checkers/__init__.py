"""The Spark pipeline over the kernels of `checkers`: manifest in, witnesses out. The only package that knows Spark."""
