"""What the guarantee table says of a configuration before anything ran: which anomalies it rules out, which it permits, which
setting is to blame, and the smallest change that rules them out. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from harness.errors import BadInput
from harness.guarantees.configured import configuration_of
from harness.guarantees.evaluate import satisfiable_rules
from harness.guarantees.faults import NATURES, FaultNature
from harness.guarantees.happened import could_happen, with_readers
from harness.guarantees.rules import Guarantee, Rule
from harness.guarantees.table import TABLE
from harness.plan import Plan
from harness.validation.clients import idempotent_by_default
from harness.validation.trial import Parts

CHANGES_MAX = 3
"""So many changes at once are looked at."""
EXPECTED: Mapping[str, FaultNature] = {
    name: nature
    for name, nature in NATURES.items()
    if not (nature.destroys or nature.loses_unflushed or nature.elects_unclean or nature.shifts_clock)
}
"""What a configuration is to withstand: not the loss of disks and of power, whose cost is a matter of how many copies there
are (`Margins`); not wrong clocks, and no operator who asks for an unclean election."""
CHANGES: Mapping[str, tuple[Any, str]] = {
    "producer.acks": ("all", "acks=all"),
    "producer.enable_idempotence": (True, "enable.idempotence=true"),
    "producer.retries": ("max", "retries left at their default"),
    "producer.max_in_flight": (5, "max.in.flight.requests.per.connection=5"),
    "topic.unclean_leader_election_enable": (False, "unclean.leader.election.enable=false"),
    "group.commit": ("sync-after", "committing after processing (enable.auto.commit=false)"),
    "group.auto_offset_reset": ("earliest", "auto.offset.reset=earliest"),
}
"""Setting → the safer value, and how to say it."""


@dataclass(frozen=True, slots=True)
class Weakness:
    """An anomaly that the configuration permits."""

    guarantee: Guarantee
    rule: Rule
    workload: str


@dataclass(frozen=True, slots=True)
class Margins:
    """How many brokers may be gone. Of acks=all; what weaker producers lose, weaknesses say."""

    replication_factor: int
    min_insync_replicas: int
    flushed: bool
    """flush.messages=1"""

    @property
    def writes(self) -> int:
        """Brokers of a partition that may be down while it takes acks=all."""
        return max(0, self.replication_factor - self.min_insync_replicas)

    @property
    def disks(self) -> int:
        """Disks of a partition that may be destroyed at any moment without loss of what was acknowledged."""
        return min(self.min_insync_replicas, self.replication_factor) - 1

    def sentences(self) -> Iterator[str]:
        """For a person."""
        down = (
            f"at most {self.writes} of its {self.replication_factor} brokers {'is' if self.writes == 1 else 'are'} down"
        )
        if not self.writes:
            down = "none of its brokers is down" if self.replication_factor > 1 else "its only broker is up"
        yield (
            f"replication.factor={self.replication_factor}, min.insync.replicas={self.min_insync_replicas}: a partition "
            f"takes acks=all while {down}"
        )
        disks = f"{self.disks} disk{'s' if self.disks > 1 else ''}"
        change = (
            "min.insync.replicas=2" if self.replication_factor > 2 else "replication.factor=3, min.insync.replicas=2"
        )
        safe = (
            f"survives the loss of any {disks}"
            if self.disks
            else f"may be lost with a single disk; {change} would keep it"
        )
        yield f"min.insync.replicas={self.min_insync_replicas}: what was acknowledged with acks=all {safe}"
        yield (
            "flush.messages=1: what was acknowledged survives a loss of power"
            if self.flushed
            else "flush.messages is not 1: should all brokers that have a copy lose power at once, what the operating system "
            "had not written is gone"
        )


@dataclass(frozen=True)
class Prediction:
    """Of one configuration."""

    parts: Parts

    @cached_property
    def plan(self) -> Plan:
        """Without control: the cells are the user's."""
        return self.parts.plan(control=False)

    @cached_property
    def weaknesses(self) -> tuple[Weakness, ...]:
        """Every rule that could permit something, in the order of the table; each once."""
        return tuple(_weaknesses(self.plan))

    @cached_property
    def promised(self) -> tuple[Guarantee, ...]:
        """What no rule could permit: any witness is a violation."""
        weak = {weakness.guarantee.anomaly for weakness in self.weaknesses}
        judged = {name for cell in self.plan.cells for name, g in TABLE.items() if g.applies(cell.traits)}
        return tuple(g for name, g in TABLE.items() if name in judged and name not in weak)

    @cached_property
    def curable(self) -> frozenset[str]:
        """Weak anomalies that a change of settings would rule out."""
        first = {weakness.guarantee.anomaly: weakness for weakness in reversed(self.weaknesses)}
        return frozenset(name for name, weakness in first.items() if self.remedy(weakness))

    @property
    def margins(self) -> Margins:
        """Of the topic."""
        topic = self.plan.cells[0].topic
        return Margins(topic.replication_factor, topic.min_insync_replicas, topic.flush_messages == 1)

    def smallest_change(self) -> tuple[tuple[str, ...], tuple[Weakness, ...]]:
        """Settings whose change leaves the fewest weaknesses, as few of them as do that, and the weaknesses left."""
        return _smallest(self.parts, self.weaknesses)

    def remedy(self, weakness: Weakness) -> tuple[str, ...]:
        """The fewest settings whose change rules out this anomaly altogether; empty = none of those known does."""
        for chosen in _choices(self.parts):
            left = _after(self.parts, chosen)
            if left is not None and weakness.guarantee.anomaly not in {w.guarantee.anomaly for w in left}:
                return chosen
        return ()


