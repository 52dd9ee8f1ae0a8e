"""Which trials a matrix is: every choice of cluster and schedule, those that cannot be left out with the reason, and of the
others all or a cover of them; with how many cells, in about what time. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from harness import catalogue
from harness.configuration import Variant, version_numbers
from harness.covering import cover, covered, impossible
from harness.errors import BadInput, UnsupportedFault
from harness.matrices.file import SCHEDULE, Matrix
from harness.matrix import Combination, Exclusion, covering, expand, selects, valid_combinations
from harness.plan import Plan
from harness.plan_checks import why_nobody
from harness.planning import make_plan
from harness.schedule import Between, Elapsed, FaultAction, Step
from harness.targets import parse_target
from harness.trial import Share, Trial, WorkloadSpec

TRIAL_S, CELL_S, CLIENT_S, WAIT_S = 30.0, 0.06, 0.12, 4.0
"""What a trial takes on 2 cores: cluster, audit, check, judgement and report; more for each cell, and for each client; a step
that waits for something to happen. Measured: docs/matrix.md."""
Able = Callable[[Plan], None]
"""UnsupportedFault if where it is to run cannot make one of the plan's faults."""


@dataclass(frozen=True, slots=True)
class MatrixTrial:
    """One trial of a matrix."""

    number: int
    row: dict[str, str]
    """Axis → value, the schedule included."""
    seed: int
    part: int
    parts: int

    @property
    def label(self) -> str:
        """What it is, in the words of the file."""
        share = f" part {self.part + 1} of {self.parts}" if self.parts > 1 else ""
        return " ".join(self.row.values()) + share


