"""Kafka on trial inside a test: what the pytest plugin is made of. `docs/pytest.md` is for who uses it."""
