"""Reads what Kafka's verifiable clients printed (VerifiableProducer, VerifiableConsumer, VerifiableShareConsumer of
org.apache.kafka.tools; one file of JSON lines per client) as a history of ours.

A record is its value, `prefix.n` or `n`: the prefix is a producer's, the number its sequence. What a producer never reported
is not known, so no number is called unissued; a send's invocation is only known not to be before the client's start. Times
are the `timestamp` of the events: each file has a clock of its own.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prozess.harness.app.histories.imports import Imported, ImportedClient, clustered
from prozess.harness.errors import BadInput
from prozess.harness.recording.verifiable_output import EventLines, EventPlace, place_of, places_of
from prozess.harness.schema import MISSING, NONE, Outcome

CHUNK_BYTES = 1 << 20
NS_PER_MS = 1_000_000
TIMESTAMP_MAX_MS = 2**42
"""The year 2109."""
_PRODUCER = frozenset({"producer_send_success", "producer_send_error", "tool_data"})
_CONSUMER = frozenset(
    {"records_consumed", "record_data", "partitions_assigned", "partitions_revoked", "offsets_committed"}
    | {"offsets_acknowledged", "offset_reset_strategy_set"}
)
_SHARE = frozenset({"offsets_acknowledged", "offset_reset_strategy_set"})
_ASSIGN, _REVOKE, _SYNC = 1, 2, 1
UNTOLD_ERROR = -1
_DIGITS_MAX = 12


def read_verifiable(files: Sequence[Path]) -> Imported:
    """Reads the history in these files. BadInput if one of them holds no events of one client."""
    reader = _Reader()
    for number, path in enumerate(files, start=1):
        reader.take_file(path, number)
    return reader.imported()


def events_of(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Returns the events of a file, and how many of its lines are none."""
    lines = EventLines()
    events: list[dict[str, Any]] = []
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                events += lines.feed(chunk)
        events += lines.end()
    except OSError as error:
        raise BadInput(
            f"{str(path)!r} cannot be read: {error.strerror}. Give what a verifiable client printed."
        ) from error
    return events, lines.strange


def split_value(value: object) -> tuple[str, int] | None:
    """Returns (prefix, n) of "prefix.n", or of "n" without one; None for anything else."""
    if not isinstance(value, str):
        return None
    prefix, dot, number = value.rpartition(".")
    good = 0 < len(number) <= _DIGITS_MAX and number.isascii() and number.isdigit() and bool(prefix) == bool(dot)
    return (prefix, int(number)) if good else None


