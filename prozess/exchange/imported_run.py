"""This module writes every imported history as a run directory with a plan and all tables, and with the faults that the
other program's history states."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from prozess.harness.config.configuration import IsolationLevel, Variant
from prozess.harness.errors import BadInput
from prozess.harness.guarantees.evidence.ground_truth import NO_COPY_DESTROYED, OF_UNKNOWN_EFFECT, UNSTATED
from prozess.harness.guarantees.verdict.judge import refuse_idle
from prozess.harness.history.manifest import seal_recorded
from prozess.harness.history.parquet import TableWriter, ensure_every_table, filled, write_table
from prozess.harness.history.row_groups import SHARED_ROWS_MAX
from prozess.harness.plan.axes import expand
from prozess.harness.plan.cell_work import work_with
from prozess.harness.plan.plan import Cell, EvidenceGap, Plan, PlannedClient, PlannedPartition, ReadersBegin
from prozess.harness.plan.trial import Limits, Trial
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.plan.validity import Combination
from prozess.harness.recording.codes import Dictionaries
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.schema import NONE, RECORDER_CLIENT, TABLES, FaultPhase, Isolation, Role, Tristate, role_named


@dataclass(slots=True)
class StatedFault:
    """A fault as another program's history states it. Times in ns on the history's clock; `end_ns` None = not ended."""

    f: str
    begin_ns: int
    end_ns: int | None
    value: str
    """The targets and the result of the fault, as the history states them."""


# An import ends in a run directory with a plan and all tables, which the ordinary check and judgement read.
#
# Its plan says that nobody audited the topics; its faults are *unstated* (one fault of a kind that nobody described:
# it may have done anything) unless the user states that there were none.


Columns = Mapping[str, np.ndarray]
Part = Mapping[str, np.ndarray | int]
"""Columns of rows of one partition; a column that has one value may be this value."""
DEFAULTS: Mapping[str, Any] = {"producer.acks": "all", "producer.enable_idempotence": True}
"""What an import assumes of the configuration, unless `settings` says otherwise."""
CLIENTS_MAX = RECORDER_CLIENT
"""Ids of clients are below it."""
PACKED_BITS_MAX, _RADIX_BITS = 63, 16
PARTITIONS_END = 2**31
"""Kafka's protocol numbers partitions in 32 bits."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The options of an import: facts that the history itself does not contain."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """`scope.key` → value, as under `base` of a trial."""
    isolation: IsolationLevel = "read_committed"
    """For every consumer."""
    faults: Literal["unstated", "none"] = "unstated"
    kafka_version: str | None = None
    same_clock: bool = False
    """All clients used one clock, whatever the history says about it."""
    decide: tuple[str, ...] = ()
    """Guarantees that were chosen to decide the verdict."""


@dataclass(frozen=True, slots=True)
class ImportedClient:
    """What an importer knows of one client. `client` is its id, from 1; times are ns of the trial's clock."""

    client: int
    role: str
    name: str
    issued: int
    """Sequences below it were issued; NONE = not known. For readers: records read."""
    started_ns: int
    ended_ns: int
    partitions: tuple[int, ...] = ()
    reads: bool = False
    """Did it read records? Every client that is no producer did."""
    clock: int = 0
    """Clients on the same clock may be ordered. NONE = its times prove no order, whatever clocks there are."""


class PartitionedRows:
    """The rows of a table that is clustered by partition, in the order in which they are written.

    `parts` yields columns, partition after partition, ascending. A partition may come in several parts; then all of them
    but the last have ROW_GROUP_MAX rows. It is called each time that the rows are wanted, so nobody needs to hold all of
    them at once.
    """

    def __init__(self, count: int, parts: Callable[[], Iterable[Part]]) -> None:
        self._count, self.parts = count, parts

    def __len__(self) -> int:
        return self._count


@dataclass(frozen=True, slots=True)
class Imported:
    """A history as it was read. What is not given in `sends` and `reads` is unknown. The reads of one client in one partition
    are in the order of reading."""

    origin: Literal["jepsen", "verifiable"]
    title: str
    workload: str
    topics: Sequence[tuple[str, int]]
    """(topic, partition number) of each dense partition id."""
    clients: Sequence[ImportedClient]
    sends: PartitionedRows
    reads: PartitionedRows
    others: Mapping[str, Columns] = field(default_factory=dict)
    """Tables that are not partitioned."""
    faults: Sequence[StatedFault] = ()
    """The faults that the other program made, as its history states them."""
    notes: Sequence[str] = ()
    """Notes for the user about how the history was understood."""
    gaps: Sequence[EvidenceGap] = ()
    """The gaps in the history, by dense partition id."""
    readers_begin: ReadersBegin = "unstated"
    """The same as `Plan.readers_begin`."""


