"""This module says why something cannot be known: reasons that concern the whole trial, and reasons that concern one
cell.

A doubt takes a *held* or *permitted, not seen* away and makes it unknown; what was seen stands.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from pydantic import TypeAdapter

from prozess.harness.clock import NS_PER_S
from prozess.harness.config.messages.match import MessageAction, MessageMatch, beyond_networks
from prozess.harness.config.methods import MethodAction, MethodMatch, beyond_code
from prozess.harness.guarantees.evidence.ground_truth import text_of
from prozess.harness.guarantees.evidence.trial import DEFECT, Evidence
from prozess.harness.guarantees.facts.truncation import elected_unclean
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.verdict.expectations import expectation_doubts
from prozess.harness.guarantees.verdict.sentences import at_risk, sentence
from prozess.harness.history.reader import unreadable_cells
from prozess.harness.interfaces import CLIENT_NODE
from prozess.harness.plan import catalogue
from prozess.harness.plan.plan import Cell, EvidenceGap, Plan, PlannedClient
from prozess.harness.plan.schedule import MESSAGE_FAULT, METHOD_FAULT, FaultAction
from prozess.harness.run_directory import LostRows
from prozess.harness.schema import NONE, RECORDED_ROLES, SHARING, Role, StepOutcome, Tristate, role_named
from prozess.harness.verdict import (
    AnomalyOutcome,
    CellAnomaly,
    CellVerdict,
    ExpectationResult,
    TrialVerdict,
    Verdict,
)

_OF_MESSAGES: TypeAdapter[MessageAction] = TypeAdapter(MessageAction)
_OF_METHODS: TypeAdapter[MethodAction] = TypeAdapter(MethodAction)
NOT_WHOLE = "the cluster was not whole again after healing"
_UNTIMED = ("metadata", "observations", "heartbeats", "metrics", "replicas")
"""Tables whose lack makes predicates unknown, where a witness needs them, and nothing else."""
_KNOWN_ENDS = (
    (
        re.compile(r"_INCONSISTENT.*Unable to reconstruct MessageSet"),
        "a known defect of librdkafka, librdkafka#4736, fixed in part in 2.5.0, and confluent-kafka-dotnet#2519, open: an "
        "idempotent producer may end with this error after a partition fell below min.insync.replicas",
    ),
    (
        re.compile(r"The instance ID is still used by another member in the consumer group"),
        "a known defect of Kafka, apache/kafka#23542, open: a static member of the consumer protocol that joins again under "
        "its own member id, because the answer to its join was lost or its session ended, is refused like another one",
    ),
)
"""For fatal errors of clients, what is known of them. The cell stays unknown: nobody sent to the end. [librdkafka
rdkafka_msgset_writer.c: a batch is made up anew only if all of it is due; rdkafka_partition.c, rd_kafka_retry_msgq: each
record is due by its own count of retries; GroupMetadataManager, throwIfInstanceIdIsUnreleased]"""
_ENDED_BY_LOSS = re.compile(r"the Kafka client died: OUT_OF_ORDER_SEQUENCE_NUMBER\b")
"""With this error a broker informs an idempotent producer that what it had acknowledged is gone: its next sequence follows on
nothing. librdkafka's producer ends with it. [OutOfOrderSequenceException: "data may have been lost"; KIP-360]"""


def trial_doubts(plan: Plan, evidence: Evidence, expectations: Sequence[ExpectationResult] = ()) -> tuple[str, ...]:
    """Returns why nothing of this trial can be held, worst first; empty = it went as planned. `expectations`: what became of
    those of its steps."""
    incomplete = (
        f"the history is incomplete: {name}: {why}" for name, why in evidence.incomplete.items() if name not in _UNTIMED
    )
    not_whole = (f"{NOT_WHOLE}: {lacking}" for lacking in evidence.not_whole)
    own = (*_step_doubts(plan, evidence), *_fault_doubts(plan, evidence), *expectation_doubts(expectations))
    sure = (*plan.doubts, *evidence.contradictions.get(NONE, ()))
    return (*evidence.limits, *sure, *not_whole, *own, *incomplete)


