"""A rule of a KIP that a record of the controllers or of a coordinator must keep."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Case = TypeVar("Case", bound=IntEnum)
Changes = TypeVar("Changes")
"""Records of one kind, each beside what was stated before it."""


@dataclass(frozen=True, slots=True)
class KipRule(Generic[Case, Changes]):
    """A rule that each of these records must keep."""

    case: Case
    source: str
    """The KIP with the words that say it."""
    forbids: Callable[[Changes], NDArray[np.bool_]]
    """Returns for each record whether the rule forbids it (bool)."""
