"""No permission without its own evidence: for every rule that permits, a case in which it does, and each piece of what was
seen taken away: the permission goes with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from prozess.harness.config.configuration import DeliveryBound
from prozess.harness.guarantees.facts.registry import FACTS
from prozess.harness.guarantees.facts.truncation import elected_unclean, last_unclean_ns
from prozess.harness.guarantees.facts.witnessed import OF_WITNESSES
from prozess.harness.guarantees.table import TABLE, RuleEffect
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.table.rules import (
    AIM,
    ANSWERS,
    AUDIT,
    CLIENTS,
    DELETION,
    EFFECT,
    FAULT,
    LOG,
    LOG_START,
    LOG_START_IN_TIME,
    LOGS,
    NEVER_CERTAIN,
    NEVER_EXCUSES,
    ON_EVERY_NODE,
    SEND_ENDED,
    STORE,
    Rule,
    proofs_of,
)
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces.witnesses import (
    AdminCase,
    CopyCase,
    EpochCase,
    GapCase,
    GroupCase,
    KeyCase,
    RealTimeCase,
    ShareCase,
    SnapshotCase,
    StallCase,
)
from prozess.harness.schema import MISSING, FaultPhase, MetadataKind, ObservationKind, Outcome
from tests.support.cells.evidence import UNCLEAN, evidence, fault, nothing_left, ns, plan, state, strike, witnesses

Rows = Sequence[Mapping[str, int]]
ONE, OTHER = {"topic_id_high": 1, "topic_id_low": 1}, {"topic_id_high": 2, "topic_id_low": 2}
STABLE = [state(-10, 0, 1, 0, (1, 2, 3))]
ONLY_COPY = [state(-10, 0, 1, 0, (1,)), state(5.5, 0, -1, 1, (1,)), state(8, 0, 1, 2, (1,))]
MADE_ANEW = [
    state(-10, 0, 1, 3, (1, 2, 3)) | ONE,
    state(5, 0, -1, 3, ()) | ONE | {"kind": MetadataKind.DELETED},
    state(6, 0, 2, 0, (1, 2, 3)) | OTHER,
]
DAY_S = 86_400.0
DARK = fault(0, "power-loss", [1, 2, 3], 5, 7)


@dataclass(frozen=True)
class Seen:
    """What was seen, so that a fact holds."""

    metadata: Rows = ()
    faults: Rows = ()
    observations: Rows = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    aimed: bool = False
    flushed: bool = False
    """The topic's own records are synced, so that brokers without power lose those of internal topics alone."""


def observed(kind: ObservationKind, at_s: float, value: int) -> dict[str, int]:
    return {"partition": 0, "kind": kind, "time_ns": ns(at_s), "value": value, "step": -1}


def of_case(case: int) -> Seen:
    """By what clients recorded, as the kernels found it."""
    return Seen(columns={"case": int(case)})


