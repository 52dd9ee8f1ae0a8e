"""This module finds silences of readers of which rows say when they were asked: those that an application drives, and members
of groups. They read what they were assigned, while they are asked."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from prozess.checkers.groups.assignments import ASSIGN, AT_ASSIGNMENT, RESET, RESUMED, SOUGHT, Members, group_of
from prozess.checkers.groups.owners_and_commits import Commits
from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.partition_log import Log
from prozess.checkers.progress.awake import Span, asked_of, longest_awake, while_asked
from prozess.harness.columns import rows_of
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import StallCase, make_witnesses
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.schema import MISSING, NONE, Isolation, ObservationKind, ReadFlag

_ASKED_BY = {
    "recorded-reader": ObservationKind.ASKED,
    "recorded-member": ObservationKind.ASKED,
    "member": ObservationKind.POLLED,
    "java-member": ObservationKind.POLLED,
}
"""The roles of clients that read only while they are asked, and the rows that say when that was."""
_READING = (AT_ASSIGNMENT, SOUGHT, RESUMED)
"""The values of `positions.event` after which a client reads: assigned, sought, resumed. After all others it does not, or
from where nobody knows."""


@dataclass(frozen=True, slots=True)
class AskedReader:
    """One incarnation of a reader of which rows say when it was asked."""

    client: int
    planned: PlannedClient
    asked: Sequence[Span]
    bound_ns: int
    """The time after which it has been given what there is."""

    @property
    def is_ours(self) -> bool:
        """Returns whether it is a member of a group that prozess drives, which says where it began."""
        return _ASKED_BY[self.planned.role] is ObservationKind.POLLED

    @property
    def isolation(self) -> Isolation:
        """Returns the isolation level at which it reads."""
        committed = self.planned.isolation_level == "read_committed"
        return Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED


@dataclass(frozen=True, slots=True)
class PartitionHeld:
    """A time in which a reader had a partition, and neither sought nor paused."""

    begin_ns: int
    end_ns: int
    next_offset: int
    """Where it began to read; NONE: the first record that it was given says."""


def asked_readers(history: CellHistory) -> Iterator[AskedReader]:
    """Yields each incarnation of each reader of which rows say when it was asked."""
    table, bounds = history.tables["clients"], history.bounds
    for client in history.clients:
        if (kind := _ASKED_BY.get(client.role)) is None:
            continue
        bound_ns = bounds.member_reading_ns if kind is ObservationKind.POLLED else bounds.reading_ns
        for one in table["client"][table["planned"] == client.client].tolist():
            if asked := asked_of(history, one, kind):
                yield AskedReader(one, client, asked, bound_ns)


def stretches_of(history: CellHistory, reader: AskedReader, partition: int) -> list[PartitionHeld]:
    """Returns the stretches in which this reader had the partition, ascending.

    Example: it is assigned the partition at 0 s, seeks to offset 7 at 10 s, and it is revoked at 30 s: from 0 to 10 s from an
    offset that nobody knows, and from 10 to 30 s from offset 7. An application that assigns itself other partitions says so.
    A member of ours says at its assignment what was committed, and of a reset only once it was given the first record.
    """
    positions, assignments, client = history.tables["positions"], history.tables["assignments"], reader.client
    mine = rows_of(positions, partition)
    mine = mine[(positions["client"][mine] == client) & ~(reader.is_ours & (positions["event"][mine] == RESET))]
    if not reader.is_ours:
        others = (positions["client"] == client) & (positions["event"] == AT_ASSIGNMENT)
        mine = np.union1d(mine, np.flatnonzero(others & (positions["partition"] != partition)))
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
            known = event != AT_ASSIGNMENT or reader.is_ours
            found.append(PartitionHeld(time_ns, times[number + 1], offset if known else NONE))
    return found


def _lived_until(history: CellHistory, client: int) -> int:
    table, beats = history.tables["clients"], history.tables["heartbeats"]
    ended_ns = table["ended_ns"][table["client"] == client]
    if len(ended_ns) and ended_ns[-1] != MISSING:
        return int(ended_ns[-1])
    return int(beats["time_ns"][beats["client"] == client].max(initial=-(2**62)))


def silences_of(
    history: CellHistory, partition: PartitionIndex, log: Log, since_ns: Callable[[], np.ndarray], reader: AskedReader
) -> list[tuple[int, Span]]:
    """Returns (index in `log`, time) for each time of the bound in which this reader was asked, and was given nothing of the
    partition, although that record could be read. `since_ns` says since when each record of the log could, and is
    called only if there is a silence."""
    rows = np.flatnonzero(partition.reads["client"] == reader.client)
    read_ns, offset = partition.reads["read_ns"][rows], partition.reads["log_offset"][rows]
    found = []
    for stretch in stretches_of(history, reader, partition.partition):
        # Example: held from 0 to 60 s from offset 7 on, given 7 at 5 s. The times are 0 5 60, and the reader wants 7, then 8:
        # in the gap from 5 to 60 s it was not given 8.
        first, last = np.searchsorted(read_ns, [stretch.begin_ns, stretch.end_ns])
        times = [stretch.begin_ns, *read_ns[first:last].tolist(), stretch.end_ns]
        # Before each gap: the offset that the reader wants next.
        reached = np.concatenate([[stretch.next_offset], offset[first:last] + 1])
        for gap in np.flatnonzero(np.diff(times) >= reader.bound_ns).tolist():
            wanted = int(reached[gap])
            if wanted == NONE:
                wanted = _first_position(history, partition, reader)
            if wanted == NONE:  # from where it reads, only the first record that it is given says
                continue
            unread = int(np.searchsorted(log.offset, wanted))
            if unread == len(log.offset) or _may_have_jumped(history, reader, log, wanted):
                continue
            wait = (max(int(times[gap]), int(since_ns()[unread])), int(times[gap + 1]))
            found += [(unread, part) for part in while_asked(reader.asked, [wait], reader.bound_ns)]
    return found


def _first_position(history: CellHistory, partition: PartitionIndex, reader: AskedReader) -> int:
    """Returns where a member of ours begins if it does not say: at the log start, if no member of its group was ever given
    anything of the partition, and none committed anything. NONE: nobody knows."""
    if not reader.is_ours or group_of(history.cell).configuration.auto_offset_reset != "earliest" or history.cell.life:
        return NONE
    commits, members = Commits(history, partition.partition), Members.of(history)
    begun = len(commits.tried) or commits.greatest() >= 0 or (members.row(partition.reads["client"]) >= 0).any()
    return NONE if begun else 0


def _may_have_jumped(history: CellHistory, reader: AskedReader, log: Log, wanted: int) -> bool:
    """Returns whether a member of ours may have gone on elsewhere, because the record that it wanted is no longer there. It
    says so only with the next record that it is given."""
    resets = reader.is_ours and group_of(history.cell).configuration.auto_offset_reset != "earliest"
    return resets and wanted < int(log.offset[0])


def holds_records_of_others(partition: PartitionIndex) -> bool:
    """Returns whether somebody else wrote to the partition: nobody knows when transactions of theirs ended."""
    return bool((partition.reads["flags"] & ReadFlag.ANONYMOUS.value).any())


def witness_of(
    partition: PartitionIndex, row: int, client: int, beats: np.ndarray, wait: Span, bound_ns: int, *, named: bool
) -> list[np.ndarray]:
    """Returns the witness of a reader that waited for the record of this row of `reads`, if it waited for `bound_ns`. The
    longest part of the wait in which its heart beat counts, if that is as long. `named`: the witness names its bound."""
    if wait[1] - wait[0] < bound_ns:
        return []
    longest = longest_awake(beats, *wait)
    awake = longest[1] - longest[0] >= bound_ns
    begin_ns, end_ns = longest if awake else wait
    columns = {
        "partition": partition.partition,
        "client": int(partition.reads["sender"][row]),
        "sequence": int(partition.reads["sequence"][row]),
        "log_offset": int(partition.reads["log_offset"][row]),
        "reader": client,
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "case": StallCase.READER if awake else StallCase.STARVED,
    }
    return [make_witnesses(1, columns | ({"other_ns": begin_ns + bound_ns} if named else {}))]
