"""Words and signs that every report uses alike, and which anomalies a report reports one by one. Signs carry the
meaning without colour."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Generic, Protocol, TypeVar

from prozess.harness.config.configuration import GroupConfiguration, ProducerConfiguration, version_numbers
from prozess.harness.config.library_defaults import MEMBER_PROPERTY_OF, PROPERTY_OF
from prozess.harness.config.librdkafka_fixes import later_fixes_note
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.guarantees.table import TABLE, RuleEffect
from prozess.harness.guarantees.table.harm import harm_rank
from prozess.harness.plan import catalogue
from prozess.harness.plan.cell_work import GroupWork
from prozess.harness.plan.plan import ClientLibrary, Plan
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.run_directory import RunDirectory, read_object
from prozess.harness.verdict import (
    AnomalyOutcome,
    ApplicationAnomaly,
    CellAnomaly,
    CellVerdict,
    FaultShown,
    TrialVerdict,
    Verdict,
)

SIGNS = {
    AnomalyOutcome.HELD: "✓",
    AnomalyOutcome.VIOLATED: "✗",
    AnomalyOutcome.PERMITTED: "●",
    AnomalyOutcome.POSSIBLE: "○",
    AnomalyOutcome.UNKNOWN: "?",
    AnomalyOutcome.NOT_JUDGED: "–",
}
EXPECTED = "expected with these settings"
"""What a report says beside what was permitted and seen, so that nobody takes it for a failure."""
MEANINGS = {
    AnomalyOutcome.HELD: "forbidden, and not seen",
    AnomalyOutcome.VIOLATED: "forbidden, and seen",
    AnomalyOutcome.PERMITTED: f"permitted, and seen: {EXPECTED}",
    AnomalyOutcome.POSSIBLE: "permitted, and not seen",
    AnomalyOutcome.UNKNOWN: "the evidence does not say",
    AnomalyOutcome.NOT_JUDGED: "it does not apply here, or does not decide the verdict",
}
NAMED_MAX = 2
"""At most this many nodes of a fault are named in a chart."""
REACHED = {True: "✓ yes", False: "? no", None: "? not known"}
"""Whether an expectation came true → how a report says it."""
OUTCOME_LEGEND = "; ".join(f"{SIGNS[outcome]} *{outcome}*: {MEANINGS[outcome]}" for outcome in AnomalyOutcome)
"""Every outcome with its sign and its meaning, in Markdown."""
VERDICT_MEANINGS = {
    Verdict.HELD: "nothing forbidden was seen",
    Verdict.VIOLATED: "something forbidden was seen",
    Verdict.UNKNOWN: "the evidence does not suffice",
}
"""What the verdict of a trial means, beside its badge."""
VERDICT_SIGNS = {Verdict.HELD: "✓", Verdict.VIOLATED: "✗", Verdict.UNKNOWN: "?", Verdict.NOT_JUDGED: "–"}


class HasAxes(Protocol):
    """A cell, of a plan or of a verdict."""

    @property
    def workload(self) -> str: ...
    @property
    def axes(self) -> dict[str, str]: ...


CellT = TypeVar("CellT", bound=HasAxes)


@dataclass(frozen=True)
class CellMatrix(Generic[CellT]):
    """Cells of one workload, and the axes in which they differ, in their order: one table of a report."""

    workload: str
    axes: tuple[str, ...]
    cells: tuple[CellT, ...]

    def label(self, cell: CellT) -> str:
        """Returns the cell among these: `acks=1, min.insync.replicas=2`; empty where it is the only one."""
        return ", ".join(f"{short(axis)}={cell.axes[axis]}" for axis in self.axes)


def matrices(cells: Iterable[CellT]) -> list[CellMatrix[CellT]]:
    """Returns one matrix for each workload, in order: the cells of two workloads have different axes."""
    found: list[CellMatrix[CellT]] = []
    for (workload, axes), group in groupby(cells, key=lambda cell: (cell.workload, tuple(cell.axes))):
        members = tuple(group)
        varying = tuple(axis for axis in axes if len({cell.axes[axis] for cell in members}) > 1)
        found.append(CellMatrix(workload=workload, axes=varying, cells=members))
    return found


def short(axis: str) -> str:
    """Returns an axis as a column heading: Kafka's spelling of the setting."""
    return axis.partition(".")[2].replace("_", ".")


