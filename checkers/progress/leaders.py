"""This kernel checks that a partition has a leader within reach, as long as another replica could lead."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prozess.checkers.log.leadership import broker_truth, ground_truth
from prozess.checkers.lookup import differs_from_previous, distinct
from prozess.checkers.progress.awake import BEAT_GAP_NS
from prozess.harness.columns import empty_rows, joined, once
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import (
    WITNESSES_MAX,
    ProgressCase,
    join_witnesses,
    make_witnesses,
)
from prozess.harness.schema import HEARTBEATS, METADATA, NONE, MetadataKind

MASK_BITS = 63
Span = tuple[int, int]
_NAMED = ("leader", "kind", "source", "time_ns", "log_position")


def leaderless(history: CellHistory) -> KernelResult:
    """A partition gets another leader once its own is out of reach, as long as another replica could lead.

    Source: Kafka documentation, design, "Replicated logs"; KIP-631 (a broker that is not heard of for
    broker.session.timeout.ms is fenced, and its partitions get other leaders); KIP-966. Judged are the times in which the
    controllers' log named nobody, or a leader that was certainly out of reach: ended or frozen by a fault that was seen to
    work. It counts if one replica of ISR ∪ ELR (if both are empty, the last known leader) was meanwhile within reach and
    not fenced, for `bounds.new_leader_ns` without a break.

    Example: broker 1 leads, brokers 1 and 2 are in sync, and the bound is 24 s. Broker 1 is killed at 5 s and started again
    at 60 s, and the log names it all the time: a witness from 5 s to 60 s. If broker 2 is frozen from 20 s to 40 s, neither
    15 s nor 20 s are enough, and there is none. Witness: `other_client` had led in epoch `sequence`, and `reader` could
    have from `begin_ns` to `end_ns`; `case` STOOD_STILL where the machine may have. Incomplete without the controllers' log.
    """
    table, bound = history.tables.get("metadata", empty_rows(METADATA)), history.bounds.new_leader_ns
    hearts = history.tables.get("heartbeats", empty_rows(HEARTBEATS))
    beats, still = once(hearts, leaderless, lambda: _beats_and_gaps(hearts["time_ns"]))
    odd, judged = _not_led(history)
    found, reasons = list[np.ndarray](), list[str]()
    for number in odd:
        partition = history.partitions[number]
        rows = ground_truth(partition.metadata)
        if not len(rows):
            reasons.append(f"the controllers' log says nothing about leaders of partition {number}")
            continue
        seen = partition.observations["time_ns"]
        last_ns = int(
            max([*partition.metadata["time_ns"][rows[-1:]], *beats[-1:], *([seen.max()] if len(seen) else [])])
        )
        for reign in _reigns(partition.metadata, rows, last_ns):
            judged += 1
            for begin_ns, end_ns in _without(reign, history.out):
                could = _could_lead(reign, (begin_ns, end_ns), table, history.out, bound)
                if could is None:
                    continue
                node, (since_ns, until_ns) = could
                slept = bool(((still[0] < until_ns) & (still[1] > since_ns)).any())
                columns = {
                    "partition": number,
                    "reader": node,
                    "other_client": reign.leader if reign.leader != NONE else reign.before,
                    "sequence": reign.epoch,
                    "begin_ns": since_ns,
                    "end_ns": until_ns,
                    "case": ProgressCase.STOOD_STILL if slept else ProgressCase.LEADER,
                }
                found.append(make_witnesses(1, columns))
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged, incomplete="; ".join(reasons) or None)


def _not_led(history: CellHistory) -> tuple[Collection[int], int]:
    """Returns the partitions that must be looked at one by one, and how many reigns the others have, all within reach."""
    numbers = np.array(list(history.partitions))
    if len(numbers) == 1:
        return history.partitions.keys(), 0
    table, owner = joined([one.metadata for one in history.partitions.values()], _NAMED)
    rows = ground_truth(table)
    rows = rows[np.argsort(owner[rows], kind="stable")]
    leader, kind, owner = table["leader"][rows], table["kind"][rows], owner[rows]
    new = differs_from_previous(owner) | differs_from_previous(leader) | differs_from_previous(kind)
    new &= kind != MetadataKind.DELETED.value
    odd = np.bincount(owner, minlength=len(numbers)) == 0
    odd[owner[new & np.isin(leader, [NONE, *history.out])]] = True
    return numbers[odd].tolist(), int(np.count_nonzero(new & ~odd[owner]))


def _beats_and_gaps(time_ns: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Returns the times of heartbeats, ascending, and where each gap between them begins and ends. They are of all processes
    together: where none came at all, it was the machine that stood still."""
    beats = distinct(time_ns)
    gaps = np.flatnonzero(np.diff(beats) > BEAT_GAP_NS)
    return beats, (beats[gaps], beats[gaps + 1])


