"""Predicts from the guarantee table what a configuration promises, before anything ran: which anomalies it rules out, which
it permits, which setting is to blame, the smallest change that rules them out, which known defects are open, and what is not
known. Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache, cached_property
from itertools import chain, combinations
from typing import Any

from prozess.harness.config.client_settings import Unclear, idempotent_by_default
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.config.known_properties import CLIENTS
from prozess.harness.errors import BadInput
from prozess.harness.guarantees.facts.happened import Happened, could_happen, with_plan
from prozess.harness.guarantees.possible import open_defects, satisfiable_rules
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration, configuration_of, parse_version
from prozess.harness.guarantees.table.known_defects import DEFECTS, Defect
from prozess.harness.guarantees.table.rules import Guarantee, Rule, RuleEffect
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.plan.plan import Cell, Plan
from prozess.harness.schema import Tristate
from prozess.validation.assumptions import (
    TOPIC,
    MissingSettings,
    Risk,
    Risks,
    assumptions,
    missing_settings,
    of_application,
    transactions_before_v2,
)
from prozess.validation.availability import CONCERNS, Concern, FaultTolerance, concerns
from prozess.validation.lifetimes import RULES as LIFETIMES
from prozess.validation.lifetimes import conditions, duties, lifetimes
from prozess.validation.partitioning import KEYS_IGNORED, assumed_of_keys, of_keys
from prozess.validation.setting_names import SettingNames
from prozess.validation.trial import ConfigurationParts

CHANGES_MAX = 3
"""At most this many changes at once are looked at."""
CHANGES: Mapping[str, tuple[Any, str]] = {
    "producer.acks": ("all", "acks=all"),
    "producer.enable_idempotence": (True, "enable.idempotence=true"),
    "producer.retries": ("max", "retries left at their default"),
    "producer.max_in_flight": (5, "max.in.flight.requests.per.connection=5"),
    "topic.unclean_leader_election_enable": (False, "unclean.leader.election.enable=false"),
    "group.commit": ("sync-after", "committing after processing (enable.auto.commit=false)"),
    "group.auto_offset_reset": ("earliest", "auto.offset.reset=earliest"),
    "group.isolation_level": ("read_committed", "isolation.level=read_committed"),
    "group.properties.check.crcs": ("true", "check.crcs=true"),
}
"""Setting → the safer value, and how to say it."""


@dataclass(frozen=True, slots=True)
class Weakness:
    """An anomaly that the configuration permits."""

    guarantee: Guarantee
    rule: Rule
    workload: str


@dataclass(frozen=True, slots=True)
class OpenDefect:
    """A known defect that breaks promises of this configuration, as far as is known."""

    defect: Defect
    reason: str
    anomalies: tuple[str, ...]
    client_version: str | None

    @property
    def status(self) -> str:
        """Returns whether the version that was asked for has it."""
        if self.defect.newest and self.defect.owner in CLIENTS and self.client_version is not None:
            newer = (parse_version(self.client_version) or ()) > (parse_version(self.defect.newest) or ())
            return self.defect.status + (
                f"; prozess does not know whether {self.client_version} has it" if newer else ""
            )
        return self.defect.status

    def sentence(self) -> str:
        """Returns this as a sentence for people."""
        avoided = f", avoided by {self.defect.avoided}" if self.defect.avoided else ""
        promised = f"promised, but the known defect {self.defect.id} breaks the promise"
        return f"{', '.join(self.anomalies)}: {promised}: {self.reason}; {self.status}{avoided}"


@dataclass(frozen=True)
class Prediction:
    """The prediction for one configuration, compared with what its trials showed."""

    parts: ConfigurationParts
    kafka_defaults: bool = False
    """Settings that no file has are Kafka's own defaults, as the user asserts."""
    risks: Risks = field(default_factory=Risks)
    """What somebody has accepted."""
    today: date = date.min

    @cached_property
    def plan(self) -> Plan:
        """Without control and steps: the cells are the user's, and what could happen to them is what any fault may do."""
        return self.parts.plan(control=False, steps=())

    @cached_property
    def of_trial(self) -> tuple[Weakness, ...]:
        """Every rule that could permit something in the cells of a trial, with the clients that run there and everybody who
        reads there: what is seen in trials is compared with these."""
        return tuple(_weaknesses(self.plan, None))

    @cached_property
    def judged(self) -> frozenset[str]:
        """The anomalies that the trial's cells are judged for."""
        return frozenset(name for cell in self.plan.cells for name, g in TABLE.items() if g.applies(cell.traits))

    @cached_property
    def weaknesses(self) -> tuple[Weakness, ...]:
        """Every rule that could permit something in the parts that were given, in the order of the table; each once."""
        return tuple(_weaknesses(self.plan, self.parts))

    @property
    def unclear(self) -> tuple[Unclear, ...]:
        """Returns what was not understood of the files, and nobody has accepted."""
        return tuple(one for one in self.parts.unclear if one not in self.accepted_doubts)

    @property
    def doubts(self) -> tuple[Unclear, ...]:
        """Returns why nothing is promised: what was not understood, and clients that no trial runs. Empty: nothing is
        in doubt."""
        return tuple(one for one in (*self.parts.unclear, *self.parts.others) if one not in self.accepted_doubts)

    @cached_property
    def accepted_doubts(self) -> dict[Unclear, Risk]:
        """Maps each doubt that a person has accepted to the risk that the person wrote down."""
        doubts = (*self.parts.unclear, *self.parts.others)
        found = {one: self.risks.accepted(one.rule, self.today) for one in doubts if one.rule}
        return {one: risk for one, risk in found.items() if risk is not None}

    @property
    def promised(self) -> tuple[Guarantee, ...]:
        """Returns the promised guarantees: no rule permits a witness. Empty if anything was not understood."""
        return () if self.doubts else self.not_permitted

    @cached_property
    def names(self) -> SettingNames:
        """What writes sentences with the settings' names as the files have them."""
        return SettingNames(self.parts)

    @property
    def provided(self) -> str:
        """Returns the condition of every promise, as the end of a sentence: how many disks and how much power may be lost."""
        tolerance = self.fault_tolerance
        waits = self.parts.producer is None or self.parts.base["producer.acks"] == "all"
        disks = tolerance.disks if tolerance is not None and waits else 0
        fail = "disk of a partition's replicas fails" if disks == 1 else "disks of a partition's replicas fail"
        lost = f"at most {disks} {fail} at a time" if disks > 0 else "no disk fails"
        power = (
            ""
            if tolerance is not None and tolerance.flushed
            else " and its brokers do not all lose power at the same time"
        )
        return f"; as long as {lost}{power}"

    @property
    def unknown(self) -> tuple[Guarantee, ...]:
        """Returns guarantees that an unknown setting may still break, although no known setting does."""
        resting = {name for one in self.missing_settings for name in one.anomalies}
        whole = {guarantee.anomaly for guarantee in self.not_permitted} if self.doubts else set()
        return tuple(TABLE[name] for name in self._given if name in resting | whole)

    @cached_property
    def not_permitted(self) -> tuple[Guarantee, ...]:
        """Returns the anomalies that no rule permits under the settings that were given and understood."""
        doubted = {weakness.guarantee.anomaly for weakness in self.weaknesses}
        doubted |= {name for concern in self.concerns for name in concern.denies}
        doubted |= {name for one in self.missing_settings for name in one.anomalies}
        return tuple(TABLE[name] for name in self._given if name not in doubted)

    @cached_property
    def _given(self) -> tuple[str, ...]:
        return tuple(name for name in TABLE if name in self.judged and missing_part(name, self.parts) is None)

    @cached_property
    def not_judged(self) -> dict[str, tuple[str, ...]]:
        """The part that was not given → the anomalies that cannot be judged without it."""
        return not_judged(self.parts, self.judged)

    @cached_property
    def concerns(self) -> tuple[Concern, ...]:
        """Weaknesses of availability, of the topics that brokers keep for themselves, and of retention that is too short."""
        found = (
            *concerns(self.parts, defaults_hold=self.kafka_defaults),
            *of_keys(self.parts),
            *lifetimes(self.parts, defaults_hold=self.kafka_defaults),
        )
        return tuple(replace(one, denies=tuple(name for name in one.denies if name in self._given)) for one in found)

    @property
    def duties(self) -> tuple[str, ...]:
        """Returns what the application must do itself, whatever is set."""
        return tuple(duties(self.parts))

    @cached_property
    def defects(self) -> tuple[OpenDefect, ...]:
        """Returns the known defects that are open in these versions and break what is promised."""
        promised = {guarantee.anomaly for guarantee in self.promised}
        return tuple(_defects(self.plan, self.parts, promised))

    @cached_property
    def _missing(self) -> tuple[MissingSettings, ...]:
        weak = {weakness.guarantee.anomaly for weakness in self.weaknesses}
        worst = {weakness.guarantee.anomaly for weakness in _weaknesses(self.plan, self.parts, worst=True)}
        found = [
            *missing_settings(self.parts, tuple(name for name in self._given if name in worst - weak)),
            *of_application(self.parts),
        ]
        return tuple(
            replace(one, anomalies=tuple(name for name in one.anomalies if name in self._given and name not in weak))
            for one in found
        )

    @property
    def missing_settings(self) -> tuple[MissingSettings, ...]:
        """Returns the missing settings on which promises depend. These promises are unknown."""
        return tuple(one for one in self._missing if one.anomalies and not self._by_default(one))

    @property
    def unseen(self) -> tuple[MissingSettings, ...]:
        """Returns the missing settings on which only availability depends. Whether it is weak is unknown."""
        return tuple(one for one in self._missing if one.by_default and not one.anomalies and not self._by_default(one))

    def _by_default(self, one: MissingSettings) -> bool:
        return self.kafka_defaults and one.by_default

    @property
    def assumed(self) -> list[str]:
        """Returns what is taken for granted, for a person."""
        assumed = [one.assumed() for one in self._missing if self._by_default(one)]
        return [
            *assumed,
            *conditions(self.parts, defaults_hold=self.kafka_defaults),
            *assumptions(self.parts),
            *assumed_of_keys(self.parts),
        ]

    @cached_property
    def curable(self) -> frozenset[str]:
        """Returns the weak anomalies that a change of settings would rule out."""
        first = {weakness.guarantee.anomaly: weakness for weakness in reversed(self.weaknesses)}
        return frozenset(name for name, weakness in first.items() if self.remedy(weakness))

    @cached_property
    def accepted(self) -> dict[str, Risk]:
        """Returns the accepted risks, by rule or by defect id."""
        asked = [(weakness.rule.id, weakness.guarantee.anomaly) for weakness in self.weaknesses]
        asked += [(concern.rule, "") for concern in self.concerns]
        found = {rule: self.risks.accepted(rule, self.today, anomaly=anomaly) for rule, anomaly in asked}
        for one in self.defects:
            of_anomalies = [self.risks.accepted(name, self.today) for name in one.anomalies]
            whole = of_anomalies[0] if of_anomalies and all(of_anomalies) else None
            found[one.defect.id] = self.risks.accepted(one.defect.id, self.today) or whole
        return {rule: risk for rule, risk in found.items() if risk is not None}

    @property
    def remarks(self) -> list[str]:
        """Returns the remarks about entries that accept nothing."""
        _ = self.accepted, self.accepted_doubts  # everything that the configuration has was asked for
        return self.risks.remarks(self.today)

    @cached_property
    def failures(self) -> tuple[str, ...]:
        """Rules that fail a strict validation: weaknesses that a change would rule out and open defects, of which nobody has
        accepted the risk."""
        found = [w.rule.id for w in self.weaknesses if w.guarantee.anomaly in self.curable]
        found += [concern.rule for concern in self.concerns]
        found += [one.defect.id for one in self.defects]
        return tuple(rule for rule in found if rule not in self.accepted)

    @property
    def fault_tolerance(self) -> FaultTolerance | None:
        """Returns the fault tolerance of the topic; None if the number of copies is not known."""
        if any(
            one.of == TOPIC and setting.startswith(("replication", "min."))
            for one in (*self.missing_settings, *self.unseen)
            for setting in one.settings
        ):
            return None
        topic = self.plan.cells[0].topic
        return FaultTolerance(topic.replication_factor, topic.min_insync_replicas, topic.flush_messages == 1)

    @cached_property
    def _after(self) -> dict[tuple[str, ...], tuple[Weakness, ...]]:
        """Returns what is weak after each set of changes that does not contradict the rest, smallest set first."""
        found = ((chosen, _after(self.parts, chosen)) for chosen in _choices(self.parts))
        return {chosen: left for chosen, left in found if left is not None}

    def smallest_change(self) -> tuple[tuple[str, ...], tuple[Weakness, ...]]:
        """Settings whose change leaves the fewest weaknesses, as few of them as do that, and the weaknesses left."""
        best: tuple[tuple[str, ...], tuple[Weakness, ...]] = ((), self.weaknesses)
        if self.weaknesses:
            for chosen, left in self._after.items():
                if len(left) < len(best[1]):
                    best = chosen, left
        return best

    def best_change(self) -> tuple[str | None, tuple[Weakness, ...]]:
        """Returns the single setting whose change leaves the fewest weaknesses, and those; None where no single one helps."""
        single = {chosen[0]: left for chosen, left in self._after.items() if len(chosen) == 1}
        best = min(single, key=lambda change: len(single[change]), default=None)
        if best is None or len(single[best]) >= len(self.weaknesses):
            return None, self.weaknesses
        return best, single[best]

    def remedy(self, weakness: Weakness) -> tuple[str, ...]:
        """The fewest settings whose change rules out this anomaly altogether; empty = none of those known does."""
        for chosen, left in self._after.items():
            if weakness.guarantee.anomaly not in {w.guarantee.anomaly for w in left}:
                return chosen
        return ()

    def deciding(self, weakness: Weakness) -> tuple[str, ...]:
        """The fewest settings whose change rules out this rule, whatever else permits the anomaly; empty = none does."""
        for chosen, left in self._after.items():
            if weakness.rule.id not in {each.rule.id for each in left}:
                return chosen
        return ()


