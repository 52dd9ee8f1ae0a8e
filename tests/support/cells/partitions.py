"""Hand-written partitions: rows as tuples, the smallest that show something.

    history(
        sends=[(PRODUCER, 0, OK, 0), (PRODUCER, 1, INFO, NONE)],     # client, sequence, outcome, acknowledged offset
        log=[(0, PRODUCER, 0)],                                     # offset, client, sequence: what the audit read
        reads=[(READER, 0, PRODUCER, 0)],                           # reader, offset, client, sequence, in order of reading
    )

A dict at the end of a row overrides single columns. `visible` is V(p), the same as the log unless reported otherwise. The
sentinel is sent, acknowledged and read by the audit at offset `sentinel`; None = the audit did not get there.
Times: sends begin at 10, 20, … and take 5; reads happen at 1010, 1020, …; the sentinel is sent at SENTINEL_NS.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from prozess.harness.columns import empty_rows
from prozess.harness.config.configuration import ProducerConfiguration, TopicConfiguration
from prozess.harness.interfaces.checking import CopyFacts, PartitionHistory, Retention
from prozess.harness.plan.plan import SENTINEL_CLIENT, Cell
from prozess.harness.schema import (
    METADATA,
    NONE,
    OBSERVATIONS,
    READS,
    REPLICAS,
    SENDS,
    SNAPSHOTS,
    TABLES,
    Isolation,
    MetadataKind,
    MetadataSource,
    ObservationKind,
    Outcome,
    Role,
    Table,
)

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO
PRODUCER, PRODUCER_2, PRODUCER_ACKS_1, PRODUCER_ACKS_0, CRASHED = 1, 2, 3, 4, 5
READER, READER_2, READER_COMMITTED, READER_COMMITTED_2, AUDIT, AUDIT_COMMITTED = 11, 12, 13, 14, 15, 16
CLIENTS = 17
ACKS = {PRODUCER: -1, PRODUCER_2: -1, PRODUCER_ACKS_1: 1, PRODUCER_ACKS_0: 0, CRASHED: -1}
COMMITTED_LEVEL = (READER_COMMITTED, READER_COMMITTED_2, AUDIT_COMMITTED)
ISSUED = 1000
PARTITION, OTHER_PARTITION = 7, 8
CELL = Cell(
    cell=0,
    name="cell",
    workload="log",
    topic_name="cell-000",
    axes={},
    topic=TopicConfiguration(),
    producer=ProducerConfiguration(),
    partitions=(PARTITION,),
)
SENTINEL_NS, AUDIT_NS = 1_000_000, 2_000_000
METADATA_ERROR_NS = 1_000
CORRUPT = {"sender": NONE, "sequence": NONE, "sent_partition": NONE, "key": NONE, "flags": 1}

Row = Sequence[Any]


def history(
    sends: Iterable[Row] = (),
    log: Iterable[Row] = (),
    reads: Iterable[Row] = (),
    *,
    visible: Iterable[Row] | None = None,
    sentinel: int | None = 1_000,
    issued: Mapping[int, int] | None = None,
    compacted: bool = False,
    log_start: int = 0,
) -> PartitionHistory:
    """One partition, PARTITION, with these rows. `issued`: client → sequences issued, where not ISSUED."""
    log = list(log)
    rows = [_send(number, row) for number, row in enumerate(sends)]
    given = [_read(1_010 + 10 * number, row) for number, row in enumerate(reads)]
    levels = ((AUDIT, log), (AUDIT_COMMITTED, log if visible is None else list(visible)))
    for client, audited in levels:
        given += [_read(AUDIT_NS + number, (client, *row)) for number, row in enumerate(audited)]
        if sentinel is not None:
            given.append(_read(AUDIT_NS + len(audited), (client, sentinel, SENTINEL_CLIENT, 0)))
    if sentinel is not None:
        times = {"invoked_ns": SENTINEL_NS, "completed_ns": SENTINEL_NS + 5}
        rows.append(_send(0, (SENTINEL_CLIENT, 0, OK, sentinel, times)))
    ends = {} if sentinel is None else dict.fromkeys((Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED), sentinel)
    rows.sort(key=lambda row: (row["client"], row["sequence"]))
    given.sort(key=lambda row: row["client"])  # stable: the order of reading stays
    return make(rows, given, ends=ends, issued=issued or {}, compacted=compacted, log_start=log_start)


def make(
    sends: Sequence[Mapping[str, int]],
    reads: Sequence[Mapping[str, int]],
    *,
    ends: Mapping[int, int],
    issued: Mapping[int, int],
    compacted: bool = False,
    log_start: int = 0,
    metadata: Sequence[Mapping[str, int]] = (),
    observations: Sequence[Mapping[str, int]] = (),
    min_insync_replicas: int = 2,
    copies: Mapping[int, CopyFacts] | None = None,
    replicas: Sequence[Mapping[str, int]] = (),
    snapshots: Sequence[Mapping[str, int]] = (),
    retention: Retention | None = None,
) -> PartitionHistory:
    """The arrays of these rows, which are in their final order, and the clients named in this module."""
    role, isolation = np.zeros(CLIENTS, dtype=np.int32), np.full(CLIENTS, -1, dtype=np.int32)
    role[SENTINEL_CLIENT], role[list(ACKS)] = Role.SENTINEL, Role.PRODUCER
    role[READER : AUDIT_COMMITTED + 1] = Role.READER
    role[[AUDIT, AUDIT_COMMITTED]] = Role.AUDIT
    isolation[READER : AUDIT_COMMITTED + 1] = Isolation.READ_UNCOMMITTED
    isolation[list(COMMITTED_LEVEL)] = Isolation.READ_COMMITTED
    limits, acks = np.full(CLIENTS, NONE, dtype=np.int64), np.zeros(CLIENTS, dtype=np.int32)
    for client, value in ACKS.items():
        acks[client] = value
        limits[client] = issued.get(client, NONE if client == CRASHED else ISSUED)
    return PartitionHistory(
        partition=PARTITION,
        sends=_columns(SENDS, sends),
        reads=_columns(READS, reads),
        client_role=role,
        client_isolation=isolation,
        client_issued=limits,
        client_acks=acks,
        audit_end=dict(ends),
        compacted=compacted,
        log_start=log_start,
        client_clock=np.ones(CLIENTS, dtype=np.int32),
        metadata=_columns(METADATA, metadata or [state_row(-1, leader=1, epoch=0, isr=(1, 2, 3))]),
        observations=_columns(OBSERVATIONS, observations),
        min_insync_replicas=min_insync_replicas,
        metadata_error_ns=METADATA_ERROR_NS,
        retention=retention,
        assignment=tuple(copies or ()),
        copies=copies or {},
        replicas=_columns(REPLICAS, replicas),
        snapshots=_columns(SNAPSHOTS, snapshots),
    )


def state_row(
    time_ns: int,
    *,
    leader: int,
    epoch: int,
    isr: Iterable[int],
    elr: Iterable[int] = (),
    last_known: Iterable[int] = (),
) -> dict[str, int]:
    """A row of ground truth: who led and who was in sync, of replicas 1, 2 and 3."""
    return _nothing(METADATA) | {
        "time_ns": time_ns,
        "isr": mask(isr),
        "elr": mask(elr),
        "last_known_elr": mask(last_known),
        "replicas": mask((1, 2, 3)),
        "log_position": time_ns,
        "kind": int(MetadataKind.PARTITION),
        "source": int(MetadataSource.CONTROLLER_LOG),
        "partition": PARTITION,
        "leader": leader,
        "leader_epoch": epoch,
    }


def sample_row(time_ns: int, *, node: int, epoch: int) -> dict[str, int]:
    """What broker `node` stated of the partition."""
    said = state_row(time_ns, leader=1, epoch=epoch, isr=(1, 2, 3))
    return said | {"node": node, "source": int(MetadataSource.SAMPLE), "log_position": NONE}


def watermark_row(time_ns: int, *, node: int, epoch: int, value: int) -> dict[str, int]:
    """The high watermark, as leader `node` informed it."""
    kind = int(ObservationKind.LEADER_HIGH_WATERMARK)
    said = {
        "time_ns": time_ns,
        "value": value,
        "partition": PARTITION,
        "kind": kind,
        "node": node,
        "leader_epoch": epoch,
    }
    return _nothing(OBSERVATIONS) | said


def mask(nodes: Iterable[int]) -> int:
    """Bit n set for broker n."""
    return sum(1 << node for node in nodes)


def _nothing(table: Table) -> dict[str, int]:
    return dict.fromkeys(table.column_names, NONE)


def send_row(client: int, sequence: int, outcome: int, offset: int, invoked_ns: int) -> dict[str, int]:
    """A row of `sends`, completed 5 ns later."""
    return {
        "client": client,
        "sequence": sequence,
        "outcome": outcome,
        "log_offset": offset,
        "invoked_ns": invoked_ns,
        "completed_ns": invoked_ns + 5,
        "transaction": NONE,
        "key": NONE,
        "partition": PARTITION,
        "code": 0,
        "size": 100,
    }


def read_row(reader: int, offset: int, sender: int, sequence: int, read_ns: int) -> dict[str, int]:
    """A row of `reads`, in span 0, of a record that was sent here."""
    return {
        "client": reader,
        "log_offset": offset,
        "sender": sender,
        "sequence": sequence,
        "read_ns": read_ns,
        "key": NONE,
        "origin": NONE,
        "partition": PARTITION,
        "sent_partition": PARTITION,
        "span": 0,
        "flags": 0,
        "leader_epoch": NONE,
    }


def _send(number: int, row: Row) -> dict[str, int]:
    return send_row(*row[:4], 10 * (number + 1)) | (row[4] if len(row) > 4 else {})


def _read(read_ns: int, row: Row) -> dict[str, int]:
    return read_row(*row[:4], read_ns) | (row[4] if len(row) > 4 else {})


def _columns(table: Table, rows: Sequence[Mapping[str, int]]) -> dict[str, np.ndarray]:
    """What a row does not say of the client that wrote it, or the broker that was asked, is NONE."""
    rows = [{"client": NONE, "isolation": NONE, "leader_epoch": NONE} | row for row in rows]
    return {name: np.array([row[name] for row in rows], dtype=e.dtype) for name, e in empty_rows(table).items()}


# ----------------------------------------------------------------------------------------------------------------------
# Rows by hand, as the columns of their table.


def table(name: str, rows: Sequence[Mapping[str, int]]) -> dict[str, np.ndarray]:
    """A table in the Parquet form; what a row does not say is NONE."""
    return {c: np.array([row.get(c, NONE) for row in rows], dtype=a.dtype) for c, a in empty_rows(TABLES[name]).items()}
