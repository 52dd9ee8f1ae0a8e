"""This folder has what the pytest plugin is made of. Users read `docs/pytest.md`."""
