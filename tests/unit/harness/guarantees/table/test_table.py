"""The table itself: every abstract input decides, nothing contradicts, and all of it is documented."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest

from prozess.checkers.registry import CHECKERS, select
from prozess.harness.config.configuration import BOUNDED, ProducerConfiguration
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.guarantees.facts.registry import FACTS, LIFE_FACTS, could_hold
from prozess.harness.guarantees.facts.witnessed import OF_WITNESSES
from prozess.harness.guarantees.table import TABLE, RuleEffect
from prozess.harness.guarantees.table.cell_configuration import (
    CellConfiguration,
    configuration_of,
    is_idempotent,
    parse_version,
)
from prozess.harness.guarantees.table.controls import CONTROLS, KINDS
from prozess.harness.guarantees.table.known_defects import DEFECTS
from prozess.harness.guarantees.table.rules import NEVER_EXCUSES
from prozess.harness.guarantees.verdict.evaluation import Judgement, condition, evaluate_witnesses
from prozess.harness.plan.catalogue import FAULTS, NATURES, RECORDED
from prozess.harness.plan.workloads import registry as workloads
from prozess.harness.schema import MetadataKind, Tristate
from tests.support.abstract_inputs import DIMENSIONS, FAILOVER, STRONGEST, Inputs, configurations_of, decide, events_of
from tests.support.anomalies import ANOMALIES, OF_CELLS, OF_PARTITIONS
from tests.support.cells.evidence import evidence, plan, state, witnesses
from tools.guarantees_page import DOCS, render


def test_an_anomaly_has_a_name_a_checker_and_a_promise_or_is_only_counted():
    checkers = select()
    counted = [name for name, checker in checkers.partition.items() if checker.fact]
    assert list(TABLE) == list(ANOMALIES)
    assert checkers.order == (*ANOMALIES, *counted)
    assert list(checkers.partition) == [*OF_PARTITIONS, *counted]
    assert list(checkers.cell) == list(OF_CELLS)


def test_every_fact_is_used():
    used = {
        name.removeprefix("not ") for g in TABLE.values() for rule in g.rules for name in (*rule.when, *rule.perhaps)
    }
    assert used == set(FACTS)


def test_what_is_judged_of_a_cell_is_what_its_kernels_look_for():
    for anomaly in OF_CELLS:
        for kind in (*workloads.KINDS, RECORDED):
            assert TABLE[anomaly].applies([kind]) == CHECKERS[anomaly].applies([kind]), (anomaly, kind)
    assert TABLE["late"].applies(["log", BOUNDED])


def test_every_fact_comes_from_one_place():
    for name, fact in FACTS.items():
        assert (fact.of_configuration is None) == (name in OF_WITNESSES), name
        assert (name in OF_WITNESSES) == (fact.could is not None), name


OF_EFFECT = {RuleEffect.PERMITTED: Judgement.PERMITTED, RuleEffect.NOT_APPLICABLE: Judgement.NOT_APPLICABLE}


@pytest.mark.parametrize("anomaly", list(TABLE))
def test_of_every_abstract_input_exactly_one_rule_decides_or_the_promise_or_one_doubt(anomaly):
    """Every valid configuration with every event true, false and unknown."""
    rules, inputs = TABLE[anomaly].rules, Inputs(anomaly, (0, 1, -1))
    length = len(inputs.which)
    truths = np.array([np.broadcast_to(condition(r, inputs.fact), (length,)) for r in rules]).reshape(-1, length)
    names_defect = np.array([r.effect in NEVER_EXCUSES for r in rules], dtype=bool).reshape(-1, 1)
    # What stops at a rule: it is true, or nobody knows and it would have been a permission.
    stops = (truths == 1) | ((truths == -1) & ~names_defect)
    first = stops & (np.cumsum(stops, axis=0) == 1)
    decides, doubt = first & (truths == 1), first & (truths == -1)
    promise = ~stops.any(axis=0)
    assert (decides.sum(axis=0) + doubt.sum(axis=0) + promise == 1).all()
    assert (inputs.found.rule == np.where(promise, -1, first.argmax(axis=0) if len(rules) else -1)).all()
    of_rules = np.array([OF_EFFECT.get(r.effect, Judgement.FORBIDDEN) for r in rules], dtype=np.int8)
    expected = np.full(length, Judgement.FORBIDDEN, dtype=np.int8)
    expected[decides.any(axis=0)] = of_rules[first[:, decides.any(axis=0)].argmax(axis=0)] if len(rules) else 0
    expected[doubt.any(axis=0)] = Judgement.UNKNOWN
    assert (inputs.found.judgement == expected).all()


@pytest.mark.parametrize("anomaly", list(TABLE))
def test_every_rule_decides_some_input_and_so_does_the_default(anomaly):
    deciding = set(Inputs(anomaly).found.rule.tolist())
    assert deciding == {-1, *range(len(TABLE[anomaly].rules))}


def test_every_field_of_a_configuration_is_a_dimension_and_matters_to_some_anomaly():
    assert set(DIMENSIONS) == {f.name for f in fields(CellConfiguration)}
    varied = {anomaly: configurations_of(anomaly) for anomaly in TABLE}
    for name in DIMENSIONS:
        assert any(len({getattr(c, name) for c in found}) > 1 for found in varied.values()), name


def test_the_rules_of_a_guarantee_are_no_more_than_the_bits_of_possible_defects():
    assert max(len(guarantee.rules) for guarantee in TABLE.values()) < 63


@pytest.mark.parametrize("anomaly", list(TABLE))
def test_a_defect_never_stands_before_a_permission(anomaly):
    effects = [rule.effect in NEVER_EXCUSES for rule in TABLE[anomaly].rules]
    assert effects == sorted(effects)


@pytest.mark.parametrize("anomaly", list(TABLE))
def test_the_strongest_configuration_permits_only_what_destroys_committed_data(anomaly):
    excuses = {"cutoff", "cutoff after the read", "cutoff of either", "unclean before", "forgot", "log start passed"}
    excuses |= {"remote store harmed", "fault since it was let go"}
    excuses |= {"cutoff of a missing record", "unclean between the answers", "unclean since the other"}
    excuses |= {"unclean after the step", "a clock may have been ahead", "that broker may have been out"}
    excuses |= {"wiped since the other", "offsets may have expired"}
    excuses |= {
        "wiped",
        "wiped of either",
        "wiped after the read",
        "wiped after it was there",
        "wiped before",
        "out of sync at the end",
    }
    excuses |= {
        "read_uncommitted",
        "read_uncommitted inside",
        "order of writes",
        "unclean before it was read",
        "that election was unclean",
        "transaction state lost",
        "transaction decision lost",
        "group state lost",
        "share state lost",
        "offset given away by an election",
        "leader changed while it was held",
        "share session may have ended",
        "dead-letter queue may have been out of reach",
        "delivered as often as the limit allows",
        "group lost by every broker",
    }
    excuses |= {"read beyond delete.retention.ms", "a replica away beyond delete.retention.ms"}
    excuses |= {
        "member was gone",
        "position was sought",
        "within a session",
        "a gone member may be waited for",
        "an old id may be waited for",
        "stands twice",
        "coordinator out",
    }
    excuses |= {
        "unsettled",
        "reader stood still",
        "may have expired",
        "unmeasured",
        "the consumer's seeks are not recorded",
    }
    excuses |= {
        "a clock may have ended it",
        "held up",
        "call held up",
        "partition held up",
        "may have been carried out later",
        "whoever waited stood still",
        "group was troubled",
    }
    excuses |= {"leader was hampered", "unclean election asked for", "within the quorum's fetch timeout"}
    excuses |= {"no majority of controllers", "the machine stood still"}
    excuses |= {"one instance id twice", "sent later", "may be a second copy", "may have begun behind it"}
    excuses |= {"a partition of the cell was elected unclean", *LIFE_FACTS}
    names = events_of(anomaly)
    for values in product((0, 1), repeat=len(names)):
        events = dict(zip(names, values, strict=True))
        if not any(events.get(name) for name in excuses):
            assert decide(anomaly, STRONGEST, events)[0] is Judgement.FORBIDDEN, events


def stronger_of(weak: CellConfiguration) -> list[CellConfiguration]:
    """The same with one setting made safer, where that is a valid combination."""
    changes = [
        {"acks": "1"} if weak.acks == "0" else {"acks": "all"},
        {"several_in_flight": False},
        {"lifo": False},
        {"idempotent": True} if weak.acks == "all" and weak.retries else {},
    ]
    return [replace(weak, **change) for change in changes]


@pytest.mark.parametrize("anomaly", list(TABLE))
def test_a_safer_setting_never_permits_more(anomaly):
    inputs = Inputs(anomaly)
    permitted, index = inputs.permitted, {c: i for i, c in enumerate(inputs.configurations)}
    for weak, row in index.items():
        for stronger in stronger_of(weak):
            if stronger not in index:  # in what no rule asks for, or not valid
                continue
            assert not (permitted[index[stronger]] & ~permitted[row]).any(), (weak, stronger)


@pytest.mark.parametrize("anomaly", ["phantom", "misplaced", "resurrected"])
def test_what_no_configuration_can_cause_is_always_forbidden(anomaly):
    assert {rule.effect for rule in TABLE[anomaly].rules} <= {RuleEffect.DEFECT}


def test_every_rule_gives_reason_source_and_way_out():
    ids = [rule.id for g in TABLE.values() for rule in g.rules]
    assert len(ids) == len(set(ids))
    for guarantee in TABLE.values():
        assert guarantee.promise.endswith(".")
        assert guarantee.source
        for forms in (guarantee.found,):
            assert "{n}" in forms[1]
            assert "{n}" not in forms[0]
        for rule in guarantee.rules:
            assert rule.reason
            assert rule.source
            assert bool(rule.change) == (rule.effect is RuleEffect.PERMITTED), rule.id
            assert bool(rule.defect) == (rule.effect is RuleEffect.DEFECT), rule.id


def test_every_fault_of_the_catalogue_is_described():
    assert set(NATURES) == set(FAULTS)
    assert {name for name, nature in NATURES.items() if nature.destroys} == {"wipe", "corrupt-file"}
    harmless = {name for name, n in NATURES.items() if not any(getattr(n, what) for what in FaultNature.__slots__)}
    assert harmless == {"client-clock"}, "timestamps alone: nothing that is judged goes by them"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"enable_idempotence": True}, True),
        ({"enable_idempotence": False}, False),
        ({"enable_idempotence": True, "client": "java"}, True),
        ({"enable_idempotence": True, "client": "java", "acks": "1"}, False),
        ({"enable_idempotence": True, "client": "java", "retries": "0"}, False),
        ({"enable_idempotence": True, "client": "java", "max_in_flight": 6}, False),
    ],
)
def test_idempotence_is_what_the_client_makes_of_it(settings, expected):
    assert is_idempotent(ProducerConfiguration(**settings)) is expected


@pytest.mark.parametrize(
    ("text", "expected"), [("4.3.1", (4, 3, 1)), ("4.3.1-rc1", (4, 3, 1)), ("trunk", None), ("", None), (None, None)]
)
def test_versions_are_parsed_or_unknown(text, expected):
    assert parse_version(text) == expected


OF_CLIENT = {
    "librdkafka": {"librdkafka", "its reader uses librdkafka", "ends of partitions are stored"},
    "java": {
        "not librdkafka",
        "idempotent by documentation alone",
        "topic ids are forgotten",
        "topics are known by name",
        "commits while it collects",
        "memory of expired batches is used again",
    },
}
"""Whose defect it is → the facts of which each says that a client is of that library."""
EOF = "group.properties.enable.partition.eof"
CELLS = {
    "librdkafka": [
        ("group", {"group.client_version": "2.3.0", "group.commit": "auto", EOF: True}),
        ("verifiable", {}),
    ],
    "java": [
        ("group", {"group.client": "java", "group.client_version": version, "group.commit": "auto", **more})
        for version, more in (("2.8.0", {}), ("3.0.0", {}), ("4.4.0", {"group.protocol": "consumer"}))
    ]
    + [
        ("verifiable", {"producer.client": "java", "producer.client_version": "3.0.0", "producer.defaults": "library"}),
    ],
}
"""Library → cells of its members and of its producers that have what its defects need."""


def test_a_defect_of_a_client_is_named_only_where_the_client_is_of_that_library():
    rules = [rule for guarantee in TABLE.values() for rule in guarantee.rules if rule.effect is RuleEffect.DEFECT]
    for rule in rules:
        asked = OF_CLIENT.get(DEFECTS[rule.label].owner)
        assert asked is None or (asked.intersection(rule.when) and asked.intersection(rule.perhaps)), rule.id


def test_what_a_defect_asks_of_a_client_holds_of_one_library_and_of_no_other():
    holding = {library: set() for library in CELLS}
    for library, cells in CELLS.items():
        for workload, base in cells:
            configuration = configuration_of(plan({}, base=base, workload=workload).cells[0], "4.4.0")
            for name in set().union(*OF_CLIENT.values()) - {"its reader uses librdkafka"}:
                given = FACTS[name.removeprefix("not ")].of_configuration
                wanted = Tristate.NO if name.startswith("not ") else Tristate.YES
                if given(configuration) is wanted and (workload == "verifiable" or name not in OF_PRODUCERS):
                    holding[library].add(name)
    assert holding["librdkafka"] == OF_CLIENT["librdkafka"] - {"its reader uses librdkafka"}
    assert holding["java"] == OF_CLIENT["java"]


OF_PRODUCERS = {"librdkafka", "not librdkafka"}
"""Facts about producers: those of a group's cell are librdkafka's, whatever its members are."""


@pytest.mark.parametrize(
    ("base", "stranger", "ascribed"),
    [({}, False, True), ({"group.client": "java"}, False, False), ({}, True, False)],
    ids=["a member of librdkafka's", "a member of Java's", "nobody knows who"],
)
def test_a_reader_that_never_finds_a_topic_made_again_is_ascribed_to_librdkafka_only_where_it_is_that(
    base, stranger, ascribed
):
    made = plan({}, base=base, workload="group")
    member = next(c.client for c in made.clients if c.role.endswith("member"))
    led = [
        state(-10, 0, 1, 3, (1, 2, 3)) | {"topic_id_high": 1, "topic_id_low": 1},
        state(5, 0, -1, 3, ()) | {"topic_id_high": 1, "topic_id_low": 1, "kind": MetadataKind.DELETED},
        state(6, 0, 2, 0, (1, 2, 3)) | {"topic_id_high": 2, "topic_id_low": 2},
    ]
    envelope = evidence(made, metadata=led).envelope(made, made.cells[0], 0)
    found = evaluate_witnesses(
        "stalled",
        configuration_of(made.cells[0], "4.4.0"),
        envelope,
        witnesses(1, begin_s=20, end_s=70, reader=9_999 if stranger else member),
    )
    rule = int(found.rule[0])
    assert Judgement(int(found.judgement[0])) is Judgement.FORBIDDEN
    assert (rule >= 0 and TABLE["stalled"].rules[rule].label == "librdkafka#4898") is ascribed


def test_an_unknown_version_leaves_a_defect_in_doubt():
    unknown = CellConfiguration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=None)
    defect = TABLE["dirty-read"].rules[-1]
    assert int(condition(defect, lambda name: could_hold(name, unknown, FAILOVER))) == -1


def test_every_control_names_known_things():
    for control in CONTROLS:
        assert control.anomaly in TABLE
        assert control.faults <= set(FAULTS)
        assert control.kind in KINDS
        assert control.source


def test_the_document_is_up_to_date():
    for name, text in render().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, "run python -m tools.guarantees_page"
