"""The table itself: every abstract input decides, nothing contradicts, doubt never becomes permission."""

from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.catalogue import BOUNDED, CELL_KERNELS, CELL_KERNELS_APPLY, FAULTS, KERNELS, RECORDED, WORKLOADS
from harness.configuration import ProducerConfiguration
from harness.guarantees.configured import Configuration, is_idempotent, parse_version
from harness.guarantees.controls import CONTROLS, KINDS
from harness.guarantees.document import DOCUMENT, render
from harness.guarantees.evaluate import Judgement, condition, evaluate, satisfiable, satisfiable_rules
from harness.guarantees.facts import FACTS, could_be
from harness.guarantees.faults import NATURES, FaultNature
from harness.guarantees.happened import Happened, could_happen
from harness.guarantees.table import TABLE, Effect
from harness.schema import Tristate

EVENTS = [name for name, fact in FACTS.items() if fact.of_witnesses is not None]
DIMENSIONS: dict[str, tuple[Any, ...]] = {
    "acks": ("0", "1", "all"),
    "delivery": (None, "exactly-once", "at-least-once", "at-most-once", "transaction-alone"),
    "version": ((4, 3, 1), (4, 0, 0), (3, 9, 0), (3, 5, 1), (3, 4, 0), None),
} | {f.name: (False, True) for f in fields(Configuration) if f.type == "bool" or f.type is bool}
"""Field of a configuration → every value, or one of every kind."""


def valid(configuration: Configuration) -> bool:
    """librdkafka refuses the others, and Java drops idempotence."""
    return not configuration.idempotent or (configuration.acks == "all" and configuration.retries)


STRONGEST = Configuration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=(4, 3, 1))
NOTHING = Happened(moved=Tristate.NO, unclean=Tristate.NO, destroyed=Tristate.NO)
FAILOVER = Happened(moved=Tristate.YES, unclean=Tristate.NO, destroyed=Tristate.NO)


class Asked:
    """A configuration that remembers which of its fields were asked for."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration, self.fields = configuration, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.fields.add(name)
        return getattr(self._configuration, name)


def configurations_of(anomaly: str) -> list[Configuration]:
    """Every valid configuration, as far as the anomaly's rules ask: what they do not ask for is as in STRONGEST."""
    asked = Asked(STRONGEST)
    for name in facts_of(anomaly):
        if given := FACTS[name].of_configuration:
            given(asked)
    names = [name for name in DIMENSIONS if name in asked.fields]
    made = (dict(zip(names, values, strict=True)) for values in product(*(DIMENSIONS[name] for name in names)))
    weaker = {} if "idempotent" in names else {"idempotent": False}  # valid with whatever acks and retries
    return [c for c in (replace(STRONGEST, **weaker, **values) for values in made) if valid(c)]


def facts_of(anomaly: str) -> list[str]:
    names = {name.removeprefix("not ") for rule in TABLE[anomaly].rules for name in rule.when}
    return [name for name in FACTS if name in names]


def decide(anomaly: str, configuration: Configuration, events: dict[str, int]) -> tuple[Judgement, int]:
    def fact(name: str) -> np.ndarray:
        given = FACTS[name].of_configuration
        return np.array([given(configuration) if given else events[name]], dtype=np.int8)

    found = evaluate(TABLE[anomaly], fact, 1)
    return Judgement(int(found.judgement[0])), int(found.rule[0])


def events_of(anomaly: str) -> list[str]:
    return [name for name in facts_of(anomaly) if name in EVENTS]


