"""The options of a watch, its state of each partition, and its counters."""

from collections import Counter
from dataclasses import dataclass, field

from prozess.harness.exit_codes import ExitCode
from prozess.harness.schema import Outcome
from prozess.watch.acknowledged import AcknowledgedRecords
from prozess.watch.leader_changes import LeaderChanges
from prozess.watch.metrics_endpoint import Histogram
from prozess.watch.window import PartitionWindow

OUTCOMES = {Outcome.OK: "acknowledged", Outcome.FAIL: "failed", Outcome.INFO: "in-doubt"}
CLIENTS = ("producer", "reader")
UNREAD_MAX = 20_000
"""For how many records of a partition it is remembered when they were sent, until they are read."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What `prozess watch` was asked for: a cluster, a topic, how many records a second, and what counts as an outage."""

    servers: str
    topic: str | None = None
    copies: int | None = None
    rate_hz: float = 2.0
    outage_s: float = 6.5
    duration_s: float | None = None
    """None: until it is stopped."""
    keep_topic: bool = False


@dataclass(slots=True)
class Candidate:
    """A finding of the checkers that is not reported yet."""

    since_ns: int
    audited: bool = False
    """Whether the log was read again since."""


@dataclass(slots=True)
class WatchedPartition:
    """What is known of one watched partition: its window of records, which sends and reads are open, and who led it."""

    window: PartitionWindow
    records: AcknowledgedRecords = field(default_factory=AcknowledgedRecords)
    changes: LeaderChanges = field(default_factory=LeaderChanges)
    pending: dict[int, int] = field(default_factory=dict)
    """Sequence → when it was sent, of each record that was not answered yet."""
    unread: dict[int, int] = field(default_factory=dict)
    """Sequence → when it was sent, of each record that was not read yet."""
    write_since_ns: int | None = None
    position_lost_ns: int | None = None
    """When its reader's position was lost; None while it has one."""
    candidate: Candidate | None = None
    acknowledged: Histogram = field(default_factory=Histogram)
    delivered: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class WatchCounts:
    """The counters of a watch. Their number grows with partitions and kinds of sightings, and not with time."""

    sends: Counter[tuple[int, str]] = field(default_factory=Counter)
    """(partition, "acknowledged", "failed" or "in-doubt") → records."""
    reads: Counter[int] = field(default_factory=Counter)
    sightings: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """(name, certain) → how many things were reported."""
    deleted: Counter[int] = field(default_factory=Counter)
    """Partition → records that were removed before retention allows it."""
    commits: Counter[str] = field(default_factory=Counter)
    """"taken" or "failed" → commits of the reader's offsets."""
    committed: Histogram = field(default_factory=Histogram)
    replaced: Counter[str] = field(default_factory=Counter)
    """Client → how many of them could do nothing more."""
    unknown: int = 0
    """How many events were reported as unknown, sightings included."""
    seen: int = 0
    """How many events were reported as certain: outages, unreadable records, violations."""

    @property
    def exit_code(self) -> ExitCode:
        """Returns 1 if an outage, unreadable records or a violation was seen; else 2 if something is unknown; else 0."""
        if self.seen:
            return ExitCode.VIOLATED
        return ExitCode.UNKNOWN if self.unknown else ExitCode.HELD
