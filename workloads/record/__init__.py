"""This folder writes what clients record: the identity that each record carries, and the rows of sends, transactions
and members of groups."""