def verdict_words(verdict: Verdict, cells: Iterable[CellVerdict]) -> tuple[str, str, str]:
    """Returns (sign, words, outcome or verdict that gives the colour) of the verdict of cells, as tables show it.

    Cells that held kept what was promised of them, which may have been little: a cell that lost what its configuration lets
    it lose is "● permitted", and never has the sign of one that kept everything.
    """
    if verdict is not Verdict.HELD:
        return VERDICT_SIGNS[verdict], str(verdict), str(verdict)
    if any(anomaly.outcome is AnomalyOutcome.PERMITTED for cell in cells for anomaly in cell.anomalies.values()):
        return SIGNS[AnomalyOutcome.PERMITTED], str(AnomalyOutcome.PERMITTED), str(AnomalyOutcome.PERMITTED)
    return VERDICT_SIGNS[verdict], str(verdict), str(verdict)


def seen_in(cell: CellVerdict) -> str:
    """Returns what was seen in a cell, worst first: `lost 200 (permitted)`."""
    order = [AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN, AnomalyOutcome.PERMITTED]
    seen = sorted((a for a in cell.anomalies.values() if a.outcome in order), key=lambda a: order.index(a.outcome))
    unjudged = [a for a in cell.anomalies.values() if a.left_out and a.seen]
    return ", ".join(brief(anomaly) for anomaly in [*seen, *unjudged]) or "nothing"


def not_judged_lines(verdict: TrialVerdict) -> list[str]:
    """Returns each reason not to judge with the guarantees it concerns: `diverged, unclean: neither …`; then what was
    not judged of an application."""
    by_reason: dict[str, list[str]] = {}
    for name, why in verdict.not_judged.items():
        by_reason.setdefault(why, []).append(name)
    gaps = [] if verdict.application is None else [gap.sentence() for gap in verdict.application.not_judged]
    return [f"{', '.join(names)}: {why}" for why, names in by_reason.items()] + gaps


def clients_on_trial(plan: Plan) -> list[str]:
    """Returns a line for each client library whose version the trial names, and for each on which settings were left to
    the library, with the values that the library has."""
    named = [library for library in plan.libraries if library.version not in (None, plan.variant.kafka_version)]
    lines = list(map(str, named))
    for library in named:
        if library.client == "librdkafka" and (fixes := later_fixes_note(str(library.version))):
            lines.append(f"{library} has defects that later releases fixed: {fixes}; see docs/versions.md")
    for client in plan.clients:
        if client.library is None:
            continue
        library, work = plan.with_version(client.library), client.work
        if isinstance(work, GroupWork):
            if work.configuration.left_to_client:
                lines.append(_left(library, "members", work.configuration, MEMBER_PROPERTY_OF))
        elif client.producer is not None and client.producer.left_to_client:
            lines.append(_left(library, "producers", client.producer, PROPERTY_OF))
    return list(dict.fromkeys(lines))


def _left(
    library: ClientLibrary, who: str, has: GroupConfiguration | ProducerConfiguration, names: Mapping[str, str]
) -> str:
    ours = ("protocol", "commit")  # their values are words of prozess
    values = {name if name in ours else names[name]: getattr(has, name) for name in has.left_to_client}
    listed = ", ".join(
        f"{name}={f'{value:g}' if isinstance(value, float) else str(value).lower()}" for name, value in values.items()
    )
    return f"{library}, {who} by its own defaults: {listed}"


def css_class(text: str) -> str:
    """Returns the class that colours an outcome or a verdict: `not-judged`, `possible`."""
    return text.partition(",")[0].replace(" ", "-")


