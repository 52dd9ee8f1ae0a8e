"""Finds the known name that was probably meant by one that is not known, for the way out of an error."""

import difflib
from collections.abc import Iterable

CUTOFF = 0.6
"""Least likeness of two names, of 1 (`difflib.get_close_matches`)."""


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "", cutoff: float = CUTOFF) -> str:
    """Returns `did you mean 'x'?` with the nearest known name, or `otherwise` if none is near.

    For example "acsk" among "acks" and "retries": `did you mean 'acks'?`.
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"did you mean {near[0]!r}?" if near else otherwise
