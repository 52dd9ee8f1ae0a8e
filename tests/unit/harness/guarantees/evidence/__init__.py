"""These tests are of the evidence from which facts are inferred."""