def write_imported(run: RunDirectory, imported: Imported, options: ImportOptions, *, command: str) -> Plan:
    """Writes the plan, the tables and their manifest. `command`: the command that made the run. BadInput for settings that
    cannot be, or for more clients than can be distinguished."""
    if len(imported.clients) >= CLIENTS_MAX:
        raise BadInput(
            f"{len(imported.clients):,} clients are more than the {CLIENTS_MAX - 1:,} that can be distinguished."
        )
    _refuse_topics(imported.topics)
    plan = _plan(imported, options)
    refuse_idle(plan, options.decide)
    run.plan.write_text(plan.model_dump_json(indent=1), encoding="utf-8")
    write_json(run.source, {"command": command, "notes": list(imported.notes)})
    write_json(run.clock, {"start_monotonic_ns": 0, "wall_minus_monotonic_ns": 0, "wall_error_ns": 0})
    if options.kafka_version is not None:
        write_json(run.cluster, {"kafka_version": options.kafka_version})
    dictionaries = Dictionaries(run.dictionaries)
    _write_partitioned(run, "sends", imported.sends)
    _write_partitioned(run, "reads", imported.reads)
    for name, columns in imported.others.items():
        write_table(run, name, columns, length=len(next(iter(columns.values()))))
    _write_clients(run, imported.clients, options)
    _write_planned(run, plan, dictionaries)
    begun_ns = min((client.started_ns for client in imported.clients), default=0)
    _write_faults(run, imported.faults, dictionaries, begun_ns if options.faults == UNSTATED else None)
    ensure_every_table(run)
    seal_recorded(run)
    return plan


def _refuse_topics(topics: Sequence[tuple[str, int]]) -> None:
    """Raises BadInput for topics and partitions that Kafka cannot have."""
    for topic, number in topics:
        if not topic.isprintable():
            raise BadInput(
                f"Topic {topic!a}: its name has characters that cannot be printed. Kafka's topics have letters, digits, "
                "'.', '_' and '-' alone; mend the history, or leave that topic out."
            )
        if number >= PARTITIONS_END:
            raise BadInput(
                f"Partition {number} of topic {topic!r}: Kafka numbers partitions from 0 to {PARTITIONS_END - 1}. Mend the "
                "history, or leave that partition out."
            )


def new_directory(path: Path) -> RunDirectory:
    """Makes an empty run directory. BadInput if something is there already, or it cannot be made."""
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise BadInput(
                f"--out {str(path)!r} is there already and not an empty directory. Give another one, or remove it."
            )
        run = RunDirectory(path.resolve())
        run.create()
    except OSError as error:
        raise BadInput(f"--out {str(path)!r} cannot be made: {error.strerror}. Give a directory that can.") from error
    return run


def _plan(imported: Imported, options: ImportOptions) -> Plan:
    trial, combination = _configured(imported, options)
    partitions = tuple(
        PlannedPartition(partition=number, topic_name=topic, number=of_topic, cell=0, assignment=())
        for number, (topic, of_topic) in enumerate(imported.topics)
    )
    every = tuple(range(len(partitions)))
    cell = Cell(
        cell=0,
        name=imported.origin,
        workload=imported.workload,
        topic_name=imported.topics[0][0] if imported.topics else "",
        axes=combination.axes,
        topic=combination.topic,
        producer=combination.producer,
        work=work_with(combination.own, trial.variant),
        partitions=every,
    )
    clients = tuple(
        PlannedClient(
            client=c.client,
            role=c.role,
            name=c.name,
            partitions=c.partitions,
            producer=combination.producer if role_named(c.role) is Role.PRODUCER else None,
            isolation_level=options.isolation if _reads(c) else None,
        )
        for c in imported.clients
    )
    return Plan(
        origin=imported.origin,
        audited=False,
        trial=trial.name,
        title=imported.title,
        scenarios=(),
        seed=0,
        backend="none",
        variant=trial.variant,
        limits=Limits(),
        settle_s=0,
        cells=(cell,) if every else (),
        excluded=(),
        partitions=partitions,
        clients=clients,
        steps=(),
        controls=(),
        metrics=False,
        gaps=(*imported.gaps, *_cleaning(imported, combination)),
        readers_begin=imported.readers_begin,
        decide=options.decide,
    )


