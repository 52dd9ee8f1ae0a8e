"""A small model of a cell with transactions that writes valid histories, and what spoils them. One seed, one history.

It knows several producers of one transactional.id (one may take over from another, which is then fenced), or of one each
(their transactions are open at the same time), commits, aborts,
commits that nobody heard of again (whether or not they took effect), transactions that nobody ended, markers that take
offsets, the last stable offset, records that produce() refused, and consumers at both isolation levels.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces.checking import CellHistory, PartitionHistory
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import (
    ADMIN_OPERATIONS,
    CLIENTS,
    HEARTBEATS,
    MISSING,
    NONE,
    OBSERVATIONS,
    RECORDER_CLIENT,
    TRANSACTIONS,
    AdminOperation,
    Isolation,
    ObservationKind,
    Outcome,
    Role,
)
from tests.support.cells.partitions import (
    AUDIT,
    AUDIT_COMMITTED,
    FAIL,
    INFO,
    OK,
    PRODUCER,
    PRODUCER_2,
    READER,
    READER_COMMITTED,
    make,
    read_row,
    send_row,
)
from tests.support.cells.transactions import ABORT, CELL, COMMIT, A, B, columns_of


@dataclass
class Entry:
    """A record in a partition's log. `shown`: V shows it; None: its transaction is open."""

    partition: int
    offset: int
    client: int
    sequence: int
    transaction: int
    shown: bool | None = None


@dataclass
class Transaction:
    """As its client knows it, and its records."""

    client: int
    number: int
    initialised_ns: int
    begun_ns: int
    end_invoked_ns: int = MISSING
    completed_ns: int = MISSING
    ended_by: int = NONE
    outcome: int = INFO
    entries: list[Entry] = field(default_factory=list)
    fenced: bool = False
    transactional_id: int = PRODUCER

    def row(self) -> dict[str, int]:
        names = ("client", "begun_ns", "end_invoked_ns", "completed_ns", "initialised_ns", "ended_by", "outcome")
        names = (*names, "transactional_id")
        return {name: getattr(self, name) for name in names} | {
            "transaction": self.number,
            "code": 0,
        }


