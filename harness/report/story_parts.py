"""What happened around a record, event by event: columns of one partition in, events out. Pure; a few rows each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.clock import NS_PER_S
from harness.schema import MISSING, NONE, Outcome

Columns = Mapping[str, np.ndarray]
LOG = "log"
"""The lane of the partition itself."""
FAULTS = "faults"
NEIGHBOURS = 2
"""So many sends, or reads, before and after the one concerned."""
CHANGES_MAX = 8
"""Of leaders, of assignments, of commits."""
_ASSIGNMENT = {1: "is given the partition", 2: "gives the partition up", 3: "loses the partition", 4: "closes"}
_END = {1: "commits", 2: "aborts"}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `pair`: events with one number are begin and end of one thing; 0 = alone."""

    at_s: float
    lane: str
    kind: str
    """What `stories.js` draws: sent, acknowledged, unknown, refused, read, absent, leads, copies, began, ended, processed,
    committed, assigned, transaction."""
    text: str
    to: str = ""
    """Lane that it went to, or came from."""
    pair: int = 0
    main: bool = False
    """It is about the witness itself, not beside it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A record that a witness is about."""

    client: int
    sequence: int
    offset: int
    """Where it was acknowledged or seen; NONE = nowhere."""


Namer = Callable[[int], str]
"""Client id → who that is, briefly: a lane."""


def sends(table: Columns, subjects: Sequence[Subject], unanswered: frozenset[int], name: Namer) -> Iterator[Event]:
    """The sends of the records, and those of the same producers beside them. `table`: by (client, sequence). `unanswered`:
    clients with acks=0."""
    wanted = {(s.client, s.sequence) for s in subjects}
    shown: dict[int, bool] = {}
    for client, sequence in wanted:
        mine = np.flatnonzero(table["client"] == client)
        place = int(np.searchsorted(table["sequence"][mine], sequence))
        for row in mine[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1].tolist():
            shown[row] = (client, int(table["sequence"][row])) in wanted
    for row, main in sorted(shown.items()):
        columns = {column: int(values[row]) for column, values in table.items()}
        yield from _send(columns, row, main, columns["client"] in unanswered, name)


def _send(row: Mapping[str, int], number: int, main: bool, unasked: bool, name: Namer) -> Iterator[Event]:
    who, pair = name(row["client"]), number + 1
    inside = f" in transaction {row['transaction']}" if row["transaction"] != NONE else ""
    size = " (a tombstone)" if row["size"] == NONE else ""
    unanswered = "" if row["completed_ns"] != MISSING else ", and is never answered"
    sent = f"{who} sends #{row['sequence']}{size}{inside}{unanswered}"
    yield Event(_s(row["invoked_ns"]), who, "sent", sent, to=LOG, pair=pair, main=main)
    if unanswered:
        return
    took = f"after {(row['completed_ns'] - row['invoked_ns']) / 1e6:,.0f} ms"
    if row["outcome"] == Outcome.OK and unasked:
        kind, told = "unknown", f"{who} calls #{row['sequence']} sent {took}: with acks=0 nobody answers"
    elif row["outcome"] == Outcome.OK:
        where = f" at offset {row['log_offset']}" if row["log_offset"] != NONE else ""
        kind, told = "acknowledged", f"{who} is told {took} that #{row['sequence']} is acknowledged{where}"
    elif row["outcome"] == Outcome.FAIL and row["code"] == 0:
        kind, told = "refused", f"{who} is told {took} that the transaction of #{row['sequence']} is aborted"
    else:
        failed = row["outcome"] == Outcome.FAIL
        kind = "refused" if failed else "unknown"
        what = "certainly failed" if failed else "failed, perhaps after it took effect"
        told = f"{who} is told {took} that #{row['sequence']} {what} (error {row['code']})"
    yield Event(_s(row["completed_ns"]), who, kind, told, pair=pair, main=main)


