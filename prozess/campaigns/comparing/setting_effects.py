"""Finds out what each setting changes: how much more of each harm one of its values shows than another, over many runs.

A run compares its cells itself, because they went through the same faults, and each run counts once. The interval says how
much runs differ. Pure: the tables come in by argument.

Example: two runs, each with a cell acks=1 and a cell acks=all, alike in everything else. In both runs acks=1 lost records and
acks=all did not: from all to 1 the share of cells with a loss changes by 1 − 0 = 1 in each run, by 1 on the average.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from prozess.app.run_tables import Read
from prozess.campaigns.matrix_query import axes_of
from prozess.harness.guarantees.table.harm import HARM

HARMS = dict(zip(("gone", "wrong", "isolation", "twice", "exposed", "waiting"), HARM, strict=True))
"""A word for a column → the harm, in full."""
OF_CLUSTERS = {"variant_kafka_version": "variant.kafka_version", "variant_metadata_mode": "variant.metadata_mode"}
"""Settings of the whole cluster, which are the same in all cells of a run: column of `cells` → setting."""
RUNS_MIN = 3
"""Fewer runs give no interval: two that agree by luck would look certain."""
SURE = 0.95
CONTRAST_MIN = 0.05
"""A smaller interaction is not named."""
_LOOKED = ("held", "permitted", "violated", "possible, not seen")
_CELL_BITS = 32


@dataclass(frozen=True)
class CellObservations:
    """What was set and what was seen in n cells of any number of runs."""

    run: np.ndarray
    """int64[n]: which run the cell is of."""
    workload: np.ndarray
    """int64[n]: which workload it has."""
    settings: Mapping[str, np.ndarray]
    """Setting → int64[n]: the index of its value; -1: the cell does not have it."""
    values: Mapping[str, tuple[str, ...]]
    """Setting → its values."""
    seen: np.ndarray
    """float64[n, harms]: 1 if something of this harm was seen in the cell, 0 if nothing, NaN if nobody knows."""


class ShareChange(NamedTuple):
    """A change of a share between 0 and 1. `low`, `high`: its interval of 95 %; NaN with fewer than RUNS_MIN runs."""

    mean: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, slots=True)
class SettingEffect:
    """What changes if a setting has `value` and not `reference`, the value with the least harm."""

    setting: str
    reference: str
    value: str
    changes: tuple[ShareChange | None, ...]
    """For each harm; None: no run could compare."""
    basis: str
    """What was compared: cells that are alike in everything else, cells of one run, or runs."""


@dataclass(frozen=True, slots=True)
class SettingInteraction:
    """Two settings of which one decides how much the other one changes."""

    harm: str
    settings: tuple[str, str]
    references: tuple[str, str]
    values: tuple[str, str]
    shares: tuple[float, float, float, float]
    """Shares of cells with the harm: neither value, the first alone, the second alone, both."""
    contrast: ShareChange
    """How much more both together change than the sum of each alone."""

    @property
    def only_together(self) -> bool:
        """Returns whether neither value alone changes anything that was seen."""
        return max(self.shares[:3]) <= CONTRAST_MIN < self.shares[3]


def observe(read: Read) -> CellObservations:
    """Returns what the tables `cells` and `outcomes` have, of cells in which something was looked for. No row is visited."""
    cells = read("cells", ["run", "cell", "workload", "axes", *OF_CLUSTERS]).combine_chunks()
    outcomes = read("outcomes", ["run", "cell", "anomaly", "outcome", "count"]).combine_chunks()
    runs = pc.unique(cells["run"].combine_chunks())
    keys = _keys(cells, runs)
    settings, values = {}, {}
    for name, column in _settings(cells):
        coded = column.dictionary_encode()
        settings[name] = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        values[name] = tuple(coded.dictionary.to_pylist())
    seen = _seen(outcomes, pc.index_in(_keys(outcomes, runs), value_set=keys), len(cells))
    workloads = cells["workload"].combine_chunks().dictionary_encode().indices.to_numpy()
    return CellObservations(keys.to_numpy() >> _CELL_BITS, workloads.astype(np.int64), settings, values, seen)


def _keys(table: pa.Table, runs: pa.Array) -> pa.Array:
    """Returns the run and the cell of each row in one number (int64). The run is -1 if it has no cells."""
    run = pc.fill_null(pc.index_in(table["run"], value_set=runs), -1).to_numpy().astype(np.int64)
    return pa.array((run << _CELL_BITS) + pc.fill_null(table["cell"], 0).to_numpy())


def _settings(cells: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yields (setting, its value in each cell as text) of those that vary within some trial, and of the cluster."""
    axes = axes_of(cells)
    for name in axes["axis"].unique().to_pylist():
        if "." not in name:
            continue  # the name of the workload, or of a schedule, is no setting
        own = axes.filter(pc.equal(axes["axis"], name))
        at = pc.index_in(pa.array(np.arange(len(cells))), value_set=own["cell_at"].combine_chunks())
        yield name, own["value"].combine_chunks().take(at)
    for column, name in OF_CLUSTERS.items():
        yield name, cells[column].combine_chunks().cast(pa.string())


