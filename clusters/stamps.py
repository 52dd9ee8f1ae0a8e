"""Timestamps of the metadata log, although a fault moved the clock of the controller that wrote them.

Whoever moves a node's clock writes down when and by how much, beside the node's data; and records stand in the order in
which they were written. A record's time is the earliest one, not before the record before it, at which a clock said what is
stamped: the machine's, or one that was moved just then. For this to be one time only, a controller's clock is moved by more
than its fault lasts (`nemesis.clock`), and records come often: an idle controller writes one twice a second
(metadata.max.idle.interval.ms, KIP-835).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HistoryUnreadable

HISTORY_NAME = "clock.history"
"""In the directory above a node's data."""
EDGE_NS = 10_000_000
"""A clock moves a moment after it is written down; stamps are in ms."""
ORDER_NS = 1_000_000_000
"""A batch is stamped before it is appended: of two, the first may bear the later stamp by a little."""
FOREVER_NS = 2**62


@dataclass(frozen=True, slots=True)
class Moved:
    """One clock was off by that for that long: CLOCK_MONOTONIC, ns."""

    begin_ns: int
    end_ns: int
    offset_ns: int


def write_down(directory: Path, *, at_ns: int, offset_ns: int) -> None:
    """From `at_ns` on the clock of the node in `directory` is off by that; before it is moved."""
    with (directory / HISTORY_NAME).open("a", encoding="ascii") as file:
        file.write(json.dumps({"at_ns": at_ns, "offset_ns": offset_ns}) + "\n")


def read_moved(directory: Path) -> list[Moved]:
    """When the clock of the node in `directory` was off. HistoryUnreadable if what was written down cannot be read."""
    path = directory / HISTORY_NAME
    if not path.exists():
        return []
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
        changes = [(int(line["at_ns"]), int(line["offset_ns"])) for line in lines]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HistoryUnreadable(f"{path}: when the clock was moved cannot be read: {error}.") from error
    ends = [at_ns for at_ns, _ in changes[1:]] + [FOREVER_NS]
    return [Moved(at, end, offset) for (at, offset), end in zip(changes, ends, strict=True) if offset]


class Stamps:
    """Turns stamps into times, in the order of the log."""

    def __init__(self, moved: Sequence[Moved], *, wall_minus_monotonic_ns: int) -> None:
        self._moved, self._wall_minus_monotonic_ns = moved, wall_minus_monotonic_ns
        self._before_ns = -FOREVER_NS

    @staticmethod
    def of(data_directories: Iterable[Path], *, wall_minus_monotonic_ns: int) -> "Stamps":
        """Of a log that these nodes may have written."""
        moved = [m for directory in data_directories for m in read_moved(directory.parent)]
        return Stamps(moved, wall_minus_monotonic_ns=wall_minus_monotonic_ns)

    def time_ns(self, stamp_ms: int) -> int:
        """CLOCK_MONOTONIC of the next record."""
        said_ns = stamp_ms * 1_000_000 - self._wall_minus_monotonic_ns
        if not self._moved:
            return said_ns
        meant = [said_ns]
        meant += [
            said_ns - m.offset_ns
            for m in self._moved
            if m.begin_ns - EDGE_NS <= said_ns - m.offset_ns <= m.end_ns + EDGE_NS
        ]
        found = min((ns for ns in meant if ns >= self._before_ns - ORDER_NS), default=said_ns)
        self._before_ns = max(self._before_ns, found)
        return found