BY_WIPE = {"metadata": ONLY_COPY, "faults": fault(0, "wipe", [1], 5, 7)}
UNCLEANLY = {"metadata": UNCLEAN}
DELETED = {"metadata": MADE_ANEW}
COORDINATORS = Seen(STABLE, DARK, columns={"begin_s": 30, "end_s": 60, "other_s": 1}, flushed=True)
SEEN: Mapping[str, Seen] = {
    "topic deleted": Seen(**DELETED),
    "topic deleted after the read": Seen(**DELETED, columns={"seen_s": 4.5}),
    "topic of either deleted": Seen(**DELETED, columns={"case": 1, "other_s": 20}),
    "topic made anew in between": Seen(**DELETED, columns={"end_s": 7, "outcome": -1}),
    "topic made anew since the other": Seen(**DELETED, columns={"other_s": 4, "begin_s": 7, "end_s": 7.1}),
    "partitions were added": of_case(KeyCase.ADDED),
    "sent by two producers": of_case(KeyCase.TWO_PRODUCERS),
    "wiped": Seen(**BY_WIPE),
    "wiped of either": Seen(**BY_WIPE, columns={"other_s": 20}),
    "wiped after the read": Seen(**BY_WIPE, columns={"seen_s": 4.5}),
    "wiped after it was there": Seen(**BY_WIPE, columns={"seen_s": 4.5}),
    "wiped before": Seen(**BY_WIPE, columns={"end_s": 9}),
    "cutoff": Seen(**UNCLEANLY),
    "cutoff of a missing record": Seen(**UNCLEANLY),
    "cutoff of either": Seen(**UNCLEANLY, columns={"other_s": 20}),
    "cutoff after the read": Seen(**UNCLEANLY, columns={"seen_s": 4.5}),
    "unclean before": Seen(**UNCLEANLY, columns={"end_s": 7}),
    "unclean after the step": Seen(
        **UNCLEANLY,
        columns={"case": int(GroupCase.MISTAKEN), "other_s": 4.5, "seen_s": 20, "begin_s": 20, "end_s": None},
    ),
    "unclean since the other": Seen(**UNCLEANLY, columns={"other_s": 4, "begin_s": 7, "end_s": 7.1}),
    "wiped since the other": Seen(**BY_WIPE, columns={"other_s": 4, "begin_s": 9, "end_s": 9.1}),
    "unclean before it was read": Seen(**UNCLEANLY, columns={"seen_s": 7}),
    "unclean between the answers": Seen(**UNCLEANLY, columns={"sequence": 1, "other_sequence": 0}),
    "that election was unclean": Seen(**UNCLEANLY, columns={"sequence": 1, "begin_s": 6, "end_s": None}),
    "unclean election asked for": Seen(
        UNCLEAN, fault(0, "elect-unclean", [2], 6, 6.5), columns={"begin_s": 6, "end_s": None}
    ),
    "a partition of the cell was elected unclean": Seen(**UNCLEANLY),
    "transaction state lost": COORDINATORS,
    "transaction decision lost": COORDINATORS,
    "group state lost": COORDINATORS,
    "group lost by every broker": COORDINATORS,
    "share state lost": COORDINATORS,
    "offset given away by an election": Seen(**UNCLEANLY),
    "start was beyond it": of_case(ShareCase.BEFORE_START),
    "count was in memory alone": of_case(ShareCase.NOT_RAISED),
    "delivered as often as the limit allows": of_case(ShareCase.AT_LIMIT),
    "one delivery short of the limit": of_case(ShareCase.ONE_SHORT),
    "leader changed while it was held": Seen([*STABLE, state(4.05, 0, 2, 1, (2, 3))]),
    "share session may have ended": Seen(STABLE, fault(0, "pause", [1], 4, 6)),
    "dead-letter queue may have been out of reach": Seen(STABLE, fault(0, "pause", [1], 4, 15)),
    "owner since before the loss": COORDINATORS,
    "still unreplicated": Seen([*STABLE, state(4.5, 0, 2, 1, (2, 3))]),
    "leader changed during the send": Seen([*STABLE, state(4.05, 0, 2, 1, (2, 3))]),
    "leader may have refused": Seen([*STABLE, state(4.05, 0, 2, 1, (2, 3))]),
    "given up": Seen(columns={"outcome": Outcome.INFO}),
    "forgot": Seen(STABLE, columns={"end_s": 4 + DAY_S}),
    "may have expired": Seen(
        STABLE,
        columns={"end_s": 4 + DAY_S, "case": int(SnapshotCase.UNKNOWN_THERE)},
    ),
    "retention is limited": Seen(configuration={"retention_limited": True}),
    "tiered storage": Seen(configuration={"tiered": True}),
    "taken": of_case(GapCase.TAKEN),
    "fault since it was let go": Seen(STABLE, fault(0, "pause", [2], 5, 100), columns={"begin_s": 10, "end_s": 40}),
    "remote store harmed": Seen(
        STABLE,
        fault(0, "store-away", [1], 5, 7),
        observations=[observed(ObservationKind.REMOTE_STORE_READ, 60, 10_000)],
        columns={"begin_s": 6, "end_s": 30},
    ),
    "log start passed": Seen(
        STABLE,
        observations=[observed(ObservationKind.LOG_START, 4, 150)],
        columns={"other_offset": 160},
    ),
    "read beyond delete.retention.ms": Seen(
        STABLE,
        observations=[observed(ObservationKind.AUDIT_COMPLETE, DAY_S + 9, 1)],
        columns={"other_s": 1},
    ),
    "a replica away beyond delete.retention.ms": Seen(
        [
            *STABLE,
            state(3.5, 0, 1, 0, (1, 3)),
            state(DAY_S + 20, 0, 1, 0, (1, 2, 3)),
            state(DAY_S + 30, 0, 2, 1, (2, 3)),
        ],
        fault(0, "kill", [2], 3, DAY_S + 9),
        [observed(ObservationKind.AUDIT_COMPLETE, 100, 1)],
        columns={"other_s": 1},
    ),
    "sent later": Seen(UNCLEAN, columns={"other_s": 9, "begin_s": 4, "end_s": 4.1}),
    "out of sync at the end": Seen([*STABLE, state(5, 0, 1, 0, (1, 2))], columns={"reader": 1, "other_client": 3}),
    "leader was hampered": Seen(STABLE, fault(0, "pause", [1], 3, 5)),
    "unsettled": Seen(STABLE, fault(0, "pause", [2], 5, 100), columns={"begin_s": 10, "end_s": 40}),
    "no majority of controllers": Seen(
        STABLE, fault(0, "kill", [1, 2, 3, 3001], 5, 100), columns={"begin_s": 10, "end_s": 40}
    ),
    "within the quorum's fetch timeout": Seen(STABLE, columns={"begin_s": 10, "end_s": 12, "other_s": 10}),
    "group was troubled": Seen(STABLE, fault(0, "pause", [2], 5, 100), columns={"begin_s": 10, "end_s": 40}),
    "held up": Seen(STABLE, fault(0, "pause", [2], 5, 100), columns={"begin_s": 10, "end_s": 70, "other_s": 60}),
    "call held up": Seen(
        STABLE, fault(0, "pause", [2], 5, 100), columns={"begin_s": 10, "end_s": 70, "other_s": 60, "reader": 1}
    ),
    "may have been carried out later": Seen(
        STABLE, columns={"case": int(AdminCase.AGAIN), "begin_s": 0, "end_s": 80, "other_s": 10, "reader": 1}
    ),
    "partition held up": Seen(
        STABLE, fault(0, "pause", [2], 5, 100), columns={"begin_s": 10, "end_s": 70, "other_s": 60}
    ),
    "fault at work": Seen(STABLE, fault(0, "pause", [2], 3, 5), columns={"other_s": 9}),
    "coordinator out": Seen(STABLE, fault(0, "pause", [2], 3, 5), aimed=True),
    "commits of one alone": Seen(),
    "sent before it was read": of_case(RealTimeCase.READ),
    "found by a consumer": of_case(EpochCase.READ),
    "read_uncommitted": of_case(1),
    "read_uncommitted inside": of_case(1),
    "order of writes": of_case(2),
    "last stable offset stood still": of_case(StallCase.STABLE_OFFSET),
    "no copy": of_case(CopyCase.MISSING),
    "a copy too many": of_case(CopyCase.REPEATED),
    "committed for the topic before": of_case(GroupCase.OF_ANOTHER_TOPIC),
    "keys are ignored": Seen(configuration={"key_hashes": ("none",)}),
    "unlike partitioners": Seen(configuration={"key_hashes": ("murmur2", "crc32")}),
    "commits by name": Seen(configuration={"commits_by_name": True}),
    "left behind": of_case(GroupCase.LEFT_BEHIND),
    "sent again": of_case(GroupCase.SENT_AGAIN),
    "member was gone": of_case(GroupCase.CRASHED),
    "one instance id twice": of_case(GroupCase.SAME_INSTANCE),
    "position was sought": of_case(GroupCase.SOUGHT),
    "position was reset": of_case(GroupCase.RESET),
    "stands twice": of_case(GroupCase.DUPLICATE),
    "within a session": of_case(GroupCase.WITHIN_SESSION),
    "a gone member may be waited for": of_case(GroupCase.WAITED_FOR),
    "acks=0": Seen(configuration={"acks": "0"}),
    "acks=1": Seen(configuration={"acks": "1"}),
    "not committed": Seen(),
    "not idempotent": Seen(configuration={"idempotent": False}),
    "retries": Seen(configuration={"retries": True}),
    "several in flight": Seen(configuration={"several_in_flight": True}),
    "several per batch": Seen(configuration={"several_per_batch": True}),
    "refused by brokers": Seen(configuration={"refused_by_brokers": True}),
    "librdkafka": Seen(configuration={"librdkafka": True}),
    "lifo": Seen(configuration={"lifo": True}),
    "unclean enabled": Seen(configuration={"unclean_enabled": True}),
    "copies at most once": Seen(configuration={"delivery": "at-most-once"}),
    "copies at least once": Seen(configuration={"delivery": "at-least-once"}),
    "offsets outside the transaction": Seen(configuration={"delivery": "transaction-alone"}),
    "commits first": Seen(configuration={"commits_first": True}),
    "hands on": Seen(configuration={"hands_on": True}),
    "hands on without waiting": Seen(configuration={"hands_on_unawaited": True}),
    "crcs are not checked": Seen(configuration={"crcs_unchecked": True}),
    "share group begins at the end": Seen(configuration={"share_latest": True}),
    "resets to latest": Seen(configuration={"resets_to_latest": True}),
    "an assignor of somebody else": Seen(configuration={"other_assignor": True}),
    "faults are excepted": Seen(configuration={"faults_excepted": True}),
}
"""Fact of a permitting rule → how it was seen."""
SHADOWED = {"two-owners/group-perhaps-lost"}
"""What the rule before it is certain of, too: it only reports in what doubt is."""
STRICT = CellConfiguration(
    acks="all", idempotent=True, retries=False, several_in_flight=False, librdkafka=False, version=(4, 3, 1)
)
PERMITTING = [
    (anomaly, rule)
    for anomaly, guarantee in TABLE.items()
    for rule in guarantee.rules
    if rule.effect not in NEVER_EXCUSES
]
CASES = [(a, r) for a, r in PERMITTING if not NEVER_CERTAIN.intersection(r.when) and r.id not in SHADOWED]
PLAN, FLUSHED = (
    plan({"producer.acks": ["all"]}, base=base, steps=[strike("strike", "pause", "partition(0)")])
    for base in ({}, {"topic.flush_messages": 1})
)


