"""Writes summary.md, which people read in a pull request or a mail, and junit.xml, which CI systems read.

junit.xml has a test case for each cell and anomaly, and for each alert. Unknown is an error there, never a pass.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.history.convert import History
from prozess.harness.history.versions import unverified
from prozess.harness.plan.plan import Cell, Plan
from prozess.harness.plan.schedule import Inspect
from prozess.harness.printable import number_of, printable
from prozess.harness.report.server_complaints import SHOWN_MAX, ServerComplaints, complaint_words
from prozess.harness.report.tables import deliveries, delivery_lines, hanging_lines, impact_lines, read_hanging
from prozess.harness.report.words import (
    OUTCOME_LEGEND,
    REACHED,
    SIGNS,
    VERDICT_SIGNS,
    anomalies_of,
    brief,
    brief_of_application,
    cells_line,
    clients_on_trial,
    found_line,
    matrices,
    meanings_of,
    names_met,
    not_judged_lines,
    reproduce,
    seen_in,
    short,
    verdict_words,
)
from prozess.harness.run_directory import RunDirectory, write_whole
from prozess.harness.schema import MISSING, NONE, ObservationKind
from prozess.harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, TrialVerdict, Verdict

OF_APPLICATION_MAX = 5
"""The number of witnesses of what an application did; verdict.json has more."""


def write_summary(
    run: RunDirectory, plan: Plan, verdict: TrialVerdict, history: History, complaints: ServerComplaints
) -> Path:
    """Writes summary.md; returns its path."""
    out = [f"# {verdict.verdict}: {as_text(verdict.title)}", "", verdict.sentence, ""]
    out += [f"- unknown: {reason}" for reason in verdict.unknown_reasons]
    out += [f"- client: {as_text(shown)}" for shown in clients_on_trial(plan)]
    out += [f"- not verified: {shown}" for shown in unverified(run)]
    out += [f"- not judged: {line}" for line in not_judged_lines(verdict)]
    out += [f"- not tried here: {as_text(fault)}: {why}" for fault, why in plan.left_out.items()]
    out += [
        f"- control `{c.anomaly}`: " + (f"seen {number_of(c.count, 'time')}" if c.fired else "not seen")
        for c in verdict.controls
    ]
    out += [f"- not proven: {shown}" for shown in verdict.not_proven]
    for matrix in matrices(verdict.cells):
        out += [
            "",
            "| "
            + " | ".join([as_text(matrix.workload), *(as_text(short(axis)) for axis in matrix.axes), "verdict", "seen"])
            + " |",
        ]
        out += ["|" + "---|" * (len(matrix.axes) + 3)]
        out += [
            "| "
            + " | ".join([str(c.cell), *(as_text(c.axes[axis]) for axis in matrix.axes), _verdict(c), seen_in(c)])
            + " |"
            for c in matrix.cells
        ]
    out += ["", f"{OUTCOME_LEGEND}."]
    if verdict.expectations:
        out += [
            "",
            "## What the steps were to bring about",
            "",
            "| step | expected | reached | seen |",
            "|---|---|---|---|",
        ]
        out += [
            f"| {as_text(e.step)} | {as_text(e.expected)} | {REACHED[e.reached]} | {as_text(e.seen)} |"
            for e in verdict.expectations
        ]
    if verdict.alerts:
        out += ["", "## Alerts", "", "| alert | rule | verdict | why |", "|---|---|---|---|"]
        out += [
            f"| {as_text(a.name)} | {as_code(a.expr)} | {VERDICT_SIGNS[a.verdict]} {a.verdict} | {a.reason} |"
            for a in verdict.alerts
        ]
    if meanings := meanings_of(names_met(verdict)):
        out += ["", "## What the names mean", ""]
        out += [f"- `{name}`: {meaning}" for name, meaning in meanings.items()]
    out += ["", "## What was seen, and why it is permitted or forbidden", ""]
    for name in anomalies_of(verdict.cells):
        shown: set[str] = set()
        for cell in verdict.cells:
            anomaly = cell.anomalies.get(name)
            if anomaly is None or anomaly.outcome not in (AnomalyOutcome.VIOLATED, AnomalyOutcome.PERMITTED):
                continue
            line = f"- {SIGNS[anomaly.outcome]} {brief(anomaly)}: {anomaly.reason}"
            if line not in shown:
                shown.add(line)
                out.append(line)
    out += _application_lines(verdict)
    out += ["", f"Found: {found_line(verdict)}."]
    out += hanging_lines(read_hanging(run))
    out += impact_lines(run)
    out += delivery_lines(deliveries(run, plan, verdict))
    out += group_lines(plan, history)
    out += replica_lines(plan, history)
    if complaints.quiet:
        out += ["", "## What servers complained of with no fault near, and clean runs do not", ""]
        out += [f"- {as_text(complaint_words(one))}" for one in complaints.quiet[:SHOWN_MAX]]
    excluded = number_of(len(plan.excluded), "combination")
    out += ["", f"Seed {verdict.seed}; cells: {cells_line(verdict.cells)}; {excluded} excluded."]
    out += ["", f"    {reproduce(run)}", ""]
    path = run.path / "summary.md"
    write_whole(path, "\n".join(map(_without_html, map(printable, out))))
    return path


def _verdict(cell: CellVerdict) -> str:
    sign, words, _ = verdict_words(cell.verdict, (cell,))
    return f"{sign} {words}"


def _application_lines(verdict: TrialVerdict) -> list[str]:
    """Returns what the application under test did, with its first witnesses."""
    if verdict.application is None or not verdict.application.anomalies:
        return []
    out = ["", "## What the application did", ""]
    for one in verdict.application.anomalies:
        out.append(f"- {SIGNS[one.outcome]} {as_text(brief_of_application(one))}: {as_text(one.reason)}")
        out += [f"  - {as_text(witness.text)}" for witness in one.witnesses[:OF_APPLICATION_MAX]]
    return out


# Texts of files in Markdown: what somebody wrote in a trial is a text there, never a link, a picture, a tag or a
# heading.


_MEANS_SOMETHING = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


_TAG = re.compile(r"(?<!\\)<(?=[A-Za-z/!?])")


def _without_html(line: str) -> str:
    """Returns a line of Markdown in which nothing is HTML, wherever its words came from. What is code stays as it is."""
    if line.startswith("    "):
        return line
    parts = line.split("`")
    return "`".join(part if number % 2 else _TAG.sub(r"\\<", part) for number, part in enumerate(parts))


def as_text(text: str) -> str:
    """The text, so that Markdown shows it as it stands; on one line."""
    return _MEANS_SOMETHING.sub(r"\\\1", " ".join(text.split()))


def as_code(text: str) -> str:
    """Returns the text as code within a line of a table."""
    inner = " ".join(text.split()).replace("|", r"\|")
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", inner)), default=0))
    return f"{ticks}{inner}{ticks}" if ticks == "`" else f"{ticks} {inner} {ticks}"


# What rebalances cost each consumer group: how often partitions were taken away, and how long nobody had them.


_ASSIGN, _CLOSE = 1, 4
"""`assignments.event`."""
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Cost:
    """Describes what rebalances cost one consumer group, from the first assignment of each partition until its members
    were asked to finish."""

    changes: int
    """Callbacks that gave or took a partition, each partition counted."""
    given_back: int
    """Times a member was given a partition that it had just given up itself: it stood still for nothing."""
    unowned_s: float
    """Seconds that nobody had a partition, over all partitions. A client that died had his until the last sign of life."""
    longest_s: float


def group_lines(plan: Plan, history: History) -> list[str]:
    """Returns the section on rebalances as lines of Markdown; empty if no cell has a consumer group."""
    cells = [(cell.cell, work.configuration) for cell in plan.cells if (work := cell.group) is not None]
    if not cells:
        return []
    costs = group_costs(plan, history)
    out = [
        "",
        "## What rebalances cost",
        "",
        "As the members' rebalance callbacks recorded it. Seconds are summed over all partitions.",
        "",
    ]
    out += [
        "| group | client | protocol | assigned or revoked | given back | without an owner, s | longest, s |",
        "|" + "---|" * 7,
    ]
    for cell, group in cells:
        cost = costs[cell]
        out.append(
            f"| {cell} | {group.client} | {group.protocol} | {cost.changes} | {cost.given_back} | "
            f"{cost.unowned_s:.1f} | {cost.longest_s:.1f} |"
        )
    return out


def group_costs(plan: Plan, history: History) -> dict[int, Cost]:
    """Returns, for each cell, what its group's rebalances cost."""
    tables = {name: history.table(name) for name in ("assignments", "clients", "heartbeats", "observations")}
    ends = _ends_of_life(tables["clients"], tables["heartbeats"])
    return {cell.cell: _cost(cell, tables, ends) for cell in plan.cells if cell.group is not None}


