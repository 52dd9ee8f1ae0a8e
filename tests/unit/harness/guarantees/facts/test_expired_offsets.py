"""Committed offsets expire when a group had no member for long enough: not where it accepted commits all the time."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.clock import NS_PER_S
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import FaultRecord
from prozess.harness.guarantees.facts.retention import offsets_may_have_expired
from prozess.harness.guarantees.logic import FALSE, UNKNOWN
from prozess.harness.interfaces.witnesses import make_witnesses
from prozess.harness.schema import MISSING, Outcome, Tristate
from tests.support.cells.evidence import MS, evidence, failover, ns, plan
from tests.support.cells.partitions import table

CLOCK = FaultRecord(
    number=0, kind="clock", step=0, nodes=(1,), hit=(1,), begin_ns=0, proven_ns=0, undone_ns=None, end_ns=1,
    effective=Tristate.YES, nature=FaultNature(shifts_clock=True),
)  # fmt: skip


def may_have_expired(commits, since_s=0, until_s=100, *, retention_s=60, faults=()):
    """`commits`: seconds in which each was invoked and answered, ascending."""
    invoked_ns, completed_ns = (np.array([ns(one[at]) for one in commits], dtype=np.int64) for at in (0, 1))
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        error_ns=MS,
        faults=faults,
        offsets_retention_ns=retention_s * NS_PER_S,
        group_commits=lambda: (invoked_ns, completed_ns),
    )
    columns = {"begin_ns": ns(until_s), "other_ns": MISSING if since_s is None else ns(since_s)}
    return int(offsets_may_have_expired(envelope, make_witnesses(1, columns))[0])


@pytest.mark.parametrize(
    ("commits", "more", "expected"),
    [
        ((), {}, UNKNOWN),
        ((), {"until_s": 59}, FALSE),
        ([(10, 10.1), (50, 50.1), (90, 90.1)], {}, FALSE),
        ([(10, 10.1), (90, 90.1)], {}, UNKNOWN),
        ([(10, 10.1), (30, 30.1)], {}, UNKNOWN),
        ([(70, 70.1), (90, 90.1)], {}, UNKNOWN),
        ([(30, 70), (80, 80.1)], {}, UNKNOWN),
        ([(-20, -19), (120, 121)], {}, UNKNOWN),
        ([(10, 10.1), (50, 50.1), (90, 90.1)], {"since_s": None}, UNKNOWN),
        ([(10, 10.1), (50, 50.1), (90, 90.1)], {"faults": (CLOCK,)}, UNKNOWN),
    ],
    ids=[
        *("nobody committed", "too short", "all the time", "silent between", "silent in the end", "silent at first"),
        *("late answer", "before and after", "nobody knows since when", "a clock was set"),
    ],
)
def test_offsets_expire_only_where_no_commit_was_accepted_for_as_long_as_they_are_kept(commits, more, expected):
    assert may_have_expired(commits, **more) == expected


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5), st.integers(0, 5)), max_size=6),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(2, 20),
)
def test_a_group_that_was_empty_for_long_enough_is_never_ruled_out(drawn, since_s, lasts_s, retention_s):
    """Each commit was accepted at some time between its two: whatever silence that leaves counts."""
    drawn, until_s = sorted(drawn), since_s + lasts_s
    accepted = [invoked + before for invoked, before, _ in drawn]
    stops = sorted({since_s, until_s, *(t for t in accepted if since_s < t < until_s)})
    commits = [(invoked, invoked + before + after) for invoked, before, after in drawn]
    found = may_have_expired(commits, since_s, until_s, retention_s=retention_s)
    if max((b - a for a, b in pairwise(stops)), default=0) >= retention_s:
        assert found == UNKNOWN


def test_the_commits_of_a_group_are_those_of_all_its_partitions_that_were_accepted():
    def row(partition, invoked_s, outcome=Outcome.OK):
        times = {"invoked_ns": ns(invoked_s), "completed_ns": ns(invoked_s + 1)}
        return {"client": 5, "partition": partition, "log_offset": 1, "position": 1, "outcome": outcome, **times}

    axes = {"group.subscription": ["topics", "pattern"]}
    made = plan(axes, base={"topic.partitions": 2}, workload="group")
    rows = [row(1, 7), row(0, 3), row(0, 5, Outcome.FAIL), row(1, 6, Outcome.INFO), row(2, 4)]
    told = evidence(made, metadata=failover(2), commits=table("commits", rows))
    of = [told.envelope(made, cell, cell.partitions[0]).group_commits() for cell in made.cells]
    assert [times.tolist() for times in of[0]] == [[ns(3), ns(7)], [ns(4), ns(8)]]
    assert [times.tolist() for times in of[1]] == [[], []], "members may stop subscribing to a topic"