def _step_doubts(plan: Plan, evidence: Evidence) -> Iterator[str]:
    steps = evidence.steps
    for number, step in enumerate(plan.steps):
        rows = np.flatnonzero(steps["step"] == number)
        if not len(rows):
            yield f"the run ended before step {step.name!r}"
            return
        outcome = int(steps["outcome"][rows[-1]])  # of a table that contradicts itself it may be none
        if outcome in (StepOutcome.DONE, StepOutcome.MISSED):
            continue
        ways = {StepOutcome.TIMED_OUT.value: "timed out", StepOutcome.FAILED.value: "failed"}
        how = ways.get(outcome, "was skipped")
        detail = text_of(evidence.dictionaries, "detail", int(steps["detail"][rows[-1]]))
        later = len(plan.steps) - number - 1
        depends = f"; the {later} steps after it depended on it" if later > 1 else ""
        yield f"step {step.name!r} {how}{f' ({detail})' if detail else ''}{depends}"
        return  # What follows is its consequence.


def _fault_doubts(plan: Plan, evidence: Evidence) -> Iterator[str]:
    for number, step in enumerate(plan.steps):
        if not isinstance(step.do, FaultAction):
            continue
        records = [f for f in evidence.fault_records if f.step == number]
        if not records and not _missed(evidence, number):
            yield f"the {step.do.fault} of step {step.name!r} never struck"
        for fault in records:
            detail = f" ({fault.detail})" if fault.detail else ""
            if fault.effective is Tristate.NO:
                yield f"the {step.do.fault} of step {step.name!r} had no effect{detail}"
            elif fault.effective is Tristate.UNKNOWN:
                yield f"the {step.do.fault} of step {step.name!r} was not proven to work{detail}"


def beyond_reality_in(plan: Plan, evidence: Evidence) -> str | None:
    """Returns what the trial did that no network and no broker does, or that Kafka's code may never do, as a sentence without
    its end; None if it did nothing of the kind. Kafka promises nothing then, so what was violated says nothing of Kafka."""
    for number, step in enumerate(plan.steps):
        if not isinstance(step.do, FaultAction) or (why := _beyond_reality(step.do)) is None:
            continue
        if any(f.step == number and f.effective is not Tristate.NO for f in evidence.fault_records):
            return f"step {step.name!r} did what {why}, and Kafka promises nothing then"
    return None


def _beyond_reality(action: FaultAction) -> str | None:
    """Returns who never does what the fault does, and what that is; None if it may happen by itself."""
    given = action.parameters
    if action.fault == MESSAGE_FAULT:
        why = beyond_networks(
            MessageMatch.model_validate(given["match"]), _OF_MESSAGES.validate_python(given["action"])
        )
        return f"no network and no broker does ({why})" if why is not None else None
    if action.fault == METHOD_FAULT:
        why = beyond_code(MethodMatch.model_validate(given["match"]), _OF_METHODS.validate_python(given["action"]))
        return f"Kafka's code may never do ({why})" if why is not None else None
    return None


def _missed(evidence: Evidence, number: int) -> bool:
    steps = evidence.steps
    return bool(((steps["step"] == number) & (steps["outcome"] == StepOutcome.MISSED)).any())


def cell_doubts(plan: Plan, cell: Cell, evidence: Evidence) -> tuple[str, ...]:
    """Returns why nothing of this cell can be held: a client that served it died, did not close its files, or forgot
    its brokers."""
    mine = frozenset(cell.partitions)
    served = [c for c in plan.clients if not mine.isdisjoint(c.partitions)]
    died, crashed = _deaths(served, evidence)
    ended = (f for f in evidence.fault_records if f.nature is None or f.nature.stops)
    killed = {node for f in ended for node in f.hit}
    reasons = [f"client {name} ended although nobody stopped it ({how}{_known_end(how)})" for name, how in died.items()]
    # For tens of thousands of clients: found once, not in a search for each of them.
    last_rows = {client: row for row, client in enumerate(evidence.clients["client"].tolist())}
    for client in served:
        if CLIENT_NODE + client.client in killed or client.name in crashed:  # as the trial wanted, or as if it had
            continue
        if client.role in RECORDED_ROLES:  # its rows are whole whatever became of its process
            continue
        if client.name not in died and role_named(client.role) in (Role.PRODUCER, Role.READER):
            why = _unfinished(evidence, last_rows.get(client.client))
            reasons += [f"client {client.name} {why}"] if why else []
    quiet = (*_idle_share_group(served, evidence), *_idle_programs(served, evidence))
    return (*evidence.contradictions.get(cell.cell, ()), *reasons, *_forgetful(served, evidence), *quiet)