def change_in_words(change: str) -> str:
    """Returns a change in Kafka's words."""
    return CHANGES[change][1]


def acceptable() -> frozenset[str]:
    """Returns everything that a file of accepted risks may name."""
    rules = {rule.id for guarantee in TABLE.values() for rule in guarantee.rules if rule.effect is RuleEffect.PERMITTED}
    return frozenset({*TABLE, *rules, *DEFECTS, *CONCERNS, KEYS_IGNORED, *LIFETIMES})


def _weaknesses(
    plan: Plan, own: ConfigurationParts | None, settings: Mapping[str, Any] | None = None, *, worst: bool = False
) -> Iterator[Weakness]:
    """Each rule once. `own`: of the parts that were given and the clients that the user has, not of what a trial puts in
    their place; `settings`: in the place of theirs. `worst`: as if elections were unclean, by a setting or because somebody
    asked for one, and copies destroyed."""
    seen = set()
    for cell in plan.cells:
        configuration, happened = _expected(plan, cell, own, settings)
        if worst:
            doubt = Tristate.UNKNOWN
            happened = replace(happened, unclean=doubt, cell_unclean=doubt, asked=doubt, destroyed=doubt)
        for name, guarantee in TABLE.items():
            if not guarantee.applies(cell.traits) or (own is not None and missing_part(name, own) is not None):
                continue
            for rule in satisfiable_rules(name, configuration, happened):
                if rule.change and rule.id not in seen:  # without a change it is no setting's doing
                    seen.add(rule.id)
                    yield Weakness(guarantee, rule, cell.workload)


