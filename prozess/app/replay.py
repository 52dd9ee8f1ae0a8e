"""Makes the plan that repeats an earlier run: with the same roles, or exactly, with the nodes that were hit then."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from prozess.harness.errors import BadInput
from prozess.harness.history.manifest import refuse_damaged
from prozess.harness.plan.plan import Plan, parse_plan
from prozess.harness.plan.schedule import FaultAction, Step, parse_target
from prozess.harness.run_directory import RunDirectory, read_document, read_resolved

Resolved = Sequence[Mapping[str, Any]]
"""Entries of resolved.json: step_number, role (or the name of a parameter), nodes, and the parameters as they were
used."""


def replay_plan(run: RunDirectory, *, exact: bool) -> Plan:
    """Returns the plan that repeats a run. `exact`: with the nodes that were hit then.

    BadInput if the run cannot be repeated, or for `exact` if no fault struck in it. HistoryUnreadable if its files are
    damaged.
    """
    refuse_damaged(run, run.plan, run.resolved)
    try:
        plan = parse_plan(read_document(run.plan), source=str(run.plan))
    except OSError as error:
        raise BadInput(f"{str(run.plan)!r} cannot be read: {error.strerror}. Give a run directory.") from error
    if plan.origin != "trial":
        raise BadInput(
            f"{run.name} is a history that was {plan.origin}: it can be checked, but not run again. "
            "Give a run of a trial."
        )
    if not exact:
        return plan.model_copy(update={"replays": run.name})
    if not run.resolved.exists():
        raise BadInput(f"{run.name} has no resolved.json, because no fault was made in it. Replay it without --exact.")
    return exact_replay(plan, read_resolved(run)).model_copy(update={"replays": f"{run.name}, exactly"})


def exact_replay(plan: Plan, resolved: Resolved) -> Plan:
    """Returns the plan with the nodes that were hit in place of roles, and the parameters that were used. A fault that
    did not strike then does not strike now."""
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
    # The entries also have the values that a seed drew. They are left out, because the seed, a parameter too, draws them
    # again.
    others = {name: nodes for name, nodes in of_roles.items() if name not in action.targets and name in used}
    parameters = action.parameters | others | used
    return step.model_copy(
        update={"do": action.model_copy(update={"targets": tuple(targets), "parameters": parameters})}
    )


def _exact_targets(role: str, of_roles: Mapping[str, Sequence[str]], clients: Collection[str]) -> list[str]:
    """Returns the nodes that a role meant in that run. `partition(…)` names exactly one thing already and stays."""
    if parse_target(role).role == "partition":
        return [role]
    return [f"client:{name}" if name in clients else f"node:{name}" for name in of_roles.get(role, ())] or [role]


def steps_not_struck(plan: Plan, exact: Plan) -> list[str]:
    """Returns the names of the steps whose faults an exact replay leaves out."""
    return [old.name for old, new in zip(plan.steps, exact.steps, strict=True) if old.do is not None and new.do is None]
