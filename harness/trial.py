"""Trial files: TOML in, a validated `Trial` out. Everything a person may write is defined here.

A bad file is one `BadInput`, naming the value, the rule and the way out.
"""

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError
from pydantic_core import ErrorDetails

from harness import catalogue
from harness.alert_rules import AlertSpec, check_alerts
from harness.configuration import ComposeOptions, DeliveryBound, Frozen, IsolationLevel, MetadataMode, Variant
from harness.errors import BadInput
from harness.remote_options import AttachOptions, SshOptions
from harness.schedule import Each, FaultAction, Mix, Selector, Step
from harness.validation.known import misspelt

PARTITIONS_MAX = 10_000
"""Of a topic: far more than three brokers on one machine bear, and few enough to be planned."""


class Traffic(Frozen):
    """What the clients do when nobody stops them."""

    rate_hz: PositiveFloat = 20.0
    """Records per second to each partition, by each of its producers."""
    value_bytes: Annotated[int, Field(ge=64, le=1_000_000)] = 100
    unacknowledged_max: PositiveInt = 5_000
    """Per partition; what exceeds it is withheld, so that a dead partition cannot starve the others."""
    producers: Annotated[int, Field(ge=1, le=1_000)] = 1
    """How many of each configuration and fate, alike but for their connections: a broker handles what comes over one
    connection one request after the other, so with acks=all nothing overtakes what waits for followers."""


class Topics(Frozen):
    """The topics of every cell."""

    partitions: Annotated[int, Field(ge=1, le=PARTITIONS_MAX)] = 2
    placement: tuple[tuple[PositiveInt, ...], ...] = ()
    """Broker ids of partition 0, 1, … (cycled), preferred leader first. Empty: spread over the brokers."""
    late_partitions: Annotated[int, Field(ge=0, le=PARTITIONS_MAX)] = 0
    """How many more partitions a step adds to each (`add_partitions`)."""
    late_topic_partitions: Annotated[int, Field(ge=0, le=PARTITIONS_MAX)] = 0
    """Of a second topic per cell that the same step creates, NAME-late; 0 = there is none."""


class Limits(Frozen):
    """How long each part of a run may take."""

    ready_s: PositiveFloat = 90.0
    topics_s: PositiveFloat = 60.0
    warm_up_s: PositiveFloat = 90.0
    heal_s: PositiveFloat = 90.0
    drain_s: PositiveFloat = 75.0
    audit_s: PositiveFloat = 90.0


class Exclude(Frozen):
    """Combinations that the author does not want, and why."""

    when: Selector
    reason: Annotated[str, Field(min_length=1)]


class ControlSpec(Frozen):
    """Cells that are expected to show an anomaly: proof that the trial could have seen it."""

    anomaly: str
    cells: Selector


class Share(Frozen):
    """One of several parts of a workload's cells, about equally large. Cells that one producer serves stay together."""

    part: Annotated[int, Field(ge=0)]
    of: PositiveInt


class WorkloadSpec(Frozen):
    """One kind of client activity, with its own matrix of cells. Axes are `scope.key` = list of values."""

    kind: str
    traffic: Traffic = Field(default_factory=Traffic)
    topics: Topics = Field(default_factory=Topics)
    base: dict[str, Any] = Field(default_factory=dict)
    """`scope.key` = value, for every cell."""
    axes: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """A value "default" leaves the setting to Kafka, or to prozess."""
    exclude: tuple[Exclude, ...] = ()
    strength: Literal["full", 2, 3] = "full"
    """full: every valid combination of the axes; 2, 3: so few that every valid pair, or triple, of values occurs."""
    share: Share | None = None
    """Only these of them; None = all."""
    isolation_levels: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
    """One tailing reader at each, over all cells of the workload."""
    delivery: DeliveryBound | None = None
    """What is promised of deliveries in every cell, as `delivery.…` in `base` would say it; None = nothing."""