def _ends_of_life(clients: Columns, heartbeats: Columns) -> dict[int, int]:
    """Client → when it ended; of one that was killed: when it was last known to live."""
    order = np.argsort(heartbeats["time_ns"], kind="stable")
    last = dict(zip(heartbeats["client"][order].tolist(), heartbeats["time_ns"][order].tolist(), strict=True))
    ended = zip(clients["client"].tolist(), clients["ended_ns"].tolist(), strict=True)
    return last | {client: time_ns for client, time_ns in ended if time_ns != MISSING}


def _cost(cell: Cell, tables: Mapping[str, Columns], ends: Mapping[int, int]) -> Cost:
    """Returns a few rows for each partition: loops are fine."""
    table, changes, given_back, gaps_ns = tables["assignments"], 0, 0, [0]
    for partition in cell.partitions:
        rows = np.flatnonzero(table["partition"] == partition)
        rows = rows[np.lexsort((rows, table["started_ns"][rows], table["client"][rows]))]
        changes += int(np.count_nonzero(table["event"][rows] != _CLOSE))
        client, begin_ns, end_ns = _owned(table, rows, ends)
        until_ns = _until(tables["observations"], partition)
        kept = begin_ns < until_ns
        client, begin_ns, end_ns = client[kept], begin_ns[kept], end_ns[kept]
        if not len(client):
            continue
        reach = np.maximum.accumulate(end_ns)
        between_ns = np.append(begin_ns[1:], until_ns) - reach
        gaps_ns += np.maximum(0, between_ns).tolist()
        given_back += int(np.count_nonzero((client[1:] == client[:-1]) & (between_ns[:-1] > 0)))
    return Cost(changes, given_back, sum(gaps_ns) / NS_PER_S, max(gaps_ns) / NS_PER_S)


