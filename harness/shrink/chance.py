"""How often a failure that comes by chance must be looked for, and what was learnt when it was. Pure."""

import math

from harness.configuration import Frozen

MISSED = 0.05
"""Probability with which a candidate that fails as often as the original is given up wrongly."""
CONFIDENCE = 0.95
RUNS_MIN = 5
"""Of the original, and of the result, from which a probability is told."""
TRIES_MAX = 60
"""A failure in less than one of twenty runs cannot be shrunk in reasonable time."""


class Chance(Frozen):
    """What `runs` runs said: the failure came back in `hits` of them."""

    hits: int
    runs: int

    @property
    def probability(self) -> float:
        """The estimate: the share."""
        return self.hits / self.runs if self.runs else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Of the probability, with 95 % confidence (Clopper and Pearson, Biometrika 26, 1934)."""
        from scipy.stats import binomtest

        if not self.runs:
            return 0.0, 1.0
        found = binomtest(self.hits, self.runs).proportion_ci(confidence_level=CONFIDENCE, method="exact")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.hits} of {self.runs} runs (p = {self.probability:.2f}, 95 %: {low:.2f}–{high:.2f})"


def tries(probability: float) -> int:
    """⌈ln 0.05 / ln(1 − p)⌉: so many runs in which a failure of that probability stays away with 5 % chance at most."""
    assert 0 < probability <= 1, probability
    if probability == 1:
        return 1
    return math.ceil(math.log(MISSED) / math.log1p(-probability))
