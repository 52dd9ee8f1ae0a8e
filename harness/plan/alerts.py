"""Reads the alert rules of a trial, which compare metrics of a run with a number.

`prozess.harness.impact.alerts` computes when each fired.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, field_validator

from prozess.harness.errors import BadInput
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.recording.metrics import BY_NAME, known_metric
from prozess.harness.values import Frozen

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
    """What the report calls it."""
    expr: str
    """The condition, in a part of PromQL ([nightly.md](nightly.md))."""
    during: tuple[str, ...] = ()
    """The names of steps that make a fault. "fault" means every fault."""
    silent: tuple[Period, ...] = ("before",)
    """The periods in which it must not fire."""
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
