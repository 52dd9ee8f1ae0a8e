"""Tests of the rules for features and settings in the controllers' log: each by a log that breaks it, and a second model."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.metadata.illegal import FEATURE_RULES, SETTING_RULES, illegal_transition
from prozess.checkers.metadata.kip_778 import CHANGED
from prozess.checkers.metadata.kip_1022 import NEEDED
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import TransitionCase as Case
from prozess.harness.schema import ELR_VERSION, METADATA_VERSION, NONE
from prozess.harness.schema import ClusterRecord as Record
from tests.support.cells.partitions import CELL, PARTITION, history, table

Row = dict[str, int]
CASES = {rule.case for rule in (*FEATURE_RULES, *SETTING_RULES)} | {Case.BROKER_BEYOND_LEVEL}
GROUP_VERSION, OTHER = 2, 3


def broken(*records: Sequence[Row]) -> list[tuple[Case, int]]:
    """The rules for features that records break, each with the offset. Record n is at offset n, and two are of one time."""
    rows = [row | {"log_offset": n, "time_ns": n // 2} for n, record in enumerate(records) for row in record]
    cell = CELL.model_copy(update={"partitions": (PARTITION,)})
    tables = {"cluster_states": table("cluster_states", rows), "metadata": table("metadata", [])}
    whole = CellHistory(cell=cell, partitions={PARTITION: history()}, tables=tables, clients=())
    found = illegal_transition(whole).witnesses
    return sorted((Case(int(w["case"])), int(w["log_offset"])) for w in found if int(w["case"]) in CASES)


def registered(node: int, *supported: tuple[int, int, int]) -> list[Row]:
    """Feature, lowest, highest …"""
    own = {"node": node, "broker_epoch": 0, "fenced": NONE}
    levels = [dict(zip(("feature", "lowest", "level"), one, strict=True)) for one in supported]
    first = own | {"kind": int(Record.REGISTERED), "fenced": 1}
    return [first, *(own | {"kind": int(Record.SUPPORTED)} | one for one in levels)]


def unregistered(node: int) -> list[Row]:
    return [{"kind": int(Record.UNREGISTERED), "node": node, "broker_epoch": 0, "fenced": 1}]


def level(feature: int, value: int) -> list[Row]:
    return [{"kind": int(Record.FEATURE), "node": NONE, "feature": feature, "level": value}]


def setting(topic: int) -> list[Row]:
    return [{"kind": int(Record.CONFIGURED), "node": NONE, "id_high": topic, "id_low": topic}]


NEW, OLD = registered(1, (GROUP_VERSION, 0, 1)), registered(2)


@pytest.mark.parametrize(
    ("rule", "log", "breaks", "keeps"),
    [
        (Case.LEVEL_BEYOND_BROKER, [NEW], level(GROUP_VERSION, 2), level(GROUP_VERSION, 1)),
        (Case.LEVEL_BEYOND_BROKER, [NEW, OLD], level(GROUP_VERSION, 1), level(GROUP_VERSION, 0)),
        (Case.LEVEL_BEYOND_BROKER, [NEW], level(OTHER, 1), level(OTHER, 0)),
        (
            Case.BROKER_BEYOND_LEVEL,
            [level(GROUP_VERSION, 1)],
            registered(1, (GROUP_VERSION, 2, 3)),
            registered(1, (GROUP_VERSION, 1, 3)),
        ),
        (
            Case.BROKER_BEYOND_LEVEL,
            [level(GROUP_VERSION, 2), level(OTHER, 1)],
            registered(1, (OTHER, 1, 1), (GROUP_VERSION, 0, 1)),
            registered(1, (OTHER, 1, 1), (GROUP_VERSION, 0, 2)),
        ),
        (
            Case.METADATA_VERSION_LOWERED,
            [level(METADATA_VERSION, 25)],
            level(METADATA_VERSION, 22),
            level(METADATA_VERSION, 23),
        ),
        (
            Case.METADATA_VERSION_LOWERED,
            [level(METADATA_VERSION, 20), level(METADATA_VERSION, 17)],
            level(METADATA_VERSION, 16),
            level(METADATA_VERSION, 30),
        ),
        (
            Case.METADATA_VERSION_LOWERED,
            [level(METADATA_VERSION, 25), level(GROUP_VERSION, 25)],
            level(METADATA_VERSION, 8),
            level(GROUP_VERSION, 8),
        ),
        (
            Case.FEATURE_BEYOND_METADATA,
            [level(METADATA_VERSION, 22)],
            level(ELR_VERSION, 1),
            level(ELR_VERSION, 0),
        ),
        (Case.FEATURE_BEYOND_METADATA, [], level(ELR_VERSION, 1), level(METADATA_VERSION, 23)),
        (Case.FEATURE_BEYOND_METADATA, [level(GROUP_VERSION, 23)], level(ELR_VERSION, 1), level(GROUP_VERSION, 1)),
        (Case.SETTING_OF_NO_TOPIC, [setting(3)], setting(NONE), setting(3)),
    ],
)
def test_a_rule_forbids_a_level_and_not_the_one_beside_it(rule, log, breaks, keeps):
    assert broken(*log, breaks) == [(rule, len(log))]
    assert broken(*log, keeps) == []


def test_one_request_raises_metadata_version_and_what_needs_it_in_either_order():
    raised = [level(METADATA_VERSION, 23), level(ELR_VERSION, 1)]
    assert broken(*raised) == broken(*reversed(raised)) == []
    assert broken(level(GROUP_VERSION, 0), *reversed(raised)) == [(Case.FEATURE_BEYOND_METADATA, 1)], (
        "metadata.version was raised later"
    )
    assert broken(level(METADATA_VERSION, 23), level(METADATA_VERSION, 25), level(ELR_VERSION, 1)) == []


def test_a_broker_that_is_gone_or_has_registered_anew_forbids_nothing():
    assert broken(NEW, OLD, unregistered(2), level(GROUP_VERSION, 1)) == []
    assert broken(NEW, OLD, registered(2, (GROUP_VERSION, 1, 1)), level(GROUP_VERSION, 1)) == []


def test_a_feature_that_was_taken_away_forbids_no_broker():
    newer = registered(1, (GROUP_VERSION, 2, 3))
    assert broken(level(GROUP_VERSION, 1), level(GROUP_VERSION, 0), newer) == []


# --- a second model, which goes through the log record by record


def naive(log: Sequence[Sequence[Row]]) -> list[tuple[Case, int]]:
    found: list[tuple[Case, int]] = []
    levels: dict[int, int] = {}
    brokers: dict[int, dict[int, range]] = {}
    for at, (own, *supported) in enumerate(log):
        node, now = own["node"], own.get("level", 0)
        if own["kind"] == Record.FEATURE:
            feature, before = own["feature"], levels.get(own["feature"], 0)
            if now and not all(now in broker.get(feature, ()) for broker in brokers.values()):
                found.append((Case.LEVEL_BEYOND_BROKER, at))
            if feature == METADATA_VERSION and any(now < one <= before for one in CHANGED.tolist()):
                found.append((Case.METADATA_VERSION_LOWERED, at))
            beside = log[at ^ 1][0] if at ^ 1 < len(log) else {}
            raised = beside.get("kind") == Record.FEATURE and beside["feature"] == METADATA_VERSION
            known = max(levels.get(METADATA_VERSION, 0), beside["level"] if raised else 0)
            if feature == ELR_VERSION and now and known < NEEDED:
                found.append((Case.FEATURE_BEYOND_METADATA, at))
            levels[feature] = now
        elif own["kind"] == Record.CONFIGURED:
            found += [(Case.SETTING_OF_NO_TOPIC, at)] if (own["id_high"], own["id_low"]) == (NONE, NONE) else []
        elif own["kind"] == Record.UNREGISTERED:
            brokers.pop(node, None)
        else:
            brokers[node] = {one["feature"]: range(one["lowest"], one["level"] + 1) for one in supported}
            if any(levels.get(f, 0) and levels[f] not in levels_of for f, levels_of in brokers[node].items()):
                found.append((Case.BROKER_BEYOND_LEVEL, at))
    return sorted(found)


nodes, features = st.integers(1, 3), st.integers(0, 2)
ranges = st.lists(st.tuples(features, st.integers(0, 14), st.integers(0, 14)), max_size=3, unique_by=lambda one: one[0])
records = st.one_of(
    st.builds(lambda node, some: registered(node, *some), nodes, ranges),
    st.builds(unregistered, nodes),
    st.builds(level, features, st.one_of(st.integers(0, 14), st.integers(22, 24))),
    st.builds(setting, st.integers(NONE, 1)),
)


@given(st.lists(records, max_size=12))
def test_the_rules_agree_with_a_model_that_goes_record_by_record(log):
    assert broken(*log) == naive(log)
