"""These tests run what a person types and open what a person reads."""