class Inputs:
    """Every configuration with every combination of events that an anomaly's rules ask for, as arrays."""

    def __init__(self, anomaly: str, truths: tuple[int, ...] = (0, 1)) -> None:
        self.guarantee, self.configurations = TABLE[anomaly], configurations_of(anomaly)
        self.names = events_of(anomaly)
        grid = np.array(list(product(truths, repeat=len(self.names))), dtype=np.int8)
        grid = grid.reshape(len(truths) ** len(self.names), -1)
        if {"committed", "tail"} <= set(self.names):  # one record cannot be both
            both = (grid[:, self.names.index("committed")] == 1) & (grid[:, self.names.index("tail")] == 1)
            grid = grid[~both]
        self.events = np.tile(grid, (len(self.configurations), 1))
        self.which = np.repeat(np.arange(len(self.configurations)), len(grid))
        self.found = evaluate(self.guarantee, self.fact, len(self.which))

    def fact(self, name: str) -> np.ndarray:
        given = FACTS[name].of_configuration
        if given is None:
            return self.events[:, self.names.index(name)]
        return np.array([given(c) for c in self.configurations], dtype=np.int8)[self.which]

    @property
    def permitted(self) -> np.ndarray:
        """bool[configurations, combinations of events]"""
        return (self.found.judgement == Judgement.PERMITTED).reshape(len(self.configurations), -1)


def test_the_table_covers_the_catalogue_and_every_fact_is_used():
    assert list(TABLE) == [*KERNELS, *CELL_KERNELS]
    used = {name.removeprefix("not ") for g in TABLE.values() for rule in g.rules for name in rule.when}
    assert used == set(FACTS)


def test_what_is_judged_of_a_cell_is_what_its_kernels_look_for():
    for anomaly, kinds in CELL_KERNELS_APPLY.items():
        assert {kind for kind in WORKLOADS if TABLE[anomaly].applies([kind])} == set(kinds) - {BOUNDED, RECORDED}, (
            anomaly
        )
    assert TABLE["late"].applies(["log", BOUNDED])


def test_every_fact_comes_from_one_place():
    for name, fact in FACTS.items():
        assert (fact.of_configuration is None) == (fact.of_witnesses is not None), name
        assert (fact.of_witnesses is None) == (fact.could is None), name


OF_EFFECT = {Effect.PERMITTED: Judgement.PERMITTED, Effect.NOT_APPLICABLE: Judgement.NOT_APPLICABLE}


@pytest.mark.parametrize("anomaly", list(TABLE))
def test_of_every_abstract_input_exactly_one_rule_decides_or_the_promise_or_one_doubt(anomaly):
    """Every valid configuration with every event true, false and unknown."""
    rules, inputs = TABLE[anomaly].rules, Inputs(anomaly, (0, 1, -1))
    length = len(inputs.which)
    truths = np.array([np.broadcast_to(condition(r, inputs.fact), (length,)) for r in rules]).reshape(-1, length)
    names_defect = np.array([r.effect is Effect.DEFECT for r in rules], dtype=bool).reshape(-1, 1)
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
    assert set(DIMENSIONS) == {f.name for f in fields(Configuration)}
    varied = {anomaly: configurations_of(anomaly) for anomaly in TABLE}
    for name in DIMENSIONS:
        assert any(len({getattr(c, name) for c in found}) > 1 for found in varied.values()), name


@pytest.mark.parametrize("anomaly", list(TABLE))
def test_a_defect_never_stands_before_a_permission(anomaly):
    effects = [rule.effect is Effect.DEFECT for rule in TABLE[anomaly].rules]
    assert effects == sorted(effects)


@pytest.mark.parametrize("anomaly", list(TABLE))
def test_the_strongest_configuration_permits_only_what_destroys_committed_data(anomaly):
    excuses = {"cutoff", "cutoff after the read", "cutoff of either", "unclean before", "forgot", "log start passed"}
    excuses |= {"cutoff of the gone", "unclean between the answers"}
    excuses |= {"wiped", "wiped after the read", "wiped before", "out of sync at the end"}
    excuses |= {
        "read_uncommitted",
        "read_uncommitted inside",
        "order of writes",
        "unclean ever",
        "transaction state lost",
        "group state lost",
    }
    excuses |= {"read beyond delete.retention.ms", "a replica away beyond delete.retention.ms"}
    excuses |= {"member was gone", "position was sought", "within a session", "stands twice", "coordinator out"}
    excuses |= {"unsettled", "reader stood still", "may have expired", "unmeasured"}
    excuses |= {"leader was hampered", "unclean election asked for"}
    excuses |= {"one instance id twice", "sent later"}
    excuses |= {"a partition of the cell was elected unclean"}
    names = events_of(anomaly)
    for values in product((0, 1), repeat=len(names)):
        events = dict(zip(names, values, strict=True))
        if not any(events.get(name) for name in excuses):
            assert decide(anomaly, STRONGEST, events)[0] is Judgement.FORBIDDEN, events