def judged(anomaly: str, rule: Rule, without: Sequence[str] = ()) -> tuple[Judgement, str]:
    """What becomes of one witness where every fact of the rule was seen, but for these pieces; and the rule that decided."""
    seen = [SEEN[name] for name in rule.when]
    metadata = ([row for s in seen for row in s.metadata] or STABLE)[: 0 if LOG in without else None]
    faults = {tuple(row.items()): row for s in seen for row in s.faults}.values()
    observations = [row for s in seen for row in s.observations]
    columns = {"begin_s": 4.0, "end_s": 4.1} | {name: value for s in seen for name, value in s.columns.items()}
    configuration = replace(STRICT, **{name: value for s in seen for name, value in s.configuration.items()})
    kept = [row for row in faults if FAULT not in without and not _taken(row, without)]
    of = FLUSHED if any(s.flushed for s in seen) else PLAN
    logs = () if LOGS in without else nothing_left(of)
    given = evidence(
        of,
        metadata=[r for r in metadata if DELETION not in without or r["kind"] != MetadataKind.DELETED],
        faults=kept,
        observations=[*logs, *_observations(observations, without)],
    )
    envelope = replace(
        given.envelope(of, of.cells[0], 0),
        acks=configuration.acks,
        unclean_enabled=configuration.unclean_enabled,
        delivery_bound=DeliveryBound(latency_s=5),
        coordinator_steps=frozenset({0} if any(s.aimed for s in seen) and AIM not in without else ()),
    )
    envelope = replace(envelope, cell_unclean=elected_unclean(envelope), cell_unclean_ns=last_unclean_ns(envelope))
    found = evaluate_witnesses(anomaly, configuration, envelope, _witness(columns, without))
    number = int(found.rule[0])
    return Judgement(int(found.judgement[0])), TABLE[anomaly].rules[number].id if number >= 0 else ""


