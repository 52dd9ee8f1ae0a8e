"""Says whether what a trial's steps were to bring about came true, by what was recorded.

Leaders and ISRs come from the controllers' log, logs from the replicas' own files, messages from the proxy's journal; never
from what a broker answered, which may be a zombie. What cannot be known counts as not reached. An example, with the step's
`expect = { what = "leader", of = 0, moved = true }`:

    time          3.0              7.1              9.0
                  the step begins  broker 2 leads   the next step begins       reached: broker 1 led at 3.0
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.guarantees.evidence.envelope import CONTROL, TRANSACTIONAL
from prozess.harness.guarantees.evidence.ground_truth import Timeline, no_timeline, text_of, timelines
from prozess.harness.guarantees.evidence.trial import Evidence
from prozess.harness.plan.expectations import (
    BehindExpected,
    ControllerExpected,
    Counted,
    EndsExpected,
    Expectation,
    IsrExpected,
    Lasting,
    LeaderExpected,
    MarkersExpected,
    MessageExpected,
    RemovedExpected,
    SendsExpected,
    TruncatedExpected,
)
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.schedule import parse_target
from prozess.harness.recording.codes import number_of, partition_for
from prozess.harness.schema import MISSING, NONE, MetadataKind, MetadataSource, ObservationKind, Outcome, StepOutcome
from prozess.harness.verdict import ExpectationResult

_NS_PER_MS = 1_000_000
_BATCH = ("partition", "step", "node", "base_offset", "last_offset", "leader_epoch", "checksum", "records")


@dataclass(frozen=True, slots=True)
class ExpectationSeen:
    """What was seen of an expectation: whether it came true (None: nobody can say), and what was seen, in words."""

    reached: bool | None
    words: str


@dataclass(frozen=True, slots=True)
class Span:
    """The time of one step, from when it begins to when the next one does, in ns on the trial's clock."""

    begin_ns: int
    end_ns: int


def expectation_results(plan: Plan, evidence: Evidence) -> tuple[ExpectationResult, ...]:
    """Returns what became of each expectation of the plan's steps, in the order of the steps. One of a step that was not
    done, or was left out, was not reached."""
    spans = _spans(plan, evidence)
    results = []
    for number, step in enumerate(plan.steps):
        for expectation in step.expect:
            seen = _look(plan, evidence, number, expectation, spans)
            results.append(
                ExpectationResult(step=step.name, expected=expectation.in_words, reached=seen.reached, seen=seen.words)
            )
    return tuple(results)


def expectation_doubts(results: Sequence[ExpectationResult]) -> Iterator[str]:
    """Yields why the situation was not reached that the trial is about."""
    for result in results:
        if not result.reached:
            yield (
                f"the situation was not reached: step {result.step!r} expects that {result.expected}; "
                f"{'seen' if result.reached is False else 'it cannot be known'}: {result.seen}"
            )


def _spans(plan: Plan, evidence: Evidence) -> dict[int, Span]:
    """Returns the time of each step that was done. The last one of them ends when it is done: what heals the cluster
    afterwards is not its work."""
    steps = evidence.steps
    begun: dict[int, tuple[int, int]] = {}
    for row in np.argsort(steps["step"], kind="stable").tolist():
        if steps["outcome"][row] == StepOutcome.DONE and steps["fired_ns"][row] != MISSING:
            begun[int(steps["step"][row])] = int(steps["fired_ns"][row]), int(steps["done_ns"][row])
    numbers = sorted(begun)
    spans: dict[int, Span] = {}
    for index, number in enumerate(numbers):
        fired_ns, done_ns = begun[number]
        last = index + 1 == len(numbers)
        spans[number] = Span(fired_ns, done_ns if last else begun[numbers[index + 1]][0])
    return spans


def _look(
    plan: Plan, evidence: Evidence, number: int, expectation: Expectation, spans: dict[int, Span]
) -> ExpectationSeen:
    span = spans.get(number)
    if span is None:
        return ExpectationSeen(False, "the step was not done")
    if isinstance(expectation, Lasting) and expectation.until is not None:
        if (later := spans.get(_number(plan, expectation.until))) is None:
            return ExpectationSeen(False, f"step {expectation.until!r} was not done")
        span = Span(span.begin_ns, later.begin_ns)
    return _look_within(plan, evidence, number, expectation, spans, span)


def _number(plan: Plan, name: str) -> int:
    return [step.name for step in plan.steps].index(name)


