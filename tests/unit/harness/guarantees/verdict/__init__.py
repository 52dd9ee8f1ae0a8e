"""These tests are of the judgement of findings."""
