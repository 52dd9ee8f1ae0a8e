"""Trial files: prozess finds them by name, reads them as TOML, and makes each a `Trial`.

A bad file is one `BadInput`, which names the value, the rule and the way out.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from prozess.harness import inputs, installation
from prozess.harness.config.known_properties import misspelt
from prozess.harness.errors import BadInput
from prozess.harness.plan import catalogue
from prozess.harness.plan.alerts import check_alerts
from prozess.harness.plan.axes import SCOPES
from prozess.harness.plan.mistakes import (
    SHOWN_MAX,
    annotations_at,
    explain,
    explain_truth,
    innermost,
    truths_for_numbers,
    written,
)
from prozess.harness.plan.schedule import Each, FaultAction, Mix, Step
from prozess.harness.plan.trial import Trial, WorkloadSpec
from prozess.harness.plan.workloads.registry import KINDS
from prozess.harness.suggestions import did_you_mean
from prozess.harness.verdict import SERVER_ERRORS

_OF_WORKLOAD = tuple(key for key in WorkloadSpec.model_fields if key != "kind")
_OF_FILE = (*(key for key in Trial.model_fields if key != "workloads"), "workload", *_OF_WORKLOAD)


MATRIX = "matrix-"
"""How the names of matrix files in the trials' directory begin. Each makes many trials."""
CAMPAIGNS = "campaigns"
"""The folder of campaigns in the trials' directory."""
MUSEUM = "museum"
"""The folder of trials that show known defects, a file each."""


def trial_directories() -> tuple[Path, ...]:
    """Returns the directories with the trials that come with prozess: `trials/` of the checkout, or its copy in the wheel."""
    directory = installation.folder("trials")
    return () if directory is None else (directory,)


def known_trials() -> dict[str, Path]:
    """Returns the name and the file of every trial that comes with prozess."""
    return {name: path for name, path in _files("*.toml").items() if not name.startswith(MATRIX)}


def known_matrices() -> dict[str, Path]:
    """Returns the name and the file of every matrix that comes with prozess."""
    return _files(f"{MATRIX}*.toml")


def known_campaigns() -> dict[str, Path]:
    """Returns the name and the file of every campaign that comes with prozess."""
    return _files(f"{CAMPAIGNS}/*.toml")


def known_exhibits() -> dict[str, Path]:
    """Returns the name and the file of every trial of the museum."""
    return _files(f"{MUSEUM}/*.toml")


def _files(pattern: str) -> dict[str, Path]:
    """Returns name → file of what the trials' directories have under a pattern. The first directory wins."""
    return {p.stem: p for directory in reversed(trial_directories()) for p in sorted(directory.glob(pattern))}


def load_trial(name_or_path: str, overrides: dict[str, Any] | None = None) -> Trial:
    """Returns the trial of that name, or in that file. `overrides`: dotted key → value, which replace what the file
    says before it is validated."""
    is_file = name_or_path.endswith(".toml") or "/" in name_or_path
    path = Path(name_or_path) if is_file else _file_of(name_or_path)
    document = _document_in(path)
    _settle_compose_file(document, path.parent)
    for key, value in (overrides or {}).items():
        lay_over(document, key, value)
    _settle_compose_file(document, Path.cwd())
    if "variant.metadata_mode" in (overrides or {}):
        _carry_sessions(document["variant"])
    return parse_trial(document, source=str(path))


def _file_of(name: str) -> Path:
    trials, exhibits = known_trials(), known_exhibits()
    if (path := trials.get(name) or exhibits.get(name)) is not None:
        return path
    if name in known_matrices():
        raise BadInput(_a_matrix(name))
    if name in known_campaigns():
        raise BadInput(_a_campaign(name))
    hint = did_you_mean(name, (*trials, *exhibits), otherwise="give one of these, or the path of a .toml file")
    raise BadInput(f"There is no trial {name!r}; {hint} Known: {', '.join(sorted(trials))}.")


def _document_in(path: Path) -> dict[str, Any]:
    document = inputs.read_toml(path, "Trial")
    if "matrix" in document:
        raise BadInput(_a_matrix(str(path)))
    if "entries" in document:
        raise BadInput(_a_campaign(str(path)))
    return document


def _a_matrix(name: str) -> str:
    return f"{name!r} is a matrix of many trials: `prozess matrix {name}`."


def _a_campaign(name: str) -> str:
    return f"{name!r} is a campaign of many trials: say for how long, `prozess run {name} --for 8h`, or --rounds 1."


def _settle_compose_file(document: dict[str, Any], base: Path) -> None:
    """Makes the path of a Compose file absolute, because a plan can be run from anywhere. A path in a trial file is
    relative to the file, and one on the command line to the present directory."""
    compose = document.get("compose")
    if isinstance(compose, dict) and isinstance(compose.get("file"), str):
        compose["file"] = str((base / compose["file"]).resolve())


def _carry_sessions(variant: dict[str, Any]) -> None:
    """Keeps the length of the brokers' sessions when a trial is put on another metadata mode, under the property name
    that it has there."""
    kraft, zookeeper = "broker.session.timeout.ms", "zookeeper.session.timeout.ms"
    has, wants = (kraft, zookeeper) if variant.get("metadata_mode") == "zookeeper" else (zookeeper, kraft)
    properties = variant.get("properties")
    if isinstance(properties, dict) and has in properties:
        length = properties.pop(has)
        properties.setdefault(wants, length)


