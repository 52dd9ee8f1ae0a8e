"""Alert rules of a trial, which compare metrics of a run with a number. They are read here, and it is computed when
each fired and whether it fired when it had to.

Everything here is pure: it reads no clock, file or cluster.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, field_validator

from prozess.harness.errors import BadInput
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.recording.metrics import BY_NAME, MetricSeries, MetricTable, known_metric
from prozess.harness.values import Frozen
from prozess.harness.verdict import AlertResult, FaultShown, TrialVerdict, Verdict, worst

# Alert rules of a trial: what a monitor would say, and when it must and must not.
#
#     expr    := all ("or" all)*
#     all     := rule ("and" rule)*
#     rule    := AGGREGATE "(" series ")" COMPARISON NUMBER ["for" DURATION] | "(" expr ")"
#     series  := METRIC | "rate" "(" COUNTER ")"
#
# AGGREGATE is max, min, sum, mean or count, over nodes, partitions and clients; DURATION is `2s` or `500ms`. For
# example `sum(under_replicated_partitions) > 0 for 2s`. Nothing else is understood: an expression is never run as
# code.


AGGREGATES = ("max", "min", "sum", "mean", "count")
COMPARISONS = (">=", "<=", "==", "!=", ">", "<")
NESTED_MAX = 16
Period = Literal["before", "during", "after"]
_TOKEN = re.compile(
    r"\s*(?:(?P<duration>\d+(?:\.\d+)?(?:ms|s)\b)|(?P<number>-?\d+(?:\.\d+)?)"
    r"|(?P<name>errors\([A-Za-z]+,\s*[A-Z_0-9]+\)|[A-Za-z_][A-Za-z_0-9]*)|(?P<sign>>=|<=|==|!=|[()<>]))"
)


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One comparison of an aggregate with a number, which is true once it has held for `for_s`."""

    aggregate: str
    metric: str
    rate: bool
    comparison: str
    number: float
    for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AlertCombination:
    """Several alert rules that are joined by `and` or `or`."""

    word: Literal["and", "or"]
    parts: "tuple[Expression, ...]"


Expression = AlertRule | AlertCombination


