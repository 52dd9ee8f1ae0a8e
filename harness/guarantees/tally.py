"""The witnesses of one anomaly in one cell, judged and counted."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from harness.configuration import DeliveryBound
from harness.guarantees.evaluate import Evaluation, Judgement
from harness.guarantees.table import Effect, Guarantee, Rule
from harness.protocols import KernelResult
from harness.verdict import WindowJudged
from harness.witnesses import no_witnesses


@dataclass(frozen=True, slots=True)
class Tally:
    """`witnesses`, `judgement` and `rule` have one length; the counts are exact (`overflow` beyond the witnesses)."""

    witnesses: np.ndarray
    judgement: np.ndarray
    rule: np.ndarray
    overflow: int
    """Found, but not among the witnesses: cannot be judged."""
    judged: int
    incomplete: tuple[str, ...]
    """Why absence cannot be concluded, for each partition where it cannot; each once."""

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
        """All that were found."""
        return len(self.judgement) + self.overflow

    def leading(self, guarantee: Guarantee, judgement: Judgement) -> Rule | None:
        """The rule that decided most of the witnesses judged so; None = no rule did."""
        decided = self.rule[(self.judgement == judgement) & (self.rule >= 0)]
        return guarantee.rules[int(np.bincount(decided).argmax())] if len(decided) else None

    def by_rule(self, guarantee: Guarantee) -> Iterator[tuple[Rule, int]]:
        """Each rule that permitted something, and how many."""
        decided = self.rule[self.judgement == Judgement.PERMITTED]
        for index, rule in enumerate(guarantee.rules):
            if count := int(np.count_nonzero(decided == index)):
                yield rule, count

    def defects(self, guarantee: Guarantee) -> Iterator[Rule]:
        """The rules of known defects that match a forbidden witness."""
        for index, rule in enumerate(guarantee.rules):
            if rule.effect is Effect.DEFECT and (self.rule == index).any():
                yield rule


def tally_of(
    guarantee: Guarantee,
    results: Mapping[int, KernelResult],
    evaluation: Callable[[int, np.ndarray], Evaluation],
) -> Tally:
    """Judge every witness of these partitions. What an absence finding says where the audit is incomplete is unknown."""
    witnesses, judgements, rules = [no_witnesses()], [np.empty(0, np.int8)], [np.empty(0, np.int64)]
    for partition, result in results.items():
        if not len(result.witnesses):
            continue
        judged = evaluation(partition, result.witnesses)
        judgement = judged.judgement
        if guarantee.absence and result.incomplete:
            judgement = np.full(len(judgement), Judgement.UNKNOWN, dtype=np.int8)
        witnesses.append(result.witnesses)
        judgements.append(judgement)
        rules.append(judged.rule)
    return Tally(
        witnesses=np.concatenate(witnesses),
        judgement=np.concatenate(judgements),
        rule=np.concatenate(rules),
        overflow=sum(r.count - len(r.witnesses) for r in results.values()),
        judged=sum(r.judged for r in results.values()),
        incomplete=tuple(dict.fromkeys(r.incomplete for r in results.values() if r.incomplete)),
    )


def windows_judged(bound: DeliveryBound, tally: Tally) -> tuple[WindowJudged, ...]:
    """What became of the witnesses of `late`, window by window; ascending."""
    numbers, window = np.unique(tally.witnesses["begin_ns"] // bound.window_ns, return_inverse=True)
    counts = {
        judgement: np.bincount(window[tally.judgement == judgement], minlength=len(numbers)).tolist()
        for judgement in (Judgement.FORBIDDEN, Judgement.PERMITTED, Judgement.UNKNOWN)
    }
    return tuple(
        WindowJudged(number=number, forbidden=forbidden, permitted=permitted, unknown=unknown)
        for number, forbidden, permitted, unknown in zip(numbers.tolist(), *counts.values(), strict=True)
    )
