"""The story of a witness: what happened around it in its partition, in order. Reads only what it needs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.history import History
from harness.report.story_parts import (
    FAULTS,
    LOG,
    Columns,
    Event,
    Subject,
    absences,
    assignments,
    commits,
    copies,
    leaders,
    processing,
    reads,
    sends,
    transactions,
)
from harness.report.timeline import of_partitions, partition_name
from harness.report.words import brief_nodes
from harness.schema import NONE, Role
from harness.verdict import CellAnomaly, CellVerdict, FaultShown, WitnessShown

STORIES_MAX = 60
"""In one report."""
OF_A_RULE_MAX = 6
"""Stories of one anomaly that one rule judged: the next would be like them."""
OF_AN_ANOMALY_MAX = 2
"""In one cell."""
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

    def lane(self, name: str) -> int:
        """Its place; -1 = none."""
        return self.lanes.index(name) if name in self.lanes else -1


def tell_stories(
    seen: Iterable[tuple[CellVerdict, CellAnomaly]], teller: "Teller"
) -> dict[tuple[int, str], list[Story]]:
    """(cell, anomaly) → stories of its first witnesses. `seen`: worst first."""
    found, told = {}, Counter[tuple[str, str]]()
    for cell, anomaly in seen:
        stories: list[Story] = []
        for witness in anomaly.witnesses:
            kind = (anomaly.anomaly, witness.rule)
            if told.total() >= STORIES_MAX or len(stories) >= OF_AN_ANOMALY_MAX or told[kind] >= OF_A_RULE_MAX:
                break
            if (story := teller.tell(witness)) is not None:
                stories.append(story)
                told[kind] += 1
        found[cell.cell, anomaly.anomaly] = stories
    return found


class Teller:
    """Tells stories of one run; holds what several need."""

    def __init__(self, history: History, faults: Sequence[FaultShown]) -> None:
        """`faults`: all that were at work."""
        self._history, self._faults = history, faults
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
        self._held: tuple[int, dict[str, Columns]] = (NONE, {})

    def name(self, client: int) -> str:
        """A lane: `producer 5`."""
        return f"{self._roles.get(client, 'client')} {client}"

    def tell(self, witness: WitnessShown) -> Story | None:
        """None if it is about no partition, or one that is too long to be looked into again."""
        partition = witness.partition
        if partition not in self._history.files["sends"].row_groups or self._history.rows_of(partition) > ROWS_MAX:
            return None
        sent = self._table("sends", partition)
        subjects = _subjects(witness, sent)
        events = [*sends(sent, subjects, self._unanswered, self.name), *self._of_log(witness, subjects)]
        told = [t for t in (witness.begin_s, witness.end_s, witness.seen_s) if t is not None]
        told += [event.at_s for event in events if event.main and event.kind in ("sent", "acknowledged")]
        if not told:
            return None
        begin_s, end_s = min(told) - BEFORE_S, max(told) + AFTER_S
        events += leaders(_only(self._leaders, partition), begin_s, max(told) + LEADERS_AFTER_S)
        events += self._of_group(witness, subjects, begin_s, end_s)
        events += transactions(self._whole("transactions"), sent, subjects, self.name)
        events = _fewer(events, min(told), max(told))
        events += _faults(self._faults, begin_s, max(end_s, max(told) + LEADERS_AFTER_S))
        events.sort(key=lambda event: event.at_s)
        if subjects:
            what = f"#{subjects[0].sequence} of {self.name(subjects[0].client)}"
        else:
            what = self.name(_known(witness.reader))
        return Story(f"{what} in {partition_name(self._history.plan, partition)}", _lanes(events), events)

    def _of_log(self, witness: WitnessShown, subjects: Sequence[Subject]) -> Iterator[Event]:
        """What readers, the audit and the replicas have to say."""
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
        """What the members of a group did."""
        cell = self._history.cell_of(witness.partition)
        if cell is None or (cell.group is None and cell.copier is None):
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
        """Of one partition; those of the last one are held."""
        if self._held[0] != partition:
            self._held = (partition, {})
        held = self._held[1]
        if name not in held:
            file = self._history.files[name]
            groups = file.row_groups.get(partition, ())
            held[name] = file.read(file.table.column_names, groups) if groups else file.table.empty()
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


def _faults(faults: Sequence[FaultShown], begin_s: float, end_s: float) -> Iterator[Event]:
    """Those that lasted into that time: begin and, if there was one, end."""
    for number, fault in enumerate(faults, 1):
        if fault.begin_s > end_s or (fault.end_s is not None and fault.end_s < begin_s):
            continue
        what, pair = f"{fault.fault} {brief_nodes(fault.nodes)}".strip(), -number
        yield Event(fault.begin_s, FAULTS, "began", f"fault: {what}", pair=pair)
        if fault.end_s is not None:
            yield Event(fault.end_s, FAULTS, "ended", f"end of the fault: {what}", pair=pair)


def _lanes(events: Sequence[Event]) -> list[str]:
    """Faults, who sends, the log, who reads, by first appearance."""
    sending = [e.lane for e in events if e.kind in ("sent", "acknowledged", "unknown", "refused", "transaction")]
    others = [e.lane for e in events if e.lane not in (LOG, FAULTS)]
    first = [FAULTS] if any(e.lane == FAULTS for e in events) else []
    return list(dict.fromkeys([*first, *sending, LOG, *others]))
