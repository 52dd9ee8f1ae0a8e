"""Trial files: TOML in, a validated `Trial` out. Everything a person may write is defined here.

A bad file is one `BadInput`, naming the value, the rule and the way out.
"""

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError

from harness import catalogue
from harness.configuration import Frozen, IsolationLevel, Variant
from harness.errors import BadInput
from harness.schedule import Selector, Step


class Traffic(Frozen):
    """What the clients do when nobody stops them."""

    rate_hz: PositiveFloat = 20.0
    """Records per second to each partition, by each of its producers."""
    value_bytes: Annotated[int, Field(ge=64, le=1_000_000)] = 100
    unacknowledged_max: PositiveInt = 5_000
    """Per partition; what exceeds it is withheld, so that a dead partition cannot starve the others."""


class Topics(Frozen):
    """The topics of every cell."""

    partitions: PositiveInt = 2
    placement: tuple[tuple[PositiveInt, ...], ...] = ()
    """Broker ids of partition 0, 1, … (cycled), preferred leader first. Empty: spread over the brokers."""


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


class Trial(Frozen):
    """A trial file. Axes are `scope.key` = list of values, scope being topic or producer."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str
    scenarios: tuple[str, ...] = ()
    backend: str = "local"
    workload: str = "log"
    control: Literal["required", "optional"] = "optional"
    controls: tuple[ControlSpec, ...] = ()
    variant: Variant = Field(default_factory=Variant)
    traffic: Traffic = Field(default_factory=Traffic)
    topics: Topics = Field(default_factory=Topics)
    limits: Limits = Field(default_factory=Limits)
    base: dict[str, Any] = Field(default_factory=dict)
    """`scope.key` = value, for every cell."""
    axes: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    exclude: tuple[Exclude, ...] = ()
    isolation_levels: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")
    """One tailing reader at each."""
    steps: tuple[Step, ...] = ()
    settle_s: NonNegativeFloat = 1.0
    """Traffic goes on this long after the last step and the heal."""


def trial_directories() -> tuple[Path, ...]:
    """Where named trials are: the checkout's `trials/`, or the copy in the wheel."""
    here = Path(__file__).resolve().parent
    return tuple(d for d in (here.parent / "trials", here / "data" / "trials") if d.is_dir())


def known_trials() -> dict[str, Path]:
    """Name → file of every trial that comes with prozess."""
    return {p.stem: p for directory in reversed(trial_directories()) for p in sorted(directory.glob("*.toml"))}


def load_trial(name_or_path: str, overrides: dict[str, Any] | None = None) -> Trial:
    """The trial of that name, or in that file. `overrides`: dotted key → value, laid over the file before validation."""
    path = Path(name_or_path)
    if not (path.suffix == ".toml" or "/" in name_or_path):
        trials = known_trials()
        if name_or_path not in trials:
            near = difflib.get_close_matches(name_or_path, trials, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise BadInput(
                f"There is no trial {name_or_path!r}.{hint} Known: {', '.join(sorted(trials))}; "
                "or give the path of a .toml file."
            )
        path = trials[name_or_path]
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
    for key, value in (overrides or {}).items():
        _lay_over(document, key, value)
    return parse_trial(document, source=str(path))


def parse_trial(document: dict[str, Any], *, source: str) -> Trial:
    """A trial from a parsed document. `BadInput` names the first wrong keys, what they must be, and near misses."""
    try:
        trial = Trial.model_validate(document)
    except ValidationError as error:
        raise BadInput(f"{source}: {_explain(error)}") from error
    _check_names(trial, source)
    return trial


def _check_names(trial: Trial, source: str) -> None:
    for kind, names, what in (
        (catalogue.BACKENDS, [trial.backend], "backend"),
        (catalogue.WORKLOADS, [trial.workload], "workload"),
        (catalogue.KERNELS, [c.anomaly for c in trial.controls], "anomaly"),
        (
            catalogue.FAULTS,
            [s.do.fault for s in trial.steps if s.do is not None and s.do.kind == "fault"],
            "fault",
        ),
    ):
        for name in names:
            if name not in kind:
                raise BadInput(f"{source}: {what} {name!r} is not known. Known: {', '.join(sorted(kind))}.")
    seen: set[str] = set()
    for step in trial.steps:
        if step.name in seen:
            raise BadInput(f"{source}: two steps are named {step.name!r}; names of steps must differ.")
        if step.do is not None and step.do.kind == "heal" and step.do.step is not None and step.do.step not in seen:
            raise BadInput(f"{source}: step {step.name!r} heals {step.do.step!r}, which is no earlier step.")
        seen.add(step.name)


def _explain(error: ValidationError) -> str:
    parts = []
    for problem in error.errors()[:3]:
        where = ".".join(str(part) for part in problem["loc"]) or "the file"
        if problem["type"] == "extra_forbidden":
            key = str(problem["loc"][-1])
            near = difflib.get_close_matches(key, _keys_at(problem["loc"][:-1]), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "remove it."
            parts.append(f"{where} is not a known key; {hint}")
        else:
            parts.append(f"{where} = {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}.")
    more = error.error_count() - len(parts)
    return " ".join(parts) + (f" ({more} more)" if more > 0 else "")


def _keys_at(location: tuple[int | str, ...]) -> list[str]:
    model: Any = Trial
    for part in location:
        if not isinstance(part, str) or part not in getattr(model, "model_fields", {}):
            return sorted(Step.model_fields) if location and location[0] == "steps" else []
        annotation = model.model_fields[part].annotation
        model = Step if part == "steps" else annotation
    return sorted(getattr(model, "model_fields", {}))


def _lay_over(document: dict[str, Any], dotted: str, value: Any) -> None:  # noqa: ANN401 - TOML values
    head, _, rest = dotted.partition(".")
    if head in ("base", "axes") or not rest:
        if rest:
            document.setdefault(head, {})[rest] = value
        else:
            document[head] = value
    else:
        inner = document.setdefault(head, {})
        if not isinstance(inner, dict):
            raise BadInput(f"--set {dotted}: {head!r} is not a table in this trial.")
        _lay_over(inner, rest, value)