def stronger_of(weak: Configuration) -> list[Configuration]:
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


@pytest.mark.parametrize("anomaly", ["phantom", "corrupt", "misplaced", "resurrected"])
def test_what_no_configuration_can_cause_is_always_forbidden(anomaly):
    assert TABLE[anomaly].rules == ()


def test_every_rule_gives_reason_source_and_way_out():
    ids = [rule.id for g in TABLE.values() for rule in g.rules]
    assert len(ids) == len(set(ids))
    for guarantee in TABLE.values():
        assert guarantee.promise.endswith(".")
        assert guarantee.source
        for forms in (guarantee.found, guarantee.did):
            assert "{n}" in forms[1]
            assert "{n}" not in forms[0]
        for rule in guarantee.rules:
            assert rule.reason
            assert rule.source
            assert bool(rule.change) == (rule.effect is Effect.PERMITTED), rule.id
            assert bool(rule.defect) == (rule.effect is Effect.DEFECT), rule.id


# --- doubt ----------------------------------------------------------------------------------------------------------

CONFIGURATION = (
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in DIMENSIONS.items()})
    .map(lambda values: Configuration(**values))
    .filter(valid)
)
TRUTHS = st.dictionaries(st.sampled_from(EVENTS), st.sampled_from([1, 0, -1]))


@settings(deadline=None)
@given(
    anomaly=st.sampled_from(list(TABLE)),
    configuration=CONFIGURATION,
    known=TRUTHS,
    doubted=st.sampled_from(EVENTS),
)
def test_making_a_fact_unknown_never_turns_forbidden_into_permitted_nor_back(anomaly, configuration, known, doubted):
    events = dict.fromkeys(EVENTS, 0) | known
    before = decide(anomaly, configuration, events)[0]
    after = decide(anomaly, configuration, events | {doubted: -1})[0]
    assert after in (before, Judgement.UNKNOWN)


@settings(deadline=None)
@given(
    anomaly=st.sampled_from(list(TABLE)),
    configuration=CONFIGURATION,
    known=TRUTHS,
    unclean=st.sampled_from(Tristate),
    moved=st.sampled_from(Tristate),
    destroyed=st.sampled_from(Tristate),
)
def test_whatever_is_permitted_of_a_witness_was_satisfiable(anomaly, configuration, known, unclean, moved, destroyed):
    happened = Happened(moved=moved, unclean=unclean, destroyed=destroyed)
    events = dict.fromkeys(EVENTS, 0) | known
    events = {n: v for n, v in events.items() if could_be(n, configuration, happened) != 0}
    judgement, _ = decide(anomaly, configuration, dict.fromkeys(EVENTS, 0) | events)
    if judgement is Judgement.PERMITTED:
        assert satisfiable(anomaly, configuration, happened)


def test_an_unknown_defect_only_loses_its_name():
    old = Configuration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=(3, 9, 0))
    events = dict.fromkeys(EVENTS, 0)
    judgement, rule = decide("lost", old, events | {"leader changed": 1})
    assert judgement is Judgement.FORBIDDEN
    assert TABLE["lost"].rules[rule].defect.startswith("KAFKA-18991")
    assert decide("lost", old, events | {"leader changed": -1}) == (Judgement.FORBIDDEN, -1)


def test_a_rule_in_doubt_before_the_first_true_one_makes_the_witness_unknown():
    weak = Configuration(acks="1", idempotent=False, retries=True, several_in_flight=True)
    events = dict.fromkeys(EVENTS, 0)
    assert decide("lost", weak, events | {"tail": -1, "cutoff of the gone": 1})[0] is Judgement.UNKNOWN
    assert decide("lost", weak, events | {"tail": 1, "cutoff of the gone": -1})[0] is Judgement.PERMITTED


