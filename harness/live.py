"""What a run is doing right now, seen from outside: read from the files that it writes anyway, so that it is not disturbed.

Rates from the rows of the producers, faults from the undo journal, leaders from the samples of the brokers' own views. For
the terminal alone: verdicts rest on the history.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness import catalogue
from harness.clock import NS_PER_S, Clock
from harness.plan import Plan
from harness.recorder import RECORDER_CLIENT
from harness.rows import RowTail
from harness.run_directory import RunDirectory
from harness.schema import METADATA, SENDING, MetadataKind, MetadataSource, Outcome
from harness.send_progress import SendsTail


@dataclass(frozen=True, slots=True)
class Pulse:
    """One look."""

    acknowledged_per_s: float
    """Since the look before."""
    in_doubt: int
    """Sends that ended as info, so far."""
    faults: tuple[str, ...]
    """What is broken now: "kill broker-2"."""
    leaders_moved: int
    """How often another broker came to lead a partition, so far."""
    leaderless: int
    """Partitions without a leader, by the newest of the brokers' views."""
    shrunken: int
    """Partitions whose in-sync replicas are not all of their replicas."""

    def __str__(self) -> str:
        told = [f"{self.acknowledged_per_s:,.0f} acknowledged/s"]
        told += [f"{self.in_doubt:,} in doubt"] if self.in_doubt else []
        told += [f"broken: {', '.join(self.faults)}"] if self.faults else []
        told += [f"leaders moved {self.leaders_moved:,}×"] if self.leaders_moved else []
        told += [f"{self.leaderless:,} partitions without a leader"] if self.leaderless else []
        told += [f"{self.shrunken:,} with a shrunken ISR"] if self.shrunken else []
        return " · ".join(told)


class Watcher:
    """Looks at one run that is going on. One thread uses it."""

    def __init__(self, plan: Plan, run: RunDirectory, clock: Clock) -> None:
        self._run, self._clock = run, clock
        count = len(plan.partitions)
        self._sends = [SendsTail(run.rows, c.client, count) for c in plan.clients if c.role in SENDING]
        self._leaders = Leaders(count)
        self._metadata = RowTail(run.rows, METADATA, RECORDER_CLIENT)
        self._acknowledged, self._looked_ns = 0, clock.monotonic_ns()

    def look(self) -> Pulse:
        """What is new since the last look."""
        for tail in self._sends:
            tail.advance()
        completed = sum((tail.completed.sum(axis=1) for tail in self._sends), np.zeros(len(Outcome), dtype=np.int64))
        acknowledged, now_ns = int(completed[Outcome.OK]), self._clock.monotonic_ns()
        seconds = max(1, now_ns - self._looked_ns) / NS_PER_S
        rate = (acknowledged - self._acknowledged) / seconds
        self._acknowledged, self._looked_ns = acknowledged, now_ns
        self._leaders.take(self._metadata.segments())
        faults: Sequence[str] = catalogue.service("open-faults")(self._run)
        leaders = self._leaders
        return Pulse(
            rate, int(completed[Outcome.INFO]), tuple(faults), leaders.moved, leaders.leaderless, leaders.shrunken
        )

    def close(self) -> None:
        """Let go of the files."""
        for tail in self._sends:
            tail.end()
        self._metadata.close()


class Leaders:
    """Who leads, by what each broker says: of one partition the view with the highest leader epoch counts, of equal ones the
    one that was written last. Who is in sync is what leaders say of themselves."""

    def __init__(self, partitions: int) -> None:
        self._seen = 0
        self._epoch = np.full(partitions, -1, dtype=np.int64)
        self._leader = np.full(partitions, -1, dtype=np.int64)
        self._led_by = np.full(partitions, -1, dtype=np.int64)
        """As `_leader`, or the one before, while there is none."""
        self._whole = np.ones(partitions, dtype=bool)
        self._whole_epoch = np.full(partitions, -1, dtype=np.int64)
        """Of the view that says so."""
        self._told = np.zeros(partitions, dtype=bool)
        self.moved = 0

    @property
    def leaderless(self) -> int:
        return int((self._told & (self._leader < 0)).sum())

    @property
    def shrunken(self) -> int:
        return int((self._told & ~self._whole).sum())

    def take(self, segments: Sequence[np.ndarray]) -> None:
        """Every row slot of the table so far, written or not."""
        if not segments:
            return
        rows = np.concatenate([np.asarray(segment) for segment in segments])[self._seen :]
        right = rows["mark"] == np.arange(self._seen + 1, self._seen + len(rows) + 1)
        rows = rows[: len(right) if right.all() else int(np.argmin(right))]
        self._seen += len(rows)
        rows = rows[(rows["kind"] == MetadataKind.PARTITION) & (rows["source"] == MetadataSource.SAMPLE)]
        rows = rows[np.lexsort((rows["leader_epoch"], rows["partition"]))]  # stable: in the order they were written
        self._take_leaders(rows[rows["leader_epoch"] >= self._epoch[rows["partition"]]])
        # Followers' views are late about the ISR; the leader's own is not.
        telling = rows[(rows["node"] == rows["leader"]) | (rows["leader"] < 0)]
        telling = telling[telling["leader_epoch"] >= self._whole_epoch[telling["partition"]]]
        newest = telling[_last_of(telling["partition"])]
        self._whole[newest["partition"]] = newest["isr"] == newest["replicas"]
        self._whole_epoch[newest["partition"]] = newest["leader_epoch"]

    def _take_leaders(self, rows: np.ndarray) -> None:
        self._count_moves(rows[_last_of(rows["partition"], rows["leader_epoch"])])
        newest = rows[_last_of(rows["partition"])]
        where = newest["partition"]
        self._epoch[where], self._leader[where], self._told[where] = newest["leader_epoch"], newest["leader"], True

    def _count_moves(self, epochs: np.ndarray) -> None:
        """`epochs`: one row for each partition and epoch, sorted."""
        led = epochs[epochs["leader"] >= 0]
        partition, leader = led["partition"], led["leader"]
        first = np.concatenate([[True], partition[1:] != partition[:-1]])[: len(led)]
        before = np.where(first, self._led_by[partition], np.concatenate([[-1], leader[:-1]])[: len(led)])
        self.moved += int(((before >= 0) & (before != leader)).sum())
        last = _last_of(partition)
        self._led_by[partition[last]] = leader[last]


def _last_of(*keys: np.ndarray) -> np.ndarray:
    """bool[rows]: the last of each run of equal keys."""
    changes = [key[1:] != key[:-1] for key in keys]
    found: np.ndarray = np.concatenate([np.logical_or.reduce(changes), [True]])[-len(keys[0]) :]
    return found if len(keys[0]) else np.zeros(0, dtype=bool)
