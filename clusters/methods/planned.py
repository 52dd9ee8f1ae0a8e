"""Refuses a plan whose steps name methods or exceptions that the servers' version of Kafka does not have.

It is asked when a trial is planned, for versions whose jars are in the cache, and again before the cluster starts.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from prozess.clusters.install.jars import cached_jars
from prozess.clusters.methods.class_files import KafkaClasses
from prozess.harness.config.methods import MethodMatch, PauseCall, ThrowFromCall
from prozess.harness.errors import BadInput
from prozess.harness.plan.checks import check_parameters, versions_installed
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.schedule import METHOD_FAULT, FaultAction, Step, parse_target


def refuse_missing_methods(plan: Plan, *, jars_of: Callable[[str], Sequence[Path]] = cached_jars) -> None:
    """Raises BadInput for the first step about a method that a version does not have which one of its targets may run.

    Versions without jars are not looked at. After a step that installs another version it is enough if one of them has it:
    the node itself is looked at when the fault strikes."""
    known: dict[str, KafkaClasses | None] = {}
    for number, step in enumerate(plan.steps if plan.backend == "local" else ()):  # others refuse the fault itself
        if not isinstance(step.do, FaultAction) or step.do.fault != METHOD_FAULT:
            continue
        versions = _versions(plan, step)
        later = versions_installed(plan.model_copy(update={"steps": plan.steps[:number]}))
        whys = []
        for version in dict.fromkeys((*versions, *later)):
            if version not in known:
                jars = jars_of(version)
                known[version] = KafkaClasses(version, jars) if jars else None
            classes = known[version]
            whys.append(None if classes is None else why_not_there(step.do, classes))
        refused = [why for why in whys if why is not None]
        if refused and (not later or len(refused) == len(whys)):
            raise BadInput(f"Step {step.name!r}: {refused[0]}")


def _versions(plan: Plan, step: Step) -> list[str]:
    """Returns the versions that the targets of a step may run."""
    assert isinstance(step.do, FaultAction), step
    variant = plan.variant
    names = set(variant.server_names().values())
    brokers = {name for name in names if name.startswith("broker")}
    controllers = {name for name in names if name.startswith("controller")} or brokers
    meant: set[str] = set()
    for text in step.do.targets:
        target = parse_target(text)
        of_controllers = target.role in ("controllers", "active-controller") or target.of == "controllers"
        if target.node is not None:
            meant |= {target.node} & names
        else:
            meant |= controllers if of_controllers else brokers
    return sorted({variant.version_of(name) for name in meant})


def why_not_there(action: FaultAction, classes: KafkaClasses) -> str | None:
    """Returns why a version cannot do what the fault asks, as a sentence; None if it can."""
    checked = dict(check_parameters(action.fault, action.parameters))
    match, done = checked["match"], checked["action"]
    assert isinstance(match, MethodMatch), match
    try:
        methods = classes.methods(match.name)
        if isinstance(done, PauseCall) and done.until is not None:
            classes.methods(done.until.name)
    except LookupError as error:
        return str(error.args[0])
    if isinstance(done, ThrowFromCall) and (why := classes.why_not_thrown(done.exception, methods)) is not None:
        return f"{why[0].upper() + why[1:] if why.startswith('neither') else why}."
    return None
