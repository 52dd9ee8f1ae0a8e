"""Running a run again, from its own files. As it was planned, roles resolved anew; or exactly: whoever was hit is hit again.

Pure but for reading `plan.json` and `resolved.json`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from harness.errors import BadInput
from harness.plan import Plan, parse_plan
from harness.run_directory import RunDirectory, read_json
from harness.schedule import FaultAction, Step
from harness.targets import parse_target

Resolved = Sequence[Mapping[str, Any]]
"""Entries of resolved.json: step_number, role (or the name of a parameter), nodes, and the parameters as they were used."""


def replay_plan(run: RunDirectory, *, exact: bool) -> Plan:
    """The plan to repeat a run with. BadInput if it cannot be run again, or for `exact` if no fault ever struck."""
    try:
        plan = parse_plan(run.plan.read_text(encoding="utf-8"), source=str(run.plan))
    except OSError as error:
        raise BadInput(f"{str(run.plan)!r} cannot be read: {error.strerror}. Give a run directory.") from error
    if plan.origin != "trial":
        raise BadInput(
            f"{run.path.name} is a history that is {plan.origin}: it can be checked, but not run again. "
            "Replay a run of a trial."
        )
    if not exact:
        return plan.model_copy(update={"replays": run.path.name})
    if not run.resolved.exists():
        raise BadInput(f"{run.path.name} has no resolved.json: no fault struck in it. Replay it without --exact.")
    return exactly(plan, read_json(run.resolved)).model_copy(update={"replays": f"{run.path.name}, exactly"})


def exactly(plan: Plan, resolved: Resolved) -> Plan:
    """The plan with the nodes that were hit in the place of roles, and the parameters that were used. A fault that did not
    strike then does not strike now."""
    clients = {client.name for client in plan.clients}
    steps = tuple(
        _exact_step(step, [entry for entry in resolved if entry["step_number"] == number], clients)
        for number, step in enumerate(plan.steps)
    )
    return plan.model_copy(update={"steps": steps})


def _exact_step(step: Step, entries: Resolved, clients: Collection[str]) -> Step:
    action = step.do
    if not isinstance(action, FaultAction):
        return step
    if not entries:
        return step.model_copy(update={"do": None})
    of_roles = {entry["role"]: entry["nodes"] for entry in entries}
    targets = dict.fromkeys(text for role in action.targets for text in _exact_targets(role, of_roles, clients))
    used = entries[0].get("parameters") or {}
    # Beside roles and parameters there is what a seed drew, which the seed, a parameter too, draws again.
    others = {name: nodes for name, nodes in of_roles.items() if name not in action.targets and name in used}
    parameters = action.parameters | others | used
    return step.model_copy(
        update={"do": action.model_copy(update={"targets": tuple(targets), "parameters": parameters})}
    )


def _exact_targets(role: str, of_roles: Mapping[str, Sequence[str]], clients: Collection[str]) -> list[str]:
    """A partition is one already; of everything else, the nodes that it was."""
    if parse_target(role).role == "partition":
        return [role]
    return [f"client:{name}" if name in clients else f"node:{name}" for name in of_roles.get(role, ())] or [role]


def not_struck(plan: Plan, exact: Plan) -> list[str]:
    """Names of the steps whose faults an exact replay leaves out."""
    return [old.name for old, new in zip(plan.steps, exact.steps, strict=True) if old.do is not None and new.do is None]
