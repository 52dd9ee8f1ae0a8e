"""This kernel checks that what clients ask of a transaction coordinator is done: an initialisation, a commit, an abort."""

from collections.abc import Mapping

import numpy as np

from prozess.checkers.lookup import differs_from_next
from prozess.checkers.progress.awake import asked_of, longest_awake, while_asked
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, ProgressCase, make_witnesses, no_witnesses
from prozess.harness.schema import MISSING, NONE, ObservationKind, Role

ABORT = 2
"""The value of `transactions.ended_by` for an abort."""
Columns = Mapping[str, np.ndarray]


def hanging(history: CellHistory) -> KernelResult:
    """Each init_transactions, commit and abort is over within its bound: it took effect, or failed for good.

    Source: KIP-98: a coordinator answers EndTxn once its decision is durable, and InitProducerId once the transaction
    before has ended; KafkaProducer, initTransactions, commitTransaction, abortTransaction: bounded by max.block.ms, and
    safe to retry. A call goes from when it was first made until it returned for good, made again for as long as the client
    stated that it may be; one that never returned, until its client ended or began another; and of a test's own client, as
    long as its application was within it, or made it again. Judged are calls that returned, and those that lasted for the
    bound. Witness: `client`, `sequence` (the number of its transaction, NONE for an initialisation); it was awake and
    waited from `begin_ns` until `end_ns`, at least until `other_ns`, which is the bound after `begin_ns`; `case`:
    ProgressCase. O(n log n); the loop runs over calls that lasted too long.

    Example: the bound is 50 s. An abort at 10 s returned at 70 s: a witness. One at 80 s had not returned when its client
    was killed at 100 s: it says nothing, and is not judged.
    """
    calls = _own(
        history, _calls(history.tables["transactions"], _ends(history.tables["clients"], history.tables["heartbeats"]))
    )
    bound_ns = history.bounds.transaction_call_ns
    long = np.flatnonzero(calls["end_ns"] - calls["begin_ns"] >= bound_ns)
    calls, long = _while_called(history, calls, long, bound_ns)
    returned = calls["returned"].copy()
    returned[long] = True
    shown = {name: values[long[:WITNESSES_MAX]] for name, values in calls.items()}
    return KernelResult(_witnesses(shown, history, bound_ns), count=len(long), judged=int(returned.sum()))