@cache
def expected_faults() -> Mapping[str, FaultNature]:
    """Returns the natures of the faults that a configuration is to withstand.

    These exclude the loss of disks and power, whose cost depends on the number of copies (`FaultTolerance`), wrong clocks,
    an operator who asks for an unclean election, and a remote store, which no file that is read here describes."""
    left_out = ("destroys", "loses_unflushed", "elects_unclean", "shifts_clock", "harms_store")
    return {name: nature for name, nature in NATURES.items() if not any(getattr(nature, kind) for kind in left_out)}


def _expected(
    plan: Plan, cell: Cell, own: ConfigurationParts | None, settings: Mapping[str, Any] | None = None
) -> tuple[CellConfiguration, Happened]:
    """Returns what of the cell the table asks for, and what could happen to it."""
    configuration = configuration_of(cell, plan.variant.kafka_version)
    expected = could_happen(expected_faults(), unclean_enabled=cell.topic.unclean_leader_election_enable)
    happened = with_plan(expected, plan, cell)
    if own is None:
        return configuration, happened
    base = own.base if settings is None else settings
    if (
        own.producer is not None
    ):  # a trial's cells of groups and transactions have librdkafka's producers, whatever the file's
        configuration = replace(
            configuration,
            librdkafka=base["producer.client"] == "librdkafka",
            transactions_before_v2=transactions_before_v2(own),
        )
    if own.consumer is not None:  # and readers of both levels
        level = base["group.isolation_level"]
        happened = replace(happened, read_uncommitted=Tristate.YES if level == "read_uncommitted" else Tristate.NO)
    return configuration, happened


