"""The story of a witness: what happened around a record, event by event, and what its partition went through
meanwhile."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.columns import empty_rows
from prozess.harness.config.impairments import DONE_TO_MESSAGES
from prozess.harness.config.messages.names import api_name, error_name
from prozess.harness.history.convert import History
from prozess.harness.plan.cell_work import CopierWork
from prozess.harness.plan.schedule import Step
from prozess.harness.recording.codes import read_texts
from prozess.harness.report.charts import of_partitions, partition_name
from prozess.harness.report.server_logs import LogLine, ServerLogs
from prozess.harness.report.words import fault_name
from prozess.harness.schema import MISSING, NONE, MetadataKind, Outcome, Role
from prozess.harness.verdict import (
    ApplicationVerdict,
    ApplicationWitness,
    CellAnomaly,
    CellVerdict,
    FaultShown,
    WitnessShown,
)

Columns = Mapping[str, np.ndarray]
LOG = "log"
"""The lane of the partition itself."""
FAULTS = "faults"
NEIGHBOURS = 2
"""How many sends or reads a story shows before and after the one that it is about."""
CHANGES_MAX = 8
"""How many leaders, assignments and commits a story shows at most."""
_ASSIGNMENT = {
    1: "is assigned the partition",
    2: "gives up the partition",
    3: "loses the partition",
    4: "closes its consumer",
}
_END = {1: "commits", 2: "aborts"}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `pair`: events with one number are begin and end of one thing; 0 = alone."""

    at_s: float
    lane: str
    kind: str
    """What `stories.js` draws: sent, acknowledged, unknown, refused, read, absent, leads, copies, began, ended, processed,
    committed, assigned, transaction, message."""
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
        index = int(np.searchsorted(table["sequence"][mine], sequence))
        for row in mine[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1].tolist():
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
        kind, text = "unknown", f"{who} reports #{row['sequence']} as sent {took}: with acks=0 no broker answers"
    elif row["outcome"] == Outcome.OK:
        where = f" at offset {row['log_offset']}" if row["log_offset"] != NONE else ""
        kind, text = "acknowledged", f"{who} learns {took} that #{row['sequence']} is acknowledged{where}"
    elif row["outcome"] == Outcome.FAIL and row["code"] == 0:
        kind, text = "refused", f"{who} learns {took} that the transaction of #{row['sequence']} is aborted"
    else:
        failed = row["outcome"] == Outcome.FAIL
        kind = "refused" if failed else "unknown"
        what = "certainly failed" if failed else "failed, but may have taken effect"
        text = f"{who} learns {took} that #{row['sequence']} {what} (error {row['code']})"
    yield Event(_s(row["completed_ns"]), who, kind, text, pair=pair, main=main)


def reads(
    table: Columns, subjects: Sequence[Subject], offsets: Sequence[int], reader: int | None, name: Namer
) -> Iterator[Event]:
    """Yields who was given the records, what was at their offsets, and what the reader concerned was given before and
    after. `table`: by client, in the order given. `offsets`: that the witness names."""
    main = np.zeros(len(table["client"]), dtype=bool)
    for subject in subjects:
        main |= (table["sender"] == subject.client) & (table["sequence"] == subject.sequence)
        main |= (table["log_offset"] == subject.offset) & (subject.offset != NONE)
    shown: dict[int, bool] = {}
    for client in np.unique(table["client"][main]).tolist():
        shown |= dict.fromkeys(np.flatnonzero(main & (table["client"] == client))[: NEIGHBOURS + 1].tolist(), True)
    if reader is not None:
        mine = np.flatnonzero(table["client"] == reader)
        for index in _rows_at(table["log_offset"][mine], offsets):
            for row in mine[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1].tolist():
                shown.setdefault(row, bool(np.isin(table["log_offset"][row], offsets)))
    for row, about in sorted(shown.items()):
        who, at = name(int(table["client"][row])), int(table["log_offset"][row])
        sender, sequence = int(table["sender"][row]), int(table["sequence"][row])
        what = f"#{sequence} of {name(sender)}" if sender != NONE else "a record without a known sender"
        yield Event(_s(table["read_ns"][row]), who, "read", f"{who} reads {what} at offset {at}", to=LOG, main=about)