def brief(anomaly: CellAnomaly) -> str:
    """Describes one anomaly in a few words: `lost 200 (permitted)`."""
    match anomaly.outcome:
        case AnomalyOutcome.PERMITTED:
            return f"{anomaly.anomaly} {anomaly.seen:,} (permitted)"
        case AnomalyOutcome.VIOLATED:
            known = "".join(f"; known defect {label} ×{count:,}" for label, count in anomaly.known.items())
            return f"{anomaly.anomaly} {anomaly.forbidden:,} (forbidden{known})"
        case _ if anomaly.seen:
            return f"{anomaly.anomaly} {anomaly.seen:,} ({anomaly.outcome})"
        case _:
            return f"{anomaly.anomaly} {anomaly.outcome}"


def brief_of_application(anomaly: ApplicationAnomaly) -> str:
    """Describes what an application did in a few words: `missing-output 2 in orders → invoices`."""
    return f"{anomaly.anomaly} {anomaly.count:,} in {anomaly.where}"


def reproduce(run: RunDirectory) -> str:
    """The command that runs the same plan again, from wherever one stands; of a history that was imported or generated, the
    one that made it."""
    if run.source.exists():
        try:
            return str(read_object(run.source)["command"])
        except (HistoryUnreadable, KeyError):
            return f"unknown, because {run.source} does not name the command that made it"
    return again(run)


def again(run: RunDirectory) -> str:
    """The command that runs the plan of a run of a trial again."""
    return f"prozess replay {shlex.quote(run.address)}"


def kafka_description(run: RunDirectory, plan: Plan) -> str:
    """Versions and metadata mode, as the cluster informed them; of a trial whose cluster never came up, as planned."""
    versions, mode = list(plan.variant.kafka_versions), str(plan.variant.metadata_mode)
    if run.cluster.exists():
        cluster = read_object(run.cluster)
        alone = [cluster["kafka_version"]] if cluster.get("kafka_version") else []
        of_nodes = cluster.get("kafka_versions", {}).values()
        versions, mode = sorted({*map(str, of_nodes)}, key=version_numbers) or alone, cluster.get("metadata_mode") or ""
    elif plan.origin != "trial" or catalogue.BACKENDS.named(plan.backend).protocol_only:
        versions, mode = [], ""
    return ", ".join(filter(None, (" and ".join(versions) or "of an unknown version", mode)))


def found_line(verdict: TrialVerdict) -> str:
    """Returns everything that was found, by name, and how much of it was not judged, with the reason."""
    outside = Counter({name: 0 for name in verdict.findings})
    rules: dict[str, dict[str, None]] = {}
    for cell in verdict.cells:
        for name, anomaly in cell.anomalies.items():
            outside[name] += anomaly.not_applicable
            of_them = (witness.rule for witness in anomaly.witnesses if witness.effect == "not applicable")
            rules.setdefault(name, {}).update(dict.fromkeys(of_them))
    texts = (
        f"{name} {count:,}" + (_not_judged(outside[name], name, rules[name]) if outside[name] else "")
        for name, count in verdict.findings.items()
        if count
    )
    return ", ".join(texts) or "nothing"


def _not_judged(count: int, anomaly: str, rules: Collection[str]) -> str:
    """Returns " (124 of these not judged, because …)". `rules`: of the witnesses that are shown; without any, it may be each
    rule of the anomaly that says so."""
    whole = (
        [rule for rule in TABLE[anomaly].rules if rule.effect is RuleEffect.NOT_APPLICABLE] if anomaly in TABLE else []
    )
    reasons = [rule.reason for rule in whole if rule.id in rules] or [rule.reason for rule in whole]
    return f" ({count:,} of these not judged{', because ' if reasons else ''}{', or '.join(reasons)})"


def cells_line(cells: Sequence[CellVerdict]) -> str:
    """Returns how many cells there are of each acks: "28 = 8 with acks=0 + 8 with acks=1 + 12 with acks=all"."""
    acks = Counter(cell.axes["producer.acks"] for cell in cells if "producer.acks" in cell.axes)
    if len(acks) < 2 or acks.total() < len(cells):
        return f"{len(cells):,}"
    return f"{len(cells):,} = {' + '.join(f'{count:,} with acks={value}' for value, count in sorted(acks.items()))}"