# --- what could have been permitted ---------------------------------------------------------------------------------


def rules(anomaly: str, configuration: Configuration, happened: Happened) -> list[str]:
    return [rule.id for rule in satisfiable_rules(anomaly, configuration, happened)]


def test_acks_0_may_always_lose():
    acks_0 = Configuration(acks="0", idempotent=False, retries=False, several_in_flight=False)
    assert rules("lost", acks_0, NOTHING) == ["lost/acks-0"]


def test_acks_1_may_lose_only_if_a_leader_moved_or_died():
    acks_1 = Configuration(acks="1", idempotent=False, retries=False, several_in_flight=False)
    assert rules("lost", acks_1, NOTHING) == []
    assert rules("lost", acks_1, FAILOVER) == ["lost/acks-1"]


@pytest.mark.parametrize("anomaly", [a for a in TABLE if a != "write-cycle"])  # which nobody promises
def test_acks_all_idempotent_promises_everything_under_a_clean_failover(anomaly):
    assert rules(anomaly, STRONGEST, FAILOVER) == []


def test_a_producer_without_idempotence_may_always_duplicate_and_reorder_if_it_retries():
    weak = Configuration(acks="all", idempotent=False, retries=True, several_in_flight=True)
    assert satisfiable("duplicate", weak, NOTHING)
    assert satisfiable("reordered", weak, NOTHING)
    once = Configuration(acks="all", idempotent=False, retries=False, several_in_flight=True)
    assert not satisfiable("duplicate", once, NOTHING)
    assert satisfiable("duplicate", once, FAILOVER), "librdkafka resends after a change of leader, unasked"
    java = Configuration(acks="all", idempotent=False, retries=False, several_in_flight=True, librdkafka=False)
    assert not satisfiable("duplicate", java, FAILOVER)
    single = Configuration(acks="all", idempotent=False, retries=True, several_in_flight=False)
    retried = ["reordered/given-up", "reordered/librdkafka-resends", "reordered/librdkafka-retries"]
    assert rules("reordered", single, NOTHING) == rules("reordered", single, FAILOVER) == retried
    assert rules("reordered", replace(single, retries=False), NOTHING) == retried[:2]
    java = Configuration(acks="all", idempotent=False, retries=True, several_in_flight=False, librdkafka=False)
    assert rules("reordered", java, FAILOVER) == ["reordered/given-up"]


@pytest.mark.parametrize(
    ("kinds", "unclean_enabled", "expected"),
    [
        ([], True, []),
        (["kill"], False, []),
        (["pause", "kill"], True, ["lost/unclean"]),
        (["mystery"], False, ["lost/wiped", "lost/unclean"]),
        (["power-loss"], False, ["lost/wiped"]),
        (["disk-full", "disk-hang"], False, []),
    ],
)
def test_what_faults_could_bring_about_is_predicted_from_their_kinds(kinds, unclean_enabled, expected):
    happened = could_happen({kind: NATURES.get(kind) for kind in kinds}, unclean_enabled=unclean_enabled)
    assert rules("lost", STRONGEST, happened) == expected


def test_power_loss_could_lose_nothing_where_every_record_is_flushed():
    happened = could_happen({"power-loss": NATURES["power-loss"]}, unclean_enabled=False, flushed=True)
    assert rules("lost", STRONGEST, happened) == []


# --- facts, controls, document --------------------------------------------------------------------------------------


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


def test_an_unknown_version_leaves_a_defect_in_doubt():
    unknown = Configuration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=None)
    defect = TABLE["dirty-read"].rules[-1]
    assert int(condition(defect, lambda name: could_be(name, unknown, FAILOVER))) == -1


def test_every_control_names_known_things():
    for control in CONTROLS:
        assert control.anomaly in TABLE
        assert control.faults <= set(FAULTS)
        assert control.kind in KINDS
        assert control.source


def test_the_document_is_up_to_date():
    assert DOCUMENT.read_text(encoding="utf-8") == render(), "run python -m harness.guarantees.document"