class Trial(Frozen):
    """A trial file. A trial with a single workload may write that workload's keys at the top level, with `workload` for
    its kind."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str
    scenarios: tuple[str, ...] = ()
    expects: Literal["held", "violated"] = "held"
    """Of a trial that shows a known defect: violated."""
    side_by_side: tuple[MetadataMode, ...] = ()
    """Metadata modes on each of which `prozess scenarios` runs it; none: on its own variant alone."""
    backend: str = "local"
    control: Literal["required", "optional"] = "optional"
    controls: tuple[ControlSpec, ...] = ()
    variant: Variant = Field(default_factory=Variant)
    compose: ComposeOptions = Field(default_factory=ComposeOptions)
    limits: Limits = Field(default_factory=Limits)
    workloads: Annotated[tuple[WorkloadSpec, ...], Field(min_length=1)]
    steps: tuple[Step, ...] = ()
    settle_s: NonNegativeFloat = 1.0
    """Traffic goes on this long after the last step and the heal."""
    metrics: bool = True
    """Sample metrics of servers and clients while the trial runs."""
    alerts: tuple[AlertSpec, ...] = ()
    ssh: SshOptions | None = None
    """Of the ssh backend alone."""
    attach: AttachOptions | None = None
    """Of the attach backend alone."""


_OF_WORKLOAD = tuple(key for key in WorkloadSpec.model_fields if key != "kind")
_OF_FILE = (*(key for key in Trial.model_fields if key != "workloads"), "workload", *_OF_WORKLOAD)


MATRIX = "matrix-"
"""Files in the trials' directory that begin so are matrices: many trials each."""
CAMPAIGNS = "campaigns"
"""Under the trials' directory."""


def trial_directories() -> tuple[Path, ...]:
    """Where named trials are: the checkout's `trials/`, or the copy in the wheel."""
    here = Path(__file__).resolve().parent
    return tuple(d for d in (here.parent / "trials", here / "data" / "trials") if d.is_dir())


def known_trials() -> dict[str, Path]:
    """Name → file of every trial that comes with prozess."""
    files = (p for directory in reversed(trial_directories()) for p in sorted(directory.glob("*.toml")))
    return {p.stem: p for p in files if not p.stem.startswith(MATRIX)}


def known_matrices() -> dict[str, Path]:
    """Name → file of every matrix that comes with prozess."""
    files = (p for directory in reversed(trial_directories()) for p in sorted(directory.glob(f"{MATRIX}*.toml")))
    return {p.stem: p for p in files}


def known_campaigns() -> dict[str, Path]:
    """Name → file of every campaign that comes with prozess."""
    return {p.stem: p for d in reversed(trial_directories()) for p in sorted((d / CAMPAIGNS).glob("*.toml"))}


