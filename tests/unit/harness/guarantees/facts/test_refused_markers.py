"""Transactions that do not end because brokers refuse their markers: named by what those brokers' own logs say."""

import numpy as np
import pytest

from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import FaultRecord
from prozess.harness.guarantees.facts.server_logs import markers_refused
from prozess.harness.guarantees.logic import FALSE, TRUE, UNKNOWN
from prozess.harness.guarantees.table import TABLE
from prozess.harness.interfaces.witnesses import make_witnesses
from prozess.harness.schema import Tristate
from tests.support.cells.evidence import ns

ALL = frozenset({1, 2, 3})
CLOCK = FaultRecord(
    number=0, kind="clock", step=0, nodes=(1,), hit=(1,), begin_ns=0, proven_ns=0, undone_ns=None, end_ns=1,
    effective=Tristate.YES, nature=FaultNature(shifts_clock=True),
)  # fmt: skip


@pytest.mark.parametrize(
    ("refused_s", "logs_read", "faults", "expected"),
    [
        ((12, 13), ALL, (), TRUE),
        ((12,), frozenset({2}), (), TRUE),
        ((9,), ALL, (), FALSE),
        ((31,), ALL, (), FALSE),
        ((9, 31), frozenset({1, 2}), (), UNKNOWN),
        ((), ALL, (), FALSE),
        ((), frozenset(), (), UNKNOWN),
        ((12,), ALL, (CLOCK,), UNKNOWN),
    ],
    ids=["meanwhile", "some logs", "before", "after", "some logs say nothing", "never", "no log", "a clock was set"],
)
def test_a_log_must_say_so_while_somebody_waited(refused_s, logs_read, faults, expected):
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        broker_ids=ALL,
        logs_read=logs_read,
        faults=faults,
        markers_refused_ns=np.array([ns(second) for second in refused_s], dtype=np.int64),
    )
    waited = make_witnesses(1, {"begin_ns": ns(10.5), "end_ns": ns(30)})
    assert markers_refused(envelope, waited).tolist() == [expected]


def test_it_is_named_of_transactions_that_hang_and_of_readers_behind_them():
    labels = {name: [rule.label for rule in TABLE[name].rules] for name in ("hanging", "stalled")}
    assert all("KAFKA-20322" in found for found in labels.values())
