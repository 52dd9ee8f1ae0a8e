"""The deliveries of one partition to the members of a share group: which record each was of, and which came after which."""

from dataclasses import dataclass

import numpy as np

from prozess.checkers.lookup import differs_from_previous, identity_keys
from prozess.harness.columns import rows_of
from prozess.harness.config.configuration import ShareConfiguration
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import SHARE_WAY_NS, make_witnesses
from prozess.harness.plan.cell_work import ShareWork, work_as
from prozess.harness.schema import MISSING, NONE, Acknowledgement, ObservationKind, Outcome, Role

ACCEPT, RELEASE, REJECT = Acknowledgement
TOO_LATE = 121
"""INVALID_RECORD_STATE: whoever acknowledges does not hold the record (any more). [Kafka documentation, protocol, error
codes]"""
LONG_AGO_NS = np.iinfo(np.int64).min // 2
NS_PER_MS = 1_000_000
FAR_NS = np.iinfo(np.int64).max // 2
COLUMNS = (
    *("client", "absent_ns", "acquired_ns", "acknowledged_ns", "answered_ns", "renewed_ns", "log_offset", "sequence"),
    *("sender", "delivery_count", "acknowledgement", "outcome", "code"),
)


def share_of(history: CellHistory) -> ShareConfiguration:
    """Returns the settings of the cell's share group."""
    return work_as(ShareWork, history.cell.work).configuration


@dataclass(frozen=True, slots=True)
class SharedDeliveries:
    """The rows of `deliveries` of one partition, by record and then by when they were seen. A record is an offset with what
    stood there: after an unclean election another record may have the offset.

    Example: offset 4 was given to member 7 at 1 s and to member 8 at 5 s, offset 5 to member 7 at 2 s. The rows are 4 at 1 s,
    4 at 5 s, 5 at 2 s, and `first` is True, False, True.
    """

    columns: dict[str, np.ndarray]
    key: np.ndarray
    """int64[n]: the record's identity (`identity_keys`)."""
    first: np.ndarray
    """bool[n]: is it the first delivery of its record?"""

    @staticmethod
    def of(history: CellHistory, partition: int) -> "SharedDeliveries":
        """Returns the deliveries of a partition. O(n log n)."""
        table = history.tables["deliveries"]
        rows = rows_of(table, partition)
        key = identity_keys(table["sender"][rows], table["sequence"][rows])
        order = np.lexsort((rows, table["acquired_ns"][rows], key, table["log_offset"][rows]))
        columns = {name: table[name][rows[order]] for name in COLUMNS}
        key = key[order]
        first = differs_from_previous(columns["log_offset"]) | differs_from_previous(key)
        return SharedDeliveries(columns, key, first)

    def __len__(self) -> int:
        return len(self.key)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    @property
    def record(self) -> np.ndarray:
        """Returns int64[n]: the number of each row's record, 0, 1, …."""
        return np.cumsum(self.first) - 1

    def of_records(self, values: np.ndarray, least: np.ufunc) -> np.ndarray:
        """Returns the least or greatest value of each record (`numpy.minimum` or `numpy.maximum`), one for each."""
        starts = np.flatnonzero(self.first)
        return np.asarray(least.reduceat(values, starts)) if len(starts) else values[:0]

    def over(self, kind: int) -> np.ndarray:
        """Returns bool[n]: was this acknowledgement of the delivery answered, and in its favour?"""
        return np.asarray((self["acknowledgement"] == kind) & (self["outcome"] == Outcome.OK.value))

    @property
    def since_ns(self) -> np.ndarray:
        """Returns int64[n]: the record was certainly not acquired before. What a poll returns has come since a poll last had
        nothing to return, and was on its way for SHARE_WAY_NS at most."""
        return np.asarray(self["absent_ns"] - SHARE_WAY_NS)

    def witnesses(self, rows: np.ndarray, partition: int, **more: np.ndarray | int) -> np.ndarray:
        """Returns a witness for each of these rows: the record, and to whom it was given when."""
        columns: dict[str, np.ndarray | int] = {
            "partition": partition,
            "client": self["sender"][rows],
            "sequence": self["sequence"][rows],
            "log_offset": self["log_offset"][rows],
            "reader": self["client"][rows],
            "begin_ns": self.since_ns[rows],
            "end_ns": self["acquired_ns"][rows],
            "seen_ns": self["acquired_ns"][rows],
        }
        return make_witnesses(len(rows), columns | more)


