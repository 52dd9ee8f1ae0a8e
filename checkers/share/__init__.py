"""Checkers of share groups: each record is delivered, held by one member at a time, and finished once (KIP-932)."""
