"""What a fact is: asked of a configuration, or of the envelope of a partition (`harness.guarantees.facts`)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.guarantees.configured import Configuration, Version
from harness.guarantees.envelope import Envelope
from harness.guarantees.happened import Happened
from harness.guarantees.logic import Truth
from harness.schema import Tristate


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact. Exactly one of `of_configuration` and (`of_witnesses`, `could`) is given."""

    meaning: str
    of_configuration: Callable[[Configuration], Tristate] | None = None
    of_witnesses: Callable[[Envelope, np.ndarray], Truth] | None = None
    could: Callable[[Happened], Tristate] | None = None


def yes_if(condition: bool) -> Tristate:
    return Tristate.YES if condition else Tristate.NO


_RELEASE = ("major", "minor")
_PATCHES = range(10)
"""More than any release has had."""


def version_fact(meaning: str, holds: Callable[[Version], bool]) -> Fact:
    """Of a release without its patch (4.3) only what is true of each of its patches is known."""

    def of(configuration: Configuration) -> Tristate:
        version = configuration.version
        if version is None:
            return Tristate.UNKNOWN
        possible = [version] if len(version) > len(_RELEASE) else [(*version, patch) for patch in _PATCHES]
        found = {holds(v) for v in possible}
        return yes_if(found.pop()) if len(found) == 1 else Tristate.UNKNOWN

    return Fact(meaning, of)


def possibly(*causes: Tristate) -> Tristate:
    """A fact that has such causes: impossible if none of them happened, else open."""
    return Tristate.NO if all(c is Tristate.NO for c in causes) else Tristate.UNKNOWN