def _rows_at(given: np.ndarray, offsets: Sequence[int]) -> list[int]:
    """Returns where in what a reader was given these offsets are, or where they should have been."""
    found: list[int] = []
    for offset in offsets:
        exact = np.flatnonzero(given == offset)[:2]
        passed = np.flatnonzero((given[:-1] < offset) & (given[1:] > offset))[:1] + 1
        found += (exact if len(exact) else passed).tolist()
    return found


def absences(table: Columns, subjects: Sequence[Subject], audits: Sequence[int], name: Namer) -> Iterator[Event]:
    """Yields the records that the audit looked for and did not find."""
    for audit in audits:
        mine = np.flatnonzero(table["client"] == audit)
        if not len(mine):
            continue
        last = mine[-1]
        for s in subjects:
            if ((table["sender"][mine] == s.client) & (table["sequence"][mine] == s.sequence)).any():
                continue
            found = (
                f"{name(audit)} has read everything up to offset {int(table['log_offset'][last])} and has not found "
            )
            text = f"{found}#{s.sequence} of {name(s.client)}"
            yield Event(_s(table["read_ns"][last]), name(audit), "absent", text, to=LOG, main=True)


def leaders(table: Columns, begin_s: float, end_s: float) -> Iterator[Event]:
    """Yields who led, and who was in sync: what held at the beginning, and what changed. `table`: one partition's
    truth."""
    order = np.argsort(table["time_ns"], kind="stable")
    time_s = table["time_ns"][order] / NS_PER_S
    first = max(0, int(np.searchsorted(time_s, begin_s, side="right")) - 1)
    last = int(np.searchsorted(time_s, end_s, side="right"))
    for index in order[first:last][:CHANGES_MAX].tolist():
        leader = int(table["leader"][index])
        who = f"broker {leader} leads" if leader >= 0 else "nobody leads"
        in_sync = " ".join(map(str, brokers_of(int(table["isr"][index])))) or "none"
        epoch = int(table["leader_epoch"][index])
        text = f"{who}, epoch {epoch}; in sync: {in_sync}"
        if table["kind"][index] == MetadataKind.DELETED:
            text = f"the topic was deleted, and its log with it (epoch {epoch})"
        yield Event(_s(table["time_ns"][index]), LOG, "leads", text, main=True)


def copies(table: Columns, offset: int) -> Iterator[Event]:
    """Yields which replica had what at an offset, by its own segments at the end: those that have the same batch
    together."""
    rows = np.flatnonzero(table["step"] == NONE)
    having: dict[str, list[int]] = {}
    batches: dict[tuple[int, int], str] = {}
    for node in np.unique(table["node"][rows]).tolist():
        mine = rows[table["node"][rows] == node]
        there = mine[(table["base_offset"][mine] <= offset) & (table["last_offset"][mine] >= offset)]
        if len(there):
            batch = (int(table["base_offset"][there[0]]), int(table["checksum"][there[0]]))
            what = "another batch" if batches and batch not in batches else "a batch"
            content = batches.setdefault(batch, f"{what} of epoch {int(table['leader_epoch'][there[0]])}")
        else:
            content = f"nothing (the log ends at {int(table['last_offset'][mine].max(initial=NONE)) + 1})"
        having.setdefault(content, []).append(node)
    if having:
        parts = [
            f"broker{'s' if len(nodes) > 1 else ''} {' '.join(map(str, nodes))}: {content}"
            for content, nodes in having.items()
        ]
        text = f"at offset {offset}, in the replicas' own segments: {'; '.join(parts)}"
        yield Event(_s(table["read_ns"][rows[0]]), LOG, "copies", text, main=True)


