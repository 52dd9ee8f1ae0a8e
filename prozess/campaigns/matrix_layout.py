"""Reads matrix files, and lays out their trials. A matrix file is a trial file without steps, with a table `matrix`
that says what varies from trial to trial."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError, model_validator

from prozess.campaigns.engine import read_begun
from prozess.harness import inputs
from prozess.harness.config.configuration import Text, Variant, version_numbers
from prozess.harness.errors import BadInput, UnsupportedFault
from prozess.harness.plan.axes import CellTable, expand, why_not_here
from prozess.harness.plan.checks import why_nobody
from prozess.harness.plan.covering import ChosenRows, choose
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.schedule import Between, Elapsed, FaultAction, Step, parse_target, selects
from prozess.harness.plan.trial import ControlSpec, Exclude, Share, Trial, WorkloadSpec
from prozess.harness.plan.trial_files import known_matrices, lay_over, parse_trial
from prozess.harness.suggestions import did_you_mean
from prozess.harness.values import Frozen

SCHEDULE = "schedule"
"""The name of the axis of schedules."""


class ScheduleSpec(Frozen):
    """One value of the axis of schedules: its steps, and whatever else of a trial belongs to them."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: Annotated[str, Field(min_length=1)]
    steps: tuple[Step, ...] = ()
    controls: tuple[ControlSpec, ...] = ()
    settle_s: float | None = None


NamedSettings = dict[str, dict[str, Any]]
"""Name of a value → the dotted keys of the trial's file that it sets."""


class MatrixSpec(Frozen):
    """The table `matrix` of a matrix file."""

    strength: Literal["full", 2, 3] = "full"
    """How the axes that cost a trial each are combined. full: every valid combination; 2 or 3: every valid pair or
    triple of values."""
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (1,)
    """Every trial is made with each seed."""
    axes: dict[str, tuple[Text | int | bool, ...] | NamedSettings] = Field(default_factory=dict)
    """A dotted key of the trial's file and its values; or a name of your own and its values, each with the keys that it sets.
    """
    exclude: tuple[Exclude, ...] = ()
    schedules: Annotated[tuple[ScheduleSpec, ...], Field(min_length=1)]
    cells_per_trial: dict[str, PositiveInt] = Field(default_factory=dict)
    """Kind of workload → how many of its cells a trial has at most. A trial has all cells of a kind that is not named.
    """
    deal: Literal["each", "in-turn"] = "each"
    """How cells beyond that are shared out. each: every choice has as many trials as it takes to have all cells;
    in-turn: every choice has one trial, with the next share of them."""

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
        """Returns each axis, schedules included, with its values by name."""
        of_cluster = {axis: [_named(value) for value in values] for axis, values in self.axes.items()}
        return of_cluster | {SCHEDULE: [schedule.name for schedule in self.schedules]}

    def settings_of(self, row: Mapping[str, str]) -> dict[str, Any]:
        """Returns the settings of a choice of one value per axis: dotted key → value."""
        settings: dict[str, Any] = {}
        for axis, values in self.axes.items():
            if isinstance(values, Mapping):
                settings |= values[row[axis]]
            else:
                settings[axis] = next(value for value in values if _named(value) == row[axis])
        return settings

    def schedule(self, name: str) -> ScheduleSpec:
        """Returns the schedule of that name."""
        return next(schedule for schedule in self.schedules if schedule.name == name)


def _named(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix file that was read and checked."""

    name: str
    title: str
    spec: MatrixSpec
    document: dict[str, Any]
    """The rest of the file: a trial's, without steps."""
    source: str

    def variant(self, row: Mapping[str, str]) -> Variant:
        """Returns the kind of cluster of one choice. BadInput if no such cluster can be."""
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
        """Returns the trial of one choice, with all cells: without the workloads that its cluster cannot have, if it has
        others. BadInput as for a trial's file."""
        trial = self.whole_trial(row, name=name)
        here = tuple(workload for workload in trial.workloads if why_not_here(workload, trial.variant) is None)
        return trial.model_copy(update={"workloads": here or trial.workloads})

    def whole_trial(self, row: Mapping[str, str], *, name: str | None = None) -> Trial:
        """Returns the trial of one choice with every workload of the file, those that its cluster cannot have among them."""
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
    """Reads a matrix by name or file. BadInput if there is none, or if it contradicts itself."""
    path = Path(name_or_path)
    if not (path.suffix == ".toml" or "/" in name_or_path):
        known = known_matrices()
        if name_or_path not in known:
            hint = did_you_mean(name_or_path, known, otherwise="give one of these, or the path of a .toml file.")
            raise BadInput(f"There is no matrix {name_or_path!r}; {hint} Known: {', '.join(known)}.")
        path = known[name_or_path]
    return parse_matrix(inputs.read_toml(path, "Matrix"), source=str(path))


def parse_matrix(document: Mapping[str, Any], *, source: str) -> Matrix:
    """Makes a matrix of a parsed document. BadInput names what is wrong."""
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
        raise BadInput(
            f"{source}: matrix.cells_per_trial.{strange[0]}: there is no such workload here; "
            f"{did_you_mean(strange[0], sorted(kinds))} There are {', '.join(sorted(kinds))}."
        )
    return matrix


def _problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in ("matrix", *problem["loc"]))
    if problem["type"] == "extra_forbidden":
        key = str(problem["loc"][-1])
        known = [*MatrixSpec.model_fields, *ScheduleSpec.model_fields, *Step.model_fields]
        return f"{where} is not a known key; {did_you_mean(key, known, otherwise='remove it.')}"
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}."