def _defects(plan: Plan, parts: ConfigurationParts, promised: Iterable[str]) -> Iterator[OpenDefect]:
    """Each once, with the promised anomalies that it may bring about."""
    names = frozenset(promised)
    found: dict[str, dict[str, str]] = {}
    for cell in plan.cells:
        configuration, happened = _expected(plan, cell, parts)
        clients = {configuration.librdkafka} if parts.client_given else {True, False}
        for name in (name for name in TABLE if name in names and TABLE[name].applies(cell.traits)):
            of_each = (open_defects(name, replace(configuration, librdkafka=c), happened) for c in sorted(clients))
            for rule in chain.from_iterable(of_each):
                if not (parts.transactional and DEFECTS[rule.label].outside_transactions):
                    found.setdefault(rule.label, {})[name] = rule.reason
    for label, reasons in found.items():
        anomalies = tuple(name for name in TABLE if name in reasons)
        yield OpenDefect(DEFECTS[label], next(iter(reasons.values())), anomalies, parts.client_version)


def _choices(parts: ConfigurationParts) -> Iterator[tuple[str, ...]]:
    """Sets of changes that change something, smallest first."""
    open_ = [key for key, (value, _) in CHANGES.items() if key in parts.base and parts.base[key] != value]
    for size in range(1, CHANGES_MAX + 1):
        yield from combinations(open_, size)


