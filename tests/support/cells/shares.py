"""A cell of a share group by hand: what its members were given, acknowledged and were answered, times in seconds."""

from collections.abc import Mapping, Sequence

from prozess.harness.config.configuration import ProducerConfiguration, ShareConfiguration, TopicConfiguration
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.plan.cell_work import ShareWork
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import MISSING, NONE, Acknowledgement, ObservationKind, Outcome, Role
from tests.support.cells.groups import beats, drained
from tests.support.cells.partitions import OK, PARTITION, PRODUCER, history, table

A, B = 11, 12
"""Members: clients whose reads are of no audit."""
S = 1_000_000_000
ACCEPT, RELEASE, REJECT = Acknowledgement
Row = Mapping[str, int]


def ns(at_s: float | None) -> int:
    return MISSING if at_s is None else round(at_s * S)


def given(
    number: int,
    offset: int,
    at_s: float,
    did: int = NONE,
    *,
    count: int = 1,
    absent_s: float | None = None,
    did_s: float | None = None,
    answered: bool = True,
    renewed_s: float | None = None,
    sequence: int | None = None,
) -> Row:
    """A delivery: the buffer was empty 0.1 s before, and it was acknowledged 0.1 s after and answered at once, unless stated
    otherwise."""
    decided = None if did == NONE else at_s + 0.1 if did_s is None else did_s
    return {
        "client": number,
        "absent_ns": ns(at_s - 0.1 if absent_s is None else absent_s),
        "acquired_ns": ns(at_s),
        "acknowledged_ns": ns(decided),
        "answered_ns": ns(decided if answered else None),
        "renewed_ns": ns(renewed_s),
        "log_offset": offset,
        "sequence": offset if sequence is None else sequence,
        "sender": PRODUCER,
        "partition": PARTITION,
        "delivery_count": count,
        "acknowledgement": did,
        "outcome": Outcome.OK if did != NONE and answered else Outcome.INFO,
        "code": 0,
    }


def offsets(kind: ObservationKind, value: int, at_s: float, number: int = A) -> Row:
    return {"client": number, "kind": kind, "partition": PARTITION, "value": value, "time_ns": ns(at_s)}


def start(value: int, at_s: float, number: int = A) -> Row:
    return offsets(ObservationKind.SHARE_START, value, at_s, number)


def dead_letters(*queue: int) -> list[Row]:
    """What a member read in the dead-letter queue, to its end, after the group had nothing left."""
    read = [offsets(ObservationKind.DEAD_LETTER, one, 55) for one in queue]
    return [*nothing_left(50), *read, offsets(ObservationKind.DEAD_LETTERS_READ, len(queue), 56)]


def ended(number: int, exit_code: int) -> Row:
    """A member's end: 0, in order."""
    return {"client": number, "planned": number, "role": Role.READER, "exit_code": exit_code}


def nothing_left(at_s: float) -> list[Row]:
    return [drained(at_s), offsets(ObservationKind.SHARE_LAG, 0, at_s + 1)]


def share_cell(
    *deliveries: Row,
    records: int = 4,
    observations: Sequence[Row] | None = None,
    heartbeats: Sequence[Row] = (*beats(A, 99), *beats(B, 99)),
    clients: Sequence[Row] = (),
    **share: object,
) -> CellHistory:
    """A cell with one partition that holds `records` records, at offsets 0, 1, …; `share`: settings of the group."""
    sends = [(PRODUCER, n, OK, n) for n in range(records)]
    configuration = ShareConfiguration.model_validate({"lock_duration_ms": 4_000} | share)
    tables = {
        "deliveries": deliveries,
        "observations": nothing_left(50) if observations is None else observations,
        "heartbeats": heartbeats,
        "clients": clients,
    }
    return CellHistory(
        cell=Cell(
            cell=0,
            name="cell",
            workload="share",
            topic_name="cell-000",
            axes={},
            topic=TopicConfiguration(),
            producer=ProducerConfiguration(),
            work=ShareWork(configuration=configuration),
            partitions=(PARTITION,),
        ),
        partitions={PARTITION: history(sends, [(n, PRODUCER, n) for n in range(records)], sentinel=1000)},
        tables={name: table(name, rows) for name, rows in tables.items()}
        | {name: table(name, ()) for name in ("commits", "assignments", "positions", "processed", "transactions")},
        clients=(),
    )
