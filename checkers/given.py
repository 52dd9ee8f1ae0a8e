"""What consumers were given of a partition that nobody audited (an imported history), and what that says of its log."""

import numpy as np

from checkers.lookup import UNREADABLE, Lookup, distinct
from harness.schema import NONE


class Given:
    """The records that some consumers were given, and how far they read."""

    def __init__(self, read_key: np.ndarray, log_offset: np.ndarray) -> None:
        """`read_key`, `log_offset`: of those consumers' reads."""
        self.keys = Lookup(distinct(read_key[read_key != UNREADABLE]))
        self.furthest = int(log_offset.max(initial=NONE))
        """The greatest offset that one of them was given a record from; NONE = nothing was given."""

    def beyond(self, offset: np.ndarray) -> np.ndarray:
        """bool[n]: nobody read as far, or nobody knows where it stands."""
        return np.asarray((offset == NONE) | (offset > self.furthest))