class TransactionalCell:
    """The cell while it lives. Of the producers that use one transactional.id, who initialised last may write."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.now_ns = rng, 0
        self.logs: dict[int, list[Entry]] = {A: [], B: []}
        self.next_offset = {A: rng.choice((0, 10**12)), B: 5}
        self.refused: list[tuple[Transaction, Entry]] = []
        self.transactions: list[Transaction] = []
        self.instances: list[dict[str, int]] = []
        self.initialised: dict[int, int] = {}
        self.open: dict[int, Transaction] = {}
        own = rng.random() < 0.3
        self.name = {PRODUCER: PRODUCER, PRODUCER_2: PRODUCER_2 if own else PRODUCER}
        """Client → its transactional.id."""
        self.owner: dict[int, int] = {}
        """transactional.id → who may write."""
        self.sequences = {PRODUCER: 0, PRODUCER_2: 0}
        self.reads: dict[int, dict[int, list[dict[str, int]]]] = {p: {READER: [], READER_COMMITTED: []} for p in (A, B)}
        self.positions = {(p, r): 0 for p in (A, B) for r in (READER, READER_COMMITTED)}
        self.beats = {PRODUCER: [0], PRODUCER_2: [0]}
        """When the heart of each client beat."""
        self.calls: list[dict[str, int]] = []
        self.operations: list[dict[str, int]] = []
        self.own_beats: list[int] = []
        """Calls of administrators, and when the heart of whoever made them beat."""
        self.init(PRODUCER)

    def init(self, client: int) -> None:
        """init_transactions: what was open under the id is aborted; older instances are fenced."""
        called = self.tick()
        for transaction in self.open.values():
            if transaction.transactional_id == self.name[client]:
                transaction.fenced = True
                self._marker(transaction, shown=False)
        if client in self.open:
            del self.open[client]
        returned = self.tick()
        self.initialised[client] = returned
        self.owner[self.name[client]] = client
        blank = Transaction(client, NONE, returned, called, completed_ns=returned, outcome=OK)
        blank.transactional_id = self.name[client]
        self.instances.append(blank.row())

    def send(self) -> None:
        """The owner, or a fenced one, writes a record; in a fenced transaction nothing is appended."""
        client = self.rng.choice((*self.owner.values(), *self.owner.values(), PRODUCER, PRODUCER_2))
        if client not in self.initialised:
            return
        transaction = self.open.get(client)
        if transaction is None:
            if client != self.owner[self.name[client]]:
                return
            number = sum(t.client == client for t in self.transactions)
            transaction = Transaction(client, number, self.initialised[client], self.tick())
            transaction.transactional_id = self.name[client]
            self.transactions.append(transaction)
            self.open[client] = transaction
        partition = self.rng.choice((A, B))
        entry = Entry(partition, NONE, client, self.sequences[client], transaction.number)
        self.sequences[client] += 1
        transaction.entries.append(entry)
        if transaction.fenced or self.rng.random() < 0.05:
            return
        entry.offset = self.next_offset[partition]
        self.next_offset[partition] += 1
        self.logs[partition].append(entry)

    def end(self) -> None:
        """Somebody ends its transaction."""
        if not self.open:
            return
        client = self.rng.choice(sorted(self.open))
        transaction = self.open.pop(client)
        how = self.rng.choice(("commit", "commit", "commit", "abort", "unheard", "never"))
        if how == "never":
            transaction.fenced or self._marker(transaction, shown=False)
            return
        transaction.ended_by = ABORT if how == "abort" else COMMIT
        transaction.end_invoked_ns = self.tick()
        effective = not transaction.fenced and (how == "commit" or (how == "unheard" and self.rng.random() < 0.5))
        # A commit covers what was appended: a record that never was makes it fail.
        if any(entry.offset == NONE for entry in transaction.entries):
            effective = False
            how = "refused" if how == "commit" else how
        if not transaction.fenced:
            self._marker(transaction, shown=effective)
        if how != "unheard":
            transaction.completed_ns = self.tick()
            transaction.outcome = OK if effective else FAIL
            if how == "refused" or (transaction.fenced and how == "commit"):
                transaction.outcome = self.rng.choice((INFO, FAIL))

    def read(self, reader: int) -> None:
        """A poll of both partitions: at read_committed below the first open transaction."""
        for partition in (A, B):
            now_ns = self.tick()
            entries = self.logs[partition]
            for entry in entries[self.positions[partition, reader] :][: self.rng.randint(1, 5)]:
                if reader == READER_COMMITTED and entry.shown is None:
                    break
                self.positions[partition, reader] += 1
                if reader == READER or entry.shown:
                    row = read_row(reader, entry.offset, entry.client, entry.sequence, now_ns)
                    self.reads[partition][reader].append(row | {"partition": partition, "sent_partition": partition})

    def tick(self) -> int:
        self.now_ns += 10
        return self.now_ns

    def finish(self) -> "TransactionalCell":
        """What is open is aborted by the fence; the audit reads everything."""
        for client, transaction in list(self.open.items()):
            transaction.fenced or self._marker(transaction, shown=False)
            del self.open[client]
        self.sentinel_ns = self.tick()
        return self

    def _marker(self, transaction: Transaction, *, shown: bool) -> None:
        for entry in transaction.entries:
            if entry.offset != NONE:
                entry.shown = shown
        for partition in {entry.partition for entry in transaction.entries}:
            self.next_offset[partition] += 1

    # --- as arrays -------------------------------------------------------------------------------------------------

    def history(self) -> CellHistory:
        """The arrays."""
        rows = sorted([t.row() for t in self.transactions] + self.instances, key=lambda row: row["client"])
        clients = [
            {"client": client, "ended_ns": MISSING, "role": Role.PRODUCER, "planned": client} for client in self.beats
        ]
        beats = [{"client": client, "time_ns": time_ns} for client, times in self.beats.items() for time_ns in times]
        tables = {
            table.name: columns_of(table, found)
            for table, found in ((TRANSACTIONS, rows), (CLIENTS, clients), (HEARTBEATS, beats))
        }
        own = [{"client": RECORDER_CLIENT, "time_ns": time_ns} for time_ns in self.own_beats]
        tables |= {"calls": columns_of(OBSERVATIONS, self.calls), "own_heartbeats": columns_of(HEARTBEATS, own)}
        tables["admin_operations"] = columns_of(ADMIN_OPERATIONS, self.operations)
        partitions = {p: self._partition(p) for p in (A, B)}
        return CellHistory(cell=CELL, partitions=partitions, tables=tables, clients=())

    def _partition(self, partition: int) -> PartitionHistory:
        sentinel = self.next_offset[partition] + 3
        sends = [send_row(SENTINEL_CLIENT, 0, OK, sentinel, self.sentinel_ns)]
        for transaction in self.transactions:
            for entry in transaction.entries:
                if entry.partition == partition:
                    offset = entry.offset if transaction.outcome == OK else NONE
                    row = send_row(entry.client, entry.sequence, transaction.outcome, offset, transaction.begun_ns + 1)
                    row |= {"transaction": transaction.number, "completed_ns": transaction.completed_ns}
                    sends.append(row)
        reads = [row for reader in (READER, READER_COMMITTED) for row in self.reads[partition][reader]]
        for audit in (AUDIT, AUDIT_COMMITTED):
            shown = [e for e in self.logs[partition] if audit == AUDIT or e.shown]
            given = [(e.offset, e.client, e.sequence) for e in shown] + [(sentinel, SENTINEL_CLIENT, 0)]
            reads += [read_row(audit, *who, self.sentinel_ns + 100 + n) for n, who in enumerate(given)]
        ends = {Isolation.READ_UNCOMMITTED: sentinel, Isolation.READ_COMMITTED: sentinel}
        made = make(
            [row | {"partition": partition} for row in sorted(sends, key=lambda r: (r["client"], r["sequence"]))],
            [row | {"partition": partition, "sent_partition": partition} for row in reads],
            ends=ends,
            issued={},
        )
        return replace(made, partition=partition)


def drawn_cell(seed: int) -> TransactionalCell:
    """A valid history."""
    rng = random.Random(seed)
    cell = TransactionalCell(rng)
    chances: dict[str, Callable[[], None]] = {
        "send": cell.send,
        "end": cell.end,
        "read": lambda: cell.read(READER),
        "read_committed": lambda: cell.read(READER_COMMITTED),
        "take_over": lambda: cell.init(rng.choice((PRODUCER, PRODUCER_2))),
    }
    for name in rng.choices(list(chances), (8, 4, 2, 3, 1), k=rng.randrange(10, 80)):
        chances[name]()
    return cell.finish()


# --- what spoils them -----------------------------------------------------------------------------------------------


def _records(cell: TransactionalCell, wanted: Callable[[Transaction, Entry], bool]) -> list[tuple[Transaction, Entry]]:
    return [(t, e) for t in cell.transactions for e in t.entries if e.offset != NONE and wanted(t, e)]


def _given_committed(cell: TransactionalCell, entry: Entry) -> list[dict[str, int]]:
    rows = cell.reads[entry.partition][READER_COMMITTED]
    return [row for row in rows if row["log_offset"] == entry.offset]


def torn(cell: TransactionalCell) -> dict[str, int] | None:
    """V no longer shows one of several records."""
    found = _records(cell, lambda t, e: bool(e.shown) and sum(bool(o.shown) for o in t.entries) > 1)
    if not found:
        return None
    _, entry = cell.rng.choice(found)
    entry.shown = False
    return {"torn": 1}


def lost_transaction(cell: TransactionalCell) -> dict[str, int] | None:
    """V shows nothing of a transaction whose commit was confirmed, or seen."""
    found = _records(cell, lambda t, e: bool(e.shown) and (t.outcome == OK or bool(_given_committed(cell, e))))
    if not found:
        return None
    transaction, _ = cell.rng.choice(found)
    for entry in transaction.entries:
        entry.shown = False
    return {"lost-transaction": len(transaction.entries)}


def aborted_read(cell: TransactionalCell) -> dict[str, int] | None:
    """V shows a record of an aborted transaction."""
    found = _records(cell, lambda t, e: t.ended_by == ABORT and not e.shown)
    if not found:
        return None
    cell.rng.choice(found)[1].shown = True
    return {"aborted-read": 1}


def early_read(cell: TransactionalCell) -> dict[str, int] | None:
    """A read_committed consumer was given a record too early."""
    found = _records(cell, lambda t, e: t.ended_by == COMMIT and bool(_given_committed(cell, e)))
    if not found:
        return None
    transaction, entry = cell.rng.choice(found)
    _given_committed(cell, entry)[0]["read_ns"] = transaction.end_invoked_ns - 1
    return {"early-read": 1}


def read_behind_open(cell: TransactionalCell) -> dict[str, int] | None:
    """A read_committed consumer was given a record behind one of a transaction that was open: its commit, or its abort, was
    asked for later."""
    known = [
        (t, e) for t, e in _records(cell, lambda t, e: t.ended_by in (COMMIT, ABORT))
        if t.outcome == OK or (t.ended_by == ABORT and t.completed_ns != MISSING and not t.fenced)
    ]  # fmt: skip
    found = [
        (entry, open_one.end_invoked_ns)
        for transaction, entry in _records(cell, lambda t, e: t.ended_by == COMMIT and bool(_given_committed(cell, e)))
        for open_one, other in known
        if (other.partition, open_one.end_invoked_ns > transaction.end_invoked_ns) == (entry.partition, True)
        and other.offset < entry.offset
    ]
    if not found:
        return None
    entry, until_ns = cell.rng.choice(found)
    _given_committed(cell, entry)[0]["read_ns"] = until_ns - 1
    return {"early-read": 1}


def zombie_write(cell: TransactionalCell) -> dict[str, int] | None:
    """V shows all records of a transaction that was fenced before its commit was invoked."""
    zombies = [
        t for t in cell.transactions
        if t.fenced and t.ended_by == COMMIT and t.entries and all(e.offset != NONE for e in t.entries)
    ]  # fmt: skip
    if not zombies:
        return None
    transaction = cell.rng.choice(zombies)
    for entry in transaction.entries:
        entry.shown = True
    return {"zombie-write": len(transaction.entries)}


def hanging(cell: TransactionalCell) -> dict[str, int] | None:
    """A new instance's init_transactions does not return: for its bound, or for a nanosecond less, which is no anomaly."""
    enough = cell.rng.random() < 0.8
    client, begun_ns = cell.rng.choice((PRODUCER, PRODUCER_2)), cell.tick()
    until_ns = begun_ns + Bounds().transaction_call_ns - (not enough)
    cell.beats[client] += [*range(begun_ns, until_ns, NS_PER_S // 2), until_ns]
    cell.instances.append(Transaction(client, NONE, MISSING, begun_ns).row())
    return {"hanging": 1} if enough else None


def unanswered(cell: TransactionalCell) -> dict[str, int] | None:
    """An administrator's call is not answered: for its bound, or for a nanosecond less, which is no anomaly."""
    enough = cell.rng.random() < 0.8
    begun_ns, bound_ns = cell.tick(), Bounds().admin_call_ns - (not enough)
    cell.own_beats += range(begun_ns, begun_ns + bound_ns, NS_PER_S // 2)
    kind = cell.rng.choice((ObservationKind.ADMIN_ANSWERED, ObservationKind.ADMIN_WAITED))
    node = cell.rng.choice((NONE, 1))
    cell.calls.append({"time_ns": begun_ns, "value": bound_ns, "kind": int(kind), "node": node})
    return {"unanswered": 1} if enough else None


def not_linearizable(cell: TransactionalCell) -> dict[str, int] | None:
    """The active controller answers what was there before another value was set, or before it was: which is no anomaly."""
    topic, late = len(cell.operations), cell.rng.random() < 0.8
    for operation, value in (
        (AdminOperation.SET, 1),
        (AdminOperation.SET, 2),
        (AdminOperation.FOUND, 1 if late else 2),
    ):
        begun_ns = cell.tick()
        cell.operations.append(
            {
                **{"invoked_ns": begun_ns, "completed_ns": cell.tick(), "value": value, "topic": topic, "setting": 1},
                **{"operation": int(operation), "node": NONE, "outcome": int(Outcome.OK)},
            }
        )
    return {"not-linearizable": 1} if late else None


SPOILERS: dict[str, Callable[[TransactionalCell], dict[str, int] | None]] = {
    "torn": torn,
    "lost-transaction": lost_transaction,
    "aborted-read": aborted_read,
    "early-read": early_read,
    "early-read behind": read_behind_open,
    "zombie-write": zombie_write,
    "hanging": hanging,
    "unanswered": unanswered,
    "not-linearizable": not_linearizable,
}