@dataclass(frozen=True, slots=True)
class Reign:
    """A stretch of the controllers' log that names one leader, or none."""

    leader: int
    before: int
    epoch: int
    begin_ns: int
    end_ns: int
    eligible: int
    """Mask: who was in ISR or ELR all the time, or the last known leader if nobody ever was."""


def _reigns(table: Mapping[str, np.ndarray], rows: np.ndarray, last_ns: int) -> Iterator[Reign]:
    """Yields the reigns of one partition. The loop runs over its leaders."""
    leader, kind = table["leader"][rows].astype(np.int64), table["kind"][rows]
    time_ns = np.maximum.accumulate(table["time_ns"][rows])
    new = np.flatnonzero(np.concatenate([[True], (leader[1:] != leader[:-1]) | (kind[1:] != kind[:-1])]))
    before = NONE
    for first, stop in zip(new.tolist(), [*new[1:].tolist(), len(rows)], strict=True):
        own = rows[first:stop]
        both = table["isr"][own] | table["elr"][own]
        # Only whoever was eligible in all rows of the reign counts.
        # Example: {1, 2, 3}, then {1, 3} are 0b1110 and 0b1010: 1 and 3.
        eligible = int(np.bitwise_and.reduce(np.where(both == 0, table["last_known_elr"][own], both)))
        end_ns = int(time_ns[stop]) if stop < len(rows) else last_ns
        if kind[first] != MetadataKind.DELETED:
            epoch = int(table["leader_epoch"][own[0]])
            yield Reign(int(leader[first]), before, epoch, int(time_ns[first]), end_ns, eligible)
        before = int(leader[first]) if leader[first] != NONE else before


def _without(reign: Reign, out: Mapping[int, Sequence[Span]]) -> list[Span]:
    """Returns when the reign's leader was out of reach; of nobody's reign: all of it."""
    if reign.leader == NONE:
        return [(reign.begin_ns, reign.end_ns)]
    clipped = ((max(a, reign.begin_ns), min(b, reign.end_ns)) for a, b in out.get(reign.leader, ()))
    return [(a, b) for a, b in clipped if a < b]


def _could_lead(
    reign: Reign, span: Span, brokers: Mapping[str, np.ndarray], out: Mapping[int, Sequence[Span]], bound_ns: int
) -> tuple[int, Span] | None:
    """Returns who could have led for long enough without a break, the first one, and when; None: nobody could."""
    begin_ns, end_ns = span
    if end_ns - begin_ns < bound_ns:
        return None
    found = []
    for node in range(MASK_BITS):
        if not reign.eligible >> node & 1 or node == reign.leader:
            continue
        # The first gap that is long enough between two times out of reach. The end of the span counts as such a time.
        since_ns = begin_ns
        for a, b in [*sorted([*out.get(node, ()), *_fenced(brokers, node)]), (end_ns, end_ns)]:
            if min(a, end_ns) - since_ns >= bound_ns:
                found.append((since_ns, node, min(a, end_ns)))
                break
            since_ns = max(since_ns, b)
    if not found:
        return None
    since_ns, node, until_ns = min(found)
    return node, (since_ns, until_ns)


def _fenced(table: Mapping[str, np.ndarray], node: int) -> list[Span]:
    """Returns when the controllers' log has a broker as fenced, or not registered yet."""
    rows = once(table, broker_truth, lambda: broker_truth(table))
    rows = rows[table["node"][rows] == node]
    # Before its first row a broker is not registered, and so it cannot lead.
    spans, since_ns = list[Span](), -(2**62)
    fenced = True
    for time_ns, kind in zip(table["time_ns"][rows].tolist(), table["kind"][rows].tolist(), strict=True):
        if kind == MetadataKind.BROKER_UNFENCED:
            if fenced:
                spans.append((since_ns, time_ns))
            fenced = False
        elif not fenced:
            since_ns, fenced = time_ns, True
    return [*spans, (since_ns, 2**62)] if fenced else spans
