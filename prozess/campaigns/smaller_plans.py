"""Searches for a smaller plan: it leaves out cells, steps, clients and waiting, until nothing more can be left out."""

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from prozess.harness.config.messages.match import MessageMatch
from prozess.harness.errors import BadInput
from prozess.harness.plan.checks import check_steps
from prozess.harness.plan.expectations import (
    ControllerExpected,
    EndsExpected,
    Expectation,
    IsrExpected,
    LeaderExpected,
    MessageExpected,
    RemovedExpected,
    Selector,
    SendsExpected,
    steps_named,
)
from prozess.harness.plan.plan import Cell, Plan, PlannedClient
from prozess.harness.plan.schedule import (
    MESSAGE_FAULT,
    Elapsed,
    FaultAction,
    HealAction,
    MessagePassed,
    Step,
    parse_target,
)
from prozess.harness.schema import Role, role_named

StillFails = Callable[[Plan, str], bool]
"""(candidate, what was left out) → whether it still fails."""
HALVINGS_MAX = 6


def shrink(plan: Plan, still_fails: StillFails, targets: Collection[int]) -> Iterator[Plan]:
    """Yields smaller and smaller plans that fail. No pass makes the last one smaller.

    `targets`: cells of `plan` in which the violation may come back; one of them is enough.
    """
    before: Plan | None = None
    for smaller in _cells(plan, still_fails, targets):
        plan = smaller
        yield plan
    while plan != before:
        before = plan
        for of in (_steps, _clients, _durations):
            smaller = of(plan, still_fails)
            if smaller != plan:
                plan = smaller
                yield plan


def _cells(plan: Plan, still_fails: StillFails, targets: Collection[int]) -> Iterator[Plan]:
    """Yields the plan with one cell alone if that is enough; else with as few as it takes."""
    every = [cell.cell for cell in plan.cells]
    if len(every) < 2:
        return
    for alone in list(targets)[:3]:
        made = valid_plan(with_cells(plan, {alone}))
        if made is not None and still_fails(made, f"1 of {len(every)} cells"):
            yield made
            return

    def fails(kept: tuple[int, ...]) -> bool:
        made = valid_plan(with_cells(plan, kept))
        return made is not None and still_fails(made, f"{len(kept)} of {len(every)} cells")

    kept = ddmin(every, fails)
    if len(kept) < len(every):
        made = with_cells(plan, kept)
        assert made is not None, kept
        yield made


def _steps(plan: Plan, still_fails: StillFails) -> Plan:
    every = tuple(range(len(plan.steps)))

    def fails(kept: tuple[int, ...]) -> bool:
        made = valid_plan(with_steps(plan, kept))
        return made is not None and still_fails(made, f"{len(made.steps)} of {len(every)} steps")

    return with_steps(plan, ddmin(every, fails))


def _clients(plan: Plan, still_fails: StillFails) -> Plan:
    spare = spare_clients(plan)

    def fails(kept: tuple[str, ...]) -> bool:
        made = valid_plan(without_clients(plan, set(spare) - set(kept)))
        return made is not None and still_fails(made, f"{len(kept)} of {len(spare)} spare clients")

    needed = ddmin(spare, fails)
    return without_clients(plan, set(spare) - set(needed)) if spare else plan


def _durations(plan: Plan, still_fails: StillFails) -> Plan:
    """Halves all waiting as often as the plan still fails; then each wait by itself."""
    for _ in range(HALVINGS_MAX):
        numbers = steps_to_halve(plan)
        if not numbers or not still_fails(made := with_half_waits(plan, numbers), "all waiting halved"):
            break
        plan = made
    for number in steps_to_halve(plan):
        for _ in range(HALVINGS_MAX):
            if number not in steps_to_halve(plan) or not still_fails(
                made := with_half_waits(plan, [number]), "one wait halved"
            ):
                break
            plan = made
    return plan


T = TypeVar("T")


