"""What carrying out a plan touches beyond a cluster of its own: other machines, programs, images, somebody's containers.

Anyone who sends a run directory has written its plan. `prozess replay` carries out such a plan without a question only if it
stays on this machine and among what prozess starts, or if this machine's record says that it carried out this very plan
before (`harness/machine_record.py`).
"""

from collections.abc import Iterator

from prozess.harness.errors import BadInput
from prozess.harness.machine_record import is_ours
from prozess.harness.plan import catalogue
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory


def reaches(plan: Plan) -> list[str]:
    """Returns what carrying out a plan does beyond a cluster of its own, one clause each; empty if it is nothing."""
    backend = catalogue.BACKENDS.get(plan.backend)
    found = [] if backend is None else list(backend.reaches(plan))
    found += dict.fromkeys(f"run the program {command!a}" for command in _commands(plan.model_dump()))
    return found


def _commands(value: object) -> Iterator[str]:
    """Yields the command lines of clients and applications, wherever in a plan they are."""
    if isinstance(value, dict):
        command = value.get("command")
        if isinstance(command, list | tuple) and command:
            yield " ".join(map(str, command))
        for inner in value.values():
            yield from _commands(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _commands(inner)


def strangers_reach(run: RunDirectory, plan: Plan) -> str:
    """Returns what a plan would do beyond a cluster of its own, as a clause; "" if it is nothing, or if it is ours."""
    would = reaches(plan)
    return "" if not would or is_ours(run) else "; ".join(would)


def refuse_strangers_plan(run: RunDirectory, plan: Plan, *, trust: bool) -> None:
    """Raises BadInput if this machine did not carry out the plan, and it would reach beyond a cluster of its own.

    `trust`: whether somebody has read what it would do, and wants it."""
    if trust or not (would := strangers_reach(run, plan)):
        return
    raise BadInput(
        f"{str(run.path)!r}: this machine has no record that it made this run. Somebody may have sent or changed it, and "
        f"carrying out its plan would {would}. If you want all of that, give --trust."
    )
