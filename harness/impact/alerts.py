"""Computes when each alert of a trial fired, and whether it fired when it had to.

Everything here is pure: it reads no clock, file or cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, unique

import numpy as np

from prozess.harness.plan.alerts import AlertCombination, AlertRule, AlertSpec, Expression, metrics_of, parse_expression
from prozess.harness.recording.metric_series import MetricSeries, MetricTable
from prozess.harness.verdict import AlertResult, FaultShown, TrialVerdict, Verdict, worst

# Alert rules over the metrics of a run: when each fired, and whether it fired when it had to.
#
# Three values all the way: an absent metric makes an aggregate an interval, so that a rule is *unknown* exactly where
# what is absent could decide it, and known where it could not. Counters and gauges are never negative, which is the
# lower end.


GRID_S = 0.25
SHOWN_MAX = 64
"""How many intervals of an alert a report keeps."""


@unique
class Truth(IntEnum):
    """The truth of a rule at one moment: false, unknown or true. In this order `and` is the minimum and `or` the
    maximum."""

    FALSE = 0
    UNKNOWN = 1
    TRUE = 2


@dataclass(frozen=True, slots=True)
class AlertWindow:
    """A period in which an alert had to do something. `doubt` says why the period proves nothing."""

    name: str
    begin_s: float
    end_s: float
    doubt: str = ""


def evaluate_expression(
    expression: Expression, series: Mapping[tuple[str, bool], Sequence[MetricSeries]], grid_s: np.ndarray
) -> np.ndarray:
    """Returns the truth (int8) of an expression at each time of an even grid. `series`: (metric, as a rate) → its
    series."""
    if isinstance(expression, AlertCombination):
        parts = [evaluate_expression(part, series, grid_s) for part in expression.parts]
        merged: np.ndarray = (np.minimum if expression.word == "and" else np.maximum).reduce(parts)
        return merged
    low, high = aggregate(expression.aggregate, series[expression.metric, expression.rate], grid_s)
    return lasting(compare(low, high, expression.comparison, expression.number), expression.for_s, grid_s)


def aggregate(name: str, series: Sequence[MetricSeries], grid_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lowest and the highest value that an aggregate may have at each time. Without series nothing is known
    except their count."""
    shape = grid_s.shape
    sampled = [s.at(grid_s) for s in series]
    values = np.array([v for v, _ in sampled]).reshape(len(sampled), *shape)
    exists = np.array([e for _, e in sampled], dtype=bool).reshape(values.shape)
    known = exists & ~np.isnan(values)
    count, absent = known.sum(axis=0), (exists & ~known).sum(axis=0)
    if name == "count":
        return count.astype(float), count.astype(float)
    nothing = (count + absent) == 0
    total = np.where(known, values, 0.0).sum(axis=0)
    top = np.where(known, values, -np.inf).max(axis=0, initial=-np.inf)
    bottom = np.where(known, values, np.inf).min(axis=0, initial=np.inf)
    whole = absent == 0
    low, high = {
        "sum": (total, np.where(whole, total, np.inf)),
        "mean": (total / np.maximum(count + absent, 1), np.where(whole, total / np.maximum(count, 1), np.inf)),
        "max": (np.maximum(top, 0.0), np.where(whole, top, np.inf)),
        "min": (np.where(whole, bottom, np.minimum(bottom, 0.0)), bottom),
    }[name]
    return np.where(nothing, 0.0, low), np.where(nothing, np.inf, high)


def compare(low: np.ndarray, high: np.ndarray, comparison: str, number: float) -> np.ndarray:
    """Returns the truth (int8) of `value comparison number` for a value somewhere in [low, high]."""
    if comparison in ("==", "!="):
        same = _truth((low == number) & (high == number), (number < low) | (number > high))
        return same if comparison == "==" else (Truth.TRUE - same).astype(np.int8)
    match comparison:
        case ">":
            return _truth(low > number, high <= number)
        case ">=":
            return _truth(low >= number, high < number)
        case "<":
            return _truth(high < number, low >= number)
        case _:
            assert comparison == "<=", comparison
            return _truth(high <= number, low > number)