def _while_called(
    history: CellHistory, calls: dict[str, np.ndarray], long: np.ndarray, bound_ns: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns the calls, and those of `long` for which an application waited: each goes from when to when it was within the
    call, or made it again, for the longest time. What it gave up meanwhile, or did not make again, it did not wait for."""
    begin_ns, end_ns, kept = calls["begin_ns"].copy(), calls["end_ns"].copy(), list[int]()
    for row in long.tolist():
        called = asked_of(history, int(calls["client"][row]), ObservationKind.CALLED)
        if parts := while_asked(called, [(int(begin_ns[row]), int(end_ns[row]))], bound_ns):
            begin_ns[row], end_ns[row] = max(parts, key=lambda part: (part[1] - part[0], -part[0]))
            kept.append(row)
    return calls | {"begin_ns": begin_ns, "end_ns": end_ns}, np.array(kept, dtype=np.intp)


def _own(history: CellHistory, calls: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the calls of the cell. A fencer serves all cells, one call after the other: of its calls those with
    transactional.ids of the cell's clients."""
    clients = history.tables["clients"]
    fencers = clients["client"][clients["role"] == Role.SENTINEL.value]
    mine = ~np.isin(calls["client"], fencers) | np.isin(calls["transactional_id"], clients["client"])
    return calls if mine.all() else {name: values[mine] for name, values in calls.items()}


def _ends(clients: Columns, heartbeats: Columns) -> dict[int, int]:
    """Returns when each client ended, or was last known to live, of those with heartbeats: of others, as in imports, nothing
    shows when they were awake."""
    order = np.lexsort((heartbeats["time_ns"], heartbeats["client"]))
    client, time_ns = heartbeats["client"][order], heartbeats["time_ns"][order]
    # In the order of clients and times, the last heartbeat of a client stands before the first one of the next client.
    final = np.flatnonzero(differs_from_next(client))
    last = dict(zip(client[final].tolist(), time_ns[final].tolist(), strict=True))
    ended = np.flatnonzero((clients["ended_ns"] != MISSING) & np.isin(clients["client"], client[final]))
    return last | dict(zip(clients["client"][ended].tolist(), clients["ended_ns"][ended].tolist(), strict=True))


def _calls(rows: Columns, ends: Mapping[int, int]) -> dict[str, np.ndarray]:
    """Returns the calls of clients that are known to have lived, in the order of clients and times: arrays of one length."""
    order = np.lexsort((rows["begun_ns"], rows["client"]))
    client, begun_ns, transaction = (rows[name][order] for name in ("client", "begun_ns", "transaction"))
    # Example: client 3 made calls at 1 s and 9 s. The first one never returned, so it lasted until 9 s, when the next one
    # began; the second one lasts until the client was last known to live.
    following = np.append(client[1:] == client[:-1], False)[: len(order)]
    next_ns = np.where(following, np.append(begun_ns[1:], 0)[: len(order)], np.iinfo(np.int64).max)
    # Each client is looked up once, and its answer given to all of its calls.
    caller, slot = np.unique(client, return_inverse=True)
    known = np.array([ends.get(int(one), MISSING) for one in caller], dtype=np.int64)
    lived_ns = known[slot] if len(caller) else begun_ns[:0]
    # The row of an initialisation is a call itself; that of a transaction has the call of its end.
    begin_ns = np.where(transaction == NONE, begun_ns, rows["end_invoked_ns"][order])
    completed_ns = rows["completed_ns"][order]
    returned = completed_ns != MISSING
    end_ns = np.where(returned, completed_ns, np.minimum(next_ns, lived_ns))
    case = np.where(
        transaction == NONE,
        ProgressCase.INITIALISATION,
        np.where(rows["ended_by"][order] == ABORT, ProgressCase.ABORT, ProgressCase.COMMIT),
    )
    assert len(begin_ns) == len(end_ns) == len(case), "an entry for each call"
    made = (begin_ns != MISSING) & (lived_ns != MISSING)
    columns = {
        "client": client,
        "sequence": transaction,
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "case": case,
        "returned": returned,
        "outcome": rows["outcome"][order],
        "transactional_id": rows["transactional_id"][order],
    }
    return {name: values[made] for name, values in columns.items()}


def _witnesses(calls: Columns, history: CellHistory, bound_ns: int) -> np.ndarray:
    """Returns a witness for each of these calls, of the longest time for which its client was awake."""
    if not len(calls["client"]):
        return no_witnesses()
    heartbeats = history.tables["heartbeats"]
    beats = {
        client: np.sort(heartbeats["time_ns"][heartbeats["client"] == client])
        for client in np.unique(calls["client"]).tolist()
    }
    spans = [
        longest_awake(beats[client], begin, end)
        for client, begin, end in zip(
            calls["client"].tolist(), calls["begin_ns"].tolist(), calls["end_ns"].tolist(), strict=True
        )
    ]
    since, until = np.array(spans, dtype=np.int64).T
    awake = until - since >= bound_ns
    begin_ns, end_ns = np.where(awake, since, calls["begin_ns"]), np.where(awake, until, calls["end_ns"])
    columns = {name: calls[name] for name in ("client", "sequence", "outcome")}
    columns |= {"begin_ns": begin_ns, "end_ns": end_ns, "other_ns": begin_ns + bound_ns}
    columns["partition"] = np.full(len(awake), history.cell.partitions[0])
    columns["case"] = np.where(awake, calls["case"], ProgressCase.STOOD_STILL)
    return make_witnesses(len(awake), columns)
