"""What a cluster did when a fault struck: times of the fault itself, when leaders were decided and known, who left ISRs."""

import numpy as np
import pytest

from prozess.harness.guarantees.evidence.ground_truth import fault_records
from prozess.harness.impact.reactions import ScheduleOutcome, reactions
from prozess.harness.plan.schedule import Step
from prozess.harness.recording.codes import broker_mask
from prozess.harness.schema import MISSING, NONE, FaultPhase, MetadataKind, MetadataSource, StepOutcome, Tristate

MS = 1_000_000
PLANNED = [
    Step.model_validate(
        {
            "name": "strike",
            "do": {
                "kind": "fault",
                "fault": "partition",
                "targets": ["leader(0)"],
                "parameters": {"others": "brokers"},
            },
        }
    ),
    Step.model_validate({"name": "heal", "do": {"kind": "heal"}}),
]
DICTIONARIES = {"fault": ["partition"], "detail": ["datagrams do not arrive"]}


def table(rows, **defaults):
    names = sorted({name for row in rows for name in row} | set(defaults))
    return {name: np.array([row.get(name, defaults.get(name)) for row in rows], dtype=np.int64) for name in names}


def struck(*phases, undone=True):
    """Of broker 1 alone, at the times given in ms: journaled, applied, verified, undone, seen to be undone."""
    kinds = [FaultPhase.JOURNALED, FaultPhase.APPLIED, FaultPhase.VERIFIED, FaultPhase.UNDONE, FaultPhase.UNDO_VERIFIED]
    rows = [
        {
            "time_ns": at * MS,
            "phase": kind,
            "detail": 0 if kind is FaultPhase.VERIFIED else NONE,
            "effect": Tristate.YES if kind in (FaultPhase.VERIFIED, FaultPhase.UNDO_VERIFIED) else Tristate.UNKNOWN,
        }
        for at, kind in zip(phases, kinds, strict=False)
    ]
    return table(rows, fault=0, kind=0, step=0, node=1, peer=2)


def view(at_ms, node, leader, epoch, isr, partition=0):
    return {
        "time_ns": at_ms * MS,
        "source": MetadataSource.CONTROLLER_LOG if node is None else MetadataSource.SAMPLE,
        "node": NONE if node is None else node,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": broker_mask(isr),
        "partition": partition,
    }


BEFORE = [view(1, node, 1, 4, (1, 2, 3)) for node in (None, 1, 2, 3)]


def reaction(faults, *views, healed_ms=None, aimed_at=(1,)):
    steps = table([{"step": 1, "fired_ns": MISSING if healed_ms is None else healed_ms * MS}], outcome=StepOutcome.DONE)
    schedule = ScheduleOutcome(PLANNED, steps, {0: list(aimed_at)})
    metadata = table([*BEFORE, *views], kind=MetadataKind.PARTITION)
    return reactions(fault_records(faults, DICTIONARIES), faults, metadata, schedule)[0]


def test_making_proving_and_undoing_take_what_lies_between_their_rows_and_the_step_that_asked():
    found = reaction(struck(100, 130, 600, 5020, 5090), healed_ms=5000)
    assert (found.apply_ms, found.verify_ms, found.undo_ms) == (30, 470, 90)
    assert (found.what, found.effect, found.seen) == (
        "partition leader others=brokers",
        "yes",
        "datagrams do not arrive",
    )


def test_a_fault_that_ends_itself_is_asked_to_end_when_it_is_proven():
    assert reaction(struck(100, 130, 600, 640, 660)).undo_ms == 60


def test_a_fault_that_was_never_undone_has_no_such_time():
    found = reaction(struck(100, 130, 600))
    assert (found.apply_ms, found.undo_ms) == (30, None)


def test_a_leader_is_known_when_the_last_broker_that_was_not_hit_names_it_and_decided_before():
    views = [view(4000, None, 2, 5, (2, 3)), view(4200, 2, 2, 5, (2, 3)), view(4700, 3, 2, 5, (2, 3))]
    found = reaction(struck(100, 130, 600, 9000, 9001), *views, healed_ms=8990)
    assert (found.led, found.decided_ms, found.leader_ms) == ((0,), (3870,), (4570,))
    assert (found.copies, found.isr_left) == (1, 1)


@pytest.mark.parametrize(
    "views",
    [
        [view(4200, 2, 2, 5, (2, 3))],  # broker 3 never says so
        [view(4200, 2, 1, 5, (1, 2, 3)), view(4300, 3, 1, 5, (1, 2, 3))],  # the same one leads on
        [view(4200, 2, -1, 5, ()), view(4300, 3, -1, 5, ())],  # nobody leads
    ],
)
def test_what_not_everybody_knew_in_time_is_no_new_leader(views):
    found = reaction(struck(100, 130, 600, 9000, 9001), *views, healed_ms=8990)
    assert (found.led, found.leader_ms) == ((0,), ())


def test_what_a_node_that_was_hit_believes_does_not_count():
    views = [view(4200, 2, 2, 5, (2, 3)), view(4700, 3, 2, 5, (2, 3)), view(8000, 1, 2, 5, (2, 3))]
    assert reaction(struck(100, 130, 600, 9000, 9001), *views).leader_ms == (4570,)


def test_of_partitions_that_others_led_no_new_leader_is_awaited_and_their_isr_is_looked_at():
    found = reaction(struck(100, 130, 600, 9000, 9001), view(3000, 1, 1, 4, (1, 2)), aimed_at=(3,))
    assert (found.led, found.copies, found.isr_left) == ((), 1, 1)


def test_a_fault_that_could_not_be_made_failed():
    faults = struck(100)
    failed = {name: np.append(column, column[-1]) for name, column in faults.items()}
    failed["phase"][-1] = FaultPhase.FAILED
    assert reaction(failed).effect == "failed"
