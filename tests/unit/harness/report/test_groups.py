"""What rebalances cost, from rows of callbacks."""

from types import SimpleNamespace
from typing import Any

from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.report.summary import Cost, group_costs, group_lines
from prozess.harness.schema import MISSING, ObservationKind
from tests.support.cells.partitions import table

S = 1_000_000_000
ASSIGN, REVOKE, CLOSE = 1, 2, 4
A, B = 3, 4


def event(client: int, kind: int, at_s: float, partition: int = 0) -> dict[str, int]:
    at_ns = int(at_s * S)
    return {"client": client, "event": kind, "partition": partition, "started_ns": at_ns, "done_ns": at_ns}


def costs(*events: dict[str, int], killed: tuple[int, ...] = ()) -> Any:
    document = {
        "name": "x",
        "title": "t",
        "workload": "group",
        "topics": {"partitions": 1},
        "axes": {"group.members": [2]},
    }
    plan = make_plan(parse_trial(document, source="x"), seed=1)
    ended = [{"client": c, "ended_ns": MISSING if c in killed else 100 * S} for c in (A, B)]
    beats = [{"client": c, "time_ns": t * S} for c in (A, B) for t in range(7)]
    told = [{"partition": 0, "kind": int(ObservationKind.DRAIN_BEGUN), "time_ns": 20 * S}]
    tables = {
        "assignments": table("assignments", list(events)),
        "clients": table("clients", ended),
        "heartbeats": table("heartbeats", beats),
        "observations": table("observations", told),
    }
    history = SimpleNamespace(table=tables.__getitem__)
    assert group_lines(plan, history)[-1].startswith("| 0 | librdkafka | classic-cooperative |")
    return group_costs(plan, history)[0]


def test_a_partition_that_is_handed_over_has_no_owner_in_between():
    assert costs(event(A, ASSIGN, 1), event(A, REVOKE, 5), event(B, ASSIGN, 7)) == Cost(3, 0, 2.0, 2.0)


def test_a_partition_that_comes_back_to_whoever_gave_it_up_stood_still_for_nothing():
    assert costs(event(A, ASSIGN, 1), event(A, REVOKE, 5), event(A, ASSIGN, 5.5)) == Cost(3, 1, 0.5, 0.5)


def test_the_dead_own_nothing_and_what_is_after_the_end_does_not_count():
    assert costs(event(A, ASSIGN, 1), event(B, ASSIGN, 9), killed=(A,)) == Cost(2, 0, 3.0, 3.0)
    assert costs(event(A, ASSIGN, 1), event(A, CLOSE, 18)) == Cost(1, 0, 2.0, 2.0)
    assert costs(event(A, ASSIGN, 1), event(A, CLOSE, 30), event(B, ASSIGN, 40)) == Cost(2, 0, 0.0, 0.0)


def test_a_group_that_was_never_assigned_anything_cost_nothing():
    assert costs() == Cost(0, 0, 0.0, 0.0)