def ended_by_loss(plan: Plan, evidence: Evidence, losers: Collection[int]) -> tuple[str, ...]:
    """Producers that ended because a broker informed them that acknowledged records of theirs are gone, and so it is: whether
    they may be is what `lost` says. Without such a loss it is a death like any other. `losers`: clients of which
    acknowledged records are gone, by the findings."""
    clients = {c.name: c for c in plan.clients if role_named(c.role) is Role.PRODUCER}
    ended = [n for n, how in evidence.dead_clients.items() if n in clients and _ENDED_BY_LOSS.search(how)]
    return tuple(n for n in ended if clients[n].client in losers or _cut(plan, evidence, clients[n]))


def _cut(plan: Plan, evidence: Evidence, client: PlannedClient) -> bool:
    """Was a log that the client wrote to cut or destroyed? For a compacted one not every loss can be seen."""
    cells = {p: cell for cell in plan.cells for p in cell.partitions}
    envelopes = [evidence.envelope(plan, cells[p], p) for p in client.partitions]
    return any(e.wiped_moments or elected_unclean(e) is Tristate.YES for e in envelopes)


def _known_end(how: str) -> str:
    return next((f"; {known}" for pattern, known in _KNOWN_ENDS if pattern.search(how)), "")


def _deaths(served: Sequence[PlannedClient], evidence: Evidence) -> tuple[dict[str, str], set[str]]:
    """Returns which clients of a cell died unasked, and how; and who crashed in librdkafka while another of its group went
    on, or was informed of a loss. That is like a death that the trial wanted: what it had written is whole, what it had under
    way is info, and a member's work is the others'."""
    names = {c.name for c in served}
    deaths = {name: how for name, how in evidence.dead_clients.items() if _planned_name(name) in names}
    gone = set(map(_planned_name, deaths))
    went_on = {c.group_id for c in served if c.name not in gone} - {None}
    replaced = {c.name for c in served if c.group_id in went_on}
    excused = set(evidence.ended_by_loss) & deaths.keys()
    excused |= {n for n in evidence.crashed_in_librdkafka if _planned_name(n) in replaced}
    died = {_planned_name(name): how for name, how in deaths.items() if name not in excused}
    return died, set(map(_planned_name, excused)) - died.keys()


def _planned_name(name: str) -> str:
    """Returns the name of the client that was planned: who takes its place is called NAME~2, and so on."""
    return name.partition("~")[0]


def _forgetful(served: Sequence[PlannedClient], evidence: Evidence) -> Iterator[str]:
    """Yields the clients that knew no broker any more: what they would have seen and done is not known."""
    for client in served:
        if (since_ns := evidence.brokerless.get(client.client)) is not None:
            yield f"client {client.name} knew no broker from {since_ns / NS_PER_S:.1f} s on ({DEFECT})"


def _idle_share_group(served: Sequence[PlannedClient], evidence: Evidence) -> Iterator[str]:
    """A share group that was given no record at all has shown nothing: its partitions may never have been initialised."""
    members = [c for c in served if c.role in SHARING]
    clients = evidence.clients
    rows = np.isin(clients["client"], [c.client for c in members])
    if members and not (clients["issued"][rows] > 0).any():
        yield f"no member of the share group {members[0].group_id} got a record"


def _idle_programs(served: Sequence[PlannedClient], evidence: Evidence) -> Iterator[str]:
    """A program of yours that consumes and reported no record has shown nothing: it may print other lines than it should."""
    clients = evidence.clients
    for program in (client for client in served if client.reads_by_command):
        rows = np.isin(clients["planned"], [program.client])
        if (clients["issued"][rows] == 0).all():
            yield f"{program.name}, a program of yours, reported no record that it read"


def _unfinished(evidence: Evidence, row: int | None) -> str | None:
    """Returns what is unfinished about a client, by its last row of `clients`."""
    if row is None:
        return "left no record of itself"
    clients = evidence.clients
    exit_code = int(clients["exit_code"][row])
    if int(clients["complete"][row]) != 1:
        return f"did not close its files (exit {'unknown' if exit_code == NONE else exit_code})"
    return f"ended with status {exit_code}" if exit_code not in (0, NONE) else None


NEEDS_OUR_CLIENTS = ("orphaned", "unstable", "starved", "own-read", "information-cycle", "write-cycle")
"""Anomalies that need clients which prozess itself runs: the clients of a test begin and end as the test wants."""
NOT_OURS = (
    "the clients are the test's own, and nobody knows when they ask for records, and what they read within transactions"
)


NOT_GENERATED = ("out-of-sequence", "unstable", "starved")
"""Anomalies that need what an earlier `generate` left out: sequences of batches, and the times of members."""
LEFT_OUT = "the earlier version of generate that made this history left out what it needs"


