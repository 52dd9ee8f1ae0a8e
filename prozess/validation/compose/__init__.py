"""Compose files as `prozess validate` reads them: resolved by Compose's rules, and of them the brokers."""