def _look_within(
    plan: Plan, evidence: Evidence, number: int, expectation: Expectation, spans: dict[int, Span], span: Span
) -> ExpectationSeen:
    match expectation:
        case MessageExpected():
            return _messages(plan, evidence, number, expectation, spans)
        case LeaderExpected():
            return _leader(plan, evidence, expectation, span)
        case ControllerExpected():
            return _controller(evidence, expectation, span)
        case IsrExpected():
            return _isr(evidence.timelines.get(expectation.partition, no_timeline()), expectation, span)
        case SendsExpected():
            return _sends(plan, evidence, expectation, span)
        case EndsExpected():
            return _ends(plan, evidence, expectation, span)
        case TruncatedExpected() | BehindExpected() | MarkersExpected() | RemovedExpected():
            return _in_files(plan, evidence, number, expectation, span)


# Messages, by the proxy's journal.


def _messages(
    plan: Plan, evidence: Evidence, number: int, expected: MessageExpected, spans: dict[int, Span]
) -> ExpectationSeen:
    if evidence.messages is None:
        return ExpectationSeen(False, "no message matched")
    messages = evidence.messages
    mine = messages["step"] == number
    if expected.partition is not None:
        mine &= messages["partition"] == expected.partition
    for name, later in ((expected.after, True), (expected.before, False)):
        if name is None:
            continue
        if (other := spans.get(_number(plan, name))) is None:
            return ExpectationSeen(False, f"step {name!r} was not done")
        mine &= (messages["time_ns"] >= other.begin_ns) if later else (messages["time_ns"] < other.begin_ns)
    rows = np.flatnonzero(mine)
    # A message has a row for each partition, all of one time.
    whole = np.unique(
        np.stack([messages[name][rows] for name in ("did", "time_ns", "opener", "server")], axis=1), axis=0
    )
    codes, counts = np.unique(whole[:, 0], return_counts=True)
    found = {text_of(evidence.dictionaries, "did", c): n for c, n in zip(codes.tolist(), counts.tolist(), strict=True)}
    text = ", ".join(f"{did!r} {count:,}" for did, count in sorted(found.items()))
    return ExpectationSeen(_within(expected, found.get(expected.did, 0)), text or "no message matched in that time")


# Leaders and ISRs, by the controllers' log.


def _leader(plan: Plan, evidence: Evidence, expected: LeaderExpected, span: Span) -> ExpectationSeen:
    timeline = _timeline_of(plan, evidence, expected)
    states = _states(timeline, span)
    if not states:
        return ExpectationSeen(None, "the controllers' log has nothing of it at that time")
    leaders = [int(timeline.leader[state]) for state in states]
    text = f"{_then([_node(leader) for leader in leaders])} led"
    if expected.node is not None:
        return ExpectationSeen(node_id(expected.node) in leaders, text)
    if expected.nobody:
        return ExpectationSeen(NONE in leaders, text)
    if expected.moved:
        return ExpectationSeen(any(leader not in (NONE, leaders[0]) for leader in leaders[1:]), text)
    return ExpectationSeen(set(leaders) == {leaders[0]} - {NONE}, text)


def _timeline_of(plan: Plan, evidence: Evidence, expected: LeaderExpected) -> Timeline:
    if isinstance(expected.of, int):
        return evidence.timelines.get(expected.of, no_timeline())
    target = parse_target(expected.of)
    assert target.cell is not None, "this is refused when the trial is planned"
    of_groups = target.role == "group-coordinator"
    kind = MetadataKind.OFFSETS_PARTITION if of_groups else MetadataKind.TRANSACTIONS_PARTITION
    found = {number_of(p): timeline for p, timeline in timelines(evidence.metadata, kind=kind).items()}
    key = (plan.names.groups if of_groups else plan.names.transactional_ids)[target.cell]
    return found.get(partition_for(key, 1 + max(found)), no_timeline()) if found else no_timeline()


def _controller(evidence: Evidence, expected: ControllerExpected, span: Span) -> ExpectationSeen:
    table = evidence.metadata
    rows = (table["kind"] == MetadataKind.CONTROLLER) & (table["source"] == MetadataSource.CONTROLLER_LOG)
    log = np.flatnonzero(rows & (table["time_ns"] <= span.end_ns))
    log = log[np.lexsort((table["log_position"][log], table["time_ns"][log]))]
    before = int((table["time_ns"][log] <= span.begin_ns).sum())
    if not before:
        return ExpectationSeen(None, "the controllers' log has nothing of it at that time")
    active = table["node"][log[before - 1 :]].tolist()
    text = f"{_then([f'node {node}' for node in active])} was the active controller"
    return ExpectationSeen(any(node != active[0] for node in active) is expected.moved, text)


