"""Rules applied to facts: what each witness is, how many there are of each, and what could have been permitted at
all. See docs/guarantees.md."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, unique
from types import MappingProxyType

import numpy as np

from prozess.harness.config.configuration import DeliveryBound
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.facts.witnessed import of_witnesses
from prozess.harness.guarantees.logic import FALSE, TRUE, UNKNOWN, Truth, all_true, negate
from prozess.harness.guarantees.table import TABLE, Guarantee, Rule, RuleEffect
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.table.rules import NEVER_EXCUSES
from prozess.harness.interfaces.checking import KernelResult
from prozess.harness.interfaces.witnesses import join_witnesses
from prozess.harness.verdict import WindowJudged


@unique
class Judgement(IntEnum):
    """Says how the table judges one witness."""

    FORBIDDEN = 0
    UNKNOWN = 1
    PERMITTED = 2
    NOT_APPLICABLE = 3


_OF_EFFECT = {
    RuleEffect.PERMITTED: Judgement.PERMITTED,
    RuleEffect.NOT_APPLICABLE: Judgement.NOT_APPLICABLE,
    RuleEffect.DEFECT: Judgement.FORBIDDEN,
    RuleEffect.EXPLAINED: Judgement.FORBIDDEN,
}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Says how the table judges several witnesses: arrays with one entry per witness."""

    judgement: np.ndarray
    """int8, Judgement."""
    rule: np.ndarray
    """int64, index of the rule that decided (for unknown: the first in doubt); -1 = none, forbidden by default."""
    possible: np.ndarray
    """int64, of what no rule decided: bit i is set where rule i names a known defect that may have done it, unproven."""


def evaluate(guarantee: Guarantee, fact: Callable[[str], Truth], length: int) -> Evaluation:
    """Rules in order, the first true one decides, none is: forbidden. A rule in doubt before it makes the witness unknown,
    unless it only names a defect: then it is forbidden either way, and the defect is possible at most."""
    judgement = np.full(length, Judgement.FORBIDDEN, dtype=np.int8)
    decided_by, possible = np.full(length, -1, dtype=np.int64), np.zeros(length, dtype=np.int64)
    for index, rule in enumerate(guarantee.rules):
        # Example, three witnesses and two rules that permit. Rule 0 holds for the first, is unknown for the second, and does
        # not hold for the third; rule 1 holds for all. The first is permitted by rule 0. The second is unknown, with rule 0
        # in doubt, and rule 1 is not asked any more. The third is permitted by rule 1. Had rule 0 named a defect, which
        # excuses nothing, the second would be permitted by rule 1, too.
        holds = np.broadcast_to(condition(rule, fact), (length,))
        assert decided_by.shape == judgement.shape, "one entry for each witness"
        undecided = decided_by == -1
        judgement[undecided & (holds == TRUE)] = _OF_EFFECT[rule.effect]
        decided = holds == TRUE
        if rule.effect is RuleEffect.DEFECT and rule.perhaps:
            open_ = undecided & (holds == UNKNOWN)
            if open_.any():
                possible[open_ & (_all_of(rule.perhaps, fact) == TRUE)] |= 1 << index
        if rule.effect not in NEVER_EXCUSES:
            judgement[undecided & (holds == UNKNOWN)] = Judgement.UNKNOWN
            decided = holds != FALSE
        decided_by[undecided & decided] = index
    return Evaluation(judgement, decided_by, np.where(decided_by == -1, possible, 0))


def condition(rule: Rule, fact: Callable[[str], Truth]) -> Truth:
    """Do all facts of the rule hold? Facts that can no longer matter are not asked for."""
    return _all_of(rule.when, fact)


def _all_of(facts: Sequence[str], fact: Callable[[str], Truth]) -> Truth:
    holds = np.asarray(TRUE)
    for name in facts:
        holds = all_true(holds, negate(fact(name[4:])) if name.startswith("not ") else fact(name))
        if (holds == FALSE).all():
            break
    return holds


def evaluate_witnesses(
    anomaly: str, configuration: CellConfiguration, envelope: Envelope, witnesses: np.ndarray
) -> Evaluation:
    """Returns what the table makes of an anomaly's witnesses (array of WITNESS) in one partition."""
    return evaluate(TABLE[anomaly], lambda name: of_witnesses(name, configuration, envelope, witnesses), len(witnesses))


# The witnesses of one anomaly in one cell, judged and counted.