def _cleaning(imported: Imported, combination: Combination) -> tuple[EvidenceGap, ...]:
    """Returns the cleaning of all partitions: compaction may have removed any record. The keys of records are not known,
    and Kafka's cleaner also drops records without a key, which a topic has that was made compacted later."""
    if combination.topic.cleanup_policy != "compact" or not imported.topics:
        return ()
    why = "compaction may have removed records, and an imported history does not say which key a record has"
    return (EvidenceGap(partitions=tuple(range(len(imported.topics))), hides="records", why=why),)


def _configured(imported: Imported, options: ImportOptions) -> tuple[Trial, Combination]:
    document = {
        "name": imported.origin,
        "title": imported.title,
        "workload": imported.workload,
        "base": {**DEFAULTS, **options.settings},
    }
    trial = parse_trial(document, source="import")
    if options.kafka_version is not None:
        trial = trial.model_copy(update={"variant": Variant(kafka_version=options.kafka_version)})
    combinations, _ = expand(trial, trial.workloads[0])
    return trial, combinations[0]


def clustered(columns: Columns, by: Sequence[str]) -> PartitionedRows:
    """Returns rows sorted by partition, then by the columns `by`. Equal rows keep their order."""
    return by_partition(columns, stable_order([np.asarray(columns[key]) for key in ("partition", *by)]))


def by_partition(columns: Columns, order: np.ndarray) -> PartitionedRows:
    """Returns rows in an order in which partitions ascend."""
    bounds = [0, *(np.flatnonzero(np.diff(columns["partition"][order])) + 1).tolist(), len(order)]
    parts = [order[begin:end] for begin, end in pairwise(bounds) if end > begin]
    return PartitionedRows(
        len(order), lambda: ({key: np.asarray(values)[part] for key, values in columns.items()} for part in parts)
    )