def reads(
    table: Columns, subjects: Sequence[Subject], offsets: Sequence[int], reader: int | None, name: Namer
) -> Iterator[Event]:
    """Who was given the records, what was at their offsets, and what the reader concerned was given before and after.
    `table`: by client, in the order given. `offsets`: that the witness names."""
    main = np.zeros(len(table["client"]), dtype=bool)
    for subject in subjects:
        main |= (table["sender"] == subject.client) & (table["sequence"] == subject.sequence)
        main |= (table["log_offset"] == subject.offset) & (subject.offset != NONE)
    shown: dict[int, bool] = {}
    for client in np.unique(table["client"][main]).tolist():
        shown |= dict.fromkeys(np.flatnonzero(main & (table["client"] == client))[: NEIGHBOURS + 1].tolist(), True)
    if reader is not None:
        mine = np.flatnonzero(table["client"] == reader)
        for place in _places(table["log_offset"][mine], offsets):
            for row in mine[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1].tolist():
                shown.setdefault(row, bool(np.isin(table["log_offset"][row], offsets)))
    for row, about in sorted(shown.items()):
        who, at = name(int(table["client"][row])), int(table["log_offset"][row])
        sender, sequence = int(table["sender"][row]), int(table["sequence"][row])
        what = f"#{sequence} of {name(sender)}" if sender != NONE else "a record that nobody signed"
        yield Event(_s(table["read_ns"][row]), who, "read", f"{who} is given {what} at offset {at}", to=LOG, main=about)


def _places(given: np.ndarray, offsets: Sequence[int]) -> list[int]:
    """Where in what a reader was given these offsets are, or where they should have been."""
    found: list[int] = []
    for offset in offsets:
        exact = np.flatnonzero(given == offset)[:2]
        passed = np.flatnonzero((given[:-1] < offset) & (given[1:] > offset))[:1] + 1
        found += (exact if len(exact) else passed).tolist()
    return found


def absences(table: Columns, subjects: Sequence[Subject], audits: Sequence[int], name: Namer) -> Iterator[Event]:
    """What the audit read through and did not find."""
    for audit in audits:
        mine = np.flatnonzero(table["client"] == audit)
        if not len(mine):
            continue
        last = mine[-1]
        for s in subjects:
            if ((table["sender"][mine] == s.client) & (table["sequence"][mine] == s.sequence)).any():
                continue
            told = f"{name(audit)} has read all through offset {int(table['log_offset'][last])}, and #{s.sequence} of "
            text = f"{told}{name(s.client)} is not there"
            yield Event(_s(table["read_ns"][last]), name(audit), "absent", text, to=LOG, main=True)


def leaders(table: Columns, begin_s: float, end_s: float) -> Iterator[Event]:
    """Who led, and who was in sync: what held at the beginning, and what changed. `table`: one partition's truth."""
    order = np.argsort(table["time_ns"], kind="stable")
    time_s = table["time_ns"][order] / NS_PER_S
    first = max(0, int(np.searchsorted(time_s, begin_s, side="right")) - 1)
    last = int(np.searchsorted(time_s, end_s, side="right"))
    for place in order[first:last][:CHANGES_MAX].tolist():
        leader = int(table["leader"][place])
        who = f"broker {leader} leads" if leader >= 0 else "nobody leads"
        in_sync = " ".join(map(str, brokers_of(int(table["isr"][place])))) or "none"
        epoch = int(table["leader_epoch"][place])
        text = f"{who}, epoch {epoch}; in sync: {in_sync}"
        yield Event(_s(table["time_ns"][place]), LOG, "leads", text, main=True)


def copies(table: Columns, offset: int) -> Iterator[Event]:
    """Which replica had what at an offset, by its own segments at the end: those that have the same batch together."""
    rows = np.flatnonzero(table["step"] == NONE)
    having: dict[str, list[int]] = {}
    batches: dict[tuple[int, int], str] = {}
    for node in np.unique(table["node"][rows]).tolist():
        mine = rows[table["node"][rows] == node]
        there = mine[(table["base_offset"][mine] <= offset) & (table["last_offset"][mine] >= offset)]
        if len(there):
            batch = (int(table["base_offset"][there[0]]), int(table["checksum"][there[0]]))
            what = "another batch" if batches and batch not in batches else "a batch"
            told = batches.setdefault(batch, f"{what} of epoch {int(table['leader_epoch'][there[0]])}")
        else:
            told = f"nothing (the log ends at {int(table['last_offset'][mine].max(initial=NONE)) + 1})"
        having.setdefault(told, []).append(node)
    if having:
        parts = [
            f"broker{'s' if len(nodes) > 1 else ''} {' '.join(map(str, nodes))}: {told}"
            for told, nodes in having.items()
        ]
        text = f"at offset {offset}, in the replicas' own segments: {'; '.join(parts)}"
        yield Event(_s(table["read_ns"][rows[0]]), LOG, "copies", text, main=True)