def _taken(row: Mapping[str, int], without: Sequence[str]) -> bool:
    verified = row["phase"] == FaultPhase.VERIFIED
    return verified and (EFFECT in without or (ON_EVERY_NODE in without and row["node"] == 2))


def _observations(rows: Rows, without: Sequence[str]) -> Rows:
    kinds = {LOG_START: ObservationKind.LOG_START, AUDIT: ObservationKind.AUDIT_COMPLETE}
    kinds |= {STORE: ObservationKind.REMOTE_STORE_READ}
    gone = {kinds[name] for name in without if name in kinds}
    late = {"time_ns": ns(50)} if LOG_START_IN_TIME in without else {}
    return [{**row, **late} for row in rows if row["kind"] not in gone]


def _witness(columns: Mapping[str, Any], without: Sequence[str]) -> np.ndarray:
    unsaid = {"case": 0, "outcome": Outcome.OK, "other_ns": MISSING} if {CLIENTS, ANSWERS} & {*without} else {}
    unended = {"end_s": None} if SEND_ENDED in without else {}
    return witnesses(1, **{**columns, **unsaid, **unended})


def named(case: tuple[str, Rule]) -> str:
    return case[1].id


WITHOUT = [
    (anomaly, rule, taken)
    for anomaly, rule in CASES
    for length in range(1, len(proofs_of(rule)) + 1)
    for taken in combinations(proofs_of(rule), length)
]


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_rule_permits_where_all_that_it_asks_for_was_seen(case):
    anomaly, rule = case
    wanted = Judgement.PERMITTED if rule.effect is RuleEffect.PERMITTED else Judgement.NOT_APPLICABLE
    assert judged(anomaly, rule) == (wanted, rule.id)


