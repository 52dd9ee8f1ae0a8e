"""This module finds silences of readers that an application drives: they read what they were assigned, while they are
asked."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from prozess.checkers.groups.assignments import ASSIGN, AT_ASSIGNMENT, RESUMED, SOUGHT
from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.partition_log import Log
from prozess.checkers.progress.awake import Span, asked_of, while_asked
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import StallCase, make_witnesses
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.schema import MISSING, NONE, Isolation, ObservationKind, ReadFlag

DRIVEN_ROLES = frozenset({"recorded-reader", "recorded-member"})
"""The roles of clients that read only while their application asks."""
_READING = (AT_ASSIGNMENT, SOUGHT, RESUMED)
"""The values of `positions.event` after which a client reads: assigned, sought, resumed. After all others it does not, or
from where nobody knows."""


@dataclass(frozen=True, slots=True)
class PartitionHeld:
    """A time in which a reader had a partition, and neither sought nor paused."""

    begin_ns: int
    end_ns: int
    next_offset: int
    """Where it began to read; NONE: the first record that it was given says."""


def driven_readers(history: CellHistory) -> Iterator[tuple[int, PlannedClient]]:
    """Yields each incarnation of each reader that an application drives, and of which rows say when it was asked."""
    table = history.tables["clients"]
    for client in history.clients:
        if client.role in DRIVEN_ROLES:
            for one in table["client"][table["planned"] == client.client].tolist():
                if asked_of(history, one, ObservationKind.ASKED):
                    yield one, client


def stretches_of(history: CellHistory, client: int, partition: int) -> list[PartitionHeld]:
    """Returns the stretches in which this client had the partition, ascending.

    Example: it is assigned the partition at 0 s, seeks to offset 7 at 10 s, and it is revoked at 30 s: from 0 to 10 s from an
    offset that nobody knows, and from 10 to 30 s from offset 7. An application that assigns itself other partitions says so.
    """
    positions, assignments = history.tables["positions"], history.tables["assignments"]
    assigned = positions["event"] == AT_ASSIGNMENT
    mine = (positions["client"] == client) & ((positions["partition"] == partition) | assigned)
    taken = (assignments["client"] == client) & (assignments["event"] != ASSIGN)  # all others take partitions away
    taken &= np.isin(assignments["partition"], (partition, NONE))
    own = positions["partition"][mine] == partition
    events = [
        *zip(positions["time_ns"][mine].tolist(), positions["event"][mine].tolist(), positions["log_offset"][mine].tolist(),
             own.tolist(), strict=True),
        *((time_ns, NONE, NONE, True) for time_ns in assignments["started_ns"][taken].tolist()),
    ]  # fmt: skip
    # Each event lasts until the next one, and the last until the client's end. Events of one time keep their order.
    events.sort(key=lambda event: event[0])
    times = [time_ns for time_ns, *_ in events] + [_lived_until(history, client)]
    found, member = list[PartitionHeld](), bool((assignments["client"] == client).any())
    having = False
    for number, (time_ns, event, offset, is_own) in enumerate(events):
        if not is_own:  # a member keeps what it has when it is given more; who assigns itself others has given it up
            having = having and member
            if having:
                found[-1] = PartitionHeld(found[-1].begin_ns, times[number + 1], found[-1].next_offset)
            continue
        having = event in _READING
        if having:
            found.append(PartitionHeld(time_ns, times[number + 1], NONE if event == AT_ASSIGNMENT else offset))
    return found


def _lived_until(history: CellHistory, client: int) -> int:
    table, beats = history.tables["clients"], history.tables["heartbeats"]
    ended_ns = table["ended_ns"][table["client"] == client]
    if len(ended_ns) and ended_ns[-1] != MISSING:
        return int(ended_ns[-1])
    return int(beats["time_ns"][beats["client"] == client].max(initial=-(2**62)))


def silences_of(
    history: CellHistory, partition: PartitionIndex, log: Log, since_ns: np.ndarray, client: int
) -> list[tuple[int, Span]]:
    """Returns (index in `log`, time) for each time of the bound in which this client was asked, and was given nothing of the
    partition, although that record could be read. `since_ns`: since when each record of the log could."""
    bound_ns, asked = history.bounds.reading_ns, asked_of(history, client, ObservationKind.ASKED)
    rows = np.flatnonzero(partition.reads["client"] == client)
    read_ns, offset = partition.reads["read_ns"][rows], partition.reads["log_offset"][rows]
    found = []
    for stretch in stretches_of(history, client, partition.partition):
        # Example: held from 0 to 60 s from offset 7 on, given 7 at 5 s. The times are 0 5 60, and the reader wants 7, then 8:
        # in the gap from 5 to 60 s it was not given 8.
        first, last = np.searchsorted(read_ns, [stretch.begin_ns, stretch.end_ns])
        times = [stretch.begin_ns, *read_ns[first:last].tolist(), stretch.end_ns]
        # Before each gap: the offset that the reader wants next.
        reached = np.concatenate([[stretch.next_offset], offset[first:last] + 1])
        for gap in np.flatnonzero(np.diff(times) >= bound_ns).tolist():
            if reached[gap] == NONE:  # from where it reads, only the first record that it is given says
                continue
            unread = int(np.searchsorted(log.offset, reached[gap]))
            if unread < len(log.offset):
                wait = (max(int(times[gap]), int(since_ns[unread])), int(times[gap + 1]))
                found += [(unread, part) for part in while_asked(asked, [wait], bound_ns)]
    return found


def holds_records_of_others(partition: PartitionIndex) -> bool:
    """Returns whether somebody else wrote to the partition: nobody knows when transactions of theirs ended."""
    return bool((partition.reads["flags"] & ReadFlag.ANONYMOUS.value).any())


def witness_of(
    partition: PartitionIndex, row: int, client: int, stretch: Span, bound_ns: int, *, awake: bool
) -> np.ndarray:
    """Returns the witness of a reader that was asked, and given nothing."""
    columns = {
        "partition": partition.partition,
        "client": int(partition.reads["sender"][row]),
        "sequence": int(partition.reads["sequence"][row]),
        "log_offset": int(partition.reads["log_offset"][row]),
        "reader": client,
        "begin_ns": stretch[0],
        "end_ns": stretch[1],
        "other_ns": stretch[0] + bound_ns,
        "case": StallCase.READER if awake else StallCase.STARVED,
    }
    return make_witnesses(1, columns)


def level_of(reader: PlannedClient) -> Isolation:
    """Returns the isolation level at which a reader reads."""
    return Isolation.READ_COMMITTED if reader.isolation_level == "read_committed" else Isolation.READ_UNCOMMITTED
