"""The table over what a user names: every setting that it speaks of with every kind of event, by real cells and envelopes.

`test_guarantees_table` enumerates the facts that rules are made of; here they come from configurations, ground truth and
faults, so that min.insync.replicas and eligible leader replicas, which are facts of a timeline, take part.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from prozess.harness.config.configuration import GroupConfiguration, ProducerConfiguration, TopicConfiguration, Variant
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import fault_records, no_timeline, timelines
from prozess.harness.guarantees.facts.registry import FACTS
from prozess.harness.guarantees.facts.witnessed import OF_WITNESSES
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.cell_configuration import configuration_of
from prozess.harness.guarantees.table.rules import NEVER_EXCUSES
from prozess.harness.guarantees.verdict.evaluation import Judgement, condition, evaluate
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.plan.cell_work import work_with
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import NONE
from tests.support.cells.evidence import DICTIONARIES, MS, fault, ns, state, witnesses
from tests.support.cells.partitions import table

WHOLE = (1, 2, 3)
NOBODY = NONE
WITH_WIPE = {**NATURES, "wipe": FaultNature(stops=True, destroys=True)}
CASES = range(14)
"""As many as any kernel has."""


@dataclass(frozen=True)
class Settings:
    """What a user sets."""

    acks: str
    idempotent: bool
    retries: str
    in_flight: int
    min_isr: int
    unclean: bool
    elr: bool
    isolation: str
    commit: str

    def cell(self) -> Cell:
        producer = ProducerConfiguration(
            acks=self.acks, enable_idempotence=self.idempotent, retries=self.retries, max_in_flight=self.in_flight
        )
        topic = TopicConfiguration(
            min_insync_replicas=self.min_isr, unclean_leader_election_enable=self.unclean, replication_factor=3
        )
        group = GroupConfiguration(commit=self.commit, isolation_level=self.isolation)
        named = {"cell": 0, "name": "cell", "workload": "group", "topic_name": "cell-000", "axes": {}}
        return Cell(**named, topic=topic, producer=producer, work=work_with(group, Variant()), partitions=(0,))


def every_settings() -> Iterator[Settings]:
    """All that librdkafka does not refuse."""
    commits = GroupConfiguration.model_fields["commit"].annotation.__args__
    values = (("0", "1", "all"), (False, True), ("0", "max"), (1, 5), (1, 2), (False, True), (False, True))
    for made in product(*values, ("read_uncommitted", "read_committed"), commits):
        settings = Settings(*made)
        if not settings.idempotent or (settings.acks == "all" and settings.retries != "0"):
            yield settings


# --- kinds of events ------------------------------------------------------------------------------------------------

Rows = Sequence[Mapping[str, Any]]
START = state(-10, 0, 1, 0, WHOLE)


def _failover(kind: str) -> tuple[Rows, Rows]:
    rows = [START, state(5, 0, 2, 1, (2, 3)), state(10, 0, 2, 1, WHOLE)]
    return rows, fault(0, kind, [1], 4.5, 8)


def _shrunk(last: str, min_isr: int, elr: bool, unclean: bool) -> tuple[Rows, Rows]:
    """3 is gone, 2 leaves in an orderly way, then the leader alone is struck. What follows is the controller's choice:
    an eligible replica; else, if allowed, anybody; else it waits for the last leader. [KIP-966]"""
    eligible = (2,) if elr and min_isr > 1 else ()
    rows = [START, state(2, 0, 1, 0, (1, 2)), state(3, 0, 1, 0, (1,), eligible)]
    faults = [*fault(0, "kill", [3], 1.5, 12), *fault(1, "kill", [2], 2.5, 7), *fault(2, last, [1], 4.5, 9)]
    if eligible:
        rows += [state(5, 0, NOBODY, 0, (), (1, 2), 1), state(7, 0, 2, 1, (2,), (1,))]
    elif unclean:
        rows += [state(5, 0, NOBODY, 0, (1,)), state(7, 0, 2, 1, (2,))]
    else:
        rows += [state(5, 0, NOBODY, 0, (1,)), state(9, 0, 1, 1, (1,))]
    return rows, faults


EVENTS = {
    "peace": lambda *_: ([START], ()),
    "leader moved": lambda *_: ([START, state(5, 0, 2, 1, WHOLE)], ()),
    "leader killed": lambda *_: _failover("kill"),
    "leader frozen": lambda *_: _failover("pause"),
    "leader cut off": lambda *_: _failover("partition"),
    "last in sync killed": lambda *given: _shrunk("kill", *given),
    "last in sync destroyed": lambda *given: _shrunk("wipe", *given),
    "every copy destroyed": lambda *_: (
        [START, state(5, 0, NOBODY, 0, WHOLE), state(8, 0, 1, 1, (1,))],
        fault(0, "wipe", [1, 2, 3], 4.5, 8),
    ),
    "nobody looked": lambda *_: ((), fault(0, "mystery", [1], 4.5, 8)),
}


@cache
def envelope(event: str, acks: str, min_isr: int, elr: bool, unclean: bool) -> Envelope:
    metadata, faults = EVENTS[event](min_isr, elr, unclean)
    return Envelope(
        acks=acks,
        unclean_enabled=unclean,
        epoch_starts={2**31: 0},
        timeline=timelines(table("metadata", metadata))[0] if metadata else no_timeline(),
        faults=fault_records(table("faults", faults), DICTIONARIES, WITH_WIPE) if faults else (),
        error_ns=MS,
        lag_max_ns=ns(10),
        producer_expiry_ns=ns(86_400),
        delete_retention_ns=ns(86_400),
        audited_ns=ns(60),
    )


def seen(min_isr: int) -> np.ndarray:
    """One witness for each case: acknowledged while as many were in sync as acks=all needs, and not given to anybody."""
    begin_s = 4.0 if min_isr == 1 else 2.2
    return witnesses(len(CASES), begin_s=begin_s, end_s=begin_s + 0.1, case=np.array(CASES))


# --- all at once ----------------------------------------------------------------------------------------------------


class Everything:
    """Every settings with every event and every case of a witness, as arrays of one length."""

    def __init__(self) -> None:
        self.settings, self.events = list(every_settings()), list(EVENTS)
        configurations = [configuration_of(s.cell(), "4.4.0") for s in self.settings]
        self._configurations = {c: i for i, c in enumerate(dict.fromkeys(configurations))}
        of_settings = np.array([self._configurations[c] for c in configurations])
        whats = [(event, s.acks, s.min_isr, s.elr, s.unclean) for s, event in product(self.settings, self.events)]
        self._whats = {what: i for i, what in enumerate(dict.fromkeys(whats))}
        self.shape = (len(self.settings), len(self.events), len(CASES))
        per_case = np.repeat(np.array([self._whats[what] for what in whats]), len(CASES)) * len(CASES)
        self._what = per_case + np.tile(np.arange(len(CASES)), len(whats))
        self._configuration = np.repeat(of_settings, len(self.events) * len(CASES))
        self._held: dict[str, np.ndarray] = {}

    def fact(self, name: str) -> np.ndarray:
        if name not in self._held:
            fact = FACTS[name]
            if fact.of_configuration is not None:
                values = np.array([fact.of_configuration(c) for c in self._configurations], dtype=np.int8)
                self._held[name] = values[self._configuration]
            else:
                parts = [OF_WITNESSES[name](envelope(*what), seen(what[2])) for what in self._whats]
                self._held[name] = np.concatenate(parts)[self._what]
        return self._held[name]

    def judged(self, anomaly: str) -> np.ndarray:
        """Judgement [settings, events, cases]"""
        return evaluate(TABLE[anomaly], self.fact, len(self._what)).judgement.reshape(self.shape)


@pytest.fixture(scope="module")
def everything() -> Everything:
    return Everything()


@pytest.mark.parametrize("anomaly", list(TABLE))
def test_of_all_settings_with_all_events_exactly_one_line_of_the_table_applies(everything, anomaly):
    length, rules = len(everything._what), TABLE[anomaly].rules
    lines, open_still = np.zeros(length, dtype=np.int8), np.ones(length, dtype=bool)
    for rule in rules:
        holds = np.broadcast_to(condition(rule, everything.fact), (length,))
        stops = open_still & ((holds == 1) | ((holds == -1) & (rule.effect not in NEVER_EXCUSES)))
        lines += stops
        open_still &= ~stops
    lines += open_still  # the promise
    assert (lines == 1).all()
    judged = everything.judged(anomaly)
    assert (judged.ravel()[open_still] == Judgement.FORBIDDEN).all()


def safer(settings: Settings) -> Iterator[Settings]:
    """The same with one setting made safer, where that is valid."""
    values = settings.__dict__
    changes: list[dict[str, Any]] = [
        {"acks": {"0": "1", "1": "all", "all": "all"}[settings.acks]},
        {"in_flight": 1},
        {"unclean": False},
        # For what acks=all acknowledged: an eligible replica never had what acks=1 took below min.insync.replicas. [KIP-966]
        {"elr": settings.elr or settings.acks == "all"},
    ]
    if settings.acks == "all" and settings.retries != "0":
        changes.append({"idempotent": True})
    for change in changes:
        if settings.__dict__ | change != values:
            yield Settings(**(values | change))


@pytest.mark.parametrize("anomaly", list(TABLE))
def test_no_safer_setting_permits_what_was_forbidden_under_any_event(everything, anomaly):
    judged = everything.judged(anomaly)
    place = {settings: i for i, settings in enumerate(everything.settings)}
    pairs = [(place[s], place[better]) for s in everything.settings for better in safer(s)]
    weak, strong = np.array(pairs).T
    more = (judged[strong] == Judgement.PERMITTED) & (judged[weak] == Judgement.FORBIDDEN)
    assert not more.any(), [
        (everything.settings[strong[i]], everything.events[e], int(case)) for i, e, case in np.argwhere(more)[:3]
    ]


# --- lost, by hand --------------------------------------------------------------------------------------------------


def may_be_lost(settings: Settings, event: str) -> bool | None:
    """What Kafka documents of a record that was acknowledged, and given to nobody; None: nobody can know."""
    eligible = settings.elr and settings.min_isr > 1
    alone = event.startswith("last in sync")
    if settings.acks == "0":
        return True
    if event == "nobody looked":
        return None
    if event == "every copy destroyed" or (alone and settings.unclean and not eligible):
        return True
    if event == "last in sync destroyed":
        return not eligible or settings.acks == "1"
    if settings.acks == "1":
        return event != "peace" and not (alone and not eligible)
    return False


def test_what_may_be_lost_is_what_the_documentation_says(everything):
    judged = everything.judged("lost")[:, :, 0]
    wanted = {True: Judgement.PERMITTED, False: Judgement.FORBIDDEN, None: Judgement.UNKNOWN}
    for (i, settings), (e, event) in product(enumerate(everything.settings), enumerate(everything.events)):
        assert judged[i, e] == wanted[may_be_lost(settings, event)], (settings, event)
