"""Refuses a plan whose steps name methods or exceptions that the servers' version of Kafka does not have.

It is asked when a trial is planned, for versions whose jars are in the cache, and again before the cluster starts. Then
Byteman itself checks the rules, too.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

from prozess.clusters.install.kafka_jars import cached_extra, cached_jars, remote_store
from prozess.clusters.methods.class_files import KafkaClasses
from prozess.clusters.methods.rules import RuleFiles, rules_text
from prozess.harness.config.impairments import MethodRule
from prozess.harness.config.methods import MethodMatch, PauseCall, ThrowFromCall
from prozess.harness.errors import BadInput, MissingTool
from prozess.harness.plan.checks import check_parameters, versions_installed
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.schedule import FaultAction, Step, parse_target

CHECK_TIMEOUT_S = 120.0
_CHECKER, _NO_ERRORS = "org.jboss.byteman.check.TestScript", "TestScript: no errors"


JarsOf = Callable[[str], Sequence[Path]]
"""A version → its jars that are in the cache."""


def cached_plugin(version: str) -> Sequence[Path]:
    """Returns the jar of a version's remote store, if it is in the cache; else none."""
    plugin = cached_extra(remote_store(version))
    return () if plugin is None else (plugin,)


def refuse_missing_methods(plan: Plan, *, jars_of: JarsOf = cached_jars, plugin_of: JarsOf = cached_plugin) -> None:
    """Raises BadInput for the first step about a method that a version does not have which one of its targets may run.

    Versions without jars are not looked at. After a step that installs another version it is enough if one of them has it:
    the node itself is looked at when the fault strikes."""
    found = partial(_with_plugin, plan, jars_of=jars_of, plugin_of=plugin_of)
    classes_of = cache(lambda version: KafkaClasses(version, jars) if (jars := found(version)) else None)
    for step in plan.method_steps:
        assert isinstance(step.do, FaultAction), step
        versions, later = _versions(plan, step), _installed_before(plan, step)
        known = [classes_of(version) for version in dict.fromkeys((*versions, *later))]
        whys = [None if classes is None else why_not_there(step.do, classes) for classes in known]
        refused = [why for why in whys if why is not None]
        if refused and (not later or len(refused) == len(whys)):
            raise BadInput(f"Step {step.name!r}: {refused[0]}")


def _with_plugin(
    plan: Plan, version: str, *, jars_of: JarsOf = cached_jars, plugin_of: JarsOf = cached_plugin
) -> Sequence[Path]:
    """Returns the jars of a version and, with tiered storage, that of the remote store, whose methods can be named, too. No
    jars if one of them is not in the cache."""
    jars = jars_of(version)
    if not plan.variant.tiered_storage or not jars:
        return jars
    plugin = plugin_of(version)
    return [*jars, *plugin] if plugin else ()


def _installed_before(plan: Plan, step: Step) -> tuple[str, ...]:
    """Returns the versions that earlier steps install."""
    return versions_installed(plan.model_copy(update={"steps": plan.steps[: plan.steps.index(step)]}))


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
        return f"{why}."
    return None


def refuse_bad_rules(
    plan: Plan, *, agent: Path, java: Path, jars_of: Callable[[str], Sequence[Path]] = cached_jars
) -> None:
    """Raises BadInput if Byteman's own checker does not take the rules of a step, with its words. It reads the classes of the
    version, and runs nothing of them (about a second for each version).

    MissingTool if the checker cannot be run."""
    rules: dict[str, list[tuple[Step, str]]] = {}
    with tempfile.TemporaryDirectory(prefix="prozess-rules-") as directory:
        for number, step in enumerate(plan.method_steps):
            for version in dict.fromkeys((*_versions(plan, step), *_installed_before(plan, step))):
                classes = KafkaClasses(version, _with_plugin(plan, version, jars_of=jars_of))
                if text := _text_of(plan, step, classes, Path(directory)):
                    script = Path(directory) / f"{number}-{version}.btm"
                    script.write_text(text, encoding="utf-8")
                    rules.setdefault(version, []).append((step, str(script)))
        for version, made in rules.items():
            complaint = _checked(
                [str(script) for _, script in made], [agent, *_with_plugin(plan, version, jars_of=jars_of)], java
            )
            if _NO_ERRORS not in complaint:
                step = next((step for step, script in made if script in complaint), made[0][0])
                raise BadInput(
                    f"Step {step.name!r}: Byteman does not take its rule for Kafka {version}: {_summarised(complaint)}"
                )


def _text_of(plan: Plan, step: Step, classes: KafkaClasses, directory: Path) -> str:
    """The rules of a step; "" if the version has not what they name, which another version of the cluster has."""
    assert isinstance(step.do, FaultAction), step
    checked = dict(check_parameters(step.do.fault, step.do.parameters))
    rule = MethodRule.of(step.name, checked["match"], checked["action"], plan.names.partitions)
    try:
        return rules_text(rule, RuleFiles(directory, rule.rule), classes)
    except LookupError:
        return ""


def _checked(scripts: Sequence[str], jars: Sequence[Path], java: Path) -> str:
    command = [
        str(java),
        "-Xmx128m",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        os.pathsep.join(map(str, jars)),
        _CHECKER,
        *scripts,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise MissingTool(f"Byteman could not check the rules of this trial: {error}.") from error
    return done.stdout + done.stderr


def _summarised(text: str) -> str:
    """What the checker says of the first mistake."""
    lines = text.splitlines()
    found = next((line for line in lines if "Exception: " in line), None) or next(
        (line for line in lines if line.startswith("ERROR")), "it gave no reason."
    )
    return found.partition("Exception: ")[2] or found