def not_asked(plan: Plan, cell: Cell) -> Mapping[str, str]:
    """Returns the anomalies that nobody could have seen in this cell, each with the reason."""
    if plan.origin == "generated":
        return dict.fromkeys(NOT_GENERATED, LEFT_OUT)
    return dict.fromkeys(NEEDS_OUR_CLIENTS, NOT_OURS) if cell.workload == catalogue.RECORDED else {}


# A run whose files prove nothing is unknown, whatever was found in it.


NAMED_MAX = 16
"""How many damaged files a verdict names; of the others it says how many there are."""


def unlooked(plan: Plan, doubts: Sequence[str]) -> TrialVerdict:
    """Returns the verdict on a run into which nobody looked, because its damaged files may say anything. `doubts`: why,
    worst first."""
    cells = tuple(_blank(plan, cell) for cell in plan.cells)
    blank = TrialVerdict(
        verdict=Verdict.UNKNOWN, sentence="", trial=plan.trial, title=plan.title, seed=plan.seed, cells=cells
    )
    return with_doubts(blank, doubts)


def _blank(plan: Plan, cell: Cell) -> CellVerdict:
    """Returns the verdict on a cell into which nobody looked."""
    return CellVerdict(
        cell=cell.cell,
        name=cell.name,
        workload=cell.workload,
        axes=cell.axes,
        verdict=Verdict.UNKNOWN,
        anomalies={
            name: CellAnomaly(anomaly=name, outcome=AnomalyOutcome.UNKNOWN, verdict=Verdict.UNKNOWN)
            for name, guarantee in TABLE.items()
            if guarantee.applies(cell.traits) and name not in not_asked(plan, cell)
        },
    )


def partly_unlooked(verdict: TrialVerdict, plan: Plan, lost: Sequence[LostRows], doubts: Sequence[str]) -> TrialVerdict:
    """Returns the verdict on a run of which rows are damaged. The cells that this concerns are unknown, whatever the verdict
    says of them; all others are as they were judged, by rows that are proven. The run as a whole is unknown. `lost`: the
    damaged rows; `doubts`: the damaged files, worst first."""
    unreadable = unreadable_cells(plan, lost)
    cells = tuple(
        _doubted(_blank(plan, plan.cells[cell.cell]), sentence(unreadable[cell.cell]))
        if cell.cell in unreadable
        else cell
        for cell in verdict.cells
    )
    others = Counter(str(cell.verdict) for cell in cells if cell.cell not in unreadable)
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(others.items()))
    concerned = f"{len(unreadable):,} of {len(cells):,} cells {'is' if len(unreadable) == 1 else 'are'} not judged."
    rest = f" Judged by intact files: {counts}." if counts else ""
    return verdict.model_copy(
        update={
            **_unknown_as_a_whole(verdict, doubts),
            "sentence": f"{_because(doubts)} {concerned}{rest}",
            "cells": cells,
            "facts": at_risk(cells),
        }
    )


def _unknown_as_a_whole(verdict: TrialVerdict, doubts: Sequence[str]) -> dict[str, object]:
    """Returns what becomes unknown of a whole run, whichever of its cells are."""
    unknown = {"verdict": Verdict.UNKNOWN, "reason": sentence(doubts[0])}
    return {
        "verdict": Verdict.UNKNOWN,
        "unknown_reasons": tuple(dict.fromkeys((*_named(doubts), *verdict.unknown_reasons))),
        "alerts": tuple(alert.model_copy(update=unknown) for alert in verdict.alerts),
        "of_kafka": None if verdict.of_kafka is None else Verdict.UNKNOWN,
        "server_errors": None if verdict.server_errors is None else Verdict.UNKNOWN,
    }


def _because(doubts: Sequence[str]) -> str:
    more = f" (and {len(doubts) - 1:,} more)" if len(doubts) > 1 else ""
    return f"Unknown: {doubts[0].rstrip('.')}{more}."


def _named(doubts: Sequence[str]) -> list[str]:
    if len(doubts) <= NAMED_MAX:
        return list(doubts)
    return [*doubts[:NAMED_MAX], f"{len(doubts) - NAMED_MAX:,} more files are damaged"]