def names_met(verdict: TrialVerdict) -> list[str]:
    """Anomalies that a report of this verdict names beside its tables: what was found, and what controls are for."""
    found = [name for name, count in verdict.findings.items() if count]
    return list(dict.fromkeys([*found, *(control.anomaly for control in verdict.controls)]))


def meanings_of(names: Iterable[str]) -> dict[str, str]:
    """Returns, for each anomaly, what its name means, of those that guarantees judge."""
    return {name: TABLE[name].meaning_in_full for name in names if name in TABLE}


def anomalies_of(cells: Iterable[CellVerdict]) -> list[str]:
    """Names of all anomalies judged in these cells: those that are violated in any cell, then the unknown ones, then those
    that were seen, and each by its harm. A table begins with what matters, however narrow the page is."""
    worst: dict[str, int] = {}
    for cell in cells:
        for name, anomaly in cell.anomalies.items():
            rank = _WORST_FIRST.index(anomaly.outcome) if anomaly.outcome in _WORST_FIRST else len(_WORST_FIRST)
            worst[name] = min(rank, worst.get(name, rank))
    return sorted(worst, key=lambda name: (worst[name], harm_rank(name)))


def brief_nodes(nodes: Sequence[str]) -> str:
    """Returns both names of two nodes, else the first and how many more: the table of faults has them all."""
    return ", ".join(nodes) if len(nodes) <= NAMED_MAX else f"{nodes[0]} and {len(nodes) - 1} more"


def fault_name(fault: FaultShown, steps: Sequence[Step]) -> str:
    """Returns a fault in a few words: `kill broker-1`. A fault of single messages or calls says what it did to which:
    `hold Produce at broker-1`, `throw in FileRecords#append at broker-1`."""
    nodes = brief_nodes(fault.nodes)
    action = next((step.do for step in steps if step.name == fault.step), None)
    given = action.parameters if isinstance(action, FaultAction) else {}
    match, done = given.get("match"), given.get("action")
    if not (isinstance(match, Mapping) and isinstance(done, Mapping)):
        return f"{fault.fault} {nodes}".strip()
    call = str(match.get("method", "")).rpartition(".")[2]
    message = f"{match.get('api', 'any message')}{' answer' if match.get('direction') == 'answer' else ''}"
    return f"{done.get('do', fault.fault)} {f'in {call}' if call else message} at {nodes}"


# What a report reports one by one: anomalies that were seen, or that nobody can report, those that are alike
# together.


FOLDED_FROM = 3
"""A longer list of cells is opened by a click."""
TABLES_EACH = 15
"""At most this many cells of a group have a table of their witnesses."""
ROWS_MAX = 400
"""Witnesses in all tables together, about; verdict.json has more."""
ROWS_LEAST = 3
_WORST_FIRST = (AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN, AnomalyOutcome.PERMITTED)
_LABELS = {rule.id: rule.label for guarantee in TABLE.values() for rule in guarantee.rules}
"""Rule → what makes it apply, in a few words; empty = nothing does."""


@dataclass(frozen=True, slots=True)
class AnomalyGroup:
    """Cells in which the same anomaly came to the same, by the same rule."""

    anomaly: str
    outcome: AnomalyOutcome
    rule: str
    """The rule that judged the first witness; empty = there is none."""
    pairs: list[tuple[CellVerdict, CellAnomaly]]

    @property
    def name(self) -> str:
        """Returns the anomaly, with what permits or causes it: `lost (acks=0)`, `torn (KAFKA-17754)`."""
        label = _LABELS.get(self.rule, "")
        return f"{self.anomaly} ({label})" if label else self.anomaly

    @property
    def count(self) -> int:
        """Returns how often the anomaly was seen in all of these cells."""
        return sum(anomaly.seen for _, anomaly in self.pairs)

    @property
    def times(self) -> str:
        """Returns that number in words. The verdict's sentence counts only what is forbidden, so both are named where they
        differ: `584 of 691 seen`."""
        if self.outcome is not AnomalyOutcome.VIOLATED:
            return f"{self.count:,}"
        forbidden = sum(anomaly.forbidden for _, anomaly in self.pairs)
        return f"{self.count:,}" if forbidden == self.count else f"{forbidden:,} of {self.count:,} seen"