def processing(table: Columns, subjects: Sequence[Subject], name: Namer) -> Iterator[Event]:
    """Yields who processed the records; that nobody did, where somebody processed others."""
    for s in subjects:
        rows = np.flatnonzero((table["sender"] == s.client) & (table["sequence"] == s.sequence))
        if not len(rows) and len(table["sender"]):
            text = f"the group has processed records of the partition up to here, but not #{s.sequence} of {name(s.client)}"
            yield Event(_s(table["started_ns"].max()), LOG, "absent", text, main=True)
        for row in rows[:CHANGES_MAX].tolist():
            who, unfinished = name(int(table["client"][row])), table["done_ns"][row] == MISSING
            text = f"{who} processes #{s.sequence} of {name(s.client)}, offset {int(table['log_offset'][row])}"
            text += ", but does not finish" if unfinished else ""
            yield Event(_s(table["started_ns"][row]), who, "processed", text, to=LOG, main=True)


def commits(table: Columns, begin_s: float, end_s: float, offset: int, name: Namer) -> Iterator[Event]:
    """Commits of the partition's group at that time, those nearest to the offset, or in time. `table`: one partition's."""
    time_s = table["invoked_ns"] / NS_PER_S
    rows = np.flatnonzero((time_s >= begin_s) & (time_s <= end_s))
    middle_s = (begin_s + end_s) / 2
    distance = np.abs(table["log_offset"][rows] - offset) if offset != NONE else np.abs(time_s[rows] - middle_s)
    for row in rows[np.argsort(distance, kind="stable")][:CHANGES_MAX].tolist():
        who, outcome = name(int(table["client"][row])), int(table["outcome"][row])
        how = {int(Outcome.OK): "", int(Outcome.FAIL): ", which is refused"}.get(
            outcome, ", and does not learn whether that was accepted"
        )
        text = f"{who} commits offset {int(table['log_offset'][row])}{how}"
        main = offset != NONE and int(table["log_offset"][row]) == offset
        yield Event(_s(table["invoked_ns"][row]), who, "committed", text, to=LOG, main=main)


def assignments(table: Columns, begin_s: float, end_s: float, name: Namer) -> Iterator[Event]:
    """Yields who had the partition at that time. `table`: one partition's."""
    time_s = table["started_ns"] / NS_PER_S
    rows = np.flatnonzero((time_s >= begin_s) & (time_s <= end_s))
    for row in rows[np.argsort(time_s[rows], kind="stable")][:CHANGES_MAX].tolist():
        who = name(int(table["client"][row]))
        text = f"{who} {_ASSIGNMENT.get(int(table['event'][row]), 'learns of the partition')}"
        yield Event(_s(table["started_ns"][row]), who, "assigned", text)


def transactions(table: Columns, sent: Columns, subjects: Sequence[Subject], name: Namer) -> Iterator[Event]:
    """Yields how the transactions of the records began and ended."""
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
                text = f"{who} is reported: transaction {number} {'has ended' if done else 'may or may not have ended'}"
                yield Event(_s(table["completed_ns"][row]), who, "acknowledged" if done else "unknown", text, main=True)


def brokers_of(mask: int) -> list[int]:
    """Ids of the brokers in a mask."""
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _s(time_ns: int | np.integer) -> float:
    return int(time_ns) / NS_PER_S


# The story of a witness: what happened around it in its partition, in order. Reads only what it needs.


STORIES_MAX = 60
"""How many stories a report has at most."""
OF_A_RULE_MAX = 6
"""Stories of one anomaly that one rule judged: the next would be like them."""
OF_AN_ANOMALY_MAX = 2
"""How many stories an anomaly has at most in one cell."""
EVENTS_MAX = 40
ROWS_MAX = 2_000_000
"""A partition with more sends and reads is not looked into again for a story."""
BEFORE_S, AFTER_S, LEADERS_AFTER_S = 1.0, 5.0, 20.0
"""How far around a witness its group, and its leaders, are shown."""


