"""Mixes, and lists of faults of which each strikes once: with a seed they become ordinary steps, when the trial is planned.
Pure.

Which fault, when, for how long and with which parameters is drawn; whom it hits is a role, resolved when it strikes.
What is not there to be hit at that moment is left out of a mix (`Step.may_miss`); of a list everything must strike.
Everything is healed, and whole ISRs are awaited whenever nothing is broken, in the end too.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UnsupportedFault
from harness.schedule import Each, Elapsed, FaultAction, HealAction, IsrIs, Mix, MixFault, Range, Step

_LEAST_S = 0.001
"""A fault is healed after it has struck, if it lasts no time at all."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault of a mix, as drawn. Seconds from the beginning of the mix."""

    number: int
    fault: MixFault
    targets: tuple[str, ...]
    parameters: Mapping[str, Any]
    begin_s: float
    end_s: float


def expand(step: Step, action: Mix | Each, rng: random.Random, *, lacking: Mapping[str, str]) -> list[Step]:
    """The steps of a mix or list. `lacking`: labels of faults that cannot be made here, with why; they are left out before
    anything is drawn. UnsupportedFault if none is left."""
    able = [fault for fault in action.faults if fault.label not in lacking]
    if not able:
        why = lacking[action.faults[0].label]
        raise UnsupportedFault(f"Step {step.name!r}: none of its faults can be made here, such as: {why}.")
    first = step.model_copy(update={"name": f"{step.name}: begins", "do": None})
    strikes = draw_strikes(action, able, rng) if isinstance(action, Mix) else draw_each(action, able, rng)
    return [first, *_steps(step.name, action, strikes)]


def draw_each(each: Each, able: Sequence[MixFault], rng: random.Random) -> list[Strike]:
    """Each of them once, one after the other."""
    strikes: list[Strike] = []
    end_s = 0.0
    for fault in rng.sample(able, len(able)):
        targets, parameters = _aimed(fault, rng)
        begin_s = round(end_s + _within(each.quiet_s, rng), 3)
        end_s = _end_s(begin_s, fault, rng)
        strikes.append(Strike(len(strikes) + 1, fault, targets, parameters, begin_s, end_s))
    return strikes


def draw_strikes(mix: Mix, able: Sequence[MixFault], rng: random.Random) -> list[Strike]:
    """In the order in which they begin: never more than `overlap` at once, one that is `alone` never with another, and all
    of them over within `length_s`. At least one, however short the mix is."""
    strikes: list[Strike] = []
    begin_s = 0.0
    while True:
        fault = rng.choices(able, [fault.weight for fault in able])[0]
        targets, parameters = _aimed(fault, rng)
        quiet_s = _within(mix.quiet_s, rng)
        begin_s = max(begin_s, _free_from(begin_s + quiet_s, fault, strikes, mix.overlap)) + quiet_s
        begin_s = round(begin_s, 3)
        end_s = _end_s(begin_s, fault, rng)
        if strikes and end_s > mix.length_s:
            return strikes
        strikes.append(Strike(len(strikes) + 1, fault, targets, parameters, begin_s, end_s))


def _aimed(fault: MixFault, rng: random.Random) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Whom it hits, and its parameters, as drawn."""
    targets = (rng.choice(fault.one_of),) if fault.one_of else fault.targets
    return targets, {key: _drawn(value, rng) for key, value in fault.parameters.items()}


def _end_s(begin_s: float, fault: MixFault, rng: random.Random) -> float:
    return round(begin_s + max(_within(fault.lasts_s, rng), _LEAST_S), 3)


def _free_from(begin_s: float, fault: MixFault, strikes: Sequence[Strike], overlap: int) -> float:
    """When enough of what would still hold at `begin_s` is over for this fault; 0 = it may begin then."""
    ends = sorted(strike.end_s for strike in strikes if strike.end_s > begin_s)
    alone = fault.alone or any(strike.fault.alone for strike in strikes if strike.end_s > begin_s)
    most = 1 if alone else overlap
    return 0.0 if len(ends) < most else ends[len(ends) - most]


def _within(span: Range, rng: random.Random) -> float:
    return rng.uniform(*span)


def _drawn(value: Any, rng: random.Random) -> Any:  # noqa: ANN401 - a TOML value
    if isinstance(value, Mapping) and value.keys() == {"between"}:
        return round(rng.uniform(*value["between"]), 3)
    if isinstance(value, Mapping) and value.keys() == {"one_of"}:
        return rng.choice(list(value["one_of"]))
    return value


def _steps(name: str, action: Mix | Each, strikes: Sequence[Strike]) -> list[Step]:
    """Strikes and heals in the order of time, each so long after the one before; a wait for whole ISRs after each heal that
    leaves nothing broken."""
    events = [(strike.begin_s, True, strike) for strike in strikes] + [
        (strike.end_s, False, strike) for strike in strikes
    ]
    events.sort(key=lambda event: (event[0], event[1], event[2].number))
    steps: list[Step] = []
    active, before_s = 0, 0.0
    for at_s, begins, strike in events:
        after = Elapsed(condition="elapsed", seconds=round(at_s - before_s, 3))
        if begins:
            steps.append(_strike(name, strike, after, may_miss=isinstance(action, Mix)))
        else:
            steps.append(_heal(name, strike, after))
        active, before_s = active + (1 if begins else -1), at_s
        if not active:
            whole = f"{name} {strike.number}: whole again"
            steps.append(Step(name=whole, after=IsrIs(condition="isr"), timeout_s=action.whole_s))
    return steps


def _title(name: str, strike: Strike) -> str:
    return f"{name} {strike.number}: {strike.fault.fault} {', '.join(strike.targets)}"


def _strike(name: str, strike: Strike, after: Elapsed, *, may_miss: bool) -> Step:
    action = FaultAction(
        kind="fault", fault=strike.fault.fault, targets=strike.targets, parameters=dict(strike.parameters)
    )
    return Step(name=_title(name, strike), after=after, do=action, may_miss=may_miss)


def _heal(name: str, strike: Strike, after: Elapsed) -> Step:
    heal = HealAction(kind="heal", step=_title(name, strike))
    return Step(name=f"{name} {strike.number}: over", after=after, do=heal)
