"""This kernel checks that a producer with something to send sends: one of its records is acknowledged, now and then."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prozess.checkers.lookup import distinct
from prozess.checkers.progress.awake import BEAT_GAP_NS, Span, asked_of, longest_awake, while_asked
from prozess.harness.columns import joined, once
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import (
    WITNESSES_MAX,
    ProgressCase,
    join_witnesses,
    make_witnesses,
)
from prozess.harness.schema import MISSING, NONE, ObservationKind, Outcome, Role

LONG_NS = BEAT_GAP_NS
"""A send that ended sooner than this did not wait: it was refused, or acknowledged."""
UNTIMED_ROLES = frozenset({"verifiable-producer"})
"""Clients of these roles report a send when it is over, and not when it began."""
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class SendWaits:
    """What must be known of a block of `sends`, to say for how long a producer waited in vain. Two blocks are put
    together by `join_waits`."""

    senders: np.ndarray
    """The clients that sent something outside transactions, ascending."""
    busy: Mapping[int, np.ndarray]
    """For each client, int64[k, 2]: the times from one acknowledgement to another between which there were others less than
    the bound apart. Between two rows, none came for the bound."""
    waiting: Mapping[str, np.ndarray]
    """The sends that waited: client, sequence, invoked_ns, completed_ns."""


def waits_of(sends: Columns, bound_ns: int) -> SendWaits:
    """Returns what must be known of these rows of `sends`. O(n), O(n log n) where one of them waited.

    Waiting are sends outside transactions that were not over after LONG_NS; of those that were acknowledged, only sends that
    took the bound, so that nearly none of a large partition is kept.
    """
    alone = sends["transaction"] == NONE
    waiting = _waiting(sends, alone, bound_ns)
    rows = np.flatnonzero(alone & (sends["outcome"] == Outcome.OK.value) & (sends["completed_ns"] != MISSING))
    return SendWaits(
        np.unique(sends["client"][alone]),
        _busy(sends["client"][rows], sends["completed_ns"][rows], sends["completed_ns"][rows], bound_ns),
        {name: sends[name][waiting] for name in ("client", "sequence", "invoked_ns", "completed_ns")},
    )


def _waiting(sends: Columns, alone: np.ndarray, bound_ns: int) -> np.ndarray:
    acknowledged = (sends["outcome"] == Outcome.OK.value) & (sends["completed_ns"] != MISSING)
    assert bound_ns > 0, bound_ns
    took_ns = sends["completed_ns"] - sends["invoked_ns"]  # of what never ended it overflows, and is not looked at
    least_ns = np.where(acknowledged, bound_ns, LONG_NS)
    return np.flatnonzero(alone & ((sends["completed_ns"] == MISSING) | (took_ns >= least_ns)))


def join_waits(parts: Sequence[SendWaits], bound_ns: int) -> SendWaits:
    """Returns what must be known of all rows of a partition, from what is known of its blocks."""
    # Spans of blocks are joined as acknowledgements are within one: those that are less than the bound apart.
    spans = [(np.full(len(busy), client), busy) for part in parts for client, busy in part.busy.items()]
    client = np.concatenate([np.empty(0, dtype=np.int64), *(owner for owner, _ in spans)])
    begin_ns, end_ns = np.concatenate([np.empty((0, 2), dtype=np.int64), *(busy for _, busy in spans)]).T
    names = ("client", "sequence", "invoked_ns", "completed_ns")
    return SendWaits(
        np.unique(np.concatenate([np.empty(0, dtype=np.int32), *(part.senders for part in parts)])),
        _busy(client, begin_ns, end_ns, bound_ns),
        {n: np.concatenate([np.empty(0, dtype=np.int64), *(part.waiting[n] for part in parts)]) for n in names},
    )


def _busy(client: np.ndarray, begin_ns: np.ndarray, end_ns: np.ndarray, bound_ns: int) -> dict[int, np.ndarray]:
    """Returns these spans of clients, those joined that are less than the bound apart.

    Example: acknowledgements at 1, 2, 3, 90 and 91 s, and a bound of 50 s: 1 to 3 s and 90 to 91 s.
    """
    if not len(client):
        return {}
    order = np.lexsort((begin_ns, client))
    client, begin_ns, end_ns = client[order], begin_ns[order], end_ns[order]
    found = {}
    edges = np.flatnonzero(client[1:] != client[:-1]) + 1
    for owner, begins, ends in zip(
        client[np.append(0, edges)].tolist(), np.split(begin_ns, edges), np.split(end_ns, edges), strict=True
    ):
        # Spans by begin: between two there is a silence where the next begins so long after all ends before it.
        # In the example the ends so far are 1 2 3 90 91, and 90 - 3 is more than 50: apart after the third.
        reached = np.maximum.accumulate(ends)
        assert len(begins) == len(ends), "a span has two ends"
        apart = np.flatnonzero(begins[1:] - reached[:-1] >= bound_ns)
        found[owner] = np.stack([begins[np.append(0, apart + 1)], reached[np.append(apart, len(ends) - 1)]], axis=1)
    return found


def stuck(history: CellHistory) -> KernelResult:
    """A producer that has something to send to a partition gets an acknowledgement of one of its records there.

    Source: KafkaProducer: a record is sent again until delivery.timeout.ms; Kafka documentation, design, "Replication".
    Judged is each producer in each partition to which it sent outside transactions, while it lived. It had something to send
    while a send waited, from its call until its end (`waits_of`), with pauses up to LONG_NS. A recorded client of a test must
    have asked its library meanwhile (poll, flush), because only then is it reported.

    Example: the bound is 50 s. Sends at 10 s and at 40 s fail 20 s later, one at 60.5 s never ends, and the client lives
    until 100 s. The last acknowledgement came at 5 s: a witness from 40 s to 100 s. If another one came at 70 s, there is
    none. Witness: `client` and `sequence`, the first send that waited then; the client was awake and waited from `begin_ns`
    until `end_ns`, at least until `other_ns`, which is the bound after `begin_ns`; `case`: ProgressCase. O(n), O(n log n)
    where sends waited; loops run over waits of the bound: normally none.
    """
    bound_ns = history.bounds.acknowledgement_ns
    waited, judged = _waited(history)
    parts = [stuck_in(history, number, waits_of(history.partitions[number].sends, bound_ns)) for number in waited]
    witnesses = join_witnesses(part.witnesses for part in parts)
    return KernelResult(
        witnesses[:WITNESSES_MAX], sum(part.count for part in parts), judged + sum(part.judged for part in parts)
    )


def _waited(history: CellHistory) -> tuple[Collection[int], int]:
    """Returns the partitions to which a send waited, and how many producers are judged in the others, once in each."""
    numbers = np.array(list(history.partitions))
    if len(numbers) == 1:
        return history.partitions.keys(), 0
    names = ("client", "transaction", "outcome", "invoked_ns", "completed_ns")
    sends, owner = joined([one.sends for one in history.partitions.values()], names)
    alone = sends["transaction"] == NONE
    waited = np.zeros(len(numbers), dtype=bool)
    waited[owner[_waiting(sends, alone, history.bounds.acknowledgement_ns)]] = True
    rows = np.flatnonzero(alone & ~waited[owner] & np.isin(sends["client"], list(_lives(history))))
    return numbers[waited].tolist(), len(distinct(owner[rows] << 32 | sends["client"][rows]))


def stuck_in(history: CellHistory, partition: int, waits: SendWaits) -> KernelResult:
    """Returns what `stuck` finds in one partition."""
    lives = _lives(history)
    judged = sum(int(one) in lives for one in waits.senders)
    bound_ns, found = history.bounds.acknowledgement_ns, list[np.ndarray]()
    for client in np.unique(waits.waiting["client"]).tolist():
        if client not in lives:
            continue
        started_ns, ended_ns = lives[client]
        mine = waits.waiting["client"] == client
        sequence, begin_ns, end_ns = (waits.waiting[n][mine] for n in ("sequence", "invoked_ns", "completed_ns"))
        end_ns = np.where(end_ns == MISSING, ended_ns, end_ns)
        timed = (begin_ns > started_ns) & (end_ns >= begin_ns)  # who reports its sends alone began them at any time
        sequence, begin_ns, end_ns = sequence[timed], begin_ns[timed], end_ns[timed]
        vain = _vain(begin_ns, end_ns, waits.busy.get(client, np.empty((0, 2), dtype=np.int64)))
        for wait in while_asked(asked_of(history, client, ObservationKind.ASKED), vain, bound_ns):
            # A wait lasts for the bound, and pauses between sends are far shorter: some send was under way in it.
            first = int(sequence[(end_ns > wait[0]) & (begin_ns < wait[1])].min())
            found.append(_witness(history, partition, (client, first), wait))
    witnesses = join_witnesses(found)
    return KernelResult(witnesses[:WITNESSES_MAX], len(witnesses), judged)


def _lives(history: CellHistory) -> dict[int, Span]:
    """Returns when each producer began and ended, or was last known to live, of those with heartbeats: of others, as in
    imports, nothing shows when they were awake."""
    return once(history.tables["clients"], _lives, lambda: _find_lives(history))


def _find_lives(history: CellHistory) -> dict[int, Span]:
    clients, beats = history.tables["clients"], history.tables["heartbeats"]
    untimed = [client.client for client in history.clients if client.role in UNTIMED_ROLES]
    rows = (clients["role"] == Role.PRODUCER.value) & np.isin(clients["client"], beats["client"])
    rows &= ~np.isin(clients["planned"], untimed)
    lives = {}
    for row in np.flatnonzero(rows).tolist():
        client, ended_ns = int(clients["client"][row]), int(clients["ended_ns"][row])
        if ended_ns == MISSING:
            ended_ns = int(beats["time_ns"][beats["client"] == client].max())
        if asked_of(history, client, ObservationKind.ASKED):
            lives[client] = (int(clients["started_ns"][row]), ended_ns)
    return lives


def _beats(history: CellHistory, client: int) -> np.ndarray:
    hearts = history.tables["heartbeats"]
    return np.sort(hearts["time_ns"][hearts["client"] == client])


def _vain(begin_ns: np.ndarray, end_ns: np.ndarray, busy: np.ndarray) -> list[Span]:
    """Returns when a send waited, with pauses up to LONG_NS, and no acknowledgement came."""
    if not len(begin_ns):
        return []
    order = np.argsort(begin_ns, kind="stable")
    begin_ns, reached = begin_ns[order], np.maximum.accumulate(end_ns[order])
    # Waits that overlap, or follow one another at once, are one: something was under way all the time.
    apart = np.flatnonzero(begin_ns[1:] - reached[:-1] > LONG_NS)
    waits = zip(
        begin_ns[np.append(0, apart + 1)].tolist(), reached[np.append(apart, len(reached) - 1)].tolist(), strict=True
    )
    # Silences are what lies between the busy spans, before the first of them and after the last. Example: busy 1–3 and 90–91
    # s, and a send that waited from 10 to 60 s: it waited in vain from 10 to 60 s, within the silence 3–90 s.
    silences = list(zip([-(2**62), *busy[:, 1].tolist()], [*busy[:, 0].tolist(), 2**62], strict=True))
    return [(max(a, since), min(b, until)) for a, b in waits for since, until in silences if a < until and since < b]


def _witness(history: CellHistory, partition: int, send: tuple[int, int], wait: Span) -> np.ndarray:
    bound_ns, (client, sequence) = history.bounds.acknowledgement_ns, send
    since_ns, until_ns = longest_awake(_beats(history, client), *wait)
    awake = until_ns - since_ns >= bound_ns
    begin_ns, end_ns = (since_ns, until_ns) if awake else wait
    columns = {
        "partition": partition,
        "client": client,
        "sequence": sequence,
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "other_ns": begin_ns + bound_ns,
        "case": ProgressCase.ACKNOWLEDGEMENT if awake else ProgressCase.STOOD_STILL,
    }
    return make_witnesses(1, columns)
