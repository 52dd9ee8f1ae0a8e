"""A member of a share group, and what its rows say."""