def _isr(timeline: Timeline, expected: IsrExpected, span: Span) -> ExpectationSeen:
    states = _states(timeline, span)
    if not states:
        return ExpectationSeen(None, "the controllers' log has nothing of it at that time")
    masks = [int(timeline.isr[state]) for state in states]
    text = f"it was {_then([str(_brokers(mask)) for mask in masks])}"
    if expected.brokers is not None:
        return ExpectationSeen(any(_brokers(mask) == sorted(expected.brokers) for mask in masks), text)
    assert expected.at_most is not None, "one of the two is given"
    return ExpectationSeen(any(mask.bit_count() <= expected.at_most for mask in masks), text)


def _states(timeline: Timeline, span: Span) -> range:
    """Returns the entries of a timeline that held at some time of a step; none if nothing is known of its beginning."""
    if not timeline.known:
        return range(0)
    first, last = timeline.index_at(np.array([span.begin_ns, span.end_ns])).tolist()
    return range(first, last + 1) if first >= 0 else range(0)


def _brokers(mask: int) -> list[int]:
    return [node for node in range(mask.bit_length()) if mask >> node & 1]


_SHOWN_MAX = 4


def _then(words: Sequence[str]) -> str:
    """Joins what came one after the other, each once in a row: "broker 1, then nobody"."""
    shown = [word for index, word in enumerate(words) if not index or word != words[index - 1]]
    if len(shown) > _SHOWN_MAX:
        shown = [*shown[: _SHOWN_MAX - 1], "others", shown[-1]]
    return ", then ".join(shown)


def _node(node: int) -> str:
    return "nobody" if node == NONE else f"broker {node}"


def node_id(name: str) -> int:
    """Returns the id of a node by its name: "broker-2" is 2."""
    return int(name.rpartition("-")[2])


# Logs, by the replicas' own files.


def _in_files(
    plan: Plan,
    evidence: Evidence,
    number: int,
    expected: TruncatedExpected | BehindExpected | MarkersExpected | RemovedExpected,
    span: Span,
) -> ExpectationSeen:
    match expected:
        case TruncatedExpected():
            return _truncated(evidence, number, expected)
        case BehindExpected():
            return _behind(evidence, number, expected)
        case MarkersExpected():
            return _markers(evidence, expected, span)
        case RemovedExpected():
            return _removed(plan, evidence, expected)


def _truncated(evidence: Evidence, number: int, expected: TruncatedExpected) -> ExpectationSeen:
    node, partition = node_id(expected.node), expected.partition
    start = _observed(evidence, partition, node, NONE, ObservationKind.REPLICA_LOG_START)
    if evidence.replicas is None or start is None:
        return ExpectationSeen(None, f"no copy of {expected.node} was read at the end")
    if _observed(evidence, partition, node, number, ObservationKind.REPLICA_LOG_END) is None:
        return ExpectationSeen(None, f"no copy of {expected.node} was read by the step")
    rows = evidence.replicas(partition, _BATCH)
    mine = (rows["partition"] == partition) & (rows["node"] == node)
    then = np.flatnonzero(mine & (rows["step"] == number) & (rows["base_offset"] >= start))
    now = np.flatnonzero(mine & (rows["step"] == NONE))
    # A batch is what it was if it begins at the same offset, with the same epoch and contents.
    both = np.concatenate([then, now])
    names = np.stack([rows[name][both] for name in ("base_offset", "leader_epoch", "checksum")], axis=1)
    same = np.unique(names, axis=0, return_inverse=True)[1].reshape(-1)
    gone = then[~np.isin(same[: len(then)], same[len(then) :])]
    count = int((rows["last_offset"][gone] - rows["base_offset"][gone] + 1).sum())
    text = f"{count:,} of its records were not there at the end"
    return ExpectationSeen(
        count >= expected.at_least, text + (f", from offset {int(rows['base_offset'][gone].min())} on" if count else "")
    )


def _behind(evidence: Evidence, number: int, expected: BehindExpected) -> ExpectationSeen:
    ends = {
        name: _observed(evidence, expected.partition, node_id(name), number, ObservationKind.REPLICA_LOG_END)
        for name in (expected.node, expected.ahead)
    }
    own, ahead = ends[expected.node], ends[expected.ahead]
    if own is None or ahead is None:
        missing = expected.node if own is None else expected.ahead
        return ExpectationSeen(None, f"no copy of {missing} was read by the step")
    text = f"{expected.node} ended at {own}, {expected.ahead} at {ahead}"
    return ExpectationSeen(ahead >= own and _within(expected, ahead - own), text)


def _observed(evidence: Evidence, partition: int, node: int, step: int, kind: ObservationKind) -> int | None:
    seen = evidence.observations
    found = (seen["partition"] == partition) & (seen["node"] == node) & (seen["step"] == step) & (seen["kind"] == kind)
    values = seen["value"][found]
    return int(values[-1]) if len(values) else None


