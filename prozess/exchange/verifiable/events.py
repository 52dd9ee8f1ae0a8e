"""Reads what Kafka's verifiable clients printed (VerifiableProducer, VerifiableConsumer, VerifiableShareConsumer of
org.apache.kafka.tools; one file of JSON lines per client) as a history of ours.

A record is its value, `prefix.n` or `n`: the prefix is a producer's, the number its sequence. What a producer never reported
is not known, so no number is called unissued; a send's invocation is only known not to be before the client's start. Times
are the `timestamp` of the events (`time_ms` of old tools): each file has a clock of its own. A client that was started again
into the same file is another client.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from prozess.exchange.imported_run import Imported, ImportedClient, clustered
from prozess.exchange.verifiable.clients import (
    Events,
    RunOfClient,
    Send,
    Senders,
    client_of,
    completed_ms_of,
    runs_of,
    split_value,
)
from prozess.exchange.verifiable.consumer import UNREPORTED_ERROR, ConsumerReader, PrintedRows
from prozess.exchange.verifiable.evidence import EvidenceGaps, Hides, SenderTally
from prozess.exchange.verifiable.lines import (
    CONSUMER_EVENTS,
    PRODUCER_EVENTS,
    SHARE_EVENTS,
    read_events,
    tp_in,
)
from prozess.harness.errors import BadInput
from prozess.harness.recording.verifiable_output import EventPartition
from prozess.harness.schema import MISSING, NONE, Outcome

NS_PER_MS = 1_000_000
_SYNC = 1


def read_verifiable(files: Sequence[Path]) -> Imported:
    """Reads the history in these files. BadInput if one of them holds no events of one client."""
    reader = _Reader()
    for number, path in enumerate(files, start=1):
        reader.take_file(path, number)
    return reader.imported()


_NO_VALUE = "reports a send, and its value or topic is none that the tool gives"
_ACKNOWLEDGED_TWICE = "was acknowledged one value at two offsets: it ran twice, and which record is which is not known"
_ANOTHER_RUN = "a value stands at two offsets, and another run of the tool may have written one of them"


class _Reader:
    """Reads one file after the other into columns."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], int] = {}
        self._here: dict[tuple[str, int], int] = {}
        """The partitions that the file at hand is about."""
        self._clients: dict[int, RunOfClient] = {}
        self._gaps = EvidenceGaps()
        self._sends: list[Send] = []
        self._rows = PrintedRows()
        self._strange = self._torn = self._silent = self._again = 0

    def take_file(self, path: Path, number: int) -> None:
        """Reads the events of one file."""
        file = read_events(path)
        self._strange += file.strange
        self._torn += len(file.torn)
        names = {event["name"] for _, event in file.events}
        producer, consumer = bool(names & PRODUCER_EVENTS), bool(names & CONSUMER_EVENTS)
        if producer and consumer:
            raise BadInput(f"{path} has events of a producer and of a consumer. Give one file for each client.")
        if not producer and not consumer:
            raise BadInput(
                f"{path} has no event of a verifiable client among its {len(file.events) + file.strange:,} lines. Give what "
                "VerifiableProducer or VerifiableConsumer (with --verbose) printed: one JSON object per line."
            )
        hides: Hides = "sends" if producer else "reads"
        self._gaps.begin(file)
        self._here = {}
        for torn in file.torn:
            self._gaps.add(torn.topic, torn.partition, hides, "is torn", line=torn.line)
        runs = list(runs_of(file.events))
        self._again += len(runs) - 1
        for run, events in enumerate(runs, start=1):
            client = len(self._clients) + 1
            name = f"{path.stem}-{number}" + (f"-run-{run}" if run > 1 else "")
            self._clients[client] = client_of(file, events, name, producer=producer)
            if producer:
                self._produced(client, events)
            else:
                run_of, share = self._clients[client], bool(names & SHARE_EVENTS)
                reader = ConsumerReader(client, run_of, self._rows, self._gaps, self._partition, share=share)
                self._silent += not reader.take(events)

    def _partition(self, tp: EventPartition) -> int:
        key = tp.topic, tp.partition
        found = self._here.get(key)
        if found is None:
            self._gaps.saw(tp.topic)
            found = self._here[key] = self._partitions.setdefault(key, len(self._partitions))
        return found

    def _produced(self, client: int, events: Events) -> None:
        own = self._clients[client]
        file, prefixes = own.file, own.prefixes
        first: dict[str, int] = {}
        errors = []
        tally = SenderTally()
        times = completed_ms_of(events, own.ended_ms)
        for (line, event), completed_ms in zip(events, times, strict=True):
            tally.take(file, line, event)
            if event["name"] not in ("producer_send_success", "producer_send_error"):
                continue
            value = split_value(event.get("value"))
            if event["name"] == "producer_send_error":
                topic = event.get("topic")
                if value is None or not isinstance(topic, str):
                    self._gaps.add(topic if isinstance(topic, str) else None, None, "sends", _NO_VALUE, line=line)
                else:
                    errors.append((topic, value, completed_ms))
                continue
            tp = tp_in(file, line, event, offset_min=NONE)
            if value is None or tp is None:
                topic, number = (None, None) if tp is None else (tp.topic, tp.partition)
                self._gaps.add(topic, number, "sends", _NO_VALUE, line=line)
                continue
            partition = self._partition(tp)
            first.setdefault(tp.topic, partition)
            prefixes.add(value[0])
            self._sends.append((client, partition, tp.offset, value[1], value[0], completed_ms, True))
        if len(prefixes | {value[0] for _, value, _ in errors}) > 1:
            raise BadInput(
                f"{own.name} sent values with the prefixes {sorted(prefixes)}: its file is of several "
                "producers. Give one file for each."
            )
        for topic, value, completed_ms in errors:
            # An error names no partition. Its outcome claims nothing of any; one has to be written down.
            partition = first[topic] if topic in first else self._partition(EventPartition(topic, 0))
            prefixes.add(value[0])
            self._sends.append((client, partition, NONE, value[1], value[0], completed_ms, False))
        for hides, why in tally.gaps():
            self._gaps.add(None, None, hides, why)

    # Tables.

    def imported(self) -> Imported:
        """Returns the whole imported history. BadInput if two producers gave the same value to one partition."""
        begun = [client.begun_ms for client in self._clients.values() if client.begun_ms is not None]
        start_ms = min(begun, default=0)
        sends = self._send_columns(start_ms)
        reads = self._read_columns(start_ms)
        notes = [f"{self._strange:,} lines were no events"] if self._strange else []
        notes += [f"{self._torn:,} lines are torn"] if self._torn else []
        notes += [f"{self._again:,} times a client was started again"] if self._again else []
        notes += [f"{self._silent} consumers printed no records: run them with --verbose"] if self._silent else []
        gaps = self._gaps.resolved(self._partitions)
        return Imported(
            origin="verifiable",
            title=f"What {len(self._clients)} verifiable clients printed",
            workload="verifiable",
            topics=list(self._partitions),
            clients=self._imported_clients(sends, reads, start_ms),
            sends=clustered(sends, ("client", "sequence")),
            reads=clustered(reads, ("client",)),
            others=self._others(start_ms),
            notes=[*notes, *([f"{len(gaps):,} gaps in the evidence"] if gaps else [])],
            gaps=gaps,
            readers_begin="anywhere",
        )

    def _send_columns(self, start_ms: int) -> dict[str, np.ndarray]:
        seen: dict[tuple[int, str, int], int] = {}
        for client, partition, _, sequence, prefix, _, _ in self._sends:
            other = seen.setdefault((partition, prefix, sequence), client)
            if self._clients[other].file is not self._clients[client].file:
                value = f"{prefix}.{sequence}" if prefix else str(sequence)
                raise BadInput(
                    f"{self._clients[other].name} and {self._clients[client].name} both sent the value {value!r} to one "
                    "partition: nobody can distinguish the two. Give each producer a --value-prefix of its own."
                )
        # A value that is reported twice (an error after a success) is one record: the report that says most.
        best: dict[tuple[int, int, int, str], Send] = {}
        for row in sorted(self._sends, key=lambda row: (row[6], row[2] != NONE)):
            key = (row[0], row[1], row[3], row[4])
            before = best.get(key)
            if before is not None and NONE not in (before[2], row[2]) and before[2] != row[2]:
                topic, number = self._where(row[1])
                self._gaps.add(topic, number, "records", f"{self._clients[row[0]].name} {_ACKNOWLEDGED_TWICE}")
            best[key] = row
        table = np.array([(*row[:4], *row[5:]) for row in best.values()], dtype=np.int64).reshape(-1, 6)
        columns = table.T
        begun = {number: client.begun_ms for number, client in self._clients.items()}
        invoked = [start_ms if (at := begun[client]) is None else at for client in columns[0].tolist()]
        completed = np.where(columns[4] == MISSING, start_ms, columns[4])
        outcome = np.where(columns[5] == 1, Outcome.OK, Outcome.INFO)
        return {
            "client": columns[0].astype(np.int32),
            "invoked_ns": (np.array(invoked, dtype=np.int64) - start_ms) * NS_PER_MS,
            "completed_ns": (completed - start_ms) * NS_PER_MS,
            "log_offset": columns[2],
            "sequence": columns[3],
            "partition": columns[1].astype(np.int32),
            "outcome": outcome.astype(np.int32),
            "code": np.where(outcome == Outcome.OK, 0, UNREPORTED_ERROR).astype(np.int32),
            "size": np.zeros(len(table), dtype=np.int32),
        }

    def _where(self, partition: int) -> tuple[str, int]:
        return list(self._partitions)[partition]

    def _read_columns(self, start_ms: int) -> dict[str, np.ndarray]:
        table = np.array(self._rows.reads, dtype=np.int64).reshape(-1, 5)
        client, partition, offset, read, span = table.T
        read = np.where(read == 0, start_ms, read)
        sender, sequence = np.empty(len(table), dtype=np.int32), np.empty(len(table), dtype=np.int64)
        topics = [topic for topic, _ in self._partitions]
        senders = Senders(self._sends, self._clients, topics)
        sent = partition.copy()
        doubtful: dict[int, None] = {}
        rows = zip(self._rows.texts, partition.tolist(), offset.tolist(), strict=True)
        for number, (text, where, at) in enumerate(rows):
            sequence[number] = at if text is None else text[1]
            known = senders.of(text, where, at)
            unclear = known is None and text is not None and senders.shared(text[0], where)
            if unclear or (text is not None and senders.doubtful(text, where, at)):
                doubtful[where] = None
            if known is not None:
                sender[number] = known
                continue
            # A record of an unknown producer is identified by its offset alone.
            sender[number] = self._implied(None if text is None or unclear else text[0], senders.by_prefix)
            if unclear:
                sequence[number] = at
            elif text is not None:
                there = senders.elsewhere(text)
                # In another topic a value without a prefix may be anybody's.
                if there is not None and (text[0] or topics[there] == topics[where]):
                    sent[number] = there
        for where in doubtful:
            self._gaps.add(*self._where(where), "records", _ANOTHER_RUN)
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

    def _implied(self, prefix: str | None, by_prefix: dict[str | None, int]) -> int:
        """Returns the producer of a record that no file reports: the one with that prefix, else one that was not
        imported."""
        if prefix not in by_prefix:
            client = by_prefix[prefix] = len(self._clients) + 1
            named = "others" if prefix is None else prefix or "without-prefix"
            one = self._clients[1]
            self._clients[client] = RunOfClient(
                one.file, "verifiable-producer", f"not-imported-{named}", one.begun_ms, one.ended_ms, ordered=False
            )
        return by_prefix[prefix]

    def _imported_clients(
        self, sends: Mapping[str, np.ndarray], reads: Mapping[str, np.ndarray], start_ms: int
    ) -> list[ImportedClient]:
        of: dict[int, set[int]] = {}
        for rows, who in ((sends, "client"), (reads, "client"), (reads, "sender")):
            pairs = np.unique(np.stack([rows[who], rows["partition"]], axis=1), axis=0) if len(rows[who]) else ()
            for client, partition in np.asarray(pairs).tolist():
                of.setdefault(client, set()).add(partition)
        counts = np.bincount(reads["client"], minlength=len(self._clients) + 1)
        return [
            ImportedClient(
                client=number,
                role=client.role,
                name=client.name,
                issued=int(counts[number]) if client.role == "verifiable-consumer" else NONE,
                started_ns=((client.begun_ms or start_ms) - start_ms) * NS_PER_MS,
                ended_ns=((client.ended_ms or start_ms) - start_ms) * NS_PER_MS,
                partitions=tuple(sorted(of.get(number, ()))),
                clock=number if client.ordered else NONE,
            )
            for number, client in self._clients.items()
        ]

    def _others(self, start_ms: int) -> dict[str, dict[str, np.ndarray]]:
        found = {}
        if self._rows.commits:
            table = np.array(self._rows.commits, dtype=np.int64)
            names = ("client", "invoked_ns", "completed_ns", "log_offset", "position", "partition", "outcome", "code")
            found["commits"] = dict(zip(names, table.T, strict=True)) | {"mode": np.full(len(table), _SYNC)}
        if self._rows.assignments:
            table = np.array(self._rows.assignments, dtype=np.int64)
            columns = dict(zip(("client", "done_ns", "partition", "event"), table.T, strict=True))
            found["assignments"] = columns | {
                "started_ns": columns["done_ns"],
                "incremental": np.zeros(len(table), "i8"),
            }
        for columns in found.values():
            for name in columns:
                if name.endswith("_ns"):
                    known = np.where(columns[name] == 0, start_ms, columns[name])
                    columns[name] = (known - start_ms) * NS_PER_MS
        return found
