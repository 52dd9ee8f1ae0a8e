"""This folder has the modules of the pytest plugin. Users read `docs/pytest.md`."""