def _seen(outcomes: pa.Table, cell_at: pa.Array, count: int) -> np.ndarray:
    """Returns `seen` for so many cells. `cell_at`: the cell of each outcome; null: there is none. NaN: something of the harm
    is unknown, and nothing was seen."""
    there = cell_at.is_valid().to_numpy(zero_copy_only=False)
    slot = cell_at.fill_null(0).to_numpy()
    looked = pc.is_in(outcomes["outcome"], value_set=pa.array(_LOOKED)).to_numpy()
    unknown = pc.equal(outcomes["outcome"], "unknown").to_numpy()
    shown = pc.fill_null(outcomes["count"], 0).to_numpy() > 0
    found = np.full((count, len(HARMS)), np.nan)
    for column, harm in enumerate(HARMS.values()):
        mine = there & pc.is_in(outcomes["anomaly"], value_set=pa.array(HARM[harm])).to_numpy()
        # Later lines win: looked for and not seen, then unknown, then seen.
        found[slot[mine & looked], column] = 0
        found[slot[mine & unknown], column] = np.nan
        found[slot[mine & looked & shown], column] = 1
    return found


def effects(observations: CellObservations) -> list[SettingEffect]:
    """Returns what each value of each setting changes, against the value with the least harm; the greatest change first."""
    found = []
    for name, codes in observations.settings.items():
        chosen = _by_harm(observations, codes)
        for value in chosen[1:]:
            changes, basis = _changes(observations, name, value, chosen[0])
            if any(change is not None for change in changes):
                named = observations.values[name]
                found.append(SettingEffect(name, named[chosen[0]], named[value], changes, basis))
    return sorted(found, key=lambda e: [-abs(c.mean) if c is not None else 0.0 for c in e.changes])


def _by_harm(observations: CellObservations, codes: np.ndarray) -> list[int]:
    """Returns the values that occur, the one with the least harm first: the worst kind of harm decides."""
    means = {}
    for value in np.unique(codes[codes >= 0]).tolist():
        seen = observations.seen[codes == value]
        known = ~np.isnan(seen)
        means[value] = (np.where(known, seen, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)).tolist()
    return sorted(means, key=lambda value: (means[value], value))


def _changes(
    observations: CellObservations, name: str, value: int, reference: int
) -> tuple[tuple[ShareChange | None, ...], str]:
    """Returns the change of each harm, by the strictest comparison that some run offers."""
    codes = observations.settings[name]
    others = [column for other, column in observations.settings.items() if other != name]
    within = np.stack([observations.run, observations.workload])
    alike = np.concatenate([within, np.stack(others)]) if others else within
    for basis, strata in (("cells alike in all else", alike), ("cells of one run", within)):
        stratum = _numbered(strata)
        found = tuple(
            _paired(observations.run, stratum, seen, codes == value, codes == reference) for seen in observations.seen.T
        )
        if any(change is not None for change in found):
            return found, basis
    return tuple(
        _between(observations.run, seen, codes == value, codes == reference) for seen in observations.seen.T
    ), "runs"


def _numbered(columns: np.ndarray) -> np.ndarray:
    """Returns int64[n]: equal numbers where the columns of int64[k, n] are equal."""
    return np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1)


def _paired(
    run: np.ndarray, stratum: np.ndarray, seen: np.ndarray, with_value: np.ndarray, with_reference: np.ndarray
) -> ShareChange | None:
    """Compares within strata. A stratum is within one run; those of a run are averaged, and then the runs are.

    Example: strata 0 0 1, seen 1 0 1, with the value T F T, with the reference F T F: stratum 0 has both, 1 − 0 = 1; stratum
    1 has no reference, and says nothing.
    """
    shares = [_shares(stratum, seen, mask) for mask in (with_value, with_reference)]
    return _over_runs(_runs_of(stratum, run), shares[0] - shares[1])