def ddmin(items: Sequence[T], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Returns a part of `items`, in their order, that fails, and of which no single item can be left out (delta
    debugging).

    This holds if `fails` always says the same. `items` as a whole is known to fail and is not asked again; the empty
    part is asked last. [Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, IEEE TSE 28(2), 2002]
    """
    left, pieces = tuple(items), 2
    while len(left) >= 2:
        cut = _cut(left, pieces)
        found = next((part for part in cut if fails(part)), None)
        if found is not None:
            left, pieces = found, 2
            continue
        # For two halves each is the other's complement.
        complements = [_without(cut, index) for index in range(len(cut))] if len(cut) > 2 else []
        found = next((part for part in complements if fails(part)), None)
        if found is not None:
            left, pieces = found, max(2, len(cut) - 1)
        elif len(cut) == len(left):
            break
        else:
            pieces = min(len(left), 2 * len(cut))
    return () if len(left) == 1 and fails(()) else left


def _cut(items: tuple[T, ...], pieces: int) -> list[tuple[T, ...]]:
    """Cuts items into so many parts of nearly the same length, none of them empty."""
    ends = [len(items) * number // pieces for number in range(pieces + 1)]
    return [items[a:b] for a, b in pairwise(ends) if b > a]


def _without(parts: Sequence[tuple[T, ...]], index: int) -> tuple[T, ...]:
    return tuple(item for number, part in enumerate(parts) if number != index for item in part)


# Plans with less in them. Partitions and cells are numbered anew, and a role that names a partition which is gone names one
# with the same placement, which lives through the same faults.

SHORTEST_S = 0.25
"""Waiting is not made shorter than this."""
_SPARE = frozenset({Role.READER, Role.OBSERVER})


def valid_plan(plan: Plan | None) -> Plan | None:
    """Returns the plan if it can be run, else None."""
    if plan is None or not plan.cells:
        return None
    try:
        check_steps(plan)
    except BadInput:
        return None
    return plan


def with_cells(plan: Plan, kept: Collection[int]) -> Plan | None:
    """Returns a plan with these cells only, with their topics and clients. None if a step names a partition or cell
    that nothing left stands for."""
    cells = [cell for cell in plan.cells if cell.cell in kept]
    new_cell = {cell.cell: number for number, cell in enumerate(cells)}
    partitions = [p for p in plan.partitions if p.cell in new_cell]
    new_id = {p.partition: number for number, p in enumerate(partitions)}
    left = _Left(plan, cells, new_id, _alike(plan, new_id), new_cell)
    steps = [_step(step, left) for step in plan.steps]
    if any(step is _LOST for step in steps):
        return None
    clients = [c for client in plan.clients if (c := _client(client, new_id, new_cell)) is not None]
    controls = [c.model_copy(update={"cells": _renamed(c.cells, new_cell)}) for c in plan.controls]
    return plan.model_copy(
        update={
            "cells": tuple(_cell(cell, new_id, new_cell) for cell in cells),
            "partitions": tuple(
                p.model_copy(update={"partition": new_id[p.partition], "cell": new_cell[p.cell]}) for p in partitions
            ),
            "clients": tuple(client.model_copy(update={"client": number}) for number, client in enumerate(clients)),
            "steps": _among_themselves([step for step in steps if step is not None]),
            "controls": tuple(c.model_copy(update={"required": False}) for c in controls if c.cells),
        }
    )


def with_steps(plan: Plan, kept: Collection[int]) -> Plan:
    """Returns a plan with these steps only. A step that would heal one that is gone is left out, too, and so is what others
    expect before or after one that is gone."""
    steps = [step for number, step in enumerate(plan.steps) if number in kept]
    return plan.model_copy(update={"steps": _among_themselves(steps)})


def _among_themselves(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Returns the steps without what refers to steps that are not among them."""
    faults = {None, *(step.name for step in steps if isinstance(step.do, FaultAction))}
    left = [step for step in steps if not isinstance(step.do, HealAction) or step.do.step in faults]
    names = {step.name for step in left}
    return tuple(_expecting(step, [e for e in step.expect if names.issuperset(steps_named(e))]) for step in left)


def _expecting(step: Step, expectations: Collection[Expectation]) -> Step:
    same = len(expectations) == len(step.expect) and all(map(operator.is_, expectations, step.expect))
    return step if same else step.model_copy(update={"expect": tuple(expectations)})


def spare_clients(plan: Plan) -> list[str]:
    """Returns the names of clients that the others do not need: readers, observers, and further producers of the same
    kind."""
    return [c.name for c in plan.clients if role_named(c.role) in _SPARE or (c.number > 1)]


def without_clients(plan: Plan, gone: Collection[str]) -> Plan:
    """Returns a plan without the clients of these names."""
    left = [client for client in plan.clients if client.name not in gone]
    return plan.model_copy(
        update={"clients": tuple(client.model_copy(update={"client": n}) for n, client in enumerate(left))}
    )


def steps_to_halve(plan: Plan) -> list[int]:
    """Returns the numbers of the steps that wait for a time which can be halved; -1 stands for the end."""
    found = [n for n, step in enumerate(plan.steps) if _waited_s(step) >= 2 * SHORTEST_S]
    return [*found, *([-1] if plan.settle_s >= 2 * SHORTEST_S else [])]


def with_half_waits(plan: Plan, numbers: Collection[int]) -> Plan:
    """Returns a plan with half the waiting in these steps."""
    steps = tuple(_halved(step) if number in numbers else step for number, step in enumerate(plan.steps))
    settle_s = plan.settle_s / 2 if -1 in numbers else plan.settle_s
    return plan.model_copy(update={"steps": steps, "settle_s": settle_s})


def size_in_words(plan: Plan) -> dict[str, float]:
    """Returns the size of a plan in words: cells, steps, clients and seconds."""
    return {
        "cells": len(plan.cells),
        "partitions": len(plan.partitions),
        "clients": len(plan.clients),
        "steps": len(plan.steps),
        "seconds of waiting": round(sum(map(_waited_s, plan.steps)) + plan.settle_s, 2),
    }


_LOST = Step(name="names something that nothing stands for")


def _alike(plan: Plan, new_id: Mapping[int, int]) -> dict[int, int]:
    """Returns old partition → its new number, or that of the first one that is placed alike."""
    first: dict[tuple[int, ...], int] = {}
    for p in plan.partitions:
        if p.partition in new_id:
            first.setdefault(p.assignment, new_id[p.partition])
    every = {p.partition: new_id.get(p.partition, first.get(p.assignment)) for p in plan.partitions}
    return {old: new for old, new in every.items() if new is not None}


@dataclass(frozen=True, slots=True)
class _Left:
    """The remaining partitions and cells of a plan, by their old numbers."""

    plan: Plan
    cells: Collection[Cell]
    partitions: Mapping[int, int]
    """Old partition → its new number."""
    alike: Mapping[int, int]
    """Old partition → its new number, or that of one which is placed alike."""
    numbers: Mapping[int, int]
    """Old cell → its new number."""

    def matched(self, selector: Selector) -> bool:
        """Whether a cell is left that the selector means."""
        return not {cell.cell for cell in self.cells}.isdisjoint(c.cell for c in self.plan.cells_matching(selector))


def _step(step: Step, left: _Left) -> Step | None:
    """Returns the step for the cells that are left; None if nothing is left of it; _LOST if it names something that is
    gone."""
    of_others = {
        name: None
        for name in ("after", "do")
        if ((selector := getattr(getattr(step, name), "cells", None)) and not left.matched(selector))
        or _of_gone_messages(getattr(step, name), left)
    }
    if of_others:
        step = step.model_copy(update=of_others)
        if step.after is None and step.do is None and step.at_s is None:
            return None
    changes: dict[str, Any] = {}
    if (number := getattr(step.after, "partition", None)) is not None:
        if number not in left.alike:
            return _LOST
        changes["after"] = step.after.model_copy(update={"partition": left.alike[number]})  # type: ignore[union-attr]
    if isinstance(step.after, MessagePassed):
        match = _match(step.after.match.model_dump(exclude_none=True), left)
        changes["after"] = step.after.model_copy(update={"match": MessageMatch.model_validate(match)})
    if isinstance(step.do, FaultAction):
        targets = [_target(text, left.alike, left.numbers) for text in step.do.targets]
        if None in targets:
            return _LOST
        changes["do"] = step.do.model_copy(update={"targets": tuple(targets)})
        if step.do.fault == MESSAGE_FAULT:
            changes["do"] = changes["do"].model_copy(update={"parameters": _of_messages(step.do.parameters, left)})
    step = step.model_copy(update=changes) if changes else step
    expectations = [e for one in step.expect if (e := _expectation(one, step, left)) is not None]
    return _expecting(step, expectations)


def _of_gone_messages(part: object, left: _Left) -> bool:
    """Whether a condition, or a fault, is about messages of a partition or a cell that is gone. Those of another one, even
    if it is placed alike, are others."""
    if isinstance(part, MessagePassed):
        return _match(part.match.model_dump(exclude_none=True), left) is None
    if isinstance(part, FaultAction) and part.fault == MESSAGE_FAULT:
        return _of_messages(part.parameters, left) is None
    return False


def _is_about_messages(step: Step) -> bool:
    of_fault = isinstance(step.do, FaultAction) and step.do.fault == MESSAGE_FAULT
    return of_fault or isinstance(step.after, MessagePassed)


def _of_messages(parameters: Mapping[str, Any], left: _Left) -> dict[str, Any] | None:
    """Returns the parameters of a fault of messages with new numbers; None if they name what is gone."""
    made = dict(parameters)
    if "match" in made:
        made["match"] = _match(made["match"], left)
    if "until" in (action := made.get("action", {})):
        made["action"] = {**action, "until": _match(action["until"], left)}
    gone = made.get("match", made) is None or made.get("action", {}).get("until", made) is None
    return None if gone else made


def _match(match: Mapping[str, Any], left: _Left) -> dict[str, Any] | None:
    """Returns a match of messages with the new numbers of the partition and the cells that it names; None if one is gone."""
    made = dict(match)
    for name, numbers in (("partition", left.partitions), ("group", left.numbers), ("transactional_id", left.numbers)):
        if isinstance(made.get(name), int):
            made[name] = numbers.get(made[name])
            if made[name] is None:
                return None
    return made


def _expectation(expectation: Expectation, step: Step, left: _Left) -> Expectation | None:
    """Returns what is expected, with new numbers; None if it is expected of what is gone."""
    changes: dict[str, Any] = {}
    match expectation:
        case MessageExpected() if not _is_about_messages(step):
            return None
        case ControllerExpected():
            return expectation
        case SendsExpected() | EndsExpected() | RemovedExpected():
            return expectation if left.matched(expectation.cells) else None
        case LeaderExpected(of=str() as of):
            changes["of"] = _target(of, left.alike, left.numbers)
        case LeaderExpected(of=int() as of):
            changes["of"] = left.alike.get(of)
        case IsrExpected(partition=partition):
            changes["partition"] = left.alike.get(partition)
        case MessageExpected(partition=None):
            return expectation
        case _:  # the step changed this very log
            assert not isinstance(expectation, LeaderExpected), "it is of a text or a number"
            changes["partition"] = None if expectation.partition is None else left.partitions.get(expectation.partition)
    return None if None in changes.values() else expectation.model_copy(update=changes)


def _target(text: str, partitions: Mapping[int, int], cells: Mapping[int, int]) -> str | None:
    """Returns the same role, with the new number of the partition or cell that it names."""
    target = parse_target(text)
    number, names = (target.partition, partitions) if target.partition is not None else (target.cell, cells)
    if number is None:
        return text
    if number not in names:
        return None
    return re.sub(r"\((\d+)", f"({names[number]}", text, count=1)


def _client(client: PlannedClient, new_id: Mapping[int, int], new_cell: Mapping[int, int]) -> PlannedClient | None:
    if client.cell is not None and client.cell not in new_cell:
        return None
    partitions = _renamed(client.partitions, new_id)
    if client.partitions and not partitions:
        return None
    cell = None if client.cell is None else new_cell[client.cell]
    return client.model_copy(update={"partitions": partitions, "cell": cell})


def _cell(cell: Cell, new_id: Mapping[int, int], new_cell: Mapping[int, int]) -> Cell:
    return cell.model_copy(
        update={
            "cell": new_cell[cell.cell],
            "partitions": _renamed(cell.partitions, new_id),
            "late_partitions": _renamed(cell.late_partitions, new_id),
            "derived": _renamed(cell.derived, new_id),
        }
    )


def _renamed(numbers: Collection[int], names: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(names[number] for number in numbers if number in names)


def _waited_s(step: Step) -> float:
    if isinstance(step.after, Elapsed) and isinstance(step.after.seconds, int | float):
        return float(step.after.seconds)
    return 0.0


def _halved(step: Step) -> Step:
    seconds = round(_waited_s(step) / 2, 3)
    return step.model_copy(update={"after": Elapsed(condition="elapsed", seconds=seconds)})
