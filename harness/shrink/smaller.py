"""Plans with less in them: fewer cells, steps, clients, less waiting. Pure.

A plan is kept whole: partitions and cells are numbered through, so that what is left is numbered anew, and roles that name
a partition which is gone name one of the same placement, which lives through the same faults.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from harness.errors import BadInput
from harness.plan import Cell, Plan, PlannedClient
from harness.plan_checks import check_steps
from harness.schedule import Elapsed, FaultAction, HealAction, Step
from harness.schema import Role, role_named
from harness.targets import parse_target

SHORTEST_S = 0.25
"""Waiting is not made shorter than that."""
_SPARE = frozenset({Role.READER, Role.OBSERVER})


def valid(plan: Plan | None) -> Plan | None:
    """The plan, if it can be run at all."""
    if plan is None or not plan.cells:
        return None
    try:
        check_steps(plan)
    except BadInput:
        return None
    return plan


def with_cells(plan: Plan, kept: Collection[int]) -> Plan | None:
    """Only these cells, with their topics and clients. None if a step names a partition or cell that nothing left stands
    for."""
    cells = [cell for cell in plan.cells if cell.cell in kept]
    new_cell = {cell.cell: number for number, cell in enumerate(cells)}
    partitions = [p for p in plan.partitions if p.cell in new_cell]
    new_id = {p.partition: number for number, p in enumerate(partitions)}
    stands_for = _alike(plan, new_id)
    steps = [_step(step, plan, cells, stands_for, new_cell) for step in plan.steps]
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
            "steps": tuple(step for step in steps if step is not None),
            "controls": tuple(c.model_copy(update={"required": False}) for c in controls if c.cells),
        }
    )


def with_steps(plan: Plan, kept: Collection[int]) -> Plan:
    """Only the steps of these numbers; what would heal a step that is gone is left out too."""
    gone = {step.name for number, step in enumerate(plan.steps) if number not in kept}
    steps = (step for number, step in enumerate(plan.steps) if number in kept)
    return plan.model_copy(
        update={"steps": tuple(s for s in steps if not (isinstance(s.do, HealAction) and s.do.step in gone))}
    )


def spare_clients(plan: Plan) -> list[str]:
    """Names of clients without whom the others do the same: readers, observers, producers beside another of their kind."""
    return [c.name for c in plan.clients if role_named(c.role) in _SPARE or (c.number > 1)]


def without_clients(plan: Plan, gone: Collection[str]) -> Plan:
    """Without the clients of these names."""
    left = [client for client in plan.clients if client.name not in gone]
    return plan.model_copy(
        update={"clients": tuple(client.model_copy(update={"client": n}) for n, client in enumerate(left))}
    )


def waits(plan: Plan) -> list[int]:
    """Numbers of the steps that wait for a time which can be halved; -1: the end."""
    found = [n for n, step in enumerate(plan.steps) if _waited_s(step) >= 2 * SHORTEST_S]
    return [*found, *([-1] if plan.settle_s >= 2 * SHORTEST_S else [])]


def halved(plan: Plan, numbers: Collection[int]) -> Plan:
    """Half the waiting of these steps."""
    steps = tuple(_halved(step) if number in numbers else step for number, step in enumerate(plan.steps))
    settle_s = plan.settle_s / 2 if -1 in numbers else plan.settle_s
    return plan.model_copy(update={"steps": steps, "settle_s": settle_s})


def size(plan: Plan) -> dict[str, float]:
    """What there is less of: for a person."""
    return {
        "cells": len(plan.cells),
        "partitions": len(plan.partitions),
        "clients": len(plan.clients),
        "steps": len(plan.steps),
        "seconds of waiting": round(sum(map(_waited_s, plan.steps)) + plan.settle_s, 2),
    }


# --- parts ----------------------------------------------------------------------------------------------------------

_LOST = Step(name="names something that nothing stands for")


def _alike(plan: Plan, new_id: Mapping[int, int]) -> dict[int, int]:
    """Old partition → the new number of it, or of the first that is placed alike."""
    first: dict[tuple[int, ...], int] = {}
    for p in plan.partitions:
        if p.partition in new_id:
            first.setdefault(p.assignment, new_id[p.partition])
    every = {p.partition: new_id.get(p.partition, first.get(p.assignment)) for p in plan.partitions}
    return {old: new for old, new in every.items() if new is not None}


def _step(
    step: Step, plan: Plan, cells: Collection[Cell], partitions: Mapping[int, int], new_cell: Mapping[int, int]
) -> Step | None:
    """The step for the cells that are left: without a wait or a deed that is about others alone, None if there is no more to
    it; _LOST if it cannot be said any more."""
    kept = {cell.cell for cell in cells}
    of_others = {
        name: None
        for name in ("after", "do")
        if (selector := getattr(getattr(step, name), "cells", None))
        and not kept & {cell.cell for cell in plan.cells_matching(selector)}
    }
    if of_others:
        step = step.model_copy(update=of_others)
        if step.after is None and step.do is None and step.at_s is None:
            return None
    changes: dict[str, Any] = {}
    if (number := getattr(step.after, "partition", None)) is not None:
        if number not in partitions:
            return _LOST
        changes["after"] = step.after.model_copy(update={"partition": partitions[number]})  # type: ignore[union-attr]
    if isinstance(step.do, FaultAction):
        targets = [_target(text, partitions, new_cell) for text in step.do.targets]
        if None in targets:
            return _LOST
        changes["do"] = step.do.model_copy(update={"targets": tuple(targets)})
    return step.model_copy(update=changes) if changes else step


def _target(text: str, partitions: Mapping[int, int], cells: Mapping[int, int]) -> str | None:
    """The same role, with the new number of what it names."""
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