def _owned(table: Columns, rows: np.ndarray, ends: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(client, begin, end) of each time somebody had the partition, ascending by begin. `rows`: by client, then time."""
    client, event = table["client"][rows], table["event"][rows]
    end_ns = np.array([ends.get(int(c), NONE) for c in client], dtype=np.int64)
    followed = np.flatnonzero(client[1:] == client[:-1])
    end_ns[followed] = table["started_ns"][rows][followed + 1]
    begin_ns = table["done_ns"][rows]
    chosen = np.flatnonzero((event == _ASSIGN) & (begin_ns != MISSING) & (end_ns > begin_ns))
    chosen = chosen[np.argsort(begin_ns[chosen], kind="stable")]
    return client[chosen], begin_ns[chosen], end_ns[chosen]


def _until(seen: Columns, partition: int) -> int:
    """Returns when its members were asked to finish; MISSING = never, so that nothing is counted."""
    begun_ns = seen["time_ns"][(seen["kind"] == ObservationKind.DRAIN_BEGUN) & (seen["partition"] == partition)]
    return int(begun_ns.min()) if len(begun_ns) else int(MISSING)


# What each replica had at each `inspect` of a schedule, as tables for a person: from the replicas' own files.


PARTITIONS_SHOWN = 16
_AT_THE_END = "at the end, after the audit"


def replica_lines(plan: Plan, history: History) -> list[str]:
    """Returns the section on replicas as lines of Markdown; empty if the schedule inspects nothing."""
    looks = {number: step.name for number, step in enumerate(plan.steps) if isinstance(step.do, Inspect)}
    if not looks:
        return []
    observations, replicas = history.table("observations"), history.table("replicas")
    out = [
        "",
        "## What each replica had",
        "",
        "As the replica's own segments and its `leader-epoch-checkpoint` say.",
        "",
    ]
    brokers = plan.broker_ids
    for step, name in {**looks, NONE: _AT_THE_END}.items():
        out += [f"**{name}**", "", "| partition | " + " | ".join(f"broker-{b}" for b in brokers) + " |"]
        out += ["|" + "---|" * (len(brokers) + 1)]
        for planned in plan.partitions[:PARTITIONS_SHOWN]:
            had = [_copy(observations, replicas, step, planned.partition, broker) for broker in brokers]
            out.append(f"| {planned.topic_name}-{planned.number} | " + " | ".join(had) + " |")
        out.append("")
    left_out = len(plan.partitions) - PARTITIONS_SHOWN
    return [*out, f"The table `replicas` of the history has {left_out} more partitions."] if left_out > 0 else out[:-1]


def _copy(observations: Columns, replicas: Columns, step: int, partition: int, node: int) -> str:
    """Describes one replica of a partition in a few words."""
    mine = _rows(observations, step, partition, node)
    kinds, values = observations["kind"][mine], observations["value"][mine]
    ends = values[kinds == ObservationKind.REPLICA_LOG_END]
    if not len(ends):
        return "not read"
    starts = kinds == ObservationKind.REPLICA_EPOCH_START
    epochs = sorted(zip(observations["leader_epoch"][mine][starts].tolist(), values[starts].tolist(), strict=True))
    batches = _rows(replicas, step, partition, node)
    last = f"last batch {_batch(replicas, int(batches[-1]))}, " if len(batches) else ""
    text = ", ".join(f"{epoch} from {start}" for epoch, start in epochs)
    return f"ends at {int(ends[0])}, {last}epochs {text or 'none'}"


def _batch(replicas: Columns, row: int) -> str:
    checksum = int(replicas["checksum"][row])
    return f"{int(replicas['base_offset'][row])} of epoch {int(replicas['leader_epoch'][row])} (crc {checksum:08x})"


def _rows(table: Columns, step: int, partition: int, node: int) -> np.ndarray:
    return np.flatnonzero((table["step"] == step) & (table["partition"] == partition) & (table["node"] == node))


_VERDICTS = {
    AnomalyOutcome.VIOLATED: Verdict.VIOLATED,
    AnomalyOutcome.UNKNOWN: Verdict.UNKNOWN,
    AnomalyOutcome.PERMITTED: Verdict.HELD,
}
"""For what an application did."""


def write_junit(run: RunDirectory, verdict: TrialVerdict, seconds: Mapping[str, float]) -> Path:
    """Writes junit.xml; returns its path."""
    judged = [a for cell in verdict.cells for a in cell.anomalies.values()]
    verdicts = [a.verdict for a in judged] + [a.verdict for a in verdict.alerts]
    verdicts += [] if verdict.server_errors is None else [verdict.server_errors]
    of_application = () if verdict.application is None else verdict.application.anomalies
    verdicts += [_VERDICTS[one.outcome] for one in of_application]
    suite = ElementTree.Element(
        "testsuite",
        name=f"prozess.{verdict.trial}",
        tests=str(len(verdicts)),
        failures=str(verdicts.count(Verdict.VIOLATED)),
        errors=str(verdicts.count(Verdict.UNKNOWN)),
        skipped=str(sum(a.outcome is AnomalyOutcome.NOT_JUDGED for a in judged)),
        time=f"{seconds.get('run', 0.0):.2f}",
    )
    properties = ElementTree.SubElement(suite, "properties")
    found = {"seed": str(verdict.seed), "verdict": verdict.verdict, "sentence": verdict.sentence}
    found |= {"decided": ", ".join(verdict.decided), "not judged": "; ".join(not_judged_lines(verdict)) or "nothing"}
    for name, value in found.items():
        ElementTree.SubElement(properties, "property", name=name, value=str(value))
    for cell in verdict.cells:
        for anomaly in cell.anomalies.values():
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"{verdict.trial}.{cell.name}", name=f"no {anomaly.anomaly}"
            )
            _outcome(case, anomaly)
    _cases_of_application(suite, verdict)
    for alert in verdict.alerts:
        case = ElementTree.SubElement(suite, "testcase", classname=f"{verdict.trial}.alerts", name=alert.name)
        if alert.verdict is Verdict.VIOLATED:
            ElementTree.SubElement(case, "failure", message=alert.expr).text = alert.reason
        elif alert.verdict is Verdict.UNKNOWN:
            ElementTree.SubElement(case, "error", message=alert.reason)
    if verdict.server_errors is not None:
        case = ElementTree.SubElement(suite, "testcase", classname=f"{verdict.trial}.servers", name="no server-errors")
        if verdict.server_errors is not Verdict.HELD:
            kind = "failure" if verdict.server_errors is Verdict.VIOLATED else "error"
            ElementTree.SubElement(case, kind, message=verdict.sentence)
    for element in suite.iter():  # XML 1.0 has no control characters, escaped or not
        element.attrib.update({name: printable(value) for name, value in element.attrib.items()})
        element.text = None if element.text is None else printable(element.text)
    path = run.path / "junit.xml"
    ElementTree.indent(suite)
    write_whole(path, ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True).decode())
    return path


def _outcome(case: ElementTree.Element, anomaly: CellAnomaly) -> None:
    match anomaly.outcome:
        case AnomalyOutcome.VIOLATED:
            failure = ElementTree.SubElement(
                case, "failure", message=f"{anomaly.anomaly} {anomaly.forbidden} (forbidden)"
            )
            failure.text = anomaly.reason
        case AnomalyOutcome.UNKNOWN:
            ElementTree.SubElement(case, "error", message=anomaly.reason or "the evidence does not say")
        case AnomalyOutcome.NOT_JUDGED:
            ElementTree.SubElement(case, "skipped", message=anomaly.reason or "it does not apply here")
        case AnomalyOutcome.PERMITTED:
            ElementTree.SubElement(
                case, "system-out"
            ).text = f"permitted, and seen {number_of(anomaly.count, 'time')}: {anomaly.reason}"
        case _:
            pass


def _cases_of_application(suite: ElementTree.Element, verdict: TrialVerdict) -> None:
    for one in () if verdict.application is None else verdict.application.anomalies:
        where = f"{verdict.trial}.application"
        case = ElementTree.SubElement(suite, "testcase", classname=where, name=f"no {one.anomaly} in {one.where}")
        if one.outcome is AnomalyOutcome.VIOLATED:
            ElementTree.SubElement(case, "failure", message=brief_of_application(one)).text = one.reason
        elif one.outcome is AnomalyOutcome.UNKNOWN:
            ElementTree.SubElement(case, "error", message=one.reason)
        else:
            ElementTree.SubElement(
                case, "system-out"
            ).text = f"not forbidden, and seen {number_of(one.count, 'time')}: {one.reason}"
