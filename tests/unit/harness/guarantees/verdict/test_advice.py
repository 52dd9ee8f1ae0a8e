"""What is advised where copies were destroyed: the fewest settings that would have kept the records, in the case at hand.

The cases are those of trials on real clusters: `last-disk` (followers stopped in order, the last disk wiped) lost 751 of
min.insync.replicas=1 and none of 2 with eligible leader replicas, 1,419 of 2 without them; `power-loss` lost everything that
was not flushed and nothing that was; `copies` lost the only copy on a wiped disk.
"""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import FaultRecord, timelines
from prozess.harness.guarantees.facts.truncation import wiped
from prozess.harness.guarantees.facts.witnessed import OF_WITNESSES
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.verdict.advice import ACKS, ELR, FLUSH, UNCLEAN, PartitionSettings, change_of
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.schema import Tristate
from tests.support.cells.evidence import MS, ns, state, witnesses
from tests.support.cells.partitions import table

RULES = {rule.id: rule for guarantee in TABLE.values() for rule in guarantee.rules}
ALONE = [
    state(-10, 0, 1, 0, (1, 2, 3)),
    state(2, 0, 1, 0, (1, 3)),
    state(3, 0, 1, 0, (1,)),
    state(6, 0, -1, 0, (1,), last=1),
    state(8, 0, 1, 1, (1,)),
]
"""Both followers leave, in order; the leader goes on alone, and leads again after what befell its disk."""
WHOLE = [state(-10, 0, 1, 0, (1, 2, 3)), state(8, 0, 1, 1, (1,))]
"""All were in sync when it happened."""
ONE_COPY = [state(-10, 0, 1, 0, (1,)), state(8, 0, 1, 1, (1,))]
STOPS = ((1.5, "stop", 2), (2.5, "stop", 3))
KILLS = ((1.5, "kill", 2), (2.5, "kill", 3))
EARLY, LATE = 2.2, 4.0
"""When the record was sent: while two were in sync, or one alone."""


def record(number, kind, at_s, *nodes):
    return FaultRecord(
        number=number,
        kind=kind,
        step=0,
        nodes=nodes,
        hit=nodes,
        seen=nodes,
        begin_ns=ns(at_s),
        proven_ns=ns(at_s),
        undone_ns=ns(20),
        end_ns=ns(20),
        effective=Tristate.YES,
        nature=NATURES[kind],
        made_ns=ns(at_s),
    )


THREE = PartitionSettings(
    replication_factor=3, min_insync_replicas=1, acks="all", flushed=False, unclean=False, eligible=True, brokers=3
)
OFF = replace(THREE, eligible=False)
SINGLE = replace(THREE, replication_factor=1)


def faults_of(kind, hit, others=()):
    return [record(n, what, at_s, node) for n, (at_s, what, node) in enumerate(others)] + [record(9, kind, 5, *hit)]


def envelope_of(setting, rows, faults):
    return Envelope(
        acks=setting.acks,
        unclean_enabled=setting.unclean,
        timeline=timelines(table("metadata", rows))[0],
        faults=tuple(fault.of_topic(flushed=setting.flushed) for fault in faults),
        error_ns=MS,
    )


def sent_at(at_s):
    return witnesses(1, begin_s=at_s, end_s=at_s + 0.1)


def permits(rule, setting, rows, faults, *, sent_s):
    """Does the fact of the rule hold? Else nobody asks for its advice."""
    return OF_WITNESSES[RULES[rule].when[0]](envelope_of(setting, rows, faults), sent_at(sent_s)).tolist() == [1]


def advised(setting, rows, faults, *, sent_s=LATE, rule="lost/wiped"):
    return change_of(RULES[rule], setting, [(envelope_of(setting, rows, faults), sent_at(sent_s))])


EXACTLY = {
    "a wiped disk, min 1, acknowledged by it alone": (
        THREE,
        ALONE,
        ("wipe", (1,), STOPS),
        LATE,
        "min.insync.replicas=2",
    ),
    "a wiped disk, min 1, acknowledged by two": (THREE, ALONE, ("wipe", (1,), STOPS), EARLY, "min.insync.replicas=2"),
    "the same without eligible leader replicas": (
        OFF,
        ALONE,
        ("wipe", (1,), STOPS),
        EARLY,
        f"min.insync.replicas=2 and eligible leader replicas ({ELR}, from Kafka 4.0), together,",
    ),
    "a wiped disk, min 2, without eligible leader replicas": (
        replace(OFF, min_insync_replicas=2),
        ALONE,
        ("wipe", (1,), STOPS),
        EARLY,
        f"eligible leader replicas ({ELR}, from Kafka 4.0)",
    ),
    "acks=1": (
        replace(THREE, acks="1", min_insync_replicas=2),
        ALONE,
        ("wipe", (1,), STOPS),
        EARLY,
        ACKS,
    ),
    "acks=1, min 1": (
        replace(THREE, acks="1"),
        ALONE,
        ("wipe", (1,), STOPS),
        EARLY,
        "acks=all and min.insync.replicas=2, together,",
    ),
    "unclean elections are on": (
        replace(THREE, unclean=True),
        [*ALONE[:3], state(6, 0, -1, 0, (1,)), state(7, 0, 2, 1, (2,))],
        ("wipe", (1,), STOPS),
        EARLY,
        f"min.insync.replicas=2 and {UNCLEAN}, together,",
    ),
    "all lose their power": (THREE, WHOLE, ("power-loss", (1, 2, 3)), LATE, FLUSH),
    "the last one loses its power, min 1": (THREE, ALONE, ("power-loss", (1,), STOPS), LATE, FLUSH),
    "the only copy on a wiped disk": (
        SINGLE,
        ONE_COPY,
        ("wipe", (1,)),
        LATE,
        "replication.factor=3 and min.insync.replicas=2, together,",
    ),
    "the only copy loses its power": (SINGLE, ONE_COPY, ("power-loss", (1,)), LATE, FLUSH),
    "the only copy on a wiped disk of a single broker": (
        replace(SINGLE, brokers=1),
        ONE_COPY,
        ("wipe", (1,)),
        LATE,
        "a copy outside this cluster",
    ),
    "every disk is wiped": (THREE, WHOLE, ("wipe", (1, 2, 3)), LATE, "a copy outside this cluster"),
    "flushed, and every disk is wiped": (
        replace(THREE, flushed=True, min_insync_replicas=2),
        WHOLE,
        ("wipe", (1, 2, 3)),
        LATE,
        "a copy outside this cluster",
    ),
    "the others crashed before: not eligible when they are back": (
        replace(THREE, min_insync_replicas=2),
        ALONE,
        ("wipe", (1,), KILLS),
        EARLY,
        "min.insync.replicas=3",
    ),
}


