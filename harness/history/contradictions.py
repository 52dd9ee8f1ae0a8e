"""Tables that contradict one another, or themselves: values that nobody can have recorded if he recorded what happened.

A manifest proves that files are as they were written, and not that they were written well. What is looked at here holds in
every history, whatever Kafka did: a commit is not over before it begins, a client records nothing before its start or after
its end, a reader has as many rows as it says that it read. Where it does not hold, a recorder is wrong, or somebody changed
the tables, and nothing of the cell can be held.

Worked example: client 7 says that it sent 100 records, and `sends` has 99 rows of it. One row is gone, and with it perhaps a
record that Kafka lost. The doubt names both numbers.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property

import numpy as np

from prozess.harness.errors import CONTRADICTION
from prozess.harness.history.client_lives import Columns, Lives, TransactionsAtHand, among, run_starts
from prozess.harness.history.impossible_messages import doubtful_messages
from prozess.harness.history.orders import KnownEpochs, behind_in_log, doubtful_faults, span_begins
from prozess.harness.history.reader import History
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.recording.codes import read_texts
from prozess.harness.schema import (
    MISSING,
    NONE,
    OFFSET_MAX,
    RECORDER_CLIENT,
    SHARING,
    TABLES,
    AdminOperation,
    AdminSetting,
    FaultPhase,
    GroupRecord,
    Isolation,
    MetadataKind,
    MetadataSource,
    ObservationKind,
    Outcome,
    ReadFlag,
    RemoteState,
    Role,
    ShareRecord,
    ShareState,
    StepOutcome,
    Table,
    TransactionState,
    Tristate,
    role_named,
)

ROWS_MAX = 50_000_000
"""For a clustered table with more rows the values are not looked through: that would take as long as a check."""
AT_ONCE = 1 << 18
"""For clustered tables about so many rows are looked through at a time, which take 30 MB."""

_CODES: Mapping[str, type[IntEnum]] = {
    code.__name__: code
    for code in (
        Outcome,
        Role,
        Isolation,
        ObservationKind,
        MetadataKind,
        TransactionState,
        GroupRecord,
        ShareRecord,
        ShareState,
        MetadataSource,
        FaultPhase,
        Tristate,
        StepOutcome,
        RemoteState,
        AdminOperation,
        AdminSetting,
    )
}
_RANGES: Mapping[str, tuple[int, int]] = {
    "ReadFlag bits": (0, sum(ReadFlag)),
    "0/1": (NONE, 1),
    "offset": (NONE, OFFSET_MAX),
    "epoch": (NONE, 2**30 - 1),
    "group epoch": (-2, 2**31 - 1),
    "count": (NONE, 2**48),
    "records": (NONE, 2**48),
    "bytes": (NONE, 2**30 - 1),
    "KafkaError code": (-1000, 1000),
    "crc32c": (0, 2**32 - 1),
    "broker mask": (NONE, 2**63 - 1),
    "1 commit, 2 abort": (NONE, 2),
    "1 sync 2 async 3 auto 4 transaction; NONE: not known": (NONE, 4),
    "1 assign 2 revoke 3 lost 4 close": (1, 4),
    "1 accept 2 release 3 reject; NONE: none": (NONE, 3),
    "1 assigned 2 seek 3 reset 4 pause 5 resume": (1, 5),
}
"""The least and the greatest value by the unit of a column. A segment has up to 2³¹ bytes, and no log 2⁴⁸ records."""
_ANY = (-(2**63), 2**63 - 1)
_NEVER_NONE: Mapping[str, Sequence[str]] = {
    "remote_segments": ("read_ns", "first_offset", "partition", "damaged"),
    "sends": ("sequence", "invoked_ns"),
    "reads": ("log_offset", "read_ns", "span"),
    "processed": ("log_offset", "started_ns", "span"),
    "deliveries": ("log_offset", "absent_ns", "acquired_ns"),
    "commits": ("log_offset", "invoked_ns"),
    "assignments": ("started_ns", "done_ns"),
    "positions": ("time_ns", "span"),
    "observations": ("time_ns",),
    "withheld": ("begun_ns", "count"),
    "faults": ("time_ns", "fault"),
    "messages": ("time_ns", "step", "server", "api", "version", "answer"),
    "steps": ("step",),
    "metadata": ("time_ns",),
    "cluster_states": ("time_ns", "log_offset"),
    "transaction_states": ("time_ns", "log_offset", "number"),
    "group_states": ("time_ns", "log_offset", "number"),
    "share_states": ("time_ns", "log_offset", "number"),
    "admin_operations": ("invoked_ns", "topic"),
    "replicas": ("base_offset", "last_offset", "records", "size", "read_ns"),
    "metrics": ("time_ns",),
    "heartbeats": ("time_ns",),
    "clients": ("started_ns",),
}
_INTERVALS: Mapping[str, Sequence[tuple[str, str]]] = {
    "sends": [("invoked_ns", "completed_ns")],
    "processed": [("started_ns", "done_ns")],
    "transactions": [("begun_ns", "end_invoked_ns"), ("end_invoked_ns", "completed_ns"), ("begun_ns", "completed_ns")],
    "deliveries": [
        ("absent_ns", "acquired_ns"),
        ("acquired_ns", "acknowledged_ns"),
        ("acknowledged_ns", "answered_ns"),
        ("acquired_ns", "renewed_ns"),
    ],
    "commits": [("invoked_ns", "completed_ns")],
    "admin_operations": [("invoked_ns", "completed_ns")],
    "assignments": [("started_ns", "done_ns")],
    "withheld": [("begun_ns", "ended_ns")],
    "steps": [("awaited_ns", "fired_ns"), ("fired_ns", "done_ns")],
    "clients": [("started_ns", "ended_ns")],
    "replicas": [("base_offset", "last_offset")],
}
"""What begins, and what ends it."""
_OF_CLIENTS = (
    "sends",
    "reads",
    "processed",
    "deliveries",
    "transactions",
    "commits",
    "assignments",
    "positions",
    "withheld",
    "heartbeats",
)
"""The tables that clients write themselves."""
_OF_GROUPS = ("processed", "commits", "assignments")
_OF_OWNERS = ("processed", "commits")
_NO_MEMBERS = frozenset(
    {"producer", "keyed-producer", "errors-producer", "transactor", "fencer", "reader", "audit", "observer"}
)
"""The roles of clients that never join a group."""
_TIMED = frozenset({"member", "copier"})
"""The roles of members that note themselves when they were given a record, and when they began a step."""
_IN_SPANS = ("reads", "processed")
_SPAN = ("client", "partition", "span")
_OF_FAULTS: Mapping[str, str] = {
    "order": "the phases of the fault do not follow one another",
    "kind": "the fault is of several kinds, or of several steps",
    "effect": "an effect was seen when none was looked for",
    "node": "the fault hit another node",
}
_PLANNED = ("partitions", "cells")
"""The tables that are made of the plan."""


def contradictions(history: History) -> Mapping[int, tuple[str, ...]]:
    """Returns why nothing can be held, as clauses, for each cell whose tables contradict one another; NONE: of the whole
    trial."""
    return _Sought(history).found()


class _Sought:
    """What was found so far in one history."""

    def __init__(self, history: History) -> None:
        self._history, plan = history, history.plan
        self._ours = plan.origin in ("trial", "synthetic")
        self._cell_of = {p: cell.cell for cell in plan.cells for p in cell.partitions}
        self._planned = {c.client: c for c in plan.clients}
        self._serves = {c.client: frozenset(c.partitions) for c in plan.clients}
        clients = history.table("clients")
        self._stands_for = dict(zip(clients["client"].tolist(), clients["planned"].tolist(), strict=True))
        self._known = np.array(sorted({*self._planned, *self._stands_for, RECORDER_CLIENT, NONE}), dtype=np.int64)
        self._lives = Lives(clients)
        self._rows: dict[str, Counter[int]] = {}
        self._last_send: list[int] = []
        """Client, partition and sequence of the last row of `sends` that was looked at."""
        self._first_read_ns: dict[tuple[int, int, int], int] = {}
        """When a client was given the first record of a span: client, partition and span → read_ns."""
        self._counts: dict[int, dict[str, int]] = defaultdict(dict)

    def found(self) -> Mapping[int, tuple[str, ...]]:
        for table in TABLES.values():
            for rows in _read(self._history, table):
                self._look(table, rows)
        self._compare_with_plan()
        if self._ours and not self._history.run.lost:
            self._count()
        return {
            cell: tuple(what.format(count=f"{count:,} row{'s' if count > 1 else ''}") for what, count in counts.items())
            for cell, counts in self._counts.items()
        }

    def _look(self, table: Table, rows: Columns) -> None:
        self._ranges(table, rows)
        self._intervals(table, rows)
        # Rows of one client mostly follow one another, so clients are looked up once for each such run.
        starts = run_starts(rows, ["client"])
        client = rows["client"][starts].astype(np.int64)
        unknown = ~among(client, self._known) | ((client == NONE) & (table.name in _OF_CLIENTS))
        self._report_runs(table, rows, starts, unknown, "there is no such client")
        if "partition" in rows:
            self._partitions(table, rows)
        if self._ours:
            self._times(table, rows)
            for look in self._looks.get(table.name, ()):
                look(table, rows)
        if self._ours and table.name in _OF_CLIENTS:
            self._count_rows(table, rows)
            self._own(table, rows)
        if table.name == "metadata" and self._history.plan.variant.metadata_mode.startswith("kraft"):
            self._metadata(table, rows)

    @cached_property
    def _looks(self) -> Mapping[str, Sequence[Callable[[Table, Columns], None]]]:
        """What prozess's own clients and stages never write, by table."""
        return {
            "clients": [self._clients],
            "sends": [self._sends],
            "commits": [self._commits],
            "deliveries": [self._deliveries],
            "transactions": [self._instances],
            "reads": [self._begins, self._epoch_rows],
            "processed": [self._steps],
            "replicas": [self._epoch_rows],
            "faults": [self._faults],
            "messages": [self._messages],
        }

    def _commits(self, table: Table, rows: Columns) -> None:
        done = rows["outcome"] == Outcome.OK.value
        self._report(table, rows, done & (rows["code"] != 0), "a commit that took effect has the code of an error")
        self._report(table, rows, done & (rows["completed_ns"] == MISSING), "a commit that took effect was never over")

    def _deliveries(self, table: Table, rows: Columns) -> None:
        """Is each delivery to a member of the group, and answered only where something was acknowledged?"""
        client, decided = rows["client"].astype(np.int64), rows["acknowledgement"] != NONE
        self._report(table, rows, ~among(client, self._sharing), "the client is no member of a share group")
        self._report(
            table, rows, decided != (rows["acknowledged_ns"] != MISSING), "acknowledgement and its time disagree"
        )
        answered = rows["answered_ns"] != MISSING
        self._report(table, rows, answered & ~decided, "what was never acknowledged was answered")
        done = rows["outcome"] == Outcome.OK.value
        self._report(table, rows, done & (rows["code"] != 0), "an accepted acknowledgement has the code of an error")
        self._report(table, rows, rows["outcome"] == Outcome.FAIL.value, "a delivery has an outcome that none has")
        silent = answered & ~done & (rows["code"] == 0)
        self._report(table, rows, silent, "an acknowledgement was refused without the code of an error")
        self._report(table, rows, done & ~answered, "an accepted acknowledgement was never answered")
        self._report(table, rows, rows["delivery_count"] == 0, "delivery_count has a value that nothing has")
        starts = run_starts(rows, ["client"])
        cell_of = {c: p.cell for c, p in self._planned.items()}
        group = [cell_of.get(self._stands_for.get(c, c)) for c in client[starts].tolist()]
        wrong = np.repeat(
            np.array([NONE if one is None else one for one in group], dtype=np.int64),
            np.diff(np.append(starts, len(client))),
        )
        self._report(table, rows, rows["group"] != wrong, "the group is not the client's")

    def _faults(self, table: Table, rows: Columns) -> None:
        for name, wrong in doubtful_faults(rows).items():
            self._report(table, rows, wrong, _OF_FAULTS[name])

    def _messages(self, table: Table, rows: Columns) -> None:
        did = read_texts(self._history.run.dictionaries).get("did", [])
        steps = self._history.table("steps")
        for what, wrong in doubtful_messages(self._history.plan.steps, rows, steps, did).items():
            self._report(table, rows, wrong, what)
        self._report(table, rows, ~among(rows["sender"].astype(np.int64), self._known), "there is no such sender")

    def _epoch_rows(self, table: Table, rows: Columns) -> None:
        self._report(table, rows, self._epochs.unknown(rows), "no leader of the partition had the epoch")

    def _ranges(self, table: Table, rows: Columns) -> None:
        never_none = _NEVER_NONE.get(table.name, ())
        for column in table.columns:
            values = rows[column.name]
            if not len(values):
                continue
            codes = sorted({NONE, *_CODES[column.unit]}) if column.unit in _CODES else []
            low, high = (codes[0], codes[-1]) if codes else _RANGES.get(column.unit, _ANY)
            # Nearly always the least and the greatest value show that all are right, if no code between is left out.
            dense = not codes or codes == list(range(low, high + 1))
            if column.name in never_none and column.unit == "ns":
                low = max(low, MISSING + 1)
            elif column.name in never_none:
                low = max(low, NONE + 1)
            if dense and int(values.min()) >= low and int(values.max()) <= high:
                continue
            if column.unit in _CODES:
                wrong = ~among(values, np.array(codes, dtype=np.int64))
            elif column.unit in _RANGES:
                low, high = _RANGES[column.unit]
                wrong = (values < low) | (values > high)
            else:
                wrong = np.zeros(len(values), dtype=bool)
            if column.name in never_none:
                none = values == (MISSING if column.unit == "ns" else NONE)
                wrong |= (
                    none if column.name != "span" else none & ~among(rows["client"].astype(np.int64), self._sharing)
                )
            self._report(table, rows, wrong, f"{column.name} has a value that nothing has")

    def _intervals(self, table: Table, rows: Columns) -> None:
        for begin, end in _INTERVALS.get(table.name, ()):
            both = (rows[begin] != MISSING) & (rows[end] != MISSING)
            self._report(table, rows, both & (rows[begin] > rows[end]), f"{end} is before {begin}")

    def _partitions(self, table: Table, rows: Columns) -> None:
        starts = run_starts(rows, ["partition"])
        of = rows["partition"][starts]
        planned = among(of, np.array(sorted(self._cell_of), dtype=np.int64))
        if not table.partitioned and table.name not in ("commits", "positions", "withheld", "snapshots"):
            planned |= of == NONE
        if table.name in ("metadata", "group_states"):
            planned |= of < NONE  # of __consumer_offsets; of topics that are not there at the end
        self._report_runs(table, rows, starts, ~planned, "the plan does not have the partition")

    def _times(self, table: Table, rows: Columns) -> None:
        for column in table.columns:
            if column.unit == "ns" and table.name != "clients":
                since = table.name != "metadata"
                if self._lives.hold(rows["client"], rows[column.name], since=since):
                    continue
                outside = self._lives.outside(rows["client"], rows[column.name], since=since)
                self._report(table, rows, outside, f"the client did not run at {column.name}")

    def _clients(self, table: Table, rows: Columns) -> None:
        """Clients are numbered on and on, and each does what the one was planned for that it stands for."""
        self._report(table, rows, rows["client"] >= len(rows["client"]), "there is no such client")
        stands_for = [self._planned.get(planned) for planned in rows["planned"].tolist()]
        self._report(
            table, rows, np.array([one is None for one in stands_for], dtype=bool), "planned is no client of the plan"
        )
        roles = [NONE if one is None else role_named(one.role).value for one in stands_for]
        self._report(table, rows, rows["role"] != roles, "the role is not the planned one")

    def _sends(self, table: Table, rows: Columns) -> None:
        """Does each send say the same as its transaction? Is its sequence the only one, and its code that of its outcome?"""
        # Rows are ordered by client, partition and sequence: what comes twice stands side by side. The first row of these is
        # compared with the last one that was read before.
        names = ("client", "partition", "sequence")
        same = np.all([rows[name][1:] == rows[name][:-1] for name in names], axis=0)
        first, last = ([int(rows[name][row]) for name in names] for row in (0, -1))
        twice = np.append(first == self._last_send, same)
        self._report(table, rows, twice, "the client sent two records with one sequence")
        self._last_send = last
        acknowledged = rows["outcome"] == Outcome.OK.value
        self._report(table, rows, acknowledged & (rows["code"] != 0), "an acknowledged record has the code of an error")
        never = acknowledged & (rows["completed_ns"] == MISSING)
        self._report(table, rows, never, "an acknowledged record was never acknowledged")
        inside, of = rows["transaction"] != NONE, self._transactions
        # -1 is the row behind the table's own, whose values are all NONE: nothing below holds it against a send, because only
        # `known` ones are reported.
        row = of.rows(rows["client"], rows["transaction"])
        transactional = among(rows["client"].astype(np.int64), self._transactional)
        self._report(
            table, rows, transactional & ~inside, "the record is in no transaction, as all others of its client are"
        )
        known = inside & (row >= 0)
        self._report(table, rows, inside & (row < 0), "there is no such transaction")
        begun, end, outcome = (of.table[name][row] for name in ("begun_ns", "end_invoked_ns", "outcome"))
        outside = (rows["invoked_ns"] < begun) | ((end != MISSING) & (rows["invoked_ns"] > end))
        self._report(table, rows, known & outside, "the record was sent while its transaction was not open")
        refused = rows["outcome"] == Outcome.FAIL.value  # by produce(): its transaction goes on without it
        taken = (rows["log_offset"] != NONE) | (rows["code"] == 0)
        gone_on = known & refused & (outcome != Outcome.FAIL.value)
        self._report(table, rows, gone_on & taken, "a refused record has an offset, or no error")
        another = known & ~refused & (rows["outcome"] != outcome)
        self._report(table, rows, another, "the outcome is not that of the transaction")

    def _instances(self, table: Table, rows: Columns) -> None:
        """Is each transaction the only one of its number, of an instance of its client, and begun after that?"""
        numbered = rows["transaction"] != NONE
        self._report(table, rows, rows["begun_ns"] == MISSING, "begun_ns has a value that nothing has")
        self._report(table, rows, rows["transaction"] < NONE, "transaction has a value that nothing has")
        of = self._transactions
        another = numbered & (of.rows(rows["client"], rows["transaction"]) != np.arange(len(numbered)))
        self._report(table, rows, another, "the client has another transaction of this number")
        # One number for each (client, time), by the rank of the time; those of instances are known.
        times_ns, rank = np.unique(rows["initialised_ns"], return_inverse=True)
        began = rows["client"].astype(np.int64) * len(times_ns) + rank
        strange = numbered & ~among(began, np.sort(began[~numbered]))
        self._report(table, rows, strange, "the client has no instance that was initialised then")
        self._report(
            table, rows, numbered & (rows["begun_ns"] < rows["initialised_ns"]), "begun_ns is before initialised_ns"
        )
        open_ = (rows["ended_by"] == NONE) != (rows["end_invoked_ns"] == MISSING)
        self._report(table, rows, numbered & open_, "ended_by and end_invoked_ns do not agree")
        committed = numbered & (rows["outcome"] == Outcome.OK.value) & (rows["ended_by"] != 1)
        self._report(table, rows, committed, "a transaction was committed that was to be aborted")
        clients, which = np.unique(
            rows["client"], return_inverse=True
        )  # each client is asked once, not once a transaction
        of_id = np.array([self._first_with_id(client) for client in clients.tolist()], dtype=np.int64)[which]
        other = (of_id != NONE) & (rows["transactional_id"] != of_id)
        self._report(table, rows, other, "the transactional_id is not the client's")
        never = numbered & (rows["outcome"] != Outcome.INFO.value) & (rows["completed_ns"] == MISSING)
        self._report(table, rows, never, "a transaction that ended was never completed")

    def _first_with_id(self, client: int) -> int:
        """Returns the first planned client that has the transactional.id of this one. NONE: it has none."""
        planned = self._planned.get(self._stands_for.get(client, client))
        if planned is None or planned.transactional_id is None:
            return NONE
        return next(c for c, other in self._planned.items() if other.transactional_id == planned.transactional_id)

    @cached_property
    def _transactional(self) -> np.ndarray:
        """The clients that send in transactions alone, ascending."""
        return self._clients_of(lambda planned: planned.transactional_id is not None and planned.producer is not None)

    @cached_property
    def _timed(self) -> frozenset[int]:
        """The clients of these roles: of the output of others both times are guesses."""
        return frozenset(self._clients_of(lambda planned: planned.role in _TIMED).tolist())

    @cached_property
    def _sharing(self) -> np.ndarray:
        """The members of share groups, ascending."""
        return self._clients_of(lambda planned: planned.role in SHARING)

    def _clients_of(self, kind: Callable[[PlannedClient], bool]) -> np.ndarray:
        """Returns the planned clients of a kind, and those that stand for them, ascending."""
        mine = {client for client, planned in self._planned.items() if kind(planned)}
        return np.array(sorted(mine | {c for c, p in self._stands_for.items() if p in mine}), dtype=np.int64)

    @cached_property
    def _transactions(self) -> "TransactionsAtHand":
        return TransactionsAtHand(self._history.table("transactions"))

    def _own(self, table: Table, rows: Columns) -> None:
        """Is a client's row of a partition that it serves, of its group, and of a span that it began?"""
        names = [name for name in ("client", "partition", "group", "span") if name in rows]
        if "partition" not in names:
            return
        starts = run_starts(rows, names)  # rows of one client and partition mostly follow one another
        lengths = np.diff(np.append(starts, len(rows["client"])))
        doubted: dict[str, list[int]] = defaultdict(list)
        # One pass for each run, and in the end one answer for all of its rows.
        for number, values in enumerate(zip(*(rows[name][starts].tolist() for name in names), strict=True)):
            of = dict(zip(names, values, strict=True))
            client, partition = of["client"], of["partition"]
            planned = self._planned.get(self._stands_for.get(client, client))
            if planned is not None and partition in self._cell_of and partition not in self._serves[planned.client]:
                doubted[f"{planned.name} does not serve the partition"].append(number)
            if table.name in _OF_GROUPS and of["group"] != self._groups.get(client, of["group"]):
                doubted["the group is not the client's"].append(number)
            if table.name == "assignments" and planned is not None and planned.role in _NO_MEMBERS:
                doubted["the client is in no group"].append(number)
            if planned is not None and planned.role in SHARING:
                continue
            if table.name in _OF_OWNERS and (client, self._named.get(partition, partition)) not in self._assigned:
                doubted["the client was never given the partition"].append(number)
            if table.name in _IN_SPANS and (client, partition, of["span"]) not in self._spans:
                doubted["the client never began the span"].append(number)
        for what, numbers in doubted.items():
            wrong = np.zeros(len(starts), dtype=bool)
            wrong[numbers] = True
            self._report(table, rows, np.repeat(wrong, lengths), what)

    @cached_property
    def _assigned(self) -> frozenset[tuple[int, int]]:
        """The partitions that each member was given at some time, each as `_named` has it."""
        rows = self._history.table("assignments")
        given = rows["event"] == 1
        partitions = (self._named.get(number, number) for number in rows["partition"][given].tolist())
        return frozenset(zip(rows["client"][given].tolist(), partitions, strict=True))

    @cached_property
    def _named(self) -> Mapping[int, int]:
        """Partition → the first one with its topic's name and its number. A member is given partitions by name, and keeps
        them when the topic is made again before anybody looks."""
        first = self._history.plan.recorded
        return {one.partition: first[one.topic_name, one.number] for one in self._history.plan.partitions}

    @cached_property
    def _spans(self) -> frozenset[tuple[int, int, int]]:
        rows = self._history.table("positions")
        return frozenset(zip(*(rows[name].tolist() for name in ("client", "partition", "span")), strict=True))

    def _begins(self, table: Table, rows: Columns) -> None:
        """Has no span a record below the offset from which it is read?"""
        starts, whose = _spans_in(rows)
        for one, read_ns in zip(whose, rows["read_ns"][starts].tolist(), strict=True):
            self._first_read_ns.setdefault(one, read_ns)
        # In a topic that was made again the position may be one of the topic before, and out of range: a client begins anew.
        begins = (NONE if one[1] in self._made_again else self._span_begins.get(one, NONE) for one in whose)
        below = rows["log_offset"] < _for_each_row(rows, starts, list(begins))
        self._report(table, rows, below, "the span was read from a greater offset on")

    def _steps(self, table: Table, rows: Columns) -> None:
        """Began no step before its member was given the first record of the span? `reads` was looked through before."""
        assert list(TABLES).index("reads") < list(TABLES).index(table.name), "reads come first"
        starts, whose = _spans_in(rows)
        given_ns = [self._first_read_ns.get(one, MISSING) if one[0] in self._timed else MISSING for one in whose]
        early = rows["started_ns"] < _for_each_row(rows, starts, given_ns)
        self._report(table, rows, early, "the step began before its member was given a record of the span")

    @cached_property
    def _made_again(self) -> frozenset[int]:
        """The partitions of topics that were made again under their name."""
        return frozenset(p for cell in self._history.plan.cells if cell.life for p in cell.partitions)

    @cached_property
    def _span_begins(self) -> Mapping[tuple[int, int, int], int]:
        return span_begins(self._history.table("positions"))

    @cached_property
    def _epochs(self) -> KnownEpochs:
        return KnownEpochs(self._history.table("metadata"))

    @cached_property
    def _groups(self) -> Mapping[int, int]:
        """The group of each member: the one that most of its rows in `assignments` name."""
        rows = self._history.table("assignments")
        named = defaultdict[int, Counter[int]](Counter)
        for client, group in zip(rows["client"].tolist(), rows["group"].tolist(), strict=True):
            named[client][group] += 1
        return {client: groups.most_common(1)[0][0] for client, groups in named.items()}

    def _metadata(self, table: Table, rows: Columns) -> None:
        if self._ours:
            self._report(table, rows, behind_in_log(rows), "the controllers' log has it before the row in front of it")
        of_partition = (rows["kind"] == MetadataKind.PARTITION.value) & (
            rows["source"] == MetadataSource.CONTROLLER_LOG.value
        )
        strangers = (rows["isr"] & ~rows["replicas"]) != 0
        self._report(table, rows, of_partition & strangers, "a member of the ISR is no replica")
        leader = rows["leader"]
        known = of_partition & (leader >= 0) & (leader < 63)
        # Example: replicas 0b1110 and leader 2: shifted by 2 the lowest bit is 1. A shift by no broker's id means nothing.
        leads = (rows["replicas"] >> np.where(known, leader, 0)) & 1
        self._report(table, rows, known & (leads == 0), "the leader is no replica")

    def _count_rows(self, table: Table, rows: Columns) -> None:
        counted = self._rows.setdefault(table.name, Counter())
        starts = run_starts(rows, ["client"])
        lengths = np.diff(np.append(starts, len(rows["client"])))
        for client, count in zip(rows["client"][starts].tolist(), lengths.tolist(), strict=True):
            counted[client] += count

    def _compare_with_plan(self) -> None:
        """Do the tables that were made of the plan say what it says?"""
        plan, cells, partitions = self._history.plan, self._history.table("cells"), self._history.table("partitions")
        wanted = {"partition": [p.partition for p in plan.partitions], "cell": [p.cell for p in plan.partitions],
                  "number": [p.number for p in plan.partitions]}  # fmt: skip
        same = all(partitions[name].tolist() == values for name, values in wanted.items())
        if not same or cells["cell"].tolist() != [cell.cell for cell in plan.cells]:
            self._counts[NONE][f"{CONTRADICTION} partitions or cells are not those of plan.json"] = 1

    def _count(self) -> None:
        """Has each client that closed its files as many rows as it says?"""
        clients = self._history.table("clients")
        for client, role, issued, complete in zip(
            *(clients[name].tolist() for name in ("client", "role", "issued", "complete")), strict=True
        ):
            planned = self._planned.get(self._stands_for[client])
            table = {Role.PRODUCER: "sends", Role.READER: "reads", Role.AUDIT: "reads"}.get(role)
            if planned is None or table is None or issued == NONE or complete != 1:
                continue
            for one in (table, "deliveries") if planned.role == "share-member" else (table,):
                rows = self._rows[one][client] if one in self._rows else 0
                if rows == issued:
                    continue
                cells = {self._cell_of[p] for p in planned.partitions if p in self._cell_of}
                what = f"{CONTRADICTION} {planned.name} counted {issued:,} records, and {one} has {rows:,}"
                for cell in cells:
                    self._counts[cell][what] = 1

    def _report(self, table: Table, rows: Columns, wrong: np.ndarray, what: str) -> None:
        if not wrong.any():
            return
        for cell, count in zip(*np.unique(self._cells(table, rows, wrong), return_counts=True), strict=True):
            clause = f"{CONTRADICTION} in {{count}} of {table.name} {what}"
            counts = self._counts[int(cell)]
            counts[clause] = counts.get(clause, 0) + int(count)

    def _report_runs(self, table: Table, rows: Columns, starts: np.ndarray, wrong: np.ndarray, what: str) -> None:
        """Reports every row of these of the runs that begin at `starts`."""
        if wrong.any():
            self._report(table, rows, np.repeat(wrong, np.diff(np.append(starts, len(rows["client"])))), what)

    def _cells(self, table: Table, rows: Columns, chosen: np.ndarray) -> np.ndarray:
        """Returns the cell of each of these rows. NONE: it is of several cells, or of none."""
        if table.name in _PLANNED:
            return np.full(int(chosen.sum()), NONE)
        partition = rows["partition"][chosen].tolist() if "partition" in rows else [NONE] * int(chosen.sum())
        return np.array(
            [
                self._cell_of[p] if p in self._cell_of else self._cell_of_client(c)
                for p, c in zip(partition, rows["client"][chosen].tolist(), strict=True)
            ],
            dtype=np.int64,
        )

    def _cell_of_client(self, client: int) -> int:
        planned = self._planned.get(self._stands_for.get(client, client))
        cells = set() if planned is None else {self._cell_of.get(p, NONE) for p in planned.partitions}
        return cells.pop() if len(cells) == 1 else NONE


def _spans_in(rows: Columns) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """Returns where each run of rows of one span begins, and whose span it is: client, partition and span."""
    starts = run_starts(rows, _SPAN)
    return starts, list(zip(*(rows[name][starts].tolist() for name in _SPAN), strict=True))


def _for_each_row(rows: Columns, starts: np.ndarray, values: Sequence[int]) -> np.ndarray:
    """Returns int64[rows]: the value of the run in which each row is."""
    return np.repeat(np.array(values, dtype=np.int64), np.diff(np.append(starts, len(rows["client"]))))


def _read(history: History, table: Table) -> Iterator[Columns]:
    """Yields the rows of a table: of a clustered one a few ranges of rows at a time, and nothing of one that is too large."""
    file = history.files[table.name]
    if not file.rows or file.rows > ROWS_MAX:
        return
    if not table.partitioned:
        yield history.table(table.name)
        return
    batch: list[int] = []
    rows = 0
    for row_range in file.intact:
        batch.append(row_range)
        rows += file.length_of(row_range)
        if rows >= AT_ONCE:
            yield file.read(table.column_names, batch)
            batch, rows = [], 0
    if batch:
        yield file.read(table.column_names, batch)