def processing(table: Columns, subjects: Sequence[Subject], name: Namer) -> Iterator[Event]:
    """Who processed the records; that nobody did, where somebody processed others."""
    for s in subjects:
        rows = np.flatnonzero((table["sender"] == s.client) & (table["sequence"] == s.sequence))
        if not len(rows) and len(table["sender"]):
            text = f"until here records of the partition are processed, and #{s.sequence} of {name(s.client)} is not"
            yield Event(_s(table["started_ns"].max()), LOG, "absent", text, main=True)
        for row in rows[:CHANGES_MAX].tolist():
            who, unfinished = name(int(table["client"][row])), table["done_ns"][row] == MISSING
            text = f"{who} processes #{s.sequence} of {name(s.client)}, offset {int(table['log_offset'][row])}"
            text += ", and does not finish" if unfinished else ""
            yield Event(_s(table["started_ns"][row]), who, "processed", text, to=LOG, main=True)


def commits(table: Columns, begin_s: float, end_s: float, offset: int, name: Namer) -> Iterator[Event]:
    """Commits of the partition's group at that time, those nearest to the offset, or in time. `table`: one partition's."""
    time_s = table["invoked_ns"] / NS_PER_S
    rows = np.flatnonzero((time_s >= begin_s) & (time_s <= end_s))
    middle_s = (begin_s + end_s) / 2
    distance = np.abs(table["log_offset"][rows] - offset) if offset != NONE else np.abs(time_s[rows] - middle_s)
    for row in rows[np.argsort(distance, kind="stable")][:CHANGES_MAX].tolist():
        who, outcome = name(int(table["client"][row])), int(table["outcome"][row])
        how = {int(Outcome.OK): "", int(Outcome.FAIL): ", which is refused"}.get(outcome, ", and nobody knows")
        text = f"{who} commits offset {int(table['log_offset'][row])}{how}"
        main = offset != NONE and int(table["log_offset"][row]) == offset
        yield Event(_s(table["invoked_ns"][row]), who, "committed", text, to=LOG, main=main)


def assignments(table: Columns, begin_s: float, end_s: float, name: Namer) -> Iterator[Event]:
    """Who had the partition at that time. `table`: one partition's."""
    time_s = table["started_ns"] / NS_PER_S
    rows = np.flatnonzero((time_s >= begin_s) & (time_s <= end_s))
    for row in rows[np.argsort(time_s[rows], kind="stable")][:CHANGES_MAX].tolist():
        who = name(int(table["client"][row]))
        text = f"{who} {_ASSIGNMENT.get(int(table['event'][row]), 'is told of the partition')}"
        yield Event(_s(table["started_ns"][row]), who, "assigned", text)


def transactions(table: Columns, sent: Columns, subjects: Sequence[Subject], name: Namer) -> Iterator[Event]:
    """How the transactions of the records began and ended."""
    wanted = set()
    for s in subjects:
        rows = np.flatnonzero((sent["client"] == s.client) & (sent["sequence"] == s.sequence))
        wanted |= {(s.client, int(sent["transaction"][row])) for row in rows if sent["transaction"][row] != NONE}
    for client, number in sorted(wanted):
        for row in np.flatnonzero((table["client"] == client) & (table["transaction"] == number)).tolist():
            who = name(client)
            yield Event(_s(table["begun_ns"][row]), who, "transaction", f"{who} begins transaction {number}", main=True)
            if table["end_invoked_ns"][row] != MISSING:
                text = f"{who} {_END.get(int(table['ended_by'][row]), 'ends')} transaction {number}"
                yield Event(_s(table["end_invoked_ns"][row]), who, "transaction", text, to=LOG, main=True)
            if table["completed_ns"][row] != MISSING:
                done = table["outcome"][row] == Outcome.OK
                text = f"{who} is told: transaction {number} {'has ended' if done else 'may or may not have ended'}"
                yield Event(_s(table["completed_ns"][row]), who, "acknowledged" if done else "unknown", text, main=True)


def brokers_of(mask: int) -> list[int]:
    """Ids of the brokers in a mask."""
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _s(time_ns: int | np.integer) -> float:
    return int(time_ns) / NS_PER_S