class AlertSpec(Frozen):
    """An alert as a trial file has it.

    It must fire while each of the faults of `during` lasts. It must not fire in the periods of `silent`: before the
    first fault, during any fault, after the last fault is undone and the schedule has ended.
    """

    name: Annotated[str, Field(min_length=1)]
    expr: str
    during: tuple[str, ...] = ()
    """The names of steps that make a fault. "fault" means every fault."""
    silent: tuple[Period, ...] = ("before",)
    settle_s: NonNegativeFloat = 5.0
    """How long after the last fault the period `after` begins. Metrics come once a second, and a duration must run
    out."""

    @field_validator("during", "silent", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("expr")
    @classmethod
    def _understood(cls, value: str) -> str:
        parse_expression(value)
        return value


def check_alerts(alerts: Sequence[AlertSpec], steps: Sequence[Step], *, metrics: bool, source: str) -> None:
    """Raises BadInput if an alert names something that the trial does not have."""
    if alerts and not metrics:
        raise BadInput(f"{source}: alerts need metrics, but metrics = false. Remove one of them.")
    faults = [step.name for step in steps if isinstance(step.do, FaultAction)]
    seen: set[str] = set()
    for alert in alerts:
        if alert.name in seen:
            raise BadInput(f"{source}: two alerts are named {alert.name!r}; names of alerts must differ.")
        seen.add(alert.name)
        if not alert.during and not alert.silent:
            raise BadInput(f"{source}: alert {alert.name!r} asks for nothing; give during or silent.")
        for name in alert.during:
            if name not in faults and not (name == "fault" and faults):
                known = ", ".join(map(repr, faults)) or "none: the trial makes no fault"
                raise BadInput(
                    f"{source}: alert {alert.name!r} is to fire during {name!r}, which is no step that makes a fault. "
                    f'Give "fault" for all, or names of: {known}.'
                )


def parse_expression(text: str) -> Expression:
    """Reads an alert expression. ValueError says what is wrong and what may stand there."""
    parser = _Parser(text)
    expression = parser.expression(0)
    parser.end()
    return expression


def metrics_of(expression: Expression) -> frozenset[str]:
    """Returns every metric that the expression looks at."""
    if isinstance(expression, AlertRule):
        return frozenset({expression.metric})
    return frozenset().union(*(metrics_of(part) for part in expression.parts))


class _Parser:
    """Parses the tokens of an expression by recursive descent."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        position, text = 0, text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise ValueError(f"not understood from {text[position:].strip()!r} on")
            self.tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        self.at = 0

    def expression(self, depth: int) -> Expression:
        return self._joined("or", depth)

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise ValueError(f"{self.tokens[self.at][1]!r} does not belong there; join rules with `and` or `or`")

    def _joined(self, word: Literal["and", "or"], depth: int) -> Expression:
        def part() -> Expression:
            return self._joined("and", depth) if word == "or" else self._rule(depth)

        parts = [part()]
        while self._peek() == word:
            self.at += 1
            parts.append(part())
        return parts[0] if len(parts) == 1 else AlertCombination(word, tuple(parts))

    def _rule(self, depth: int) -> Expression:
        if self._peek() == "(":
            if depth == NESTED_MAX:
                raise ValueError(f"more than {NESTED_MAX} parentheses in one another")
            self.at += 1
            inner = self.expression(depth + 1)
            self._take("sign", [")"])
            return inner
        aggregate = self._take("name", AGGREGATES)
        self._take("sign", ["("])
        metric, rate = self._series()
        self._take("sign", [")"])
        comparison = self._take("sign", COMPARISONS)
        number = float(self._take("number", None))
        for_s = 0.0
        if self._peek() == "for":
            self.at += 1
            duration = self._take("duration", None)
            for_s = float(duration.rstrip("ms")) * (0.001 if duration.endswith("ms") else 1.0)
        return AlertRule(aggregate, metric, rate, comparison, number, for_s)

    def _series(self) -> tuple[str, bool]:
        rate = self._peek() == "rate"
        if rate:
            self.at += 1
            self._take("sign", ["("])
        name = self._take("name", None).replace(" ", "")
        metric = known_metric(name)
        if metric is None:
            near = difflib.get_close_matches(name, BY_NAME, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"there is no metric {name!r}{hint} (known: {', '.join(sorted(BY_NAME))})")
        if rate and not metric.counter:
            raise ValueError(f"{name} is no counter, so it has no rate; write {name} alone")
        if metric.counter and not rate:
            raise ValueError(f"{name} only ever grows; write rate({name}), in {metric.unit} per second")
        if rate:
            self._take("sign", [")"])
        return name, rate

    def _peek(self) -> str | None:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else None

    def _take(self, kind: str, allowed: Sequence[str] | None) -> str:
        found = self.tokens[self.at] if self.at < len(self.tokens) else ("", "the end")
        if found[0] != kind or (allowed is not None and found[1] not in allowed):
            example = {"duration": " such as 2s", "name": " of a metric"}.get(kind, "")
            wanted = " or ".join(map(repr, allowed)) if allowed else f"a {kind}{example}"
            raise ValueError(f"{found[1]!r} stands where {wanted} must be, as in `sum(offline_partitions) > 0 for 2s`")
        self.at += 1
        return found[1]


# Alert rules over the metrics of a run: when each fired, and whether it fired when it had to.
#
# Three values all the way: an absent metric makes an aggregate an interval, so that a rule is *unknown* exactly where
# what is absent could decide it, and known where it could not. Counters and gauges are never negative, which is the
# lower end.


GRID_S = 0.25
SHOWN_MAX = 64
"""How many intervals of an alert a report keeps."""


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
    windows: np.ndarray = np.lib.stride_tricks.sliding_window_view(padded, steps + 1)
    lowest: np.ndarray = windows.min(axis=1)
    return lowest


def intervals(chosen: np.ndarray, grid_s: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Returns (begin, end) of each run of true values. A run of one moment has no length."""
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
            AlertWindow(f"{f.fault} of step {f.step!r}", f.begin_s, f.end_s or end_s, _doubt(f)) for f in faults
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
