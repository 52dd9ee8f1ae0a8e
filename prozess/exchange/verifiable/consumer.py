"""Takes the events of a verifiable consumer as rows: what it read, committed and was assigned."""

from array import array
from collections.abc import Callable, Mapping
from typing import Any

from prozess.exchange.verifiable.clients import Events, RunOfClient, split_value, timestamp_ms
from prozess.exchange.verifiable.evidence import EvidenceGaps, ReaderTally, Where
from prozess.exchange.verifiable.lines import tp_in, tps_in
from prozess.harness.recording.verifiable_output import EventPartition
from prozess.harness.schema import NONE, OFFSET_MAX, Outcome

UNREPORTED_ERROR = -1
_ASSIGN, _REVOKE = 1, 2
_NO_TOPIC = "shows a record, and names no topic"
_NOT_ASSIGNED = "shows a record, and no partitions_assigned before it names its partition"
_COUNTS_OTHERS = "counts other records than were printed before it"
_UNCOUNTED = "comes after records that no records_consumed counts"
_COMMITS_OTHERS = "commits records beyond those that were printed"


class PrintedRows:
    """The rows of all consumers, in the order in which they were printed."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, int] | None] = []
        """For each read: (prefix, n) of its value."""
        self.reads = array("q")
        """For each read: client, partition, offset, ms, span."""
        self.commits: list[tuple[int, ...]] = []
        """(client, invoked ms, completed ms, offset, position, partition, outcome, code)."""
        self.assignments: list[tuple[int, ...]] = []
        """(client, ms, partition, event)."""


class ConsumerReader:
    """Takes the events of one run of a consumer."""

    def __init__(
        self,
        client: int,
        run: RunOfClient,
        rows: PrintedRows,
        gaps: EvidenceGaps,
        partition_of: Callable[[EventPartition], int],
        *,
        share: bool,
    ) -> None:
        """`partition_of` gives the dense id of a partition. `share`: it is a member of a share group."""
        self._client, self._file, self._rows, self._gaps = client, run.file, rows, gaps
        self._partition_of, self._share = partition_of, share
        self._polled_ms = self._now_ms = run.begun_ms or 0
        self._spans = 0
        self._span: dict[int, int] = {}
        self._position: dict[int, int] = {}
        self._assigned: set[int] = set()
        self._tally = ReaderTally()

    def take(self, events: Events) -> int:
        """Takes all its events, and returns how many records it printed. BadInput for numbers that no format can have."""
        for line, event in events:
            stamp_ms = timestamp_ms(event)
            self._now_ms = self._now_ms if stamp_ms is None else stamp_ms
            match event["name"]:
                case "record_data":
                    self._read(line, event)
                case "records_consumed":
                    self._polled_ms = self._now_ms
                    for where in self._tally.compare(self._file, line, event):
                        self._missing(where, _COUNTS_OTHERS, line)
                case "offsets_committed":
                    self._committed(line, event)
                case "partitions_assigned" | "partitions_revoked":
                    self._moved(line, event, assigned=event["name"] == "partitions_assigned")
                case "shutdown_complete":
                    for where in self._tally.uncounted():
                        self._missing(where, _UNCOUNTED, line)
        return self._tally.records

    def _missing(self, where: Where, what: str, line: int) -> None:
        self._gaps.add(*where, "reads", what, line=line)

    def _read(self, line: int, event: Mapping[str, Any]) -> None:
        tp = tp_in(self._file, line, event, offset_min=0)
        if tp is None:
            self._missing((None, None), _NO_TOPIC, line)
            return
        partition = self._partition_of(tp)
        if self._share or partition not in self._span:  # a share group gives records in any order, and again
            self._spans += 1
            self._span[partition] = self._spans
            if not self._share and partition not in self._assigned:
                self._missing((tp.topic, tp.partition), _NOT_ASSIGNED, line)
        self._rows.reads.extend((self._client, partition, tp.offset, self._now_ms, self._span[partition]))
        self._rows.texts.append(split_value(event.get("value")))
        self._position[partition] = min(tp.offset + 1, OFFSET_MAX)
        self._tally.read(tp)

    def _committed(self, line: int, event: Mapping[str, Any]) -> None:
        success = event.get("success") is True
        outcome, code = (Outcome.OK, 0) if success else (Outcome.INFO, UNREPORTED_ERROR)
        for tp in tps_in(self._file, line, event, "offsets", offset_min=0):
            partition = self._partition_of(tp)
            at = self._position.get(partition, NONE)
            if NONE < at < tp.offset:
                self._missing((tp.topic, tp.partition), _COMMITS_OTHERS, line)
            row = (self._client, self._polled_ms, self._now_ms, tp.offset, at, partition, outcome, code)
            self._rows.commits.append(row)

    def _moved(self, line: int, event: Mapping[str, Any], *, assigned: bool) -> None:
        partitions = [self._partition_of(tp) for tp in tps_in(self._file, line, event, "partitions")]
        for partition in partitions or [NONE]:
            self._rows.assignments.append((self._client, self._now_ms, partition, _ASSIGN if assigned else _REVOKE))
        self._assigned = self._assigned.union(partitions) if assigned else self._assigned.difference(partitions)
        for partition in partitions:
            self._span.pop(partition, None)
            self._position.pop(partition, None)