NOT_ASKED = "the share group was never asked to finish"
NOT_FINISHED = "the share group had not finished when its members ended"
MAY_BE_HELD = "a member of the share group died, and its partitions may have been its own until the members ended"


def was_drained(history: CellHistory, partition: int) -> bool:
    """Returns whether the group was asked to finish what is in the partition."""
    table = history.tables["observations"]
    return bool((table["kind"][rows_of(table, partition)] == ObservationKind.DRAIN_BEGUN.value).any())


def why_unfinished(history: CellHistory, partition: int) -> str | None:
    """Returns why nobody knows what the group still owes of a partition. None: it was asked to finish, and then its
    coordinator answered that nothing is left, or its members got nothing for as long as they were to wait. A member that
    died keeps its partitions until its session ends, and the wait begins after that.

    Example: asked at 50 s to wait for 20 s; its members were last given something at 55 s, and last heard of at 76 s: it has.
    If another one died at 35 s, with a session of 45 s, it may have had the partition until 80 s: nobody knows.

    Source: KIP-932, "Share group membership": a member that sends no heartbeat is removed when its session ends.
    """
    if not was_drained(history, partition):
        return NOT_ASKED
    if finished_below(history, partition) == FAR_NS:
        return None
    table, beats = history.tables["observations"], history.tables["heartbeats"]
    rows = rows_of(table, partition)
    asked = rows[table["kind"][rows] == ObservationKind.DRAIN_BEGUN.value]
    quiet_ns = int(table["value"][asked].max()) * NS_PER_MS
    heard = beats["time_ns"][np.isin(beats["client"], table["client"][asked])]
    ended_ns = int(heard.max(initial=LONG_AGO_NS))
    deliveries = history.tables["deliveries"]
    given_ns = deliveries["acquired_ns"][rows_of(deliveries, partition)]
    last_ns = max(int(table["time_ns"][asked].max()), int(given_ns.max(initial=LONG_AGO_NS)))
    if ended_ns - last_ns < quiet_ns:
        return NOT_FINISHED
    return None if ended_ns - _held_until_ns(history) >= quiet_ns else MAY_BE_HELD


def _held_until_ns(history: CellHistory) -> int:
    """Returns when the session of the last member ended that died: of a reading client that did not end in order."""
    clients, beats = history.tables["clients"], history.tables["heartbeats"]
    died = clients["client"][(clients["role"] == Role.READER.value) & (clients["exit_code"] != 0)]
    heard_ns = beats["time_ns"][np.isin(beats["client"], died)]
    return int(heard_ns.max(initial=LONG_AGO_NS)) + share_of(history).session_ns


def first_start(history: CellHistory, partition: int) -> int:
    """Returns the first start offset that the group was seen to have. NONE: none was seen."""
    table = history.tables["observations"]
    rows = rows_of(table, partition)
    rows = rows[(table["kind"][rows] == ObservationKind.SHARE_START.value) & (table["value"][rows] != NONE)]
    return int(table["value"][rows[np.argmin(table["time_ns"][rows])]]) if len(rows) else NONE


def finished_below(history: CellHistory, partition: int) -> int:
    """Returns the offset below which the group has finished everything, as its coordinator answered: the greatest start
    offset, or FAR_NS if, in the end, nothing was left. NONE: it was never asked."""
    table = history.tables["observations"]
    rows = rows_of(table, partition)
    rows = rows[np.argsort(table["time_ns"][rows], kind="stable")]
    lag = table["value"][rows[table["kind"][rows] == ObservationKind.SHARE_LAG.value]]
    if was_drained(history, partition) and len(lag) and lag[-1] == 0:
        return int(FAR_NS)
    start = table["value"][rows[table["kind"][rows] == ObservationKind.SHARE_START.value]]
    return int(start.max(initial=NONE))


def or_never(times: np.ndarray) -> np.ndarray:
    """Returns times with FAR_NS in the place of those that never came."""
    return np.where(times == MISSING, FAR_NS, times)
