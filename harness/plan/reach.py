"""What carrying out a plan touches beyond a cluster of its own: other machines, programs, images, somebody's containers.

Whoever sends a run directory has written its plan. `prozess replay` carries out such a plan without a question only if it
stays on this machine and among what prozess starts, or if this machine's record says that it carried out this very plan
before (`harness/ledger.py`).
"""

from collections.abc import Iterator

from prozess.harness.errors import BadInput
from prozess.harness.ledger import is_ours
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory


def reaches(plan: Plan) -> list[str]:
    """Returns what carrying out a plan does beyond a cluster of its own, one clause each; empty if it is nothing."""
    found = []
    if plan.backend == "attach" and plan.attach is not None:
        found.append(
            f"connect to Kafka at {', '.join(map(ascii, plan.attach.bootstrap_servers))}, and log in there as you"
        )
    if plan.backend == "ssh" and plan.ssh is not None:
        hosts = ", ".join(ascii(node.host) for node in plan.ssh.nodes)
        asked = (plan.ssh.start, plan.ssh.stop, *(command for n in plan.ssh.nodes for command in (n.start, n.stop)))
        commands = dict.fromkeys(ascii(command) for command in asked if command is not None)
        found.append(f"log in to {hosts} by ssh, and run {', '.join(commands)} there")
    if plan.backend == "compose":
        if plan.compose.file is not None:
            found.append(f"start the containers of {str(plan.compose.file)!a}")
        images = (plan.compose.kafka_image, plan.compose.zookeeper_image)
        found += [f"start containers of the image {image!a}" for image in images if image is not None]
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
