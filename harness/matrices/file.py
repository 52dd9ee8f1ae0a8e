"""Matrix files: a trial's file without steps, and a table `matrix` that says what varies from trial to trial. Pure but for
reading the file."""

import copy
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError, model_validator

from harness.configuration import Frozen, Text, Variant
from harness.errors import BadInput
from harness.schedule import Step
from harness.trial import ControlSpec, Exclude, Trial, known_matrices, lay_over, parse_trial

SCHEDULE = "schedule"
"""The axis of schedules."""


class ScheduleSpec(Frozen):
    """One value of the axis of schedules: steps, and whatever else of a trial belongs to them."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: Annotated[str, Field(min_length=1)]
    steps: tuple[Step, ...] = ()
    controls: tuple[ControlSpec, ...] = ()
    settle_s: float | None = None


Named = dict[str, dict[str, Any]]
"""Name → keys of the trial's file that it sets, dotted."""


class MatrixSpec(Frozen):
    """The table `matrix`."""

    strength: Literal["full", 2, 3] = "full"
    """Of the axes that cost a trial each. full: every valid combination; 2, 3: every valid pair, or triple, of values."""
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (1,)
    """Every trial is made with each."""
    axes: dict[str, tuple[Text | int | bool, ...] | Named] = Field(default_factory=dict)
    """A dotted key of the trial's file and its values, or a name of your own and its values, each with what it sets."""
    exclude: tuple[Exclude, ...] = ()
    schedules: Annotated[tuple[ScheduleSpec, ...], Field(min_length=1)]
    cells_per_trial: dict[str, PositiveInt] = Field(default_factory=dict)
    """Kind of workload → how many of its cells a trial has at most; a kind that is not named has all of them in each."""
    deal: Literal["each", "in-turn"] = "each"
    """What is more is dealt. each: every choice has as many trials as it takes to have all cells; in-turn: every choice has
    one trial, with the next share of them."""

    @model_validator(mode="after")
    def _something_to_choose(self) -> "MatrixSpec":
        if SCHEDULE in self.axes:
            raise ValueError(f"axes.{SCHEDULE}: schedules are an axis already, give them as [[matrix.schedules]]")
        for axis, values in self.axes.items():
            if not values:
                raise ValueError(f"axes.{axis} has no values: give at least one, or remove the axis")
            if not isinstance(values, Mapping) and "." not in axis:
                raise ValueError(
                    f"axes.{axis}: a list of values needs a key of the trial's file, such as variant.brokers"
                )
        names = [schedule.name for schedule in self.schedules]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two schedules are named {min(twice)!r}; names of schedules must differ")
        return self

    @property
    def values(self) -> dict[str, list[str]]:
        """Axis, that of schedules included, → its values by name."""
        of_cluster = {axis: [_named(value) for value in values] for axis, values in self.axes.items()}
        return of_cluster | {SCHEDULE: [schedule.name for schedule in self.schedules]}

    def settings_of(self, row: Mapping[str, str]) -> dict[str, Any]:
        """What a choice of one value per axis sets: dotted key → value."""
        settings: dict[str, Any] = {}
        for axis, values in self.axes.items():
            if isinstance(values, Mapping):
                settings |= values[row[axis]]
            else:
                settings[axis] = next(value for value in values if _named(value) == row[axis])
        return settings

    def schedule(self, name: str) -> ScheduleSpec:
        """The schedule of that name."""
        return next(schedule for schedule in self.schedules if schedule.name == name)


def _named(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix file."""

    name: str
    title: str
    spec: MatrixSpec
    document: dict[str, Any]
    """The rest of it: a trial's, without steps."""
    source: str

    def variant(self, row: Mapping[str, str]) -> Variant:
        """The kind of cluster of one choice. BadInput if it is none."""
        document = {"variant": copy.deepcopy(self.document.get("variant", {}))}
        for key, value in self.spec.settings_of(row).items():
            lay_over(document, key, value)
        try:
            return Variant.model_validate(document["variant"])
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in ("variant", *problem["loc"]))
            raise BadInput(f"{self.source}: {where} = {problem['input']!r}: {problem['msg']}.") from error

    def trial(self, row: Mapping[str, str], *, name: str | None = None) -> Trial:
        """The trial of one choice, with all cells. BadInput as of a trial's file."""
        schedule = self.spec.schedule(row[SCHEDULE])
        document = copy.deepcopy(self.document)
        for key, value in self.spec.settings_of(row).items():
            lay_over(document, key, value)
        document["name"] = name or self.name
        document["title"] = f"{self.title}: {schedule.title}"
        if schedule.settle_s is not None:
            document["settle_s"] = schedule.settle_s
        for key in ("steps", "controls"):
            document[key] = [part.model_dump(mode="json", exclude_none=True) for part in getattr(schedule, key)]
        return parse_trial(document, source=f"{self.source}, schedule {schedule.name}")


def load_matrix(name_or_path: str) -> Matrix:
    """The matrix of that name, or in that file. BadInput if it is none, or contradicts itself."""
    path = Path(name_or_path)
    if not (path.suffix == ".toml" or "/" in name_or_path):
        known = known_matrices()
        if name_or_path not in known:
            near = difflib.get_close_matches(name_or_path, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise BadInput(
                f"There is no matrix {name_or_path!r}.{hint} Known: {', '.join(known)}; or give the path of a .toml file."
            )
        path = known[name_or_path]
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"Matrix file {str(path)!r} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"Matrix file {str(path)!r} is not TOML: {error}.") from error
    return parse_matrix(document, source=str(path))


def parse_matrix(document: Mapping[str, Any], *, source: str) -> Matrix:
    """A matrix from a parsed document. BadInput names what is wrong."""
    if "matrix" not in document:
        raise BadInput(f"{source} is a trial, not a matrix: it has no table [matrix]. `prozess run` runs it.")
    rest = {key: value for key, value in document.items() if key != "matrix"}
    if misplaced := [key for key in ("steps", "controls") if key in rest]:
        raise BadInput(f"{source}: {misplaced[0]} of a matrix belong to its [[matrix.schedules]]. Move them there.")
    try:
        spec = MatrixSpec.model_validate(document["matrix"])
    except ValidationError as error:
        raise BadInput(f"{source}: {_problem(error)}") from error
    named = {key: rest.get(key) for key in ("name", "title")}
    if missing := [key for key, value in named.items() if not isinstance(value, str)]:
        raise BadInput(f"{source}: a matrix needs a {missing[0]}, a text.")
    matrix = Matrix(name=str(rest["name"]), title=str(rest["title"]), spec=spec, document=rest, source=source)
    kinds = {w.kind for w in matrix.trial({axis: values[0] for axis, values in spec.values.items()}).workloads}
    if strange := sorted(set(spec.cells_per_trial) - kinds):
        near = difflib.get_close_matches(strange[0], sorted(kinds), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise BadInput(
            f"{source}: matrix.cells_per_trial.{strange[0]}: there is no such workload here.{hint} "
            f"There are {', '.join(sorted(kinds))}."
        )
    return matrix


def _problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in ("matrix", *problem["loc"]))
    if problem["type"] == "extra_forbidden":
        key = str(problem["loc"][-1])
        known = [*MatrixSpec.model_fields, *ScheduleSpec.model_fields, *Step.model_fields]
        near = difflib.get_close_matches(key, known, n=1)
        return f"{where} is not a known key; " + (f"did you mean {near[0]!r}?" if near else "remove it.")
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}."
