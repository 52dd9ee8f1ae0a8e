"""A cell of a group by hand: what its members were reported, processed and committed, times in seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prozess.harness.config.configuration import GroupConfiguration, ProducerConfiguration, TopicConfiguration, Variant
from prozess.harness.interfaces.checking import CellHistory, PartitionHistory
from prozess.harness.interfaces.witnesses import GroupCase
from prozess.harness.plan.cell_work import GroupWork, group_session
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import MISSING, ObservationKind, Outcome, Role
from tests.support.cells.partitions import OK, PARTITION, PRODUCER, history, table

A, B, C = 11, 12, 13
"""Members: clients whose reads are of no audit."""
RETRY = PARTITION + 1
"""The partition of a retry topic."""
S = 1_000_000_000
ASSIGN, REVOKE, LOST, CLOSE = 1, 2, 3, 4
Row = Mapping[str, int]


def client(number: int, *, killed: bool = False, ended_s: float = 100) -> Row:
    ended = MISSING if killed else int(ended_s * S)
    return {"client": number, "role": Role.MEMBER, "complete": int(not killed), "ended_ns": ended, "exit_code": 0}


def beats(number: int, until_s: float, *, without: tuple[float, float] = (0, 0)) -> list[Row]:
    times = [t / 10 for t in range(int(until_s * 10) + 1)]
    return [{"client": number, "time_ns": int(t * S)} for t in times if not without[0] < t < without[1]]


def event(number: int, kind: int, at_s: float) -> Row:
    return {
        "client": number,
        "event": kind,
        "partition": PARTITION,
        "started_ns": int(at_s * S),
        "done_ns": int(at_s * S) + 1000,
    }


def span(number: int, at_s: float, offset: int, number_of: int = 0, kind: int = 1) -> Row:
    return {
        "client": number,
        "time_ns": int(at_s * S),
        "log_offset": offset,
        "partition": PARTITION,
        "event": kind,
        "span": number_of,
    }


def step(
    number: int, offset: int, at_s: float, *, done: bool = True, span: int = 0, sequence: int | None = None
) -> Row:
    return {
        "client": number,
        "log_offset": offset,
        "sequence": offset if sequence is None else sequence,
        "sender": PRODUCER,
        "partition": PARTITION,
        "span": span,
        "started_ns": int(at_s * S),
        "done_ns": int(at_s * S) + 1000 if done else MISSING,
    }


def commit(
    number: int, offset: int, at_s: float, *, took_s: float = 0.01, position: int | None = None, **more: int
) -> Row:
    return {
        "client": number,
        "log_offset": offset,
        "position": offset if position is None else position,
        "partition": PARTITION,
        "invoked_ns": int(at_s * S),
        "completed_ns": int((at_s + took_s) * S),
        "outcome": Outcome.OK,
        "mode": 1,
    } | more


def seen(offset: int, at_s: float) -> Row:
    return {
        "client": C,
        "kind": ObservationKind.COMMITTED,
        "partition": PARTITION,
        "value": offset,
        "time_ns": int(at_s * S),
    }


def drained(at_s: float) -> Row:
    return {
        "client": A,
        "kind": ObservationKind.DRAIN_BEGUN,
        "partition": PARTITION,
        "value": 1,
        "time_ns": int(at_s * S),
    }


def cell(
    *,
    records: int = 4,
    reads: Sequence[tuple[Any, ...]] = (),
    clients: Sequence[Row] = (client(A), client(B)),
    sentinel: int | None = 1000,
    group: Mapping[str, Any] | None = None,
    log: Sequence[tuple[int, int, int]] | None = None,
    late: bool = False,
    retry: PartitionHistory | None = None,
    **tables: Sequence[Row],
) -> CellHistory:
    """A cell with one partition that holds `records` records, at offsets 0, 1, …, and one of a retry topic if given; A begins
    at 0 unless reported otherwise."""
    sends = [(PRODUCER, n, OK, n) for n in range(records)]
    logged = [(n, PRODUCER, n) for n in range(records)] if log is None else list(log)
    configuration = GroupConfiguration(**(dict(group) if group else {}))
    given = {"positions": [span(A, 0, 0)], "heartbeats": [*beats(A, 99), *beats(B, 99)]} | tables
    return CellHistory(
        cell=Cell(
            cell=0,
            name="cell",
            workload="group",
            topic_name="cell-000",
            axes={},
            topic=TopicConfiguration(),
            producer=ProducerConfiguration(),
            work=GroupWork(configuration=configuration, session=group_session(configuration, Variant())),
            partitions=(PARTITION,) if retry is None else (PARTITION, RETRY),
            derived_topic_name=None if retry is None else "cell-000-retry",
            derived=() if retry is None else (RETRY,),
            late_partitions=(PARTITION,) if late else (),
        ),
        partitions={PARTITION: history(sends, logged, reads, sentinel=sentinel)}
        | ({} if retry is None else {RETRY: replace(retry, partition=RETRY)}),
        tables={
            name: table(name, given.get(name, ()))
            for name in (
                "transactions",
                "commits",
                "assignments",
                "positions",
                "heartbeats",
                "observations",
                "processed",
            )
        }
        | {"clients": table("clients", clients), "asked": table("observations", given.get("asked", ()))},
        clients=(),
    )


def read(number: int, offset: int, at_s: float) -> tuple[Any, ...]:
    return (number, offset, PRODUCER, offset, {"read_ns": int(at_s * S)})


def cases(result: Any) -> list[GroupCase]:
    assert result.count == len(result.witnesses)
    return [GroupCase(c) for c in result.witnesses["case"].tolist()]
