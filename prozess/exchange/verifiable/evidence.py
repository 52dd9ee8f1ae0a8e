"""Finds gaps in the output of verifiable clients: torn lines, records that a tally counts and no line names,
and records that cannot be distinguished.

A gap concerns the partition that it names, or else every partition of its topic, or else every partition of the topics in its
file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prozess.exchange.verifiable.lines import FileOfEvents, number_in, tp_in
from prozess.harness.plan.plan import EvidenceGap
from prozess.harness.recording.verifiable_output import EventPartition
from prozess.harness.schema import NONE, OFFSET_MAX

Hides = Literal["sends", "reads", "records"]
Where = tuple[str | None, int | None]
"""Topic and partition number; None = any."""


@dataclass(slots=True)
class _GapInFile:
    """One kind of gap in one file: how often it was found, and on which line first."""

    topics: set[str]
    file: str
    count: int
    line: int


class EvidenceGaps:
    """Collects gaps, one for each file, kind and partition, however many lines there are."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str | None, int | None, Hides, str], _GapInFile] = {}
        self._topics: set[str] = set()
        self._file = ""

    def begin(self, file: FileOfEvents) -> None:
        """Begins a file: what is added from now on is about it."""
        self._topics, self._file = set(), str(file.path)

    def saw(self, topic: str) -> None:
        """Notes that the file is about this topic."""
        self._topics.add(topic)

    def add(self, topic: str | None, partition: int | None, hides: Hides, what: str, *, line: int = NONE) -> None:
        """Adds a gap. `what`: a clause without its subject, if it is about a line; else the whole clause."""
        found = self._found.setdefault(
            (self._file, topic, partition, hides, what), _GapInFile(self._topics, self._file, 0, line)
        )
        found.count += 1

    def resolved(self, partitions: dict[tuple[str, int], int]) -> list[EvidenceGap]:
        """Returns all gaps. `partitions`: the dense id of each (topic, number); one that a torn line alone names is added."""
        for _, topic, number, _, _ in self._found:
            if topic is not None and number is not None:
                partitions.setdefault((topic, number), len(partitions))
        gaps = []
        for (_, topic, number, hides, what), found in self._found.items():
            topics = found.topics if topic is None else {topic}
            ids = [
                dense
                for (name, of_topic), dense in partitions.items()
                if (name in topics or not topics) and number in (None, of_topic)
            ]
            if topic is not None and not ids:  # a topic that nothing else names
                ids = [partitions.setdefault((topic, 0), len(partitions))]
            if ids:
                why = f"{_subject(topic, number, found)}: {_clause(what, found)}"
                gaps.append(EvidenceGap(partitions=tuple(sorted(ids)), hides=hides, why=why))
        return gaps


def _subject(topic: str | None, number: int | None, found: _GapInFile) -> str:
    if topic is not None:
        of_topic = f"of topic {topic!r}"
        return f"partition {number} {of_topic}" if number is not None else f"every partition {of_topic}"
    names = sorted(found.topics)
    if not names:
        return "every partition"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"every partition of topic {names[0]!r}{more}"


def _clause(what: str, found: _GapInFile) -> str:
    if found.line == NONE:
        return what
    more = f" and so {'does' if found.count == 2 else 'do'} {found.count - 1} more" if found.count > 1 else ""
    return f"line {found.line} of {found.file.rpartition('/')[2]} {what}{more}"


class SenderTally:
    """Compares what a producer says that it sent, and had acknowledged, with the reports of its sends.

    A tool prints `shutdown_complete` when everything was answered, and then `tool_data`. For one that was killed there is
    neither, and what it did not report may be under way."""

    def __init__(self) -> None:
        self._acknowledged = self._failed = 0
        self._totals: tuple[int, int] | None = None
        self._ended = False

    def take(self, file: FileOfEvents, line: int, event: Mapping[str, Any]) -> None:
        """Takes the next event. BadInput for a tally that is no number."""
        match event["name"]:
            case "producer_send_success":
                self._acknowledged += 1
            case "producer_send_error":
                self._failed += 1
            case "shutdown_complete":
                self._ended = True
            case "tool_data":
                sent, acked = (
                    number_in(file, line, event, name, least=0, most=OFFSET_MAX) for name in ("sent", "acked")
                )
                self._totals = sent, acked

    def gaps(self) -> Iterator[tuple[Hides, str]]:
        """Yields the differences, and the records that each may hide."""
        reported = self._acknowledged + self._failed
        if self._totals is None:
            if self._ended:
                yield "sends", "the producer ended, and its tool_data is missing"
            return
        sent, acked = self._totals
        if (sent, acked) == (reported, self._acknowledged):
            return
        text = (
            f"tool_data counts {sent:,} sends and {acked:,} acknowledgements, and {reported:,} and {self._acknowledged:,} "
            "were read"
        )
        yield ("records" if reported > sent or self._acknowledged > acked else "sends"), text


class ReaderTally:
    """Compares the records that a consumer counts with those that it printed: of each poll first the records, then their
    count."""

    def __init__(self) -> None:
        self.records = 0
        """How many were printed."""
        self._since: dict[tuple[str, int], list[int]] = {}
        """Since the last count, of each partition: how many, the first offset and the last."""
        self._counts = False

    def read(self, tp: EventPartition) -> None:
        """Takes a record."""
        self.records += 1
        held = self._since.get((tp.topic, tp.partition))
        if held is None:
            self._since[tp.topic, tp.partition] = [1, tp.offset, tp.offset]
        else:
            held[0] += 1
            held[2] = tp.offset

    def compare(self, file: FileOfEvents, line: int, event: Mapping[str, Any]) -> list[Where]:
        """Takes a `records_consumed`, and returns the partitions of which it does not count what was printed."""
        self._counts = True
        since, self._since = self._since, {}
        total = number_in(file, line, event, "count", least=0, most=OFFSET_MAX)
        listed = event.get("partitions")
        entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        if not entries:
            if total == sum(count for count, _, _ in since.values()):
                return []
            return [*since] or [(None, None)]
        wrong: list[Where] = []
        for entry in entries:
            tp = tp_in(file, line, entry, offset_min=None)
            if tp is None:
                wrong.append((None, None))
                continue
            count, first, last = since.pop((tp.topic, tp.partition), (0, NONE, NONE))
            bounds = [
                number_in(file, line, entry, name, least=0, most=OFFSET_MAX) if name in entry else known
                for name, known in (("minOffset", first), ("maxOffset", last))
            ]
            counted = number_in(file, line, entry, "count", least=0, most=OFFSET_MAX)
            if counted != count or (count and bounds != [first, last]):
                wrong.append((tp.topic, tp.partition))
        return [*wrong, *since]

    def uncounted(self) -> Sequence[Where]:
        """Returns the partitions of which records were printed that no count came after, if the tool prints counts."""
        return [*self._since] if self._counts else []
