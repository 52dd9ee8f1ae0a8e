"""This kernel checks that a call of an administrator is answered."""

import numpy as np

from prozess.checkers.progress.awake import longest_awake
from prozess.harness.columns import empty_rows
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, ProgressCase, join_witnesses, make_witnesses
from prozess.harness.schema import HEARTBEATS, NONE, OBSERVATIONS, ObservationKind


def unanswered(history: CellHistory) -> KernelResult:
    """Each administrator's call to a broker, or to the active controller, is answered within `bounds.admin_call_ns`.

    Source: KIP-533: an administrator's call is made again until default.api.timeout.ms; KIP-590: brokers hand on to the
    controller what it decides. Calls are those of prozess itself. Judged are calls that were answered, and those that lasted
    for the bound. It belongs to the cluster, so every cell shows it. Witness: `reader`, the broker (NONE: any, for the
    active controller); whoever asked was awake and waited from `begin_ns` until `end_ns`, at least until `other_ns`, which
    is the bound after `begin_ns`; `case`: ProgressCase. O(n); the loop runs over calls that lasted too long.

    Example: the bound is 50 s. A call at 10 s was answered at 61 s: a witness. One at 80 s had no answer when the recording
    ended at 100 s: it says nothing, and is not judged.
    """
    calls = history.tables.get("calls", empty_rows(OBSERVATIONS))
    beats = np.sort(history.tables.get("own_heartbeats", empty_rows(HEARTBEATS))["time_ns"])
    bound_ns = history.bounds.admin_call_ns
    long = calls["value"] >= bound_ns
    judged = long | (calls["kind"] == ObservationKind.ADMIN_ANSWERED.value)
    found = []
    for row in np.flatnonzero(long).tolist():
        node, begin_ns = int(calls["node"][row]), int(calls["time_ns"][row])
        end_ns = begin_ns + int(calls["value"][row])
        # `value` is how long the call took, or has taken so far: both kinds of rows are judged alike.
        since_ns, until_ns = longest_awake(beats, begin_ns, end_ns)
        awake = until_ns - since_ns >= bound_ns
        if awake:
            begin_ns, end_ns = since_ns, until_ns
        columns = {
            "partition": history.cell.partitions[0],
            "reader": node,
            "begin_ns": begin_ns,
            "end_ns": end_ns,
            "other_ns": begin_ns + bound_ns,
            "case": (ProgressCase.CONTROLLER_CALL if node == NONE else ProgressCase.BROKER_CALL)
            if awake
            else ProgressCase.STOOD_STILL,
        }
        found.append(make_witnesses(1, columns))
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), int(judged.sum()))