def say(change: str) -> str:
    """A change in Kafka's words."""
    return CHANGES[change][1]


def _weaknesses(plan: Plan) -> Iterator[Weakness]:
    seen = set()
    for cell in plan.cells:
        configuration = configuration_of(cell, plan.variant.kafka_version)
        expected = could_happen(EXPECTED, unclean_enabled=cell.topic.unclean_leader_election_enable)
        happened = with_readers(expected, plan, cell)
        for name, guarantee in TABLE.items():
            if not guarantee.applies(cell.traits):
                continue
            for rule in satisfiable_rules(name, configuration, happened):
                if rule.change and rule.id not in seen:  # without a change it is no setting's doing
                    seen.add(rule.id)
                    yield Weakness(guarantee, rule, cell.workload)


def _choices(parts: Parts) -> Iterator[tuple[str, ...]]:
    """Sets of changes that change something, smallest first."""
    open_ = [key for key, (value, _) in CHANGES.items() if key in parts.base and parts.base[key] != value]
    for size in range(1, CHANGES_MAX + 1):
        yield from combinations(open_, size)


def _after(parts: Parts, chosen: tuple[str, ...]) -> tuple[Weakness, ...] | None:
    """What is weak after these changes; None if they contradict the rest."""
    changed = parts.base | {key: CHANGES[key][0] for key in chosen}
    if parts.producer is not None:
        _let_follow(changed, parts.origins)
    try:
        return tuple(_weaknesses(parts.plan(changed, control=False)))
    except BadInput:
        return None


def _let_follow(changed: dict[str, Any], origins: Mapping[str, str]) -> None:
    """What nobody set follows what was changed, as the clients' defaults do."""
    if "producer.enable_idempotence" not in origins:
        changed["producer.enable_idempotence"] |= idempotent_by_default(changed)
    if changed["producer.enable_idempotence"] and "producer.max_in_flight" not in origins:
        changed["producer.max_in_flight"] = min(5, changed["producer.max_in_flight"])


def _smallest(parts: Parts, weaknesses: tuple[Weakness, ...]) -> tuple[tuple[str, ...], tuple[Weakness, ...]]:
    best: tuple[tuple[str, ...], tuple[Weakness, ...]] = ((), weaknesses)
    for chosen in _choices(parts):
        left = _after(parts, chosen)
        if left is not None and len(left) < len(best[1]):
            best = chosen, left
    return best