def _after(parts: ConfigurationParts, chosen: tuple[str, ...]) -> tuple[Weakness, ...] | None:
    """Returns what is weak after these changes; None if they contradict the rest."""
    changed = parts.base | {key: CHANGES[key][0] for key in chosen}
    if parts.producer is not None:
        _let_follow(changed, parts.origins)
    try:
        return tuple(_weaknesses(parts.plan(changed, control=False, steps=()), parts, changed))
    except BadInput:
        return None


def _let_follow(changed: dict[str, Any], origins: Mapping[str, str]) -> None:
    """Derives unset settings from the changed ones, as the clients' defaults do."""
    if "producer.enable_idempotence" not in origins:
        changed["producer.enable_idempotence"] |= idempotent_by_default(changed)
    if changed["producer.enable_idempotence"] and "producer.max_in_flight" not in origins:
        changed["producer.max_in_flight"] = min(5, changed["producer.max_in_flight"])


# The part of a configuration that each anomaly depends on: without the producer's or the consumer's file, a statement about
# it is a guess.


PRODUCER, CONSUMER = "producer", "consumer"
_OF_PRODUCERS = (
    "lost", "duplicate", "reordered", "phantom", "misplaced", "resurrected", "unreported", "unenforced", "collateral",
    "snapshot-conflict", "out-of-sequence", "time-travel", "under-acknowledged", "compacted-away", "tombstone-lost",
    "torn", "lost-transaction", "zombie-write", "hanging", "stuck", "own-read", "information-cycle", "write-cycle",
    "split-key",
)  # fmt: skip
_OF_CONSUMERS = (
    "skipped", "rewound", "stalled", "unprocessed", "reprocessed", "commit-regression", "commit-ahead", "two-owners",
    "orphaned", "unstable", "starved", "undelivered", "accepted-again", "rejected-again", "two-holders", "miscounted",
    "given-up", "dead-letter-missing", "dead-letter-extra", "share-start-regression",
)  # fmt: skip
_OF_BOTH = ("aborted-read", "early-read", "not-exactly-once", "late")
_OF_BROKERS = (
    "offset-conflict", "corrupt", "dirty-read", "invisible", "diverged", "remote-gap", "remote-conflict", "remote-left",
    "uncopied", "watermark-regression", "log-start-regression",
    "epoch-regression", "expired-early", "undeleted", "mistimed",
    "unclean", "two-controllers", "stale-controller", "leaderless", "unanswered", "not-linearizable",
    "illegal-transition", "illegal-transaction-state", "illegal-group-state",
    "illegal-share-state",
)  # fmt: skip
NEEDS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_OF_PRODUCERS, frozenset({PRODUCER})),
    **dict.fromkeys(_OF_CONSUMERS, frozenset({CONSUMER})),
    **dict.fromkeys(_OF_BOTH, frozenset({PRODUCER, CONSUMER})),
    **dict.fromkeys(_OF_BROKERS, frozenset()),
}
"""Anomaly → whose settings decide whether it may happen, beside those of brokers and topic."""


def missing_part(anomaly: str, parts: ConfigurationParts) -> str | None:
    """The part without which nothing can be promised of this anomaly, and which was not given; None: all are there."""
    given = {PRODUCER: parts.producer is not None, CONSUMER: parts.consumer is not None}
    return next((part for part in (PRODUCER, CONSUMER) if part in NEEDS[anomaly] and not given[part]), None)


def not_judged(parts: ConfigurationParts, judged: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Returns, for each missing part, what is not judged without it. `judged`: the anomalies of the trial's cells."""
    found: dict[str, list[str]] = {}
    for name, guarantee in TABLE.items():
        part = missing_part(name, parts)
        if part is not None and (name in judged or (part == CONSUMER and guarantee.applies(("group",)))):
            found.setdefault(part, []).append(name)
    return {part: tuple(names) for part, names in found.items()}