def _truth(yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    return np.where(yes, Truth.TRUE, np.where(no, Truth.FALSE, Truth.UNKNOWN)).astype(np.int8)


def lasting(truth: np.ndarray, for_s: float, grid_s: np.ndarray) -> np.ndarray:
    """Returns whether something was true for the last `for_s`. It is false as soon as it was false once, and what was
    before the grid is not known."""
    if for_s <= 0 or len(grid_s) < 2:
        return truth
    steps = max(1, round(for_s / float(grid_s[1] - grid_s[0])))
    padded = np.concatenate([np.full(steps, Truth.UNKNOWN, dtype=np.int8), truth])
    # Example, two steps: ? ? T T T F T has the windows ??T ?TT TTT TTF TFT, and their least ? ? T F F.
    windows: np.ndarray = np.lib.stride_tricks.sliding_window_view(padded, steps + 1)
    lowest: np.ndarray = windows.min(axis=1)
    return lowest


def intervals(chosen: np.ndarray, grid_s: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Returns (begin, end) of each run of true values. A run of one moment has no length."""
    # Example: F T T F T is 0 0 1 1 0 1 0 with a 0 at both ends. It rises at 1 and 4, and falls behind 2 and 4.
    edges = np.diff(np.concatenate([[0], chosen.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return tuple((float(grid_s[a]), float(grid_s[b])) for a, b in zip(starts, ends, strict=True))


# Judging: whether each alert fired when it had to.


def judge_alerts(
    alerts: Sequence[AlertSpec], table: MetricTable, faults: Sequence[FaultShown], *, schedule_end_s: float | None
) -> tuple[AlertResult, ...]:
    """Compares what each alert did with what it had to do. `schedule_end_s`: when the last step was done; None means
    never."""
    span = table.span_s
    if span is None:
        return tuple(_result(alert, Verdict.UNKNOWN, "no metrics were recorded") for alert in alerts)
    grid_s = np.arange(min(0.0, np.ceil(span[0])), span[1] + GRID_S, GRID_S)
    return tuple(_judge(alert, table, faults, grid_s, schedule_end_s) for alert in alerts)


def _judge(
    alert: AlertSpec,
    table: MetricTable,
    faults: Sequence[FaultShown],
    grid_s: np.ndarray,
    schedule_end_s: float | None,
) -> AlertResult:
    expression = parse_expression(alert.expr)
    fired = evaluate_expression(expression, _series_of(expression, table), grid_s)
    end_s = float(grid_s[-1])
    found: list[tuple[Verdict, str]] = []
    for window in must_fire_in(alert, faults, end_s):
        found.append(_fires(fired[_inside(window, grid_s)], window))
    for window in must_be_silent_in(alert, faults, end_s, schedule_end_s):
        found.append(_is_silent(fired[_inside(window, grid_s)], window))
    verdict = worst(v for v, _ in found)
    absent = [name for name in sorted(metrics_of(expression)) if not table.series(name)]
    why = (
        next(why for v, why in found if v is verdict) if verdict is not Verdict.HELD else "; ".join(w for _, w in found)
    )
    if verdict is Verdict.UNKNOWN and absent:
        why += f"; nobody ever reported {', '.join(absent)}"
    in_trial = grid_s >= 0
    return _result(
        alert,
        verdict,
        why,
        fired=intervals((fired == Truth.TRUE) & in_trial, grid_s)[:SHOWN_MAX],
        unknown=intervals((fired == Truth.UNKNOWN) & in_trial, grid_s)[:SHOWN_MAX],
    )


def _series_of(expression: Expression, table: MetricTable) -> dict[tuple[str, bool], Sequence[MetricSeries]]:
    if isinstance(expression, AlertRule):
        series = table.series(expression.metric)
        return {(expression.metric, expression.rate): [s.rate() for s in series] if expression.rate else series}
    return {key: found for part in expression.parts for key, found in _series_of(part, table).items()}


def must_fire_in(alert: AlertSpec, faults: Sequence[FaultShown], end_s: float) -> list[AlertWindow]:
    """Returns one period for each fault during which the alert must fire. A named step that made no fault leaves
    doubt."""
    chosen = [f for f in faults if "fault" in alert.during or f.step in alert.during]
    windows = [
        AlertWindow(f"{f.fault} of step {f.step!r}", f.begin_s, end_s if f.end_s is None else f.end_s, _doubt(f))
        for f in chosen
    ]
    struck = {f.step for f in chosen}
    missing = [step for step in alert.during if step not in struck and not (step == "fault" and chosen)]
    return windows + [AlertWindow(f"step {step!r}", 0.0, 0.0, "no such fault was made") for step in missing]


def _doubt(fault: FaultShown) -> str:
    return "" if fault.effective else "the fault was not seen to take effect"


def must_be_silent_in(
    alert: AlertSpec, faults: Sequence[FaultShown], end_s: float, schedule_end_s: float | None
) -> list[AlertWindow]:
    """Returns the periods in which the alert must not fire."""
    windows = []
    first_s = min((f.begin_s for f in faults), default=end_s)
    if "before" in alert.silent:
        windows.append(AlertWindow("before the first fault" if faults else "the whole trial", 0.0, first_s))
    if "during" in alert.silent:
        windows += [
            AlertWindow(f"{f.fault} of step {f.step!r}", f.begin_s, end_s if f.end_s is None else f.end_s, _doubt(f))
            for f in faults
        ]
    if "after" in alert.silent:
        healed = [f.end_s for f in faults]
        if schedule_end_s is None or any(at_s is None for at_s in healed):
            windows.append(AlertWindow("after the faults", end_s, end_s, "the schedule did not come to its end"))
        else:
            last_s = max([schedule_end_s, *(at_s for at_s in healed if at_s is not None)])
            windows.append(AlertWindow("after the faults", last_s + alert.settle_s, end_s))
    return windows


def _inside(window: AlertWindow, grid_s: np.ndarray) -> np.ndarray:
    return (grid_s >= window.begin_s) & (grid_s <= window.end_s)


def _fires(truth: np.ndarray, window: AlertWindow) -> tuple[Verdict, str]:
    if window.doubt:
        return Verdict.UNKNOWN, f"{window.name}: {window.doubt}"
    if (truth == Truth.TRUE).any():
        return Verdict.HELD, f"fired during {window.name}"
    if not len(truth) or (truth == Truth.UNKNOWN).any():
        return Verdict.UNKNOWN, f"during {window.name} it may or may not have fired: metrics are absent"
    return Verdict.VIOLATED, f"it did not fire during {window.name}"


def _is_silent(truth: np.ndarray, window: AlertWindow) -> tuple[Verdict, str]:
    if (truth == Truth.TRUE).any():
        return Verdict.VIOLATED, f"it fired {window.name}, when it had to be silent"
    if window.doubt:
        return Verdict.UNKNOWN, f"{window.name}: {window.doubt}"
    if not len(truth):
        return Verdict.UNKNOWN, f"there is no sample {window.name}"
    if (truth == Truth.UNKNOWN).any():
        return Verdict.UNKNOWN, f"{window.name} it may have fired: metrics are absent"
    return Verdict.HELD, f"silent {window.name}"


def _result(
    alert: AlertSpec,
    verdict: Verdict,
    reason: str,
    *,
    fired: tuple[tuple[float, float], ...] = (),
    unknown: tuple[tuple[float, float], ...] = (),
) -> AlertResult:
    return AlertResult(
        name=alert.name,
        expr=alert.expr,
        verdict=verdict,
        fired=fired,
        unknown=unknown,
        during=alert.during,
        silent=alert.silent,
        reason=reason,
    )


def with_alerts(verdict: TrialVerdict, alerts: Sequence[AlertResult]) -> TrialVerdict:
    """Returns the verdict of the trial with its alerts. The worst outcome decides, and the sentence says so."""
    if not alerts:
        return verdict
    overall = worst([verdict.verdict, *(alert.verdict for alert in alerts)])
    bad = [alert for alert in alerts if alert.verdict is overall]
    if overall is Verdict.HELD:
        text = f"{verdict.sentence} {_obeyed(len(alerts))}"
    elif bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        text = f"{str(overall).capitalize()}: alert {bad[0].name!r}: {bad[0].reason}{more}. {verdict.sentence}"
    else:
        text = verdict.sentence
    unknown = [f"alert {a.name!r}: {a.reason}" for a in alerts if a.verdict is Verdict.UNKNOWN]
    return verdict.model_copy(
        update={
            "verdict": overall,
            "sentence": text,
            "alerts": tuple(alerts),
            "unknown_reasons": (*verdict.unknown_reasons, *unknown),
        }
    )


def _obeyed(count: int) -> str:
    return "The alert did what it had to do." if count == 1 else f"All {count} alerts did what they had to do."