def load_trial(name_or_path: str, overrides: dict[str, Any] | None = None) -> Trial:
    """The trial of that name, or in that file. `overrides`: dotted key → value, laid over the file before validation."""
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
    trials = known_trials()
    if name in trials:
        return trials[name]
    if name in known_matrices():
        raise BadInput(_a_matrix(name))
    if name in known_campaigns():
        raise BadInput(_a_campaign(name))
    near = difflib.get_close_matches(name, trials, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise BadInput(
        f"There is no trial {name!r}.{hint} Known: {', '.join(sorted(trials))}; or give the path of a .toml file."
    )


def _document_in(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(
            f"Trial file {str(path)!r} does not exist. Give an existing .toml file, or a name from `prozess list`."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"Trial file {str(path)!r} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"Trial file {str(path)!r} is not TOML: {error}.") from error
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
    """A plan is run from anywhere: what a trial file says is relative to it, what the command line says to where one is."""
    compose = document.get("compose")
    if isinstance(compose, dict) and isinstance(compose.get("file"), str):
        compose["file"] = str((base / compose["file"]).resolve())


def _carry_sessions(variant: dict[str, Any]) -> None:
    """A trial put on another metadata mode keeps the length of the brokers' sessions, under the name that it has there."""
    kraft, zookeeper = "broker.session.timeout.ms", "zookeeper.session.timeout.ms"
    has, wants = (kraft, zookeeper) if variant.get("metadata_mode") == "zookeeper" else (zookeeper, kraft)
    properties = variant.get("properties")
    if isinstance(properties, dict) and has in properties:
        length = properties.pop(has)
        properties.setdefault(wants, length)


def parse_trial(document: dict[str, Any], *, source: str) -> Trial:
    """A trial from a parsed document. `BadInput` names the first wrong keys, what they must be, and near misses."""
    try:
        trial = Trial.model_validate(_with_workloads(document, source))
    except ValidationError as error:
        raise BadInput(f"{source}: {_explain(error, single='workloads' not in document)}") from error
    _check_names(trial, source)
    return trial


def _with_workloads(document: dict[str, Any], source: str) -> dict[str, Any]:
    """The document with its only workload moved under `workloads`, if it was written at the top level."""
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


def _check_names(trial: Trial, source: str) -> None:
    for kind, names, what in (
        (catalogue.BACKENDS, [trial.backend], "backend"),
        (catalogue.WORKLOADS, [w.kind for w in trial.workloads], "workload"),
        (catalogue.KERNELS | catalogue.CELL_KERNELS, [c.anomaly for c in trial.controls], "anomaly"),
        (
            catalogue.FAULTS,
            [fault for step in trial.steps for fault in _faults_of(step)],
            "fault",
        ),
    ):
        for name in names:
            if name not in kind:
                raise BadInput(f"{source}: {what} {name!r} is not known. Known: {', '.join(sorted(kind))}.")
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


def _explain(error: ValidationError, *, single: bool) -> str:
    from harness.matrix import SCOPES  # it imports this

    parts = []
    problems = _innermost(error.errors())
    for problem in problems[:3]:
        place = problem["loc"]
        if single and place[:2] == ("workloads", 0):
            place = place[2:]
        where = ".".join(str(part) for part in place) or "the file"
        if problem["type"] == "extra_forbidden":
            key = str(problem["loc"][-1])
            near = difflib.get_close_matches(key, _keys_at(place[:-1], single=single), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "remove it."
            if len(place) == 1 and key in SCOPES:
                hint = (
                    f'settings of cells are in base, or axes: --set base.{key}.…, or in the file [base] "{key}.…" = …'
                )
            parts.append(f"{where} is not a known key; {hint}")
        else:
            parts.append(f"{where} = {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}.")
    more = len(problems) - len(parts)
    return " ".join(parts) + (f" ({more} more)" if more > 0 else "")


def _innermost(problems: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Those that do not only follow from one further inside: a list of workloads whose only one is wrong is told as empty."""
    places = [problem["loc"] for problem in problems]
    return [
        problem
        for problem in problems
        if not any(
            len(place) > len(problem["loc"]) and place[: len(problem["loc"])] == problem["loc"] for place in places
        )
    ]


def _keys_at(place: tuple[int | str, ...], *, single: bool) -> list[str]:
    """The keys that may be written at a place of the file, for near misses."""
    if not place:
        return sorted(_OF_FILE if single else Trial.model_fields)
    model: Any = Trial
    for part in place:
        if part == "steps":
            model = Step
        elif part == "workloads":
            model = WorkloadSpec
        elif part == "alerts":
            model = AlertSpec
        elif isinstance(part, str):
            fields = getattr(model, "model_fields", {})
            if model is Trial and single and part not in fields:
                fields = WorkloadSpec.model_fields
            if part not in fields:
                return []
            annotation = fields[part].annotation
            model = next((kind for kind in get_args(annotation) if hasattr(kind, "model_fields")), annotation)
    return sorted(getattr(model, "model_fields", {}))


def lay_over(document: dict[str, Any], dotted: str, value: Any) -> None:  # noqa: ANN401 - TOML values
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
        if not isinstance(inner, dict):
            raise BadInput(f"--set {dotted}: {head!r} is not a table in this trial.")
        lay_over(inner, rest, value)