def parse_trial(document: dict[str, Any], *, source: str) -> Trial:
    """Makes a trial from a parsed document. BadInput names the first wrong keys, what they must be, and near misses."""
    single, whole = "workloads" not in document, _with_workloads(document, source)
    for path, value in truths_for_numbers(Trial, whole):
        raise BadInput(f"{source}: {explain_truth(path[2:] if single and path[0] == 'workloads' else path, value)}")
    try:
        trial = Trial.model_validate(whole)
    except ValidationError as error:
        raise BadInput(f"{source}: {_explain(error.errors(), whole, single=single)}") from error
    _check_names(trial, source)
    return trial


def _with_workloads(document: dict[str, Any], source: str) -> dict[str, Any]:
    """Returns the document with its only workload moved under `workloads`, if it was written at the top level."""
    mine = [key for key in ("workload", *_OF_WORKLOAD) if key in document]
    if "workloads" in document:
        if mine:
            raise BadInput(
                f"{source}: {', '.join(mine)} at the top level and [[workloads]] cannot go together; "
                "put them under one of the workloads."
            )
        return document
    only = {key: document[key] for key in mine if key != "workload"} | {"kind": document.get("workload", "log")}
    return {key: value for key, value in document.items() if key not in mine} | {"workloads": [only]}


def known_to_decide() -> Collection[str]:
    """Returns the names of what may decide a verdict."""
    return (*catalogue.ANOMALIES, SERVER_ERRORS)


def _check_names(trial: Trial, source: str) -> None:
    asked: tuple[tuple[str, Callable[[], Collection[str]], Sequence[str]], ...] = (
        ("backend", lambda: catalogue.BACKENDS, [trial.backend]),
        ("workload", lambda: KINDS, [workload.kind for workload in trial.workloads]),
        ("anomaly", lambda: catalogue.ANOMALIES, [control.anomaly for control in trial.controls]),
        ("anomaly", known_to_decide, trial.exhibit.anomalies if trial.exhibit is not None else ()),
        ("guarantee of `decide`", known_to_decide, trial.decide),
        ("fault", lambda: catalogue.FAULTS, [fault for step in trial.steps for fault in _faults_of(step)]),
    )
    for what, known, names in asked:
        for name in names:
            if name not in known():
                raise BadInput(f"{source}: {what} {name!r} is not known. Known: {', '.join(sorted(known()))}.")
    for name in trial.variant.properties:
        if near := misspelt("broker", name):
            raise BadInput(f"{source}: variant.properties.{name} is no property of Kafka's. Did you mean {near!r}?")
    seen: set[str] = set()
    for step in trial.steps:
        if step.name in seen:
            raise BadInput(f"{source}: two steps are named {step.name!r}; names of steps must differ.")
        if step.do is not None and step.do.kind == "heal" and step.do.step is not None and step.do.step not in seen:
            raise BadInput(f"{source}: step {step.name!r} heals {step.do.step!r}, which is no earlier step.")
        seen.add(step.name)
    check_alerts(trial.alerts, trial.steps, metrics=trial.metrics, source=source)


def _faults_of(step: Step) -> list[str]:
    if isinstance(step.do, Mix | Each):
        return [fault.fault for fault in step.do.faults]
    return [step.do.fault] if isinstance(step.do, FaultAction) else []


def _explain(problems: Sequence[ErrorDetails], document: dict[str, Any], *, single: bool) -> str:
    """Returns the first mistakes of a trial file. `single`: its only workload stands at the top level."""
    mistakes = innermost(problems)
    parts = []
    for problem in mistakes[:SHOWN_MAX]:
        path = written(problem, document)
        holders = annotations_at([Trial], path[:-1])
        if single and path[:2] == ("workloads", 0):
            path = path[2:]
        if single and len(path) == 1:
            holders = [Trial, WorkloadSpec]
            if problem["type"] == "extra_forbidden" and path[0] in SCOPES:
                parts.append(
                    f"{path[0]} is not a known key; settings of cells are in base, or axes: --set base.{path[0]}.…, or in "
                    f'the file [base] "{path[0]}.…" = …'
                )
                continue
        parts.append(explain(problem, path, holders))
    more = len(mistakes) - len(parts)
    return " ".join(parts) + (f" ({more} more)" if more > 0 else "")


def lay_over(document: dict[str, Any], dotted: str, value: object) -> None:
    """Sets a key (`variant.brokers`) in the document of a trial file. BadInput if what holds the key is no table."""
    head, _, rest = dotted.partition(".")
    if head in _OF_WORKLOAD and "workloads" in document:
        for workload in document["workloads"]:
            lay_over(workload, dotted, value)
    elif head in ("base", "axes", "properties", "features", "versions") or not rest:
        if rest:
            document.setdefault(head, {})[rest] = value
        else:
            document[head] = value
    else:
        inner = document.setdefault(head, {})
        if isinstance(inner, list):
            inner, rest = _entry_of(inner, head, rest, dotted)
        if not isinstance(inner, dict) or not rest:
            raise BadInput(f"--set {dotted}: {head!r} is not a table in this trial.")
        lay_over(inner, rest, value)


def _entry_of(entries: list[Any], head: str, rest: str, dotted: str) -> tuple[Any, str]:
    """Returns the entry of an array of tables that a key names by its number (`steps.0.name`), and the rest of the key."""
    number, _, behind = rest.partition(".")
    if not number.isdecimal() or int(number) >= len(entries):
        raise BadInput(
            f"--set {dotted}: {head!r} has {len(entries)} entries in this trial. Name one by its number, from 0 on."
        )
    return entries[int(number)], behind
