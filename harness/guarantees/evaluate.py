"""Rules applied to facts: what each witness is, and what could have been permitted at all. See docs/guarantees.md."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from harness.guarantees.configured import Configuration
from harness.guarantees.envelope import Envelope
from harness.guarantees.facts import could_be, of_witnesses
from harness.guarantees.happened import Happened
from harness.guarantees.logic import FALSE, TRUE, UNKNOWN, Truth, both, negate
from harness.guarantees.table import TABLE, Effect, Guarantee, Rule


class Judgement(IntEnum):
    """Of one witness."""

    FORBIDDEN = 0
    UNKNOWN = 1
    PERMITTED = 2
    NOT_APPLICABLE = 3


_OF_EFFECT = {
    Effect.PERMITTED: Judgement.PERMITTED,
    Effect.NOT_APPLICABLE: Judgement.NOT_APPLICABLE,
    Effect.DEFECT: Judgement.FORBIDDEN,
}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One entry per witness."""

    judgement: np.ndarray
    """int8, Judgement."""
    rule: np.ndarray
    """int64, index of the rule that decided (for unknown: the first in doubt); -1 = none, forbidden by default."""


def evaluate(guarantee: Guarantee, fact: Callable[[str], Truth], length: int) -> Evaluation:
    """Rules in order, the first true one decides, none is: forbidden. A rule in doubt before it makes the witness unknown,
    unless it only names a defect: then it is forbidden either way."""
    judgement = np.full(length, Judgement.FORBIDDEN, dtype=np.int8)
    decided_by = np.full(length, -1, dtype=np.int64)
    for index, rule in enumerate(guarantee.rules):
        holds = np.broadcast_to(condition(rule, fact), (length,))
        undecided = decided_by == -1
        judgement[undecided & (holds == TRUE)] = _OF_EFFECT[rule.effect]
        decided = holds == TRUE
        if rule.effect is not Effect.DEFECT:
            judgement[undecided & (holds == UNKNOWN)] = Judgement.UNKNOWN
            decided = holds != FALSE
        decided_by[undecided & decided] = index
    return Evaluation(judgement, decided_by)


def condition(rule: Rule, fact: Callable[[str], Truth]) -> Truth:
    """The conjunction of its facts. Those that can no longer matter are not asked for."""
    holds = np.asarray(TRUE)
    for name in rule.when:
        holds = both(holds, negate(fact(name[4:])) if name.startswith("not ") else fact(name))
        if (holds == FALSE).all():
            break
    return holds


def evaluate_witnesses(
    anomaly: str, configuration: Configuration, envelope: Envelope, witnesses: np.ndarray
) -> Evaluation:
    """What the table makes of an anomaly's witnesses (array of WITNESS) in one partition."""
    return evaluate(TABLE[anomaly], lambda name: of_witnesses(name, configuration, envelope, witnesses), len(witnesses))


def satisfiable_rules(anomaly: str, configuration: Configuration, happened: Happened) -> tuple[Rule, ...]:
    """The rules under which the anomaly could have been permitted, given what happened (or could): none = guaranteed."""
    return tuple(
        rule
        for rule in TABLE[anomaly].rules
        if rule.effect is Effect.PERMITTED
        and condition(rule, lambda name: could_be(name, configuration, happened)) != FALSE
    )


def satisfiable(anomaly: str, configuration: Configuration, happened: Happened) -> bool:
    """Could the anomaly have been permitted at all?"""
    return bool(satisfiable_rules(anomaly, configuration, happened))
