"""Every abstract input of the guarantee table: configurations as far as an anomaly asks for them, facts as they may be."""

from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np

from prozess.harness.guarantees.facts.happened import Happened
from prozess.harness.guarantees.facts.registry import FACTS
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.table.rules import NEVER_CERTAIN, NEVER_EXCUSES
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate
from prozess.harness.schema import Tristate

EVENTS = [name for name, fact in FACTS.items() if fact.could is not None]
DIMENSIONS: dict[str, tuple[Any, ...]] = {
    "acks": ("0", "1", "all"),
    "delivery": (None, "exactly-once", "at-least-once", "at-most-once", "transaction-alone"),
    "key_hashes": ((), ("crc32",), ("none",), ("murmur2", "crc32"), ("murmur2", None)),
    "version": ((4, 3, 1), (4, 0, 0), (3, 9, 0), (3, 5, 1), (3, 4, 0), (2, 8, 0), None),
} | {f.name: (False, True) for f in fields(CellConfiguration) if f.type == "bool" or f.type is bool}
"""Field of a configuration → every value, or one of every kind."""


def valid(configuration: CellConfiguration) -> bool:
    """librdkafka refuses the others, and Java drops idempotence. Only librdkafka has queuing.strategy=lifo."""
    if configuration.lifo and configuration.other_library:
        return False
    return not configuration.idempotent or (configuration.acks == "all" and configuration.retries)


VARIED_MAX = 8
"""Up to so many events of an anomaly are tried in every combination: three truth values of each, in each configuration."""
STRONGEST = CellConfiguration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=(4, 3, 1))
NOTHING = Happened(moved=Tristate.NO, unclean=Tristate.NO, destroyed=Tristate.NO)
FAILOVER = Happened(moved=Tristate.YES, unclean=Tristate.NO, destroyed=Tristate.NO)


class Asked:
    """A configuration that remembers which of its fields were asked for."""

    def __init__(self, configuration: CellConfiguration) -> None:
        self._configuration, self.fields = configuration, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.fields.add(name)
        return getattr(self._configuration, name)


def configurations_of(anomaly: str) -> list[CellConfiguration]:
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
    names = {name.removeprefix("not ") for rule in TABLE[anomaly].rules for name in (*rule.when, *rule.perhaps)}
    return [name for name in FACTS if name in names]


def decide(anomaly: str, configuration: CellConfiguration, events: dict[str, int]) -> tuple[Judgement, int]:
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
        grid = self._grid(truths)
        if {"committed", "still unreplicated"} <= set(self.names):  # one record cannot be both
            both = (grid[:, self.names.index("committed")] == 1) & (
                grid[:, self.names.index("still unreplicated")] == 1
            )
            grid = grid[~both]
        self.events = np.tile(grid, (len(self.configurations), 1))
        self.which = np.repeat(np.arange(len(self.configurations)), len(grid))
        self.found = evaluate(self.guarantee, self.fact, len(self.which))

    def _grid(self, truths: tuple[int, ...]) -> np.ndarray:
        """Returns the combinations of events: all of them, or where these are too many, those in which all events of rules
        that excuse vary with all events of one known defect, and the traces of the other defects are alike; what is never
        certain varies with the events that excuse."""
        groups = [frozenset(self.names)]
        several = any(rule.effect in NEVER_EXCUSES for rule in self.guarantee.rules)
        if len(self.names) > (VARIED_MAX if several else VARIED_MAX + 1):
            rules = self.guarantee.rules
            excusing, naming = ([r for r in rules if (r.effect in NEVER_EXCUSES) == names] for names in (False, True))
            always = {name.removeprefix("not ") for rule in excusing for name in rule.when} & set(self.names)
            doubts = always & NEVER_CERTAIN
            groups = [frozenset(always - doubts | {*rule.when, *rule.perhaps} & set(self.names)) for rule in naming]
            groups += [frozenset(always)] if doubts else []
            assert max(map(len, groups)) <= VARIED_MAX + 1, "one defect has too many traces to be tried"
        grids = []
        for group in dict.fromkeys(groups):
            for rest in truths if len(group) < len(self.names) else truths[:1]:
                values = [truths if name in group else (rest,) for name in self.names]
                combinations = list(product(*values))
                grids.append(np.array(combinations, dtype=np.int8).reshape(len(combinations), len(self.names)))
        return np.concatenate(grids)

    def fact(self, name: str) -> np.ndarray:
        given = FACTS[name].of_configuration
        if given is None:
            return self.events[:, self.names.index(name)]
        return np.array([given(c) for c in self.configurations], dtype=np.int8)[self.which]

    @property
    def permitted(self) -> np.ndarray:
        """bool[configurations, combinations of events]"""
        return (self.found.judgement == Judgement.PERMITTED).reshape(len(self.configurations), -1)