@dataclass(frozen=True, slots=True)
class Story:
    """Events, ascending, and the lanes they are drawn in."""

    title: str
    lanes: Sequence[str]
    events: Sequence[Event]
    logs: Sequence[LogLine] = ()
    """What the servers' own logs say of that time."""

    def lane(self, name: str) -> int:
        """Returns the position of a lane; -1 = there is none."""
        return self.lanes.index(name) if name in self.lanes else -1


def write_stories(
    seen: Iterable[tuple[CellVerdict, CellAnomaly]], writer: "StoryWriter"
) -> dict[tuple[int, str], list[Story]]:
    """Returns, for each (cell, anomaly), stories of its first witnesses. `seen`: worst first."""
    found, counts = {}, Counter[tuple[str, str]]()
    for cell, anomaly in seen:
        stories: list[Story] = []
        for witness in anomaly.witnesses:
            kind = (anomaly.anomaly, witness.rule)
            if counts.total() >= STORIES_MAX or len(stories) >= OF_AN_ANOMALY_MAX or counts[kind] >= OF_A_RULE_MAX:
                break
            if (story := writer.story_of(witness)) is not None:
                stories.append(story)
                counts[kind] += 1
        found[cell.cell, anomaly.anomaly] = stories
    return found


def application_stories(application: ApplicationVerdict | None, writer: "StoryWriter") -> list[list[Story]]:
    """Returns the stories of the first witnesses of each anomaly of an application, in its order."""
    anomalies = () if application is None else application.anomalies
    return [
        [
            story
            for witness in anomaly.witnesses[:OF_AN_ANOMALY_MAX]
            if (story := writer.application_stories(witness)) is not None
        ]
        for anomaly in anomalies
    ]