def _markers(evidence: Evidence, expected: MarkersExpected, span: Span) -> ExpectationSeen:
    batches = evidence.batches_of(expected.partition)
    if batches is None or evidence.wall_zero_ns is None:
        return ExpectationSeen(
            None, "the partition's log was not read, or the trial's clock was not compared with the brokers'"
        )
    marker = (batches.attributes & (TRANSACTIONAL | CONTROL)) == TRANSACTIONAL | CONTROL
    # Cut to ms: it was written in this millisecond.
    from_ns = batches.timestamp_ms[marker] * _NS_PER_MS - evidence.wall_zero_ns
    error_ns = evidence.clock_error_ns
    certain = int(((from_ns - error_ns >= span.begin_ns) & (from_ns + _NS_PER_MS + error_ns <= span.end_ns)).sum())
    possible = int(((from_ns + _NS_PER_MS + error_ns >= span.begin_ns) & (from_ns - error_ns <= span.end_ns)).sum())
    least, most = expected.bounds
    text = f"{certain:,}" if certain == possible else f"{certain:,} to {possible:,}"
    if certain >= least and (most is None or possible <= most):
        return ExpectationSeen(True, text)
    return ExpectationSeen(False if possible < least or (most is not None and certain > most) else None, text)


def _removed(plan: Plan, evidence: Evidence, expected: RemovedExpected) -> ExpectationSeen:
    seen, counts = evidence.observations, dict[int, int]()
    at_end = (seen["kind"] == ObservationKind.REPLICA_LOG_START) & (seen["step"] == NONE)
    for partition in (p for cell in plan.cells_matching(expected.cells) for p in cell.written):
        starts = seen["value"][at_end & (seen["partition"] == partition)]
        if not len(starts):
            return ExpectationSeen(None, f"no copy of partition {partition} was read at the end")
        counts[partition] = int(starts.min())  # each replica removes its own segments, sooner or later
    return _within_each(expected, counts, "partition")


# Sends, as the clients recorded them.


def _sends(plan: Plan, evidence: Evidence, expected: SendsExpected, span: Span) -> ExpectationSeen:
    counted = _COUNTED[expected.outcome]
    counts: dict[int, int] = {}
    for partition in (p for cell in plan.cells_matching(expected.cells) for p in cell.written):
        rows = None if evidence.sends is None else evidence.sends(partition, _SENDS)
        if rows is None:
            return ExpectationSeen(None, "no send was recorded")
        done = (rows["completed_ns"] >= span.begin_ns) & (rows["completed_ns"] < span.end_ns)
        done &= rows["completed_ns"] - rows["invoked_ns"] >= _ns(expected.took_s)
        counts[partition] = int((done & np.isin(rows["outcome"], counted)).sum())
    return _within_each(expected, counts, "partition")


_SENDS = ("invoked_ns", "completed_ns", "outcome")
_COUNTED: Mapping[str, Sequence[Outcome]] = {
    "acknowledged": (Outcome.OK,),
    "failed": (Outcome.FAIL,),
    "unacknowledged": (Outcome.FAIL, Outcome.INFO),
}


def _ends(plan: Plan, evidence: Evidence, expected: EndsExpected, span: Span) -> ExpectationSeen:
    table, clients = evidence.transactions, evidence.clients
    if table is None:
        return ExpectationSeen(None, "no transaction was recorded")
    done = (table["transaction"] != NONE) & (table["end_invoked_ns"] != MISSING) & (table["completed_ns"] != MISSING)
    done &= (table["completed_ns"] >= span.begin_ns) & (table["completed_ns"] < span.end_ns)
    done &= table["completed_ns"] - table["end_invoked_ns"] >= _ns(expected.took_s)
    counts: dict[int, int] = {}
    for cell in plan.cells_matching(expected.cells):
        if cell.transaction is None:
            continue
        planned = [client.client for client in plan.clients if client.cell == cell.cell]
        later = clients["client"][np.isin(clients["planned"], planned)]
        counts[cell.cell] = int((done & np.isin(table["client"], [*planned, *later.tolist()])).sum())
    return _within_each(expected, counts, "cell")


def _ns(seconds: float | None) -> int:
    return 0 if seconds is None else round(seconds * NS_PER_S)


def _within_each(expected: Counted, counts: Mapping[int, int], each: str) -> ExpectationSeen:
    """Compares the count of each partition, or of each cell, with what is expected."""
    wrong = {partition: count for partition, count in counts.items() if not _within(expected, count)}
    partition, count = next(iter(wrong.items()), next(iter(counts.items())))
    spread = (
        f"{min(counts.values()):,} to {max(counts.values()):,}" if not wrong else f"{count:,} in {each} {partition}"
    )
    return ExpectationSeen(not wrong, spread)


def _within(expected: Counted, count: int) -> bool:
    least, most = expected.bounds
    return count >= least and (most is None or count <= most)