def stable_order(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Returns intp[n]: the order of rows by columns of integers, the first column first. Equal rows keep their order.

    The columns are packed into one number. numpy sorts numbers of 16 bits by radix, which takes a fifth of the time of other
    sorts: so up to 32 bits are sorted 16 at a time, and more as one number with that of the row behind it.
    """
    count = len(columns[0])
    least = [int(column.min(initial=0)) for column in columns]
    widths = [(int(column.max(initial=0)) - low).bit_length() for column, low in zip(columns, least, strict=True)]
    width, row_bits = sum(widths), count.bit_length()
    if width > 2 * _RADIX_BITS and width + row_bits > PACKED_BITS_MAX:
        return np.lexsort(columns[::-1])
    packed = np.zeros(count, dtype=np.int64)
    for column, low, bits in zip(columns, least, widths, strict=True):
        packed <<= bits
        packed |= column - low if column.dtype == np.int64 else column.astype(np.int64) - low
    if width <= 2 * _RADIX_BITS:
        order = np.argsort(packed.astype(np.uint16), kind="stable")
        if width > _RADIX_BITS:
            order = order[np.argsort((packed >> _RADIX_BITS).astype(np.uint16)[order], kind="stable")]
        return order
    packed <<= row_bits
    packed |= np.arange(count)
    packed.sort()
    packed &= (1 << row_bits) - 1
    return packed


def _write_partitioned(run: RunDirectory, name: str, rows: PartitionedRows) -> None:
    """Writes partition after partition. Small ones share a row group: an import has one cell, and damage costs all of it."""
    table = TABLES[name]
    with TableWriter(run, table) as writer:
        for together in _small_together(rows.parts()):
            length = sum(map(_length, together))
            writer.write(filled(table, _joined(together), length=length))


def _small_together(parts: Iterable[Part]) -> Iterator[Sequence[Part]]:
    """Yields parts in their order, several of them together as long as they have no more than SHARED_ROWS_MAX rows."""
    held: list[Part] = []
    rows = 0
    for part in parts:
        length = _length(part)
        if held and rows + length > SHARED_ROWS_MAX:
            yield held
            held, rows = [], 0
        held.append(part)
        rows += length
    if held:
        yield held


def _length(part: Part) -> int:
    return next(len(column) for column in part.values() if not isinstance(column, int))


def _joined(parts: Sequence[Part]) -> Mapping[str, np.ndarray | int]:
    """Returns the rows of several parts as one part. A column with one value in all of them stays one value."""
    if len(parts) == 1:
        return parts[0]
    lengths = [_length(part) for part in parts]
    joined: dict[str, np.ndarray | int] = {}
    for name in parts[0]:
        columns = [part[name] for part in parts]
        values = [column for column in columns if isinstance(column, int)]
        if len(values) < len(columns):
            pairs = zip(columns, lengths, strict=True)
            joined[name] = np.concatenate([np.full(n, c) if isinstance(c, int) else c for c, n in pairs])
        else:
            joined[name] = values[0] if len(set(values)) == 1 else np.repeat(np.array(values), lengths)
    return joined


def _reads(client: ImportedClient) -> bool:
    return client.reads or role_named(client.role) is Role.READER


def _clock_of(client: ImportedClient, options: ImportOptions) -> int:
    return 0 if options.same_clock and client.clock != NONE else client.clock


def _write_clients(run: RunDirectory, clients: Sequence[ImportedClient], options: ImportOptions) -> None:
    level = Isolation[options.isolation.upper()]
    ids = np.array([c.client for c in clients], dtype=np.int32)
    roles = [role_named(c.role) for c in clients]
    columns: dict[str, np.ndarray | int] = {
        "client": ids,
        "planned": ids,
        "started_ns": np.array([c.started_ns for c in clients], dtype=np.int64),
        "ended_ns": np.array([c.ended_ns for c in clients], dtype=np.int64),
        "issued": np.array([c.issued for c in clients], dtype=np.int64),
        "role": np.array(roles, dtype=np.int32),
        "isolation": np.array([level if _reads(c) else Isolation.NOT_A_READER for c in clients], dtype=np.int32),
        "exit_code": NONE,
        "clock": np.array([_clock_of(c, options) for c in clients], dtype=np.int32),
        "complete": 1,
    }
    write_table(run, "clients", columns, length=len(clients))


def _write_planned(run: RunDirectory, plan: Plan, dictionaries: Dictionaries) -> None:
    texts = dictionaries.codes("topic", [planned.topic_name for planned in plan.partitions])
    columns: dict[str, np.ndarray | int] = {
        "partition": np.array([p.partition for p in plan.partitions], dtype=np.int32),
        "topic": np.array(texts, dtype=np.int32),
        "number": np.array([p.number for p in plan.partitions], dtype=np.int32),
        "cell": 0,
        "replicas": 0,
    }
    write_table(run, "partitions", columns, length=len(plan.partitions))
    names = np.array(dictionaries.codes("cell", [cell.name for cell in plan.cells]), dtype=np.int32)
    write_table(run, "cells", {"cell": np.arange(len(names)), "name": names}, length=len(names))


def _write_faults(
    run: RunDirectory, stated: Sequence[StatedFault], dictionaries: Dictionaries, unstated_since_ns: int | None
) -> None:
    """Writes the stated faults, and after them one fault that stands for all unstated ones, unless there are none."""
    ending = OF_UNKNOWN_EFFECT if unstated_since_ns is not None else NO_COPY_DESTROYED
    rows = []
    for number, fault in enumerate(stated):
        kind = dictionaries.code("fault", f"{fault.f}{ending}")
        detail = dictionaries.code("detail", fault.value) if fault.value else NONE
        rows.append((fault.begin_ns, number, kind, FaultPhase.APPLIED, detail))
        rows.append((fault.begin_ns, number, kind, FaultPhase.VERIFIED, detail))
        if fault.end_ns is not None:
            rows.append((fault.end_ns, number, kind, FaultPhase.UNDONE, NONE))
    if unstated_since_ns is not None:
        code = dictionaries.code("fault", UNSTATED)
        rows.append((unstated_since_ns, len(stated), code, FaultPhase.APPLIED, NONE))
    names = ("time_ns", "fault", "kind", "phase", "detail")
    columns = {name: np.array([row[index] for row in rows], dtype=np.int64) for index, name in enumerate(names)}
    write_table(run, "faults", {**columns, "effect": Tristate.UNKNOWN}, length=len(rows))