def _shares(stratum: np.ndarray, seen: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Returns float64[strata]: the share of the chosen cells of each stratum in which it was seen; NaN: nobody knows."""
    mask = chosen & ~np.isnan(seen)
    count = np.bincount(stratum[mask], minlength=int(stratum.max(initial=-1)) + 1)
    total = np.bincount(stratum[mask], weights=seen[mask], minlength=len(count))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _runs_of(stratum: np.ndarray, run: np.ndarray) -> np.ndarray:
    """Returns int64[strata]: the run of each stratum, all of whose cells are of one."""
    found = np.zeros(int(stratum.max(initial=-1)) + 1, dtype=np.int64)
    found[stratum] = run
    return found


def _between(
    run: np.ndarray, seen: np.ndarray, with_value: np.ndarray, with_reference: np.ndarray
) -> ShareChange | None:
    """Compares runs with the value to runs with the reference, by Welch's interval."""
    groups = [_means_of_runs(run[mask], seen[mask]) for mask in (with_value, with_reference)]
    if not all(len(group) for group in groups):
        return None
    mean = float(groups[0].mean() - groups[1].mean())
    if min(map(len, groups)) < RUNS_MIN:
        return ShareChange(mean, np.nan, np.nan, sum(map(len, groups)))
    variances = [float(group.var(ddof=1)) / len(group) for group in groups]
    freedom = sum(variances) ** 2 / (sum(v**2 / (len(g) - 1) for v, g in zip(variances, groups, strict=True)) or 1.0)
    half = _quantile(max(freedom, 1.0), SURE) * sum(variances) ** 0.5
    return ShareChange(mean, max(-1.0, mean - half), min(1.0, mean + half), sum(map(len, groups)))


def _means_of_runs(run: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Returns the mean of each run that has a known value."""
    known = ~np.isnan(value)
    number, slot = np.unique(run[known], return_inverse=True)
    return np.bincount(slot, weights=value[known], minlength=len(number)) / np.maximum(np.bincount(slot), 1)


def _over_runs(run: np.ndarray, difference: np.ndarray, sure: float = SURE, least: float = -1.0) -> ShareChange | None:
    """Averages differences over runs, each of which counts once. None: no run has one."""
    means = _means_of_runs(run, difference)
    if not len(means):
        return None
    mean = float(means.mean())
    if len(means) < RUNS_MIN:
        return ShareChange(mean, np.nan, np.nan, len(means))
    half = _quantile(len(means) - 1, sure) * float(means.std(ddof=1)) / len(means) ** 0.5
    return ShareChange(mean, max(least, mean - half), min(-least, mean + half), len(means))


def _quantile(freedom: float, sure: float) -> float:
    """Returns how many standard errors to both sides hold Student's t with this certainty."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + sure) / 2))


def interactions(observations: CellObservations) -> list[SettingInteraction]:
    """Returns pairs of settings that do more, or less, together than the sum of each alone, the strongest first.

    Every pair is asked, and by chance one of twenty would look like one at 95 %: the certainty asked of each is raised by the
    number of pairs (Bonferroni). Cells of one run are compared, whatever their other settings are.

    Example: of cells (min.insync.replicas, unclean) the shares with a loss are 0 for neither, 0 and 0 for each alone, 1 for
    both: 1 − 0 − 0 + 0 = 1.
    """
    values = {name: _by_harm(observations, codes) for name, codes in observations.settings.items()}
    asked = [(a, b) for a, b in combinations(values, 2) if min(len(values[a]), len(values[b])) > 1]
    sure = 1 - (1 - SURE) / max(len(asked) * len(HARMS), 1)
    stratum = _numbered(np.stack([observations.run, observations.workload]))
    found = []
    for first, second in asked:
        for column, harm in enumerate(HARMS):
            one = _interaction(observations, stratum, (first, second), column, values, sure)
            if one is not None:
                found.append(SettingInteraction(harm, *one))
    return sorted(found, key=lambda i: (not i.only_together, -abs(i.contrast.mean)))


def _interaction(
    observations: CellObservations,
    stratum: np.ndarray,
    names: tuple[str, str],
    column: int,
    values: Mapping[str, Sequence[int]],
    sure: float,
) -> tuple[tuple[str, str], tuple[str, str], tuple[str, str], tuple[float, float, float, float], ShareChange] | None:
    """Returns the parts of a `SettingInteraction` between the values with the least and the most harm, if it is certain."""
    seen = observations.seen[:, column]
    codes = [observations.settings[name] for name in names]
    least, most = [values[name][0] for name in names], [values[name][-1] for name in names]
    neither, alone, other, both = (
        _shares(stratum, seen, (codes[0] == first[0]) & (codes[1] == second[1]))
        for first, second in ((least, least), (most, least), (least, most), (most, most))
    )
    apart = both - alone - other + neither
    contrast = _over_runs(_runs_of(stratum, observations.run), apart, sure, least=-2.0)
    if contrast is None or not (contrast.low > CONTRAST_MIN or contrast.high < -CONTRAST_MIN):
        return None
    named = [observations.values[name] for name in names]
    ends = [(named[0][pair[0]], named[1][pair[1]]) for pair in (least, most)]
    complete = ~np.isnan(apart)
    means = [float(share[complete].mean()) for share in (neither, alone, other, both)]
    return names, ends[0], ends[1], (means[0], means[1], means[2], means[3]), contrast
