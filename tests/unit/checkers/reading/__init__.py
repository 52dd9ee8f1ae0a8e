"""These tests are of the kernels that judge what readers were given."""