class StoryWriter:
    """Reports stories of one run; holds what several need."""

    def __init__(self, history: History, faults: Sequence[FaultShown], logs: ServerLogs) -> None:
        """`faults`: all faults of the run; `logs`: those of its servers."""
        self._history, self._faults, self._logs = history, faults, logs
        self._roles = {client.client: client.role for client in history.plan.clients}
        clients = history.table("clients")
        for client, planned in zip(clients["client"].tolist(), clients["planned"].tolist(), strict=True):
            self._roles.setdefault(client, self._roles.get(planned, "client"))
        self._unanswered = frozenset(np.flatnonzero(history.clients.acks == 0).tolist())
        self._audits = np.flatnonzero(history.clients.role == Role.AUDIT).tolist()
        metadata = history.table("metadata")
        truth = of_partitions(metadata)
        self._leaders = {name: values[truth] for name, values in metadata.items()}
        self._small: dict[str, Columns] = {}
        self._did = read_texts(history.run.dictionaries).get("did", [])
        self._held: tuple[int, dict[str, Columns]] = (NONE, {})

    def name(self, client: int) -> str:
        """Returns a lane: `producer 5`."""
        return f"{self._roles.get(client, 'client')} {client}"

    def story_of(self, witness: WitnessShown) -> Story | None:
        """Reports the story of a witness; None if its partition is unknown, or too large to be read again."""
        partition = witness.partition
        if partition not in self._history.files["sends"].row_ranges or self._history.rows_of(partition) > ROWS_MAX:
            return None
        sent = self._table("sends", partition)
        subjects = [each for each in _subjects(witness, sent) if each.client in self._roles]
        events = [*sends(sent, subjects, self._unanswered, self.name), *self._of_log(witness, subjects)]
        times_s = [t for t in (witness.begin_s, witness.end_s, witness.seen_s) if t is not None]
        times_s += [event.at_s for event in events if event.main and event.kind in ("sent", "acknowledged")]
        if not times_s:
            return None
        begin_s, end_s = min(times_s) - BEFORE_S, max(times_s) + AFTER_S
        events += leaders(_only(self._leaders, partition), begin_s, max(times_s) + LEADERS_AFTER_S)
        events += self._of_group(witness, subjects, begin_s, end_s)
        events += transactions(self._whole("transactions"), sent, subjects, self.name)
        whose = frozenset(s.client for s in subjects)
        events += messages(self._whole("messages"), self._did, whose, partition, self.name, (begin_s, end_s))
        events = _fewer(events, min(times_s), max(times_s))
        events += _faults(self._faults, self._history.plan.steps, begin_s, max(end_s, max(times_s) + LEADERS_AFTER_S))
        events.sort(key=lambda event: event.at_s)
        where = partition_name(self._history.plan, partition)
        title = where  # of a witness that is about brokers or controllers, and of no client
        if subjects:
            title = f"#{subjects[0].sequence} of {self.name(subjects[0].client)} in {where}"
        elif witness.reader is not None:
            title = f"{self.name(witness.reader)} in {where}"
        return Story(title, _lanes(events), events, self._logs.around(min(times_s), max(times_s), where))

    def application_stories(self, witness: ApplicationWitness) -> Story | None:
        """Reports the story of a record of the application under test: of its send, if a recorded client sent it."""
        planned = {(p.topic_name, p.number): p.partition for p in self._history.plan.partitions}
        partition = planned.get((witness.topic, witness.number))
        if partition is None or partition not in self._history.files["sends"].row_ranges:
            return None
        sent = self._table("sends", partition)
        rows = np.flatnonzero((sent["log_offset"] == witness.log_offset) & (sent["outcome"] == Outcome.OK))
        if not len(rows):
            return None
        shown = WitnessShown(
            partition=partition,
            topic=witness.topic,
            number=witness.number,
            client=int(sent["client"][rows[0]]),
            sequence=int(sent["sequence"][rows[0]]),
            log_offset=witness.log_offset,
            effect="",
            rule="",
        )
        return self.story_of(shown)

    def _of_log(self, witness: WitnessShown, subjects: Sequence[Subject]) -> Iterator[Event]:
        """Yields what consumers, the audit and the replicas' segments show."""
        given = self._table("reads", witness.partition)
        offsets = [offset for offset in (witness.log_offset, witness.other_offset) if offset is not None]
        yield from reads(given, subjects, offsets, witness.reader, self.name)
        if not self._compacted(witness.partition):
            yield from absences(given, [s for s in subjects if self._sent(s, witness)], self._audits, self.name)
        known = [s.offset for s in subjects if s.offset != NONE] or offsets
        for offset in dict.fromkeys(known[:2]):
            yield from copies(self._table("replicas", witness.partition), offset)

    def _of_group(
        self, witness: WitnessShown, subjects: Sequence[Subject], begin_s: float, end_s: float
    ) -> Iterator[Event]:
        """Yields what the members of a group did."""
        cell = self._history.cell_of(witness.partition)
        if cell is None or (cell.group is None and not isinstance(cell.work, CopierWork)):
            return
        yield from processing(self._table("processed", witness.partition), subjects, self.name)
        offset = witness.log_offset if witness.log_offset is not None else NONE
        yield from commits(_only(self._whole("commits"), witness.partition), begin_s, end_s, offset, self.name)
        yield from assignments(_only(self._whole("assignments"), witness.partition), begin_s, end_s, self.name)

    def _sent(self, subject: Subject, witness: WitnessShown) -> bool:
        table = self._table("sends", witness.partition)
        return bool(((table["client"] == subject.client) & (table["sequence"] == subject.sequence)).any())

    def _compacted(self, partition: int) -> bool:
        cell = self._history.cell_of(partition)
        return cell is not None and "compact" in cell.topic.cleanup_policy

    def _table(self, name: str, partition: int) -> Columns:
        """Returns the rows of one partition; the tables of the last partition are kept."""
        if self._held[0] != partition:
            self._held = (partition, {})
        held = self._held[1]
        if name not in held:
            file = self._history.files[name]
            row_ranges = file.row_ranges.get(partition, ())
            held[name] = file.read(file.table.column_names, row_ranges) if row_ranges else empty_rows(file.table)
        return held[name]

    def _whole(self, name: str) -> Columns:
        if name not in self._small:
            self._small[name] = self._history.table(name)
        return self._small[name]