@dataclass(frozen=True, slots=True)
class CellCount:
    """Of one workload, in one kind of cluster."""

    kind: str
    raw: int
    valid: int
    chosen: int
    """After its strength: what is run."""
    per_trial: int | None
    exclusions: tuple[Exclusion, ...]
    pairs: tuple[int, int] | None
    """Of a cover: combinations of values covered, and how many can be."""

    @property
    def of_trial(self) -> int:
        """How many of them one trial has at most."""
        return self.chosen if self.per_trial is None else min(self.chosen, self.per_trial)

    @property
    def parts(self) -> int:
        """How many trials it takes to have all of them."""
        return 1 if self.per_trial is None else -(-self.chosen // self.per_trial)


@dataclass
class Layout:
    """Everything that a matrix is made of."""

    matrix: Matrix
    able: Able = lambda plan: None
    excluded: list[tuple[dict[str, str], str]] = field(default_factory=list)
    """Choices of cluster and schedule that cannot be, with why."""
    _counts: dict[str, tuple[CellCount, ...]] = field(default_factory=dict)
    """By variant."""
    _refused: dict[str, str | None] = field(default_factory=dict)
    """By metadata mode and schedule."""
    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By how many cells each workload has."""

    @cached_property
    def valid(self) -> list[dict[str, str]]:
        """Every choice that can be run. BadInput if there is none."""
        values, rows = self.matrix.spec.values, self._rows
        found = []
        for row in rows:
            if why := self._why_not(row):
                self.excluded.append((row, why))
            else:
                found.append(row)
        if not found:
            raise BadInput(
                f"{self.matrix.source} has no valid trial: all {len(rows)} choices are excluded, the first because "
                f"{self.excluded[0][1]}. Change matrix.axes or matrix.schedules."
            )
        lost = [name for name in values[SCHEDULE] if not any(row[SCHEDULE] == name for row in found)]
        if lost:
            why = next(reason for row, reason in self.excluded if row[SCHEDULE] == lost[0])
            raise BadInput(
                f"{self.matrix.source}: schedule {lost[0]!r} can be run nowhere: {why}. Change it, or remove it."
            )
        return found

    @cached_property
    def _rows(self) -> list[dict[str, str]]:
        values = self.matrix.spec.values
        return [dict(zip(values, row, strict=True)) for row in product(*values.values())]

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """The choices that are run."""
        spec = self.matrix.spec
        if spec.strength == "full":
            return self.valid
        return [self.valid[n] for n in cover(self.valid, list(spec.values), spec.strength)]

    @cached_property
    def trials(self) -> list[MatrixTrial]:
        """Every trial, in the order in which they are run: each choice once before further parts and seeds of it."""
        found: list[MatrixTrial] = []
        parts = [max(count.parts for count in self.counts(row)) for row in self.rows]
        spec = self.matrix.spec
        for seed in spec.seeds:
            if spec.deal == "in-turn":
                rows = enumerate(zip(self.rows, parts, strict=True))
                found += [MatrixTrial(len(found) + n, row, seed, n % of, of) for n, (row, of) in rows]
                continue
            for part in range(max(parts)):
                of_part = [(row, of) for row, of in zip(self.rows, parts, strict=True) if part < of]
                found += [MatrixTrial(len(found) + n, row, seed, part, of) for n, (row, of) in enumerate(of_part)]
        return found

    def coverage(self) -> tuple[int, int, list[dict[str, str]]]:
        """(combinations of values covered, how many can be, those that cannot), of the strength, pairs where it is full."""
        values = self.matrix.spec.values
        strength = min(2 if self.matrix.spec.strength == "full" else self.matrix.spec.strength, len(values))
        there = covered(self.valid, list(values), strength)
        return (
            len(covered(self.rows, list(values), strength) & there),
            len(there),
            impossible(self.valid, values, strength),
        )

    def why_impossible(self, values: Mapping[str, str]) -> str:
        """The reason that most often keeps these values apart."""
        self.valid  # noqa: B018 - it notes what is excluded
        reasons = Counter(why for row, why in self.excluded if values.items() <= row.items())
        return reasons.most_common(1)[0][0]

    def counts(self, row: Mapping[str, str]) -> tuple[CellCount, ...]:
        """Cells of each workload where this is chosen. BadInput if one has no valid cell."""
        key = self.matrix.variant(row).model_dump_json()
        if key not in self._counts:
            trial = self.matrix.trial(row)
            self._counts[key] = tuple(self._count(trial, workload) for workload in trial.workloads)
        return self._counts[key]

    def _count(self, trial: Trial, workload: WorkloadSpec) -> CellCount:
        valid, exclusions = valid_combinations(trial, workload)
        if not valid:
            raise BadInput(
                f"{self.matrix.source} has no valid {workload.kind} cell with {trial.variant.metadata_mode} "
                f"{trial.variant.kafka_version}: all {len(exclusions)} combinations are excluded, the first because "
                f"{exclusions[0].reason}. Change its `base` or `axes`."
            )
        chosen = covering(valid, workload)
        return CellCount(
            kind=workload.kind,
            raw=len(valid) + len(exclusions),
            valid=len(valid),
            chosen=len(chosen),
            per_trial=self.matrix.spec.cells_per_trial.get(workload.kind),
            exclusions=exclusions,
            pairs=_pairs(valid, chosen, workload),
        )

    def plan(self, trial: MatrixTrial) -> Plan:
        """The plan of one trial. Controls of which it has no cell are another share's."""
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
        """Of the backend, asked once per metadata mode and schedule."""
        try:
            self.able(self._calm.model_copy(update={"variant": variant, "steps": steps}))
        except UnsupportedFault as error:
            return str(error).rstrip(".")
        return None

    @cached_property
    def _calm(self) -> Plan:
        """A plan with few cells and no steps."""
        row = next(row for row in self._rows if why_no_cluster(self.matrix.variant(row)) is None)
        trial = self.matrix.trial(row).model_copy(update={"steps": (), "controls": ()})
        few = [w.model_copy(update={"strength": 2}) for w in trial.workloads[:1]]
        return make_plan(trial.model_copy(update={"workloads": tuple(few)}), seed=0)

    def size(self, trial: MatrixTrial) -> tuple[int, int]:
        """(cells, client processes) of a trial, as of the first part of its kind of cluster."""
        key = str([(count.kind, count.chosen) for count in self.counts(trial.row)])
        if key not in self._sizes:
            plan = self.plan(MatrixTrial(0, trial.row, trial.seed, 0, trial.parts))
            self._sizes[key] = len(plan.cells), len(plan.clients)
        return self._sizes[key]

    def seconds(self, trial: MatrixTrial) -> float:
        """About how long it takes."""
        cells, clients = self.size(trial)
        schedule = self.matrix.spec.schedule(trial.row[SCHEDULE])
        return TRIAL_S + CELL_S * cells + CLIENT_S * clients + sum(map(_step_s, schedule.steps))


def _share(part: int, count: CellCount) -> Share | None:
    """Of one workload: those with fewer parts begin again."""
    return Share(part=part % count.parts, of=count.parts) if count.parts > 1 else None


def _step_s(step: Step) -> float:
    if isinstance(step.after, Elapsed):
        seconds = step.after.seconds
        return sum(seconds.between) / 2 if isinstance(seconds, Between) else seconds
    return 0.0 if step.after is None else WAIT_S


def _pairs(
    valid: Sequence[Combination], chosen: Sequence[Combination], workload: WorkloadSpec
) -> tuple[int, int] | None:
    if workload.strength == "full":
        return None
    axes = list(workload.axes)
    there = covered([c.axes for c in valid], axes, workload.strength)
    return len(covered([c.axes for c in chosen], axes, workload.strength)), len(there)


def _why_no_targets(variant: Variant, steps: Sequence[Step]) -> str | None:
    """Roles that nobody has in this variant."""
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
    """The rule that the cluster itself breaks, with its source; None = it can be."""
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
        catalogue.service("check-variant")(variant)
    except BadInput as error:
        return str(error).rstrip(".")
    return None