class _Reader:
    """Takes file by file, and holds what they say in columns."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], int] = {}
        self._prefixes: dict[int, set[str]] = {}
        """Producer → prefixes of its values."""
        self._names: dict[int, tuple[str, str, int, int]] = {}
        """Client → (role, name, started, ended in ms)."""
        self._sends: list[tuple[int, int, int, int, str, int, int]] = []
        """(client, partition, offset, sequence, prefix, begun ms, completed ms); offset NONE = an error."""
        self._texts: list[tuple[str, int] | None] = []
        """Per read: (prefix, n)."""
        self._reads = array("q")
        """Per read: client, partition, offset, ms, span."""
        self._commits: list[tuple[int, ...]] = []
        self._assignments: list[tuple[int, ...]] = []
        self._strange = self._unplaced = self._silent = 0

    def take_file(self, path: Path, number: int) -> None:
        """Reads the events of one client."""
        events, strange = events_of(path)
        self._strange += strange
        names = {event["name"] for event in events}
        producer, consumer = bool(names & _PRODUCER), bool(names & _CONSUMER)
        if producer and consumer:
            raise BadInput(f"{path} has events of a producer and of a consumer. Give one file for each client.")
        if not producer and not consumer:
            raise BadInput(
                f"{path} has no event of a verifiable client among its {len(events) + strange:,} lines. Give what "
                "VerifiableProducer or VerifiableConsumer (with --verbose) printed: one JSON object per line."
            )
        times = [time for event in events if (time := _timestamp_ms(event)) is not None]
        begun_ms, ended_ms = min(times, default=0), max(times, default=0)
        role = "verifiable-producer" if producer else "verifiable-consumer"
        self._names[number] = (role, f"{path.stem}-{number}", begun_ms, ended_ms)
        if producer:
            self._produced(number, events, begun_ms)
        else:
            self._consumed(number, events, begun_ms, share=bool(names & _SHARE))

    def _partition(self, place: EventPlace) -> int:
        return self._partitions.setdefault((place.topic, place.partition), len(self._partitions))

    def _produced(self, client: int, events: Sequence[Mapping[str, Any]], begun_ms: int) -> None:
        prefixes = self._prefixes.setdefault(client, set())
        first: dict[str, int] = {}
        errors = []
        for event in events:
            if event["name"] not in ("producer_send_success", "producer_send_error"):
                continue
            value, place = split_value(event.get("value")), place_of(event)
            told_ms = _timestamp_ms(event)
            completed_ms = begun_ms if told_ms is None else told_ms
            if value is None:
                self._unplaced += 1
            elif event["name"] == "producer_send_error":
                errors.append((event.get("topic"), value, completed_ms))
            elif place is None or place.offset == NONE or place.partition < 0:
                self._unplaced += 1
            else:
                partition = self._partition(place)
                first.setdefault(place.topic, partition)
                prefixes.add(value[0])
                self._sends.append((client, partition, place.offset, value[1], value[0], begun_ms, completed_ms))
        if len(prefixes | {value[0] for _, value, _ in errors}) > 1:
            raise BadInput(
                f"{self._names[client][1]} sent values with the prefixes {sorted(prefixes)}: its file is of several "
                "producers. Give one file for each."
            )
        for topic, value, completed_ms in errors:
            # An error names no partition. Its outcome claims nothing of any; one has to be written down.
            if isinstance(topic, str):
                partition = first[topic] if topic in first else self._partition(EventPlace(topic, 0))
                prefixes.add(value[0])
                self._sends.append((client, partition, NONE, value[1], value[0], begun_ms, completed_ms))
            else:
                self._unplaced += 1

    def _consumed(self, client: int, events: Sequence[Mapping[str, Any]], begun_ms: int, *, share: bool) -> None:
        spans, span = 0, {}
        polled_ms = now_ms = begun_ms
        position: dict[int, int] = {}
        records = 0
        for event in events:
            told_ms = _timestamp_ms(event)
            now_ms = now_ms if told_ms is None else told_ms
            match event["name"]:
                case "record_data":
                    place = place_of(event)
                    if place is None or place.offset == NONE or place.partition < 0:
                        self._unplaced += 1
                        continue
                    partition = self._partition(place)
                    if share or partition not in span:  # a share group gives records in any order, and again
                        spans += 1
                        span[partition] = spans
                    self._reads.extend((client, partition, place.offset, now_ms, span[partition]))
                    self._texts.append(split_value(event.get("value")))
                    position[partition] = place.offset + 1
                    records += 1
                case "records_consumed":
                    polled_ms = now_ms
                case "offsets_committed":
                    self._committed(client, event, position, polled_ms, now_ms)
                case "partitions_assigned" | "partitions_revoked":
                    assigned = event["name"] == "partitions_assigned"
                    for partition in self._moved(client, event, now_ms, assigned=assigned):
                        span.pop(partition, None)
        self._silent += not records

    def _committed(
        self, client: int, event: Mapping[str, Any], position: Mapping[int, int], polled_ms: int, now_ms: int
    ) -> None:
        success = event.get("success") is True
        outcome, code = (Outcome.OK, 0) if success else (Outcome.INFO, UNTOLD_ERROR)
        for place in places_of(event, "offsets"):
            partition = self._partition(place)
            at = position.get(partition, NONE)
            self._commits.append((client, polled_ms, now_ms, place.offset, at, partition, outcome, code))

    def _moved(self, client: int, event: Mapping[str, Any], now_ms: int, *, assigned: bool) -> Iterator[int]:
        partitions = [self._partition(place) for place in places_of(event, "partitions")]
        for partition in partitions or [NONE]:
            self._assignments.append((client, now_ms, partition, _ASSIGN if assigned else _REVOKE))
        yield from partitions

    # Tables.

    def imported(self) -> Imported:
        """Returns the whole imported history. BadInput if two producers gave the same value to one partition."""
        start_ms = min(begun for _, _, begun, _ in self._names.values())
        sends = self._send_columns(start_ms)
        reads = self._read_columns(start_ms)
        notes = [f"{self._strange:,} lines were no events"] if self._strange else []
        notes += [f"{self._unplaced:,} events were not understood and left out"] if self._unplaced else []
        notes += [f"{self._silent} consumers printed no records: run them with --verbose"] if self._silent else []
        return Imported(
            origin="verifiable",
            title=f"What {len(self._names)} verifiable clients printed",
            workload="verifiable",
            topics=list(self._partitions),
            clients=self._clients(sends, reads, start_ms),
            sends=clustered(sends, ("client", "sequence")),
            reads=clustered(reads, ("client",)),
            others=self._others(start_ms),
            notes=notes,
        )

    def _send_columns(self, start_ms: int) -> dict[str, np.ndarray]:
        seen: dict[tuple[int, str, int], int] = {}
        for client, partition, _, sequence, prefix, _, _ in self._sends:
            other = seen.setdefault((partition, prefix, sequence), client)
            if other != client:
                value = f"{prefix}.{sequence}" if prefix else str(sequence)
                raise BadInput(
                    f"{self._names[other][1]} and {self._names[client][1]} both sent the value {value!r} to one partition: "
                    "nobody can tell the two apart. Give each producer a --value-prefix of its own."
                )
        # A value that is reported twice (an error after a success) is one record: the first report that says most.
        best = {row[0:2] + row[3:5]: row for row in sorted(self._sends, key=lambda row: row[2] != NONE)}
        table = np.array([(*row[:4], *row[5:]) for row in best.values()], dtype=np.int64).reshape(-1, 6)
        columns = table.T
        offset, begun, completed = columns[2], columns[4], columns[5]
        outcome = np.where(offset == NONE, Outcome.INFO, Outcome.OK)
        return {
            "client": columns[0].astype(np.int32),
            "invoked_ns": (begun - start_ms) * NS_PER_MS,
            "completed_ns": (completed - start_ms) * NS_PER_MS,
            "log_offset": offset,
            "sequence": columns[3],
            "partition": columns[1].astype(np.int32),
            "outcome": outcome.astype(np.int32),
            "code": np.where(outcome == Outcome.OK, 0, UNTOLD_ERROR).astype(np.int32),
            "size": np.zeros(len(table), dtype=np.int32),
        }

    def _read_columns(self, start_ms: int) -> dict[str, np.ndarray]:
        table = np.array(self._reads, dtype=np.int64).reshape(-1, 5)
        client, partition, offset, read, span = table.T
        sender, sequence = np.empty(len(table), dtype=np.int32), np.empty(len(table), dtype=np.int64)
        by_prefix = self._producers()
        owner = {(row[1], row[4], row[3]): row[0] for row in self._sends}
        elsewhere, topics = self._acknowledged(), [topic for topic, _ in self._partitions]
        sent = partition.copy()
        for number, text in enumerate(self._texts):
            if text is None:  # somebody else's record: known by where it stands, and by nothing else
                sender[number], sequence[number] = self._implied(None, by_prefix), offset[number]
            else:
                known = owner.get((int(partition[number]), *text))
                sequence[number] = text[1]
                if known is not None:
                    sender[number] = known
                else:
                    sender[number] = self._implied(text[0], by_prefix)
                    there = elsewhere.get(text)
                    # In another topic a value without a prefix may be anybody's.
                    if there is not None and (text[0] or topics[there] == topics[partition[number]]):
                        sent[number] = there
        return {
            "client": client.astype(np.int32),
            "read_ns": (read - start_ms) * NS_PER_MS,
            "log_offset": offset,
            "sequence": sequence,
            "sender": sender,
            "partition": partition.astype(np.int32),
            "sent_partition": sent.astype(np.int32),
            "span": span.astype(np.int32),
            "flags": np.zeros(len(table), dtype=np.int32),
        }

    def _producers(self) -> dict[str | None, int]:
        found: dict[str | None, int] = {}
        for client, prefixes in sorted(self._prefixes.items()):
            for prefix in prefixes:
                found.setdefault(prefix, client)
        return found

    def _acknowledged(self) -> dict[tuple[str, int], int]:
        """Value → the partition where it was acknowledged, of values that can be one producer's only: nobody else who was
        imported has its prefix."""
        users: dict[str, int] = {}
        for prefixes in self._prefixes.values():
            for prefix in prefixes:
                users[prefix] = users.get(prefix, 0) + 1
        return {(row[4], row[3]): row[1] for row in self._sends if row[2] != NONE and users[row[4]] == 1}

    def _implied(self, prefix: str | None, by_prefix: dict[str | None, int]) -> int:
        """Returns the producer of a record that no file reports: the one with that prefix, else one that was not
        imported."""
        if prefix not in by_prefix:
            client = by_prefix[prefix] = len(self._names) + 1
            named = "others" if prefix is None else prefix or "without-prefix"
            _, _, begun_ms, ended_ms = next(iter(self._names.values()))
            self._names[client] = ("verifiable-producer", f"not-imported-{named}", begun_ms, ended_ms)
        return by_prefix[prefix]

    def _clients(
        self, sends: Mapping[str, np.ndarray], reads: Mapping[str, np.ndarray], start_ms: int
    ) -> list[ImportedClient]:
        of: dict[int, set[int]] = {}
        for rows, who in ((sends, "client"), (reads, "client"), (reads, "sender")):
            pairs = np.unique(np.stack([rows[who], rows["partition"]], axis=1), axis=0) if len(rows[who]) else ()
            for client, partition in np.asarray(pairs).tolist():
                of.setdefault(client, set()).add(partition)
        counts = np.bincount(reads["client"], minlength=len(self._names) + 1)
        return [
            ImportedClient(
                client=client,
                role=role,
                name=name,
                issued=int(counts[client]) if role == "verifiable-consumer" else NONE,
                started_ns=(begun_ms - start_ms) * NS_PER_MS,
                ended_ns=(ended_ms - start_ms) * NS_PER_MS,
                partitions=tuple(sorted(of.get(client, ()))),
                clock=client,
            )
            for client, (role, name, begun_ms, ended_ms) in self._names.items()
        ]

    def _others(self, start_ms: int) -> dict[str, dict[str, np.ndarray]]:
        found = {}
        if self._commits:
            table = np.array(self._commits, dtype=np.int64)
            names = ("client", "invoked_ns", "completed_ns", "log_offset", "position", "partition", "outcome", "code")
            found["commits"] = dict(zip(names, table.T, strict=True)) | {"mode": np.full(len(table), _SYNC)}
        if self._assignments:
            table = np.array(self._assignments, dtype=np.int64)
            columns = dict(zip(("client", "done_ns", "partition", "event"), table.T, strict=True))
            found["assignments"] = columns | {
                "started_ns": columns["done_ns"],
                "incremental": np.zeros(len(table), "i8"),
            }
        for columns in found.values():
            for name in columns:
                if name.endswith("_ns"):
                    columns[name] = np.where(columns[name] == MISSING, MISSING, (columns[name] - start_ms) * NS_PER_MS)
        return found


def _timestamp_ms(event: Mapping[str, Any]) -> int | None:
    told = event.get("timestamp")
    known = isinstance(told, int) and not isinstance(told, bool) and 0 <= told < TIMESTAMP_MAX_MS
    return told if known else None