def _subjects(witness: WitnessShown, sent: Columns) -> list[Subject]:
    """The records that a witness names, with the offsets that are known of them."""
    named = [(witness.client, witness.sequence, witness.log_offset)]
    named.append((_known(witness.other_client), _known(witness.other_sequence), witness.other_offset))
    found = []
    for client, sequence, offset in named:
        if client < 0 or sequence < 0:
            continue
        rows = np.flatnonzero((sent["client"] == client) & (sent["sequence"] == sequence))
        acknowledged = int(sent["log_offset"][rows[0]]) if len(rows) else NONE
        found.append(Subject(client, sequence, acknowledged if offset is None else offset))
    return found


def _known(value: int | None) -> int:
    return NONE if value is None else value


def _only(table: Columns, partition: int) -> Columns:
    chosen = np.flatnonzero(table["partition"] == partition)
    return {name: values[chosen] for name, values in table.items()}


def _fewer(events: Sequence[Event], begin_s: float, end_s: float) -> list[Event]:
    """EVENTS_MAX at most: what the witness is about, then what is nearest in time."""
    middle_s = (begin_s + end_s) / 2
    order = sorted(events, key=lambda event: (not event.main, abs(event.at_s - middle_s)))
    return order[:EVENTS_MAX]


def _faults(faults: Sequence[FaultShown], steps: Sequence[Step], begin_s: float, end_s: float) -> Iterator[Event]:
    """Those that lasted into that time: begin and, if there was one, end."""
    for number, fault in enumerate(faults, 1):
        if fault.begin_s > end_s or (fault.end_s is not None and fault.end_s < begin_s):
            continue
        what, pair = fault_name(fault, steps), -number
        yield Event(fault.begin_s, FAULTS, "began", f"fault: {what}", pair=pair)
        if fault.end_s is not None:
            yield Event(fault.end_s, FAULTS, "ended", f"end of the fault: {what}", pair=pair)


def messages(
    table: Columns,
    texts: Sequence[str],
    clients: frozenset[int],
    partition: int,
    name: Namer,
    between_s: tuple[float, float],
) -> Iterator[Event]:
    """Yields what was done to messages of the partition, or of these clients, at that time. `texts`: the dictionary
    `did`."""
    time_s = table["time_ns"] / NS_PER_S
    near = (time_s >= between_s[0]) & (time_s <= between_s[1])
    of_clients = (table["partition"] == NONE) & np.isin(table["sender"], sorted(clients))
    for row in np.flatnonzero(near & ((table["partition"] == partition) | of_clients))[:CHANGES_MAX].tolist():
        sender, sequence = int(table["sender"][row]), int(table["first_sequence"][row])
        whose = f" of {name(sender)}" if sender != NONE else ""
        first = f", first sequence {sequence}" if sequence != NONE else ""
        error = int(table["error"][row])
        answered = f", {error_name(error)}" if error > 0 else ""
        api = api_name(int(table["api"][row]))
        what = ("the answer to " if table["answer"][row] else "") + ("an" if api[0] in "AEIO" else "a")
        done = DONE_TO_MESSAGES.get(texts[int(table["did"][row])], texts[int(table["did"][row])])
        request = f"{what} {api} request{whose}{first}{answered}"
        yield Event(_s(table["time_ns"][row]), FAULTS, "message", f"{request}: {done}", main=True)


def _lanes(events: Sequence[Event]) -> list[str]:
    """Faults, who sends, the log, who reads, by first appearance."""
    sending = [e.lane for e in events if e.kind in ("sent", "acknowledged", "unknown", "refused", "transaction")]
    others = [e.lane for e in events if e.lane not in (LOG, FAULTS)]
    first = [FAULTS] if any(e.lane == FAULTS for e in events) else []
    return list(dict.fromkeys([*first, *sending, LOG, *others]))