def with_doubts(verdict: TrialVerdict, doubts: Sequence[str]) -> TrialVerdict:
    """Returns the same verdict with everything that was judged unknown, because of `doubts` (at least one, worst first). What
    was found is still reported, and counts for nothing: no promise is kept, and none is broken, by files that nothing
    proves."""
    assert doubts, "there must be a reason to doubt"
    reason = sentence(doubts[0])
    found = {name: count for name, count in verdict.findings.items() if count}
    return verdict.model_copy(
        update={
            **_unknown_as_a_whole(verdict, doubts),
            "sentence": f"{_because(doubts)} {_cells(len(verdict.cells))} judged.{_counts_text(found)}",
            "cells": tuple(_doubted(cell, reason) for cell in verdict.cells),
            "controls": (),
            "not_proven": (),
            "facts": {},
            "application": None if verdict.application is None else verdict.application.doubted(),
        }
    )


def _doubted(cell: CellVerdict, reason: str) -> CellVerdict:
    anomalies = {name: _unknown(anomaly, reason) for name, anomaly in cell.anomalies.items()}
    return cell.model_copy(update={"verdict": Verdict.UNKNOWN, "anomalies": anomalies, "windows": ()})


def _unknown(anomaly: CellAnomaly, reason: str) -> CellAnomaly:
    if anomaly.outcome is AnomalyOutcome.NOT_JUDGED:
        return anomaly
    witnesses = tuple(witness.model_copy(update={"effect": "unknown"}) for witness in anomaly.witnesses)
    return anomaly.model_copy(
        update={
            "outcome": AnomalyOutcome.UNKNOWN,
            "verdict": Verdict.UNKNOWN,
            "forbidden": 0,
            "permitted": 0,
            "unknown": anomaly.count,
            "proven": None,
            "reason": reason,
            "why": reason,
            "defects": (),
            "known": {},
            "possible": {},
            "witnesses": witnesses,
        }
    )


def _cells(count: int) -> str:
    return "The only cell is not" if count == 1 else f"None of {count:,} cells is"


def _counts_text(found: Mapping[str, int]) -> str:
    counts = ", ".join(f"{name} {count:,}" for name, count in found.items())
    return f" Found, though damaged files prove nothing: {counts}." if found else ""


# Evidence that was dropped: nothing is *held* of a partition with a gap, and what was found there stands only if no line
# that is missing could explain it.


_REASONS_SHOWN = 2
CERTAIN_WITHOUT_READS = frozenset(
    (
        *("duplicate", "offset-conflict", "phantom", "corrupt", "misplaced", "resurrected", "time-travel"),
        *("zombie-write", "aborted-read", "early-read", "own-read", "information-cycle", "write-cycle"),
    )
)
"""Anomalies that consist of what somebody was given, or was answered. One more read takes none of it back. All others say
that something was not given, or in which order it was given."""
SHAKEN_WITHOUT_SENDS = frozenset(("phantom", "unreported"))
"""Anomalies that say that nobody sent a record, or that nobody was answered: a line that is missing may say that."""


def reasons_of_gaps(plan: Plan, cell: Cell) -> tuple[str, ...]:
    """Returns why nothing is held in a cell: at most a few reasons, the last with how many more there are."""
    reasons = list(dict.fromkeys(gap.why for gap in _gaps(plan, cell)))
    more = len(reasons) - _REASONS_SHOWN
    if more <= 0:
        return tuple(reasons)
    shown = "; ".join(reasons[:_REASONS_SHOWN])
    return (f"{shown}; and {more} more gap{'s' if more > 1 else ''} in the evidence",)


def uncertain_partitions(plan: Plan, cell: Cell, anomaly: str) -> Mapping[int, str]:
    """Returns the partitions of a cell in which a finding of this anomaly may come of what is missing, and why."""
    assert anomaly in TABLE, anomaly
    found: dict[int, str] = {}
    for gap in _gaps(plan, cell):
        if may_explain(gap, anomaly):
            for partition in gap.partitions:
                found.setdefault(partition, gap.why)
    return found


def may_explain(gap: EvidenceGap, anomaly: str) -> bool:
    """Returns whether what is missing may explain a finding of this anomaly."""
    match gap.hides:
        case "records":
            return True
        case "reads":
            return anomaly not in CERTAIN_WITHOUT_READS
        case "sends":
            return anomaly in SHAKEN_WITHOUT_SENDS
        case "end":  # what was found had happened before
            return False


def _gaps(plan: Plan, cell: Cell) -> Iterator[EvidenceGap]:
    mine = frozenset(cell.partitions)
    return (gap for gap in plan.gaps if not mine.isdisjoint(gap.partitions))
