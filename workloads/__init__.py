"""The clients of a trial are here: producers, readers, members of groups and the audit. Each records what it does."""