# The trials of a matrix: every choice of cluster and schedule, without those that cannot be run, or a cover of them.

TRIAL_S, CELL_S, CLIENT_S, WAIT_S = 30.0, 0.06, 0.12, 4.0
"""Typical seconds of a trial on 2 cores: cluster, audit, check, judgement and report; more for each cell and each client; and
for a step that waits for a condition. Measured: docs/matrix.md."""
RefuseImpossible = Callable[[Plan], None]
"""Raises UnsupportedFault if this machine cannot make one of the plan's faults."""


class MatrixTrial(Frozen):
    """A trial that a matrix runs: which choice of its axes (`row`), with which seed, and which of the parts of its cells."""

    number: int
    row: dict[str, str]
    """Axis → value, the schedule included."""
    seed: int
    part: int
    parts: int


@dataclass(frozen=True, slots=True)
class CellCount:
    """Says how many cells one workload has, in one kind of cluster."""

    kind: str
    choice: ChosenRows
    strength: Literal["full", 2, 3]
    per_trial: int | None

    @property
    def chosen(self) -> int:
        """Returns the number of cells that are run, after the strength has reduced them."""
        return len(self.choice.rows)

    @property
    def valid(self) -> int | None:
        """Returns the number of valid cells; None if there are too many to count."""
        return None if self.choice.valid is None else len(self.choice.valid)

    @property
    def of_trial(self) -> int:
        """Returns the largest number of cells in one trial."""
        return self.chosen if self.per_trial is None else min(self.chosen, self.per_trial)

    @property
    def parts(self) -> int:
        """Returns the number of trials that have all cells together."""
        return 1 if self.per_trial is None else -(-self.chosen // self.per_trial)


@dataclass
class MatrixLayout:
    """The layout of a matrix: its choices, their cells, and its trials."""

    matrix: Matrix
    able: RefuseImpossible = lambda plan: None
    _counts: dict[str, tuple[CellCount, ...]] = field(default_factory=dict)
    """Variant → the cells of each workload."""
    _counts_of: dict[tuple[str, ...], tuple[CellCount, ...]] = field(default_factory=dict)
    """The values of a choice → the same."""
    _tables: dict[str, CellTable] = field(default_factory=dict)
    """Workload → the table of its cells."""
    _refused: dict[str, str | None] = field(default_factory=dict)
    """Metadata mode and schedule → why the backend refuses it."""
    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Cells of each workload → the size of such a trial."""

    @cached_property
    def choice(self) -> ChosenRows:
        """Returns the choices of cluster and schedule that are run, and what is known of the others. BadInput if there is
        none."""
        values, strength = self.matrix.spec.values, self.matrix.spec.strength
        found = choose(values, strength, self._why_not, seed=self.matrix.name)
        if not found.rows:
            raise BadInput(
                f"{self.matrix.source} has no valid trial. Choices are excluded: {found.why_none()}. "
                "Change matrix.axes or matrix.schedules."
            )
        lost = [name for name in values[SCHEDULE] if not any(row[SCHEDULE] == name for row in found.rows)]
        if lost:
            why = next(reason for row, reason in found.excluded if row[SCHEDULE] == lost[0])
            raise BadInput(
                f"{self.matrix.source}: schedule {lost[0]!r} can be run nowhere: {why}. Change it, or remove it."
            )
        return found

    @property
    def rows(self) -> tuple[dict[str, str], ...]:
        """Returns the choices that are run."""
        return self.choice.rows

    @cached_property
    def trials(self) -> list[MatrixTrial]:
        """Returns every trial in the order of running: each choice once before its further parts and seeds."""
        found: list[MatrixTrial] = []
        parts = [max(count.parts for count in self.counts(row)) for row in self.rows]

        def add(row: dict[str, str], seed: int, part: int, of: int) -> None:
            found.append(MatrixTrial(number=len(found), row=row, seed=seed, part=part, parts=of))

        spec = self.matrix.spec
        for seed in spec.seeds:
            if spec.deal == "in-turn":
                for n, (row, of) in enumerate(zip(self.rows, parts, strict=True)):
                    add(row, seed, n % of, of)
                continue
            for part in range(max(parts)):
                for row, of in zip(self.rows, parts, strict=True):
                    if part < of:
                        add(row, seed, part, of)
        return found

    def counts(self, row: Mapping[str, str]) -> tuple[CellCount, ...]:
        """Returns the cells of each workload for this choice. BadInput if a workload has no valid cell."""
        chosen = tuple(row.values())
        if chosen not in self._counts_of:
            # Neither racks nor feature levels make a cell valid or invalid.
            key = self.matrix.variant(row).model_dump_json(exclude={"racks", "features"})
            if key not in self._counts:
                trial = self.matrix.trial(row)
                self._counts[key] = tuple(self._count(trial, workload) for workload in trial.workloads)
            self._counts_of[chosen] = self._counts[key]
        return self._counts_of[chosen]

    def left_out(self) -> list[tuple[str, str]]:
        """Returns the workload's kind and the reason, for each choice and each workload that its cluster cannot have."""
        workloads = self.matrix.whole_trial(self.rows[0]).workloads
        variants = map(self.matrix.variant, self.rows)
        return [(w.kind, why) for here in variants for w in workloads if (why := why_not_here(w, here)) is not None]

    @cached_property
    def fullest(self) -> dict[str, str]:
        """Returns the first choice that has the most workloads."""
        return max(self.rows, key=lambda row: len(self.counts(row)))

    def _count(self, trial: Trial, workload: WorkloadSpec) -> CellCount:
        key = workload.model_dump_json()
        if key not in self._tables:
            self._tables[key] = CellTable(trial.name, workload)
        choice, cells = self._tables[key].choose(trial.variant)
        if not cells:
            raise BadInput(
                f"{self.matrix.source} has no valid {workload.kind} cell with {trial.variant.metadata_mode} "
                f"{trial.variant.kafka_version}. Combinations are excluded: {choice.why_none()}. "
                "Change its `base` or `axes`."
            )
        return CellCount(
            kind=workload.kind,
            choice=choice,
            strength=workload.strength,
            per_trial=self.matrix.spec.cells_per_trial.get(workload.kind),
        )

    def plan(self, trial: MatrixTrial) -> Plan:
        """Returns the plan of one trial. A control is left out if its cells are in another trial's share."""
        name = f"{self.matrix.name}-{trial.number:03}"
        made = self.matrix.trial(trial.row, name=name)
        if trial.parts > 1:
            dealt = zip(made.workloads, self.counts(trial.row), strict=True)
            shares = tuple(w.model_copy(update={"share": _share(trial.part, count)}) for w, count in dealt)
            made = made.model_copy(update={"workloads": shares})
            cells = [cell.axes for workload in made.workloads for cell in expand(made, workload)[0]]
            there = (control for control in made.controls if any(selects(control.cells, axes) for axes in cells))
            made = made.model_copy(update={"controls": tuple(there)})
        return make_plan(made, seed=trial.seed)

    def check(self, refuse: RefuseImpossible | None = None) -> None:
        """Raises BadInput before the first trial runs: if a step selects cells that are all in other trials, or if `refuse`
        does. Each schedule is planned once with each share of the cells."""
        for trial in {(t.row[SCHEDULE], t.part, t.parts): t for t in self.trials}.values():
            try:
                made = self.plan(trial)
            except BadInput as error:
                raise BadInput(
                    f"{self.matrix.source}, trial {trial.number}: {error} They may be in another share of the cells than "
                    f"{trial.part + 1} of {trial.parts}: change matrix.cells_per_trial, or the step's `cells`."
                ) from error
            if refuse is not None:
                refuse(made)

    def _why_not(self, row: Mapping[str, str]) -> str | None:
        if reason := next((e.reason for e in self.matrix.spec.exclude if selects(e.when, row)), None):
            return reason
        variant, steps = self.matrix.variant(row), self.matrix.spec.schedule(row[SCHEDULE]).steps
        if reason := why_no_cluster(variant) or _why_no_targets(variant, steps):
            return reason
        key = f"{variant.metadata_mode} {row[SCHEDULE]}"
        if key not in self._refused:
            self._refused[key] = self._refusal(variant, steps)
        return self._refused[key]

    def _refusal(self, variant: Variant, steps: tuple[Step, ...]) -> str | None:
        """Returns why the backend refuses the choice. It is asked once per metadata mode and schedule."""
        try:
            self.able(self._calm.model_copy(update={"variant": variant, "steps": steps}))
        except UnsupportedFault as error:
            return str(error).rstrip(".")
        return None

    @cached_property
    def _calm(self) -> Plan:
        """Returns a plan with few cells and no steps."""
        values = self.matrix.spec.values
        every = (dict(zip(values, picked, strict=True)) for picked in product(*values.values()))
        row = next(row for row in every if why_no_cluster(self.matrix.variant(row)) is None)
        trial = self.matrix.trial(row).model_copy(update={"steps": (), "controls": ()})
        few = [w.model_copy(update={"strength": 2}) for w in trial.workloads[:1]]
        return make_plan(trial.model_copy(update={"workloads": tuple(few)}), seed=0)

    def size(self, trial: MatrixTrial) -> tuple[int, int]:
        """Returns (cells, client processes) of a trial, as in the first part of its kind of cluster."""
        key = str([(count.kind, count.chosen) for count in self.counts(trial.row)])
        if key not in self._sizes:
            plan = self.plan(trial.model_copy(update={"number": 0, "part": 0}))
            self._sizes[key] = len(plan.cells), len(plan.clients)
        return self._sizes[key]

    def seconds(self, trial: MatrixTrial) -> float:
        """Returns about how many seconds a trial takes."""
        cells, clients = self.size(trial)
        schedule = self.matrix.spec.schedule(trial.row[SCHEDULE])
        return TRIAL_S + CELL_S * cells + CLIENT_S * clients + sum(map(_step_s, schedule.steps))


def _share(part: int, count: CellCount) -> Share | None:
    """Returns the share of one workload. A workload with fewer parts begins again."""
    return Share(part=part % count.parts, of=count.parts) if count.parts > 1 else None


def _step_s(step: Step) -> float:
    if isinstance(step.after, Elapsed):
        seconds = step.after.seconds
        return sum(seconds.between) / 2 if isinstance(seconds, Between) else seconds
    return 0.0 if step.after is None else WAIT_S


def _why_no_targets(variant: Variant, steps: Sequence[Step]) -> str | None:
    """Returns why a schedule's role or node does not exist in this variant; None if all do."""
    names = variant.server_names().values()
    for step in steps:
        for text in step.do.targets if isinstance(step.do, FaultAction) else ():
            target = parse_target(text)
            if why := why_nobody(target, variant):
                return f"{text} {why}"
            if target.node is not None and target.node not in names:
                return f"there is no node {target.node} among {', '.join(names)}"
    return None


def why_no_cluster(variant: Variant) -> str | None:
    """Returns the rule that the cluster itself breaks, with its source; None if such a cluster can be."""
    from prozess.clusters.machine.server_properties import check_variant

    oldest = version_numbers(variant.oldest_version)
    wanted = {name: level for name, level in variant.features.items() if level}
    if variant.metadata_mode == "zookeeper" and oldest >= (4, 0):
        return f"Kafka {variant.kafka_version} has no ZooKeeper mode: 3.9 is its last line (KIP-833)"
    if variant.metadata_mode == "zookeeper" and variant.features:
        return f"ZooKeeper mode has no feature {min(variant.features)}: KRaft's controllers finalize them (KIP-584)"
    if oldest < (4, 0):
        for name, source in (("eligible.leader.replicas.version", "KIP-966"), ("transaction.version", "KIP-1022")):
            if name in wanted:
                return f"{name}={wanted[name]} needs brokers of 4.0 or later, not {variant.oldest_version} ({source})"
    try:
        check_variant(variant)
    except BadInput as error:
        return str(error).rstrip(".")
    return None


MATRIX_FILE = "matrix.json"
FORMAT_VERSION = 1


class BegunMatrix(Frozen):
    """The file matrix.json: which matrix a directory of results belongs to, and its table of trials."""

    name: str
    title: str
    values: dict[str, list[str]]
    """Axis → its values."""
    trials: tuple[MatrixTrial, ...]
    document: dict[str, Any]
    """The rest of the matrix file."""
    format_version: int = FORMAT_VERSION


def read_matrix_file(path: Path) -> BegunMatrix:
    """Reads matrix.json of a directory of results. BadInput if it is missing, half written, or of another version."""
    return read_begun(path / MATRIX_FILE, "results of a matrix", BegunMatrix, FORMAT_VERSION)