@pytest.mark.parametrize("case", EXACTLY.values(), ids=EXACTLY.keys())
def test_the_advice_fits_its_case(case):
    setting, rows, faults, sent_s, expected = case
    assert permits("lost/wiped", setting, rows, faults_of(*faults), sent_s=sent_s)
    assert advised(setting, rows, faults_of(*faults), sent_s=sent_s) == expected


SETTINGS = st.builds(
    PartitionSettings,
    replication_factor=st.sampled_from((1, 2, 3)),
    min_insync_replicas=st.sampled_from((1, 2, 3)),
    acks=st.sampled_from(("0", "1", "all")),
    flushed=st.booleans(),
    unclean=st.booleans(),
    eligible=st.booleans(),
    brokers=st.sampled_from((3, 5)),
).filter(lambda s: s.min_insync_replicas <= s.replication_factor)
CASES = list(
    product(
        (ALONE, WHOLE, ONE_COPY), ("wipe", "corrupt-file", "power-loss"), ((1,), (1, 2), (1, 2, 3)), (STOPS, KILLS, ())
    )
)
PERMITTED_BY = [rule.id for rule in RULES.values() if rule.id.endswith("/wiped") or rule.id.endswith("/unclean")]


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # few rules permit what is drawn, and it is drawn fast
@given(
    setting=SETTINGS,
    case=st.sampled_from(CASES),
    rule=st.sampled_from(PERMITTED_BY),
    sent_s=st.sampled_from((EARLY, LATE)),
)
def test_nothing_is_advised_that_is_so_already_and_no_flush_for_a_wiped_disk(setting, case, rule, sent_s):
    rows, kind, hit, others = case
    assume(permits(rule, setting, rows, faults_of(kind, hit, others), sent_s=sent_s))
    told = advised(setting, rows, faults_of(kind, hit, others), sent_s=sent_s, rule=rule)
    assert told
    if kind != "power-loss" or setting.flushed:
        assert FLUSH not in told
    assert not (setting.unclean is False and UNCLEAN in told)
    assert not (setting.eligible and ELR in told)
    assert not (setting.acks == "all" and ACKS in told)
    for so in range(1, setting.min_insync_replicas + 1):
        assert f"min.insync.replicas={so}" not in told
    for so in range(1, setting.replication_factor + 1):
        assert f"replication.factor={so}" not in told


@given(setting=SETTINGS, case=st.sampled_from(CASES), sent_s=st.sampled_from((EARLY, LATE)))
def test_a_flush_is_advised_alone_only_where_the_same_witness_is_not_destroyed_with_it(setting, case, sent_s):
    rows, kind, hit, others = case
    faults = faults_of(kind, hit, others)
    if permits("lost/wiped", setting, rows, faults, sent_s=sent_s) and (
        advised(setting, rows, faults, sent_s=sent_s) == FLUSH
    ):
        flushed = replace(setting, flushed=True)
        assert wiped(envelope_of(flushed, rows, faults), sent_at(sent_s)).tolist() == [0]


# --- unclean elections, and what coordinators keep --------------------------------------------------------------------


def test_who_has_unclean_elections_off_and_asked_for_one_is_not_told_to_turn_them_off():
    asked = [record(0, "elect-unclean", 5, 1)]
    assert advised(THREE, ALONE, asked, rule="lost/unclean") == "not asking for an unclean election"
    on = replace(THREE, unclean=True)
    assert advised(on, ALONE, [], rule="lost/unclean") == UNCLEAN
    assert advised(on, ALONE, asked, rule="lost/unclean") == f"{UNCLEAN}, and not asking for an unclean election,"


@pytest.mark.parametrize(
    "rule", [r.id for r in RULES.values() if r.id.endswith(("/state-lost", "/offsets-lost", "/transaction-state-lost"))]
)
def test_what_every_broker_lost_no_further_copy_on_them_would_have_kept(rule):
    everybody = (1, 2, 3)
    lost_power = advised(THREE, WHOLE, faults_of("power-loss", everybody), rule=rule)
    assert lost_power == "log.flush.interval.messages=1 on the brokers"
    assert advised(THREE, WHOLE, faults_of("wipe", everybody), rule=rule) == "a copy outside this cluster"


def test_other_rules_say_what_they_always_said():
    rule = RULES["lost/acks-1"]
    assert change_of(rule, THREE, []) == rule.change
