"""The base of every value that a file may hold: configurations, plans, verdicts; and how many of them are read at once."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value from a file. It is immutable. An unknown key is an error, and so is a number that is infinite or not a
    number."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True, allow_inf_nan=False)


@contextmanager
def no_collection() -> Iterator[None]:
    """A context in which Python does not look for cycles among objects. Values read from files are in none: looking for
    them costs twice as much as reading the values, because each look goes through all that was read before."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