@pytest.mark.parametrize(("anomaly", "rule", "taken"), WITHOUT, ids=lambda value: getattr(value, "id", str(value)))
def test_nothing_permits_where_a_piece_of_the_evidence_is_missing(anomaly, rule, taken):
    judgement, decided = judged(anomaly, rule, without=taken)
    assert judgement in (Judgement.FORBIDDEN, Judgement.UNKNOWN), f"permitted by {decided} without {taken}"


def test_every_rule_that_permits_rests_on_the_configuration_or_has_evidence_that_can_be_taken_away():
    of_configuration = {name for name, fact in FACTS.items() if fact.of_configuration}
    bare = {
        rule.id
        for _, rule in CASES
        if not proofs_of(rule) and not {name.removeprefix("not ") for name in rule.when} <= of_configuration
    }
    assert bare == {"lost/acks-0", "compacted-away/acks-0", "tombstone-lost/acks-0"}, "acks=0 promises nothing"


def test_what_permits_nothing_by_itself_is_unknown_at_best():
    for name in NEVER_CERTAIN:
        assert name in OF_WITNESSES
    assert {rule.id for _, rule in PERMITTING if rule.id not in {r.id for _, r in CASES}} == {
        "reordered/cleaned", "stalled/starved", "hanging/starved", "stuck/starved", "unanswered/starved", "late/unmeasured",
        "unprocessed/several-topics", "not-exactly-once/several-topics", "two-owners/group-perhaps-lost",
        "skipped/unreported-seek", "rewound/unreported-seek",
        "unstable/several-topics", "starved/several-topics", "leaderless/stood-still", "lost/begun-behind",
        "mistimed/several-topics", "early-read/clock-moved", "expired-early/clock-moved", "undeleted/broker-out",
        "reprocessed/offsets-expired", "commit-regression/offsets-expired", "orphaned/rejoined",
    }  # fmt: skip
