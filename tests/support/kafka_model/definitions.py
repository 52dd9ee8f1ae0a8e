"""Definitions of anomalies as one would write them on paper, record by record and in squares of time: what the kernels, which
are vectorised, must agree with where what was planted does not say how much there is."""

from collections.abc import Mapping

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces.checking import PartitionHistory
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, Isolation, MetadataSource, Outcome, Role


def time_travel(history: PartitionHistory) -> int:
    """Records that were acknowledged (acks ≠ 0) or read before one was invoked whose first copy stands before them, or that
    were read before they were invoked. All clients have one clock."""
    reads, sends = history.reads, history.sends
    end = history.audit_end.get(Isolation.READ_UNCOMMITTED)
    first: dict[tuple[int, int], int] = {}
    log: dict[int, tuple[int, int]] = {}
    given = []
    for reader, offset, sender, sequence, flags, read_ns in zip(
        *(reads[name].tolist() for name in ("client", "log_offset", "sender", "sequence", "flags", "read_ns")),
        strict=True,
    ):
        audit = (
            history.client_role[reader] == Role.AUDIT and history.client_isolation[reader] == Isolation.READ_UNCOMMITTED
        )
        if flags or sender == SENTINEL_CLIENT:
            continue
        given.append((offset, (sender, sequence), read_ns))
        if audit and (end is None or offset < end):
            first.setdefault((sender, sequence), offset)
            log[offset] = sender, sequence
    rows = [dict(zip(sends, values, strict=True)) for values in zip(*(sends[n].tolist() for n in sends), strict=True)]
    invoked = {(row["client"], row["sequence"]): row["invoked_ns"] for row in rows}
    there = [(row, first[key]) for row in rows if (key := (row["client"], row["sequence"])) in first]
    there = [(row, offset) for row, offset in there if history.client_role[row["client"]] == Role.PRODUCER]
    found = {
        (offset, (row["client"], row["sequence"]))
        for row, offset in there
        if row["outcome"] == Outcome.OK and row["completed_ns"] != MISSING and history.client_acks[row["client"]] != 0
        if any(later["invoked_ns"] > row["completed_ns"] and place < offset for later, place in there)
    }
    for offset, record, read_ns in given:
        unsent = invoked.get(record, read_ns) > read_ns
        behind = log.get(offset) == record and any(
            later["invoked_ns"] > read_ns and place < offset for later, place in there
        )
        if unsent or behind:
            found.add((offset, record))
    return len(found)


def under_acknowledged(history: PartitionHistory) -> int:
    """acks=all acknowledgements with too few in sync at every moment, and a second and the clock error before and after."""
    table = history.metadata
    truth = sorted(
        (time_ns, isr)
        for time_ns, isr, source in zip(*(table[n].tolist() for n in ("time_ns", "isr", "source")), strict=True)
        if source == MetadataSource.CONTROLLER_LOG
    )
    wider = NS_PER_S + history.metadata_error_ns
    found = 0
    sends = history.sends
    for client, outcome, invoked_ns, completed_ns in zip(
        *(sends[name].tolist() for name in ("client", "outcome", "invoked_ns", "completed_ns")), strict=True
    ):
        if outcome != Outcome.OK or completed_ns == MISSING or history.client_acks[client] != -1:
            continue
        if history.client_role[client] != Role.PRODUCER:
            continue
        begin_ns, end_ns = invoked_ns - wider, completed_ns + wider
        before = [isr for time_ns, isr in truth if time_ns <= begin_ns][-1:]
        within = [isr for time_ns, isr in truth if begin_ns < time_ns <= end_ns]
        wanted = min(history.min_insync_replicas or NONE, 3)
        found += bool(before) and all(isr.bit_count() < wanted for isr in (*before, *within))
    return found


def epochs_fall(history: PartitionHistory) -> int:
    """How often a leader epoch falls from one batch of a copy to the next, or from one record that a reader got to the next
    of the same span at a higher offset. What has no epoch is left out."""
    last: dict[tuple[int, ...], tuple[int, int]] = {}
    found = 0
    for *whose, offset, end, epoch in (*_rows_of(history.replicas, "node", "step", "base_offset", "last_offset"),):
        found += _falls(last, (0, *whose), offset, end, epoch)
    for *whose, offset, end, epoch in (*_rows_of(history.reads, "client", "span", "log_offset", "log_offset"),):
        found += _falls(last, (1, *whose), offset, end, epoch)
    return found


def _rows_of(table: Mapping[str, np.ndarray], *names: str) -> list[tuple[int, ...]]:
    return list(zip(*(table[name].tolist() for name in (*names, "leader_epoch")), strict=True)) if table else []


def _falls(
    last: dict[tuple[int, ...], tuple[int, int]], whose: tuple[int, ...], offset: int, end: int, epoch: int
) -> bool:
    if epoch == NONE:
        return False
    before, last[whose] = last.get(whose), (end, epoch)
    return before is not None and offset > before[0] and epoch < before[1]
