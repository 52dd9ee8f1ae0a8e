"""A partition that is checked in pieces has the findings that it has as a whole: the same witnesses, counts and reasons."""

import random
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkers.pieces import JUDGED_OF_PLAIN
from checkers.split import perform, remainders
from harness.kernels import KernelNames, check_partition
from harness.pieces import UNBOUNDED, Cuts, Source
from tests.unit.kafka_anomalies import KINDS, Spoiler
from tests.unit.kafka_model import drawn_facts

KERNELS = {name: kernel for name, kernel in KernelNames.of(list(JUDGED_OF_PLAIN)).resolve().partition.items()}
QUICK = settings(
    max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
SEEDS = st.integers(0, 2**32)


class Arrays:
    """Rows of one table, as a run's files give them."""

    def __init__(self, columns):
        self._columns = {name: np.asarray(values) for name, values in columns.items()}

    def by_offset(self, low, high):
        offset = self._columns["log_offset"]
        rows = np.flatnonzero((offset >= low) & ((offset < high) | (high == UNBOUNDED)))
        return self.take(rows), rows

    def by_row(self, first, last):
        rows = np.arange(first, last)
        return self.take(rows), rows

    def take(self, rows):
        return {name: values[rows] for name, values in self._columns.items()}


def facts(findings):
    return [
        (f.anomaly, f.result.count, f.result.judged, f.result.incomplete, f.result.witnesses.tolist()) for f in findings
    ]


def drawn_cuts(history, rng):
    offsets = np.concatenate([history.sends["log_offset"], history.reads["log_offset"]])
    bounds = sorted(
        rng.sample(range(int(offsets.max(initial=0)) - 60, int(offsets.max(initial=0)) + 2), rng.randrange(6))
    )
    return Cuts(
        offsets=(0, *[b for b in bounds if b > 0], UNBOUNDED),
        sends=cut(len(history.sends["client"]), rng),
        reads=cut(len(history.reads["client"]), rng),
    )


def cut(length, rng):
    return (0, *sorted(rng.sample(range(length + 1), min(length, rng.randrange(4)))), length)


def in_pieces(history, cuts):
    """What is left, and the findings."""
    source = Source(history, Arrays(history.sends), Arrays(history.reads))
    left = remainders({history.partition: cuts}, lambda jobs: [perform(source, job) for job in jobs])[history.partition]
    return left, left.rows_only().check(source, KERNELS)


def spoiled(seed):
    made, rng = drawn_facts(seed, duplicates=seed % 3 == 0)
    spoiler = Spoiler(made, rng)
    for kind in rng.choices(KINDS, k=rng.choice((0, 1, 1, 2, 3, 6))):
        getattr(spoiler, kind)()
    history = made.history()
    return history if seed % 6 else replace(history, audit_end={})


@settings(QUICK, max_examples=1500)
@given(SEEDS)
def test_whatever_was_planted_and_wherever_it_is_cut_the_findings_are_the_same(seed):
    history = spoiled(seed)
    _, found = in_pieces(history, drawn_cuts(history, random.Random(seed + 1)))
    assert facts(found) == facts(check_partition(history, KERNELS))