@dataclass(frozen=True, slots=True)
class Tally:
    """`witnesses`, `judgement`, `rule` and `possible` have one length, as of `Evaluation`; the counts are exact (`overflow`
    beyond the witnesses)."""

    witnesses: np.ndarray
    judgement: np.ndarray
    rule: np.ndarray
    possible: np.ndarray
    overflow: int
    """Found, but not among the witnesses: cannot be judged."""
    judged: int
    incomplete: tuple[str, ...]
    """Why absence cannot be concluded, for each partition where it cannot; each once."""
    spoilt: tuple[str, ...] = ()
    """Those reasons that also make unknown what was found."""

    def _count(self, judgement: Judgement) -> int:
        return int(np.count_nonzero(self.judgement == judgement))

    @property
    def forbidden(self) -> int:
        return self._count(Judgement.FORBIDDEN)

    @property
    def permitted(self) -> int:
        return self._count(Judgement.PERMITTED)

    @property
    def unknown(self) -> int:
        return self._count(Judgement.UNKNOWN) + self.overflow

    @property
    def count(self) -> int:
        """Returns how many witnesses were found."""
        return len(self.judgement) + self.overflow

    @property
    def applicable(self) -> int:
        """Returns how many of them the promise is about."""
        return self.count - self._count(Judgement.NOT_APPLICABLE)

    def leading(self, guarantee: Guarantee, judgement: Judgement) -> Rule | None:
        """Returns the rule that decided most of the witnesses judged so; None = no rule did."""
        decided = self.rule[(self.judgement == judgement) & (self.rule >= 0)]
        return guarantee.rules[int(np.bincount(decided).argmax())] if len(decided) else None

    def by_rule(self, guarantee: Guarantee) -> Iterator[tuple[Rule, int]]:
        """Each rule that permitted something, and how many."""
        decided = self.rule[self.judgement == Judgement.PERMITTED]
        for index, rule in enumerate(guarantee.rules):
            if count := int(np.count_nonzero(decided == index)):
                yield rule, count

    def permitted_by(self, guarantee: Guarantee, rule: Rule) -> np.ndarray:
        """Returns the witnesses that this rule permitted."""
        mine = (self.judgement == Judgement.PERMITTED) & (self.rule == guarantee.rules.index(rule))
        return np.asarray(self.witnesses[mine])

    def defects(self, guarantee: Guarantee, *, effect: RuleEffect = RuleEffect.DEFECT) -> Iterator[tuple[Rule, int]]:
        """The rules of known defects whose signature forbidden witnesses have, and how many do; or of what else explains
        them."""
        for index, rule in enumerate(guarantee.rules):
            if rule.effect is effect and (count := int(np.count_nonzero(self.rule == index))):
                yield rule, count

    def possible_defects(self, guarantee: Guarantee) -> Iterator[tuple[Rule, int]]:
        """The rules of known defects that forbidden witnesses may come of, though nothing proves it, and how many may. One
        witness may come of several, which nothing that was recorded distinguishes."""
        for index, rule in enumerate(guarantee.rules):
            if count := int(np.count_nonzero((self.judgement == Judgement.FORBIDDEN) & (self.possible >> index & 1))):
                yield rule, count

    def indistinguishable(self, guarantee: Guarantee) -> list[list[str]]:
        """Returns the labels of each set of known defects of which any one may have done the same to a witness."""
        sets = np.unique(self.possible[self.judgement == Judgement.FORBIDDEN]).tolist()
        named = ([rule.label for index, rule in enumerate(guarantee.rules) if bits >> index & 1] for bits in sets)
        return [labels for labels in named if len(labels) > 1]


_NOTHING_UNCERTAIN: Mapping[int, str] = MappingProxyType({})


def tally_of(
    guarantee: Guarantee,
    results: Mapping[int, KernelResult],
    evaluation: Callable[[int, np.ndarray], Evaluation],
    uncertain: Mapping[int, str] = _NOTHING_UNCERTAIN,
) -> Tally:
    """Judges every witness of these partitions. What an absence finding says where the audit is incomplete is unknown, and
    so is every finding of the partitions `uncertain` (partition → why)."""
    witnesses, judgements = list[np.ndarray](), [np.empty(0, np.int8)]
    rules, possible = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    spoilt: dict[str, None] = {}
    for partition, result in results.items():
        if not len(result.witnesses):
            continue
        judged = evaluation(partition, result.witnesses)
        assert len(judged.judgement) == len(result.witnesses), "a judgement for each witness"
        judgement = judged.judgement
        if why := uncertain.get(partition) or (guarantee.absence and result.incomplete):
            judgement = np.full(len(judgement), Judgement.UNKNOWN, dtype=np.int8)
            spoilt[why] = None
        witnesses.append(result.witnesses)
        judgements.append(judgement)
        rules.append(judged.rule)
        possible.append(judged.possible)
    return Tally(
        witnesses=join_witnesses(witnesses),
        judgement=np.concatenate(judgements),
        rule=np.concatenate(rules),
        possible=np.concatenate(possible),
        overflow=sum(r.count - len(r.witnesses) for r in results.values()),
        judged=sum(r.judged for r in results.values()),
        incomplete=tuple(dict.fromkeys(r.incomplete for r in results.values() if r.incomplete)),
        spoilt=tuple(spoilt),
    )


def windows_judged(bound: DeliveryBound, tally: Tally) -> tuple[WindowJudged, ...]:
    """Returns what became of the witnesses of `late`, window by window; ascending."""
    assert len(tally.judgement) == len(tally.witnesses), "a judgement for each witness"
    numbers, window = np.unique(tally.witnesses["begin_ns"] // bound.window_ns, return_inverse=True)
    counts = {
        judgement: np.bincount(window[tally.judgement == judgement], minlength=len(numbers)).tolist()
        for judgement in (Judgement.FORBIDDEN, Judgement.PERMITTED, Judgement.UNKNOWN)
    }
    return tuple(
        WindowJudged(number=number, forbidden=forbidden, permitted=permitted, unknown=unknown)
        for number, forbidden, permitted, unknown in zip(numbers.tolist(), *counts.values(), strict=True)
    )