def has_section(anomaly: CellAnomaly) -> bool:
    """Does the report report it one by one?"""
    return anomaly.outcome in _WORST_FIRST and bool(anomaly.witnesses or anomaly.count)


def seen_groups(verdict: TrialVerdict) -> list[AnomalyGroup]:
    """Returns the groups: the worst outcome first, then what harms most, then by the first cell."""
    found: dict[tuple[str, AnomalyOutcome, str], AnomalyGroup] = {}
    for cell in verdict.cells:
        for anomaly in cell.anomalies.values():
            if has_section(anomaly):
                rule = anomaly.witnesses[0].rule if anomaly.witnesses else ""
                key = (anomaly.anomaly, anomaly.outcome, rule)
                found.setdefault(key, AnomalyGroup(*key, pairs=[])).pairs.append((cell, anomaly))
    return sorted(found.values(), key=lambda group: (_WORST_FIRST.index(group.outcome), harm_rank(group.anomaly)))


@dataclass(slots=True)
class AnomalyTally:
    """Counts in how many cells one guarantee had each outcome."""

    cells: Counter[AnomalyOutcome] = field(default_factory=Counter)
    seen: int = 0
    """How often the anomaly was seen."""

    @property
    def quiet(self) -> bool:
        """Was the guarantee judged, and did it hold wherever it was judged?"""
        judged = {outcome for outcome in self.cells if outcome is not AnomalyOutcome.NOT_JUDGED}
        return judged == {AnomalyOutcome.HELD}

    @property
    def unjudged(self) -> bool:
        """Was the guarantee judged in no cell, and nothing of it seen?"""
        return set(self.cells) == {AnomalyOutcome.NOT_JUDGED} and not self.seen

    @property
    def worst(self) -> int:
        """Returns the rank of the worst outcome in any cell: 0 is a violation."""
        return min(
            (_WORST_FIRST.index(outcome) for outcome in self.cells if outcome in _WORST_FIRST),
            default=len(_WORST_FIRST),
        )


def tallies(verdict: TrialVerdict) -> dict[str, AnomalyTally]:
    """Returns the tally of each guarantee, the worst first: the first look at a matrix. Empty where there is one cell."""
    found: dict[str, AnomalyTally] = {}
    for cell in verdict.cells if len(verdict.cells) > 1 else ():
        for anomaly in cell.anomalies.values():
            tally = found.setdefault(anomaly.anomaly, AnomalyTally())
            tally.cells[anomaly.outcome] += 1
            tally.seen += anomaly.seen
    return dict(sorted(found.items(), key=lambda item: (item[1].worst, harm_rank(item[0]))))


def rows_each(articles: int) -> int:
    """Returns how many witnesses each table shows, so that all tables together stay short."""
    return max(ROWS_LEAST, ROWS_MAX // max(articles, 1))


def roughly(seconds: float) -> str:
    """Returns a time as people say it: `40 s`, `12 min`, `3.5 h`, `12 days`."""
    for unit_s, unit, least in ((86_400, "days", 2), (3600, "h", 1.5), (60, "min", 1.5)):
        if seconds >= least * unit_s:
            number = seconds / unit_s
            return f"{number:.1f} {unit}" if round(number) < 10 and unit == "h" else f"{number:.0f} {unit}"
    return f"{seconds:.0f} s"


def time_left_s(over: int, planned: int | None, *, spent_s: float, limit_s: float | None) -> float | None:
    """Returns about how many seconds trials still take: by the mean of those that are over, and by their limit, whichever
    is less. None: neither is known.

    `planned`: how many trials there are, or may be; `limit_s`: how long they may take in all. None: there is no such end.
    """
    left_s = [] if limit_s is None else [max(0.0, limit_s - spent_s)]
    left_s += [(planned - over) * spent_s / over] if planned is not None and over else []
    return min(left_s, default=None)
