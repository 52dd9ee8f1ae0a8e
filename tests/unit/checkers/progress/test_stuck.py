"""stuck: a producer that has something to send, and gets no acknowledgement for its bound; and what nearly is so. In
seconds."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers.progress.acknowledgements import join_waits, stuck, stuck_in, waits_of
from prozess.checkers.progress.awake import while_asked
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import fault_records, timelines
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import ProgressCase
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.schema import MISSING, NONE, ObservationKind, Outcome, Role
from tests.support.cells.delivery import LOG
from tests.support.cells.evidence import DICTIONARIES, fault, ns, state
from tests.support.cells.partitions import PARTITION, history, table
from tests.support.examples import examples

OK, INFO, FAIL = Outcome.OK, Outcome.INFO, Outcome.FAIL
CLIENT, BOUND_S, NEVER = 1, 50, None
ALL = ((0, 1000),)


def sent(*sends):
    """Rows (begin_s, end_s, outcome) of sends of one client, in order."""
    return table(
        "sends",
        [
            {
                "client": CLIENT,
                "sequence": sequence,
                "transaction": NONE,
                "partition": PARTITION,
                "invoked_ns": ns(begin),
                "completed_ns": MISSING if end is NEVER else ns(end),
                "outcome": int(outcome),
            }
            | (more[0] if more else {})
            for sequence, (begin, end, outcome, *more) in enumerate(sends)
        ],
    )


def cell(*sends, until=100, still=None, role="producer", asked=(), started=-1.0, heard=True):
    times = [t / 2 for t in range(2 * until + 1) if still is None or not still[0] < t / 2 < still[1]]
    rows = [
        {"client": CLIENT, "time_ns": ns(a), "value": ns(b) - ns(a), "kind": int(ObservationKind.ASKED)}
        for a, b in asked
    ]
    tables = {
        "clients": table(
            "clients",
            [
                {
                    "client": CLIENT,
                    "planned": CLIENT,
                    "role": int(Role.PRODUCER),
                    "started_ns": ns(started),
                    "ended_ns": ns(until),
                }
            ],
        ),
        "heartbeats": table("heartbeats", [{"client": CLIENT, "time_ns": ns(t)} for t in times if heard]),
        "asked": table("observations", rows),
    }
    planned = PlannedClient(client=CLIENT, role=role, name="p", partitions=(PARTITION,))
    return CellHistory(
        cell=LOG,
        partitions={PARTITION: replace(history(), sends=sent(*sends))},
        tables=tables,
        clients=(planned,),
        bounds=Bounds(acknowledgement_ns=ns(BOUND_S)),
    )


def found(*sends, **more):
    result = stuck(cell(*sends, **more))
    assert result.count == len(result.witnesses)
    columns = [result.witnesses[name].tolist() for name in ("sequence", "begin_ns", "end_ns", "case")]
    return [(s, a / ns(1), b / ns(1), ProgressCase(case)) for s, a, b, case in zip(*columns, strict=True)]


WAITED = ProgressCase.ACKNOWLEDGEMENT
FAILING = ((10, 30, INFO), (40, 60, INFO), (60.5, NEVER, INFO))


@pytest.mark.parametrize(
    ("sends", "expected"),
    [
        pytest.param([(0, 1, OK), (10, NEVER, INFO)], (1, 10, 100, WAITED), id="it never ends"),
        pytest.param([(0, 5, OK), *FAILING], (2, 40, 100, WAITED), id="one fails, and the next never ends"),
        pytest.param([(0, 61, OK)], (0, 0, 61, WAITED), id="it is acknowledged too late"),
        pytest.param(
            [(0, 1, OK), (2, NEVER, INFO), (3, 40, OK)], (1, 40, 100, WAITED), id="another is acknowledged meanwhile"
        ),
        pytest.param([(n * 10, n * 10 + 10, INFO) for n in range(6)], (0, 0, 60, WAITED), id="each times out"),
        pytest.param([(0, 60, FAIL)], (0, 0, 60, WAITED), id="purged from the queue in which it waited"),
    ],
)
def test_a_producer_without_an_acknowledgement_for_its_bound_is_found(sends, expected):
    assert found(*sends) == [expected]


@pytest.mark.parametrize(
    "sends",
    [
        pytest.param([(0, 1, OK), (51, NEVER, INFO)], id="less than the bound is left until it ends"),
        pytest.param([(0, 49, INFO), (51, 99, INFO)], id="it had nothing to send in between"),
        pytest.param([(0, NEVER, INFO), (0, 45, OK), (46, 90, OK)], id="others are acknowledged in time"),
        pytest.param([(n / 10, n / 10 + 0.01, FAIL) for n in range(900)], id="every record is refused at once"),
        pytest.param(
            [(0, NEVER, INFO, {"transaction": 0})], id="in a transaction: its end is awaited, and not its records"
        ),
        pytest.param([(-1.0, 90, INFO)], id="a program that reported it when it was over"),
        pytest.param([], id="nothing was sent"),
    ],
)
def test_a_producer_that_sends_or_has_nothing_to_send_is_not_found(sends):
    assert found(*sends) == []


def test_judged_is_each_producer_that_was_heard_of_and_sent_something_outside_transactions():
    assert stuck(cell((0, 1, OK))).judged == 1
    assert stuck(cell((0, 1, OK), heard=False)).judged == 0, "as in imports"
    assert stuck(cell((0, 1, OK, {"transaction": 0}))).judged == 0
    assert stuck(cell((0, 1, OK), role="verifiable-producer")).judged == 0, "it reports sends when they are over"
    assert stuck(cell((0, 1, OK), role="recorded-producer")).judged == 0, "nothing shows when its application asked"
    assert stuck(cell((0, 1, OK), role="recorded-producer", asked=ALL)).judged == 1


def test_a_process_that_stood_still_may_not_have_noticed():
    assert found((0, NEVER, INFO), still=(45, 55)) == [(0, 0, 100, ProgressCase.STOOD_STILL)]
    assert found((0, NEVER, INFO), still=(20, 30)) == [(0, 30, 100, WAITED)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (ALL, [(0, 0, 100, WAITED)]),
        (((5, 70),), [(0, 5, 70, WAITED)]),
        (((0, 49), (51, 99)), []),
    ],
)
def test_an_application_learns_of_an_acknowledgement_only_while_it_asks(asked, expected):
    assert found((0, NEVER, INFO), role="recorded-producer", asked=asked) == expected


def test_waits_are_cut_to_the_time_in_which_somebody_asked():
    assert while_asked([(0, 10), (30, 55)], [(5, 50)], 10) == [(30, 50)]


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.sampled_from([OK, INFO, FAIL])), max_size=12))
def test_second_by_second_the_same_is_found(drawn):
    """The definition, for a bound of 5 s: a wait is as many seconds in each of which a send waited and nothing was
    acknowledged at its edges."""
    bound_s, sends = 5, [(a, a + b, outcome) for a, b, outcome in sorted(drawn)]
    told = {end for _, end, outcome in sends if outcome is OK}
    waiting = set()
    for begin, end, outcome in sends:
        if end - begin >= (bound_s if outcome is OK else 1):
            waiting |= set(range(begin, end))
    bridged = waiting | {t for t in range(50) if {t - 1, t + 1} <= waiting}
    lengths, length = [], 0
    for second in range(50):
        length = 0 if second not in bridged else 1 if second in told else length + 1
        if length and (second + 1 not in bridged or second + 1 in told):
            lengths.append(length)
    one = replace(cell(*sends), bounds=Bounds(acknowledgement_ns=ns(bound_s)))
    witnesses = stuck(one).witnesses
    assert sorted((witnesses["end_ns"] - witnesses["begin_ns"]).tolist()) == sorted(
        ns(n) for n in lengths if n >= bound_s
    )


@pytest.mark.parametrize("cut", range(7))
def test_stretches_of_sends_put_together_say_the_same_as_all_sends(cut):
    sends = [(0, 1, OK), (2, 3, OK), *FAILING, (62, 99, OK)]
    one = cell(*sends)
    rows = one.partitions[PARTITION].sends
    parts = [waits_of({name: v[a:b] for name, v in rows.items()}, ns(BOUND_S)) for a, b in ((0, cut), (cut, 6))]
    joined = stuck_in(one, PARTITION, join_waits(parts, ns(BOUND_S)))
    assert joined.witnesses.tolist() == stuck(one).witnesses.tolist()
    assert (joined.count, joined.judged) == (1, 1)


NEW = CellConfiguration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=(4, 3, 1))
LED = [state(-20, PARTITION, 1, 0, [1, 2, 3])]


@pytest.mark.parametrize(
    ("metadata", "faults", "expected"),
    [
        (LED, (), Judgement.FORBIDDEN),
        (LED, fault(0, "pause", [2], 20, 60), Judgement.NOT_APPLICABLE),
        (LED, fault(0, "pause", [2], 0, 40), Judgement.FORBIDDEN),
        ([*LED, state(45, PARTITION, 1, 0, [1, 2])], (), Judgement.NOT_APPLICABLE),
        ([*LED, state(45, PARTITION, 2, 1, [1, 2, 3])], (), Judgement.FORBIDDEN),
        ([], (), Judgement.UNKNOWN),
    ],
)
def test_a_wait_is_forbidden_if_the_partition_was_in_peace_for_the_bound(metadata, faults, expected):
    """The producer waits from 0 s to 100 s."""
    witnesses = stuck(cell((0, NEVER, INFO))).witnesses
    assert judged(witnesses, metadata, faults) == [expected]


def judged(witnesses, metadata, faults=()):
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        **({"timeline": timelines(table("metadata", metadata))[PARTITION]} if metadata else {}),
        faults=fault_records(table("faults", faults), DICTIONARIES, NATURES) if faults else (),
    )
    evaluated = evaluate_witnesses("stuck", NEW, envelope, witnesses)
    return [Judgement(int(one)) for one in evaluated.judgement]
