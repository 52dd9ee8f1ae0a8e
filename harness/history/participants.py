"""This module says what a history says about those who took part: what each client reported, how far audits read, and
what is known of each partition."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.columns import of_clients, taken
from prozess.harness.config.configuration import TIER_INTERVAL_MS
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.interfaces.checking import CopyFacts, Retention
from prozess.harness.plan.plan import SENTINEL_CLIENT, Plan
from prozess.harness.plan.schedule import AlterTopics, DeleteRecords, FaultAction, selects
from prozess.harness.schema import (
    MISSING,
    NONE,
    READS,
    RECORDER_CLIENT,
    FaultPhase,
    Isolation,
    MetadataKind,
    MetadataSource,
    ObservationKind,
    Outcome,
    ReadFlag,
    Role,
    Tristate,
    role_named,
)

# Through which sentinel an audit read.
#
# The observation AUDIT_COMPLETE is only a claim of the audit. It counts if the table `reads` has the sentinel at that
# offset, received by that client. A history whose rows were lost or changed afterwards proves nothing about what is not
# in it.


Claim = tuple[int, int]
"""The offset of a sentinel, and the client that says it read through that."""


class AuditEnds(Mapping[int, int]):
    """The offset of the sentinel through which an audit read, for each isolation level. Only claims that the history
    proves count. They are looked up when they are first asked for, because that reads columns."""

    def __init__(self, claims: Mapping[int, Claim], reads_near: Callable[[int], Mapping[str, np.ndarray]]) -> None:
        """`reads_near` returns rows of `reads` of the partition, among them every row at the given offset."""
        self._claims, self._reads_near = claims, reads_near

    @cached_property
    def _shown(self) -> dict[int, int]:
        return {level: offset for level, (offset, client) in self._claims.items() if self._was_read(offset, client)}

    def _was_read(self, offset: int, client: int) -> bool:
        reads = self._reads_near(offset)
        rows = np.flatnonzero(reads["log_offset"] == offset)
        return bool(((reads["sender"][rows] == SENTINEL_CLIENT) & (reads["client"][rows] == client)).any())

    def __getitem__(self, isolation: int) -> int:
        return self._shown[isolation]

    def __iter__(self) -> Iterator[int]:
        return iter(self._shown)

    def __len__(self) -> int:
        return len(self._shown)

    def __reduce__(self) -> tuple[type[dict[int, int]], tuple[dict[int, int]]]:
        """A copy in another process is a plain dict of what was found here."""
        return dict, (self._shown,)


# What observers of a run reported of each partition: how far audits read, where its log began, and what its copies held
# at the end.


_OF_COPIES = (
    ObservationKind.REPLICA_LOG_START,
    ObservationKind.REPLICA_LOG_END,
    ObservationKind.REPLICA_HIGH_WATERMARK,
)


def audit_claims(seen: Mapping[str, np.ndarray]) -> dict[int, dict[int, Claim]]:
    """Returns, for each partition and isolation level, through which sentinel an audit says that it read, and which
    audit. It takes rows of `observations`, as the functions below do."""
    rows = np.flatnonzero(seen["kind"] == ObservationKind.AUDIT_COMPLETE.value)
    rows = rows[np.argsort(seen["time_ns"][rows], kind="stable")]  # the latest audit counts
    claims: dict[int, dict[int, Claim]] = {}
    for partition, isolation, value, client in zip(
        *(seen[name][rows].tolist() for name in ("partition", "isolation", "value", "client")), strict=True
    ):
        claims.setdefault(partition, {})[isolation] = (value, client)
    return claims


def log_starts(seen: Mapping[str, np.ndarray]) -> dict[int, int]:
    """Returns the greatest log start that was observed of each partition."""
    rows = np.flatnonzero(seen["kind"] == ObservationKind.LOG_START.value)
    rows = rows[np.argsort(seen["value"][rows], kind="stable")]  # the greatest stays
    return dict(zip(seen["partition"][rows].tolist(), seen["value"][rows].tolist(), strict=True))


def copies(seen: Mapping[str, np.ndarray]) -> dict[int, dict[int, CopyFacts]]:
    """Returns, for each partition and node, what the node's own files stated at the end."""
    ends: dict[tuple[int, int], dict[int, int]] = {}
    rows = np.flatnonzero(np.isin(seen["kind"], _OF_COPIES) & (seen["step"] == NONE))
    for partition, node, kind, value in zip(
        *(seen[name][rows].tolist() for name in ("partition", "node", "kind", "value")), strict=True
    ):
        ends.setdefault((partition, node), {})[kind] = value
    found: dict[int, dict[int, CopyFacts]] = {}
    for (partition, node), values in ends.items():
        start, end, watermark = (values.get(kind) for kind in _OF_COPIES)
        if start is not None and end is not None:
            found.setdefault(partition, {})[node] = CopyFacts(start, end, watermark)
    return found


RETENTION_DEFAULT_MS = 7 * 24 * 3600 * 1000
"""log.retention.hours (Kafka documentation, broker configuration)."""
_OF_RETENTION = frozenset(
    f"{log}{name}" for log in ("", "log.") for name in ("retention.ms", "retention.bytes", "cleanup.policy")
) | {"log.retention.minutes", "log.retention.hours", "remote.storage.enable"}
"""Settings of topics and brokers that decide what retention may remove."""


_COPY_LATER = frozenset(f"{log}remote.copy.lag.{unit}" for log in ("", "log.") for unit in ("ms", "bytes"))
"""Settings of topics and brokers that let a segment be copied later than it could be (4.4, KIP-1241)."""
_OF_COPYING = _COPY_LATER | {"segment.bytes", "remote.storage.enable", "remote.log.copy.disable"}
"""Settings of topics that decide which segments are copied to the remote store."""
TIER_ROUNDS, TIER_SLACK_NS = 4, 10 * NS_PER_S
"""How many rounds of a task brokers have for their work, and how long a machine may be slow."""


def tier_within_ns(plan: Plan) -> int:
    """Returns how long brokers may take until what is full is in the remote store, and what was let go is not."""
    value = plan.variant.properties.get("remote.log.manager.task.interval.ms", "")
    interval_ms = int(value) if value.isdecimal() else TIER_INTERVAL_MS
    return TIER_ROUNDS * interval_ms * 1_000_000 + TIER_SLACK_NS


def copied_segment_bytes(plan: Plan) -> Mapping[int, int]:
    """Returns segment.bytes of each partition whose segments are to be copied to the remote store all the time. Absent: they
    are not, or later, nobody set it for the topic, or a fault changes it."""
    if not _OF_COPYING.isdisjoint(_changed(plan)) or not _COPY_LATER.isdisjoint(plan.variant.properties):
        return {}
    found: dict[int, int] = {}
    for cell in plan.cells:
        properties = cell.topic.kafka_properties()
        size = properties.get("segment.bytes", "")
        now = properties.get("remote.log.copy.disable", "false") == "false" and _COPY_LATER.isdisjoint(properties)
        if cell.topic.is_tiered and now and size.isdecimal():
            found |= dict.fromkeys(cell.partitions, int(size))
    return found


def _changed(plan: Plan) -> list[str]:
    """Returns the properties that faults change."""
    return [
        name
        for step in plan.steps
        if isinstance(step.do, FaultAction) and isinstance(step.do.parameters.get("properties"), Mapping)
        for name in step.do.parameters["properties"]
    ]


def retention_of(plan: Plan) -> Mapping[int, Retention]:
    """Returns what retention may remove from each partition of a trial. Absent: it removes nothing, it is left to the
    brokers' own settings, or a fault changes it; and of histories that were not recorded: a generated log begins where its
    planted answers say."""
    if plan.origin != "trial" or not _OF_RETENTION.isdisjoint((*_changed(plan), *plan.variant.properties)):
        return {}
    found: dict[int, Retention] = {}
    for cell in plan.cells:
        properties = cell.topic.kafka_properties()
        altered = [step.do.properties for step in plan.steps if isinstance(step.do, AlterTopics)
                   and selects(step.do.cells, cell.axes)]  # fmt: skip
        if not any("delete" in one.get("cleanup.policy", "") for one in (properties, *altered)):
            continue
        # The least of the values that a topic had is what it promises all the time.
        least = [_least(name, default, properties, altered) for name, default in _LIMITS]
        if least[0] is None or least[1] is None:
            continue
        time_ms, size = least[0], least[1]
        found |= dict.fromkeys(cell.partitions, Retention(time_ms * 1_000_000, size if size < _FOREVER_MS else None))
    return found


def taken_partitions(plan: Plan) -> frozenset[int]:
    """Returns the partitions of which retention or DeleteRecords may have taken records before a consumer came there: it
    goes on at the log start, and what stood below was not passed over. Example: retention.ms=1000, a consumer at 31, and
    the log now begins at 64."""
    everywhere = not _OF_RETENTION.isdisjoint((*_changed(plan), *plan.variant.properties))
    deletions = [step.do.cells for step in plan.steps if isinstance(step.do, DeleteRecords)]
    found: set[int] = set()
    for cell in plan.cells:
        limits = (cell.topic.kafka_properties().get(name, "-1") for name, _ in _LIMITS)
        if everywhere or set(limits) != {"-1"} or any(selects(cells, cell.axes) for cells in deletions):
            found.update(cell.partitions)
    return frozenset(found)


def delete_delay_ns(plan: Plan) -> int:
    """Returns log.segment.delete.delay.ms of the brokers, in ns: as the plan sets it, else Kafka's default."""
    value = plan.variant.properties.get("log.segment.delete.delay.ms", "")
    return int(value if value.isdecimal() else 60_000) * 1_000_000


_FOREVER_MS = 10**12
_LIMITS = (("retention.ms", str(RETENTION_DEFAULT_MS)), ("retention.bytes", "-1"))
"""What limits a log, each with its default."""


def _least(name: str, default: str, properties: Mapping[str, str], altered: Sequence[Mapping[str, str]]) -> int | None:
    """Returns the least value that a property ever had, _FOREVER_MS for a negative one, which limits nothing. None: one is
    no number."""
    values = [properties.get(name) or default, *(one[name] for one in altered if name in one)]
    if not all(value.removeprefix("-").isdecimal() for value in values):
        return None
    return min(int(value) if int(value) >= 0 else _FOREVER_MS for value in values)


def ended_partitions(plan: Plan, metadata: Mapping[str, np.ndarray]) -> frozenset[int]:
    """Returns the partitions whose topic a step deleted, by the controllers' log: no audit can read them. A topic that was
    made again has partitions of its own."""
    if not plan.topics_end:
        return frozenset()
    gone = (metadata["kind"] == MetadataKind.DELETED.value) & (
        metadata["source"] == MetadataSource.CONTROLLER_LOG.value
    )
    return frozenset(metadata["partition"][gone].tolist())


def remote_stores_read(seen: Mapping[str, np.ndarray]) -> frozenset[int]:
    """Returns the partitions of which the remote store was read to its end, after the audit."""
    rows = (seen["kind"] == ObservationKind.REMOTE_STORE_READ.value) & (seen["step"] == NONE)
    return frozenset(seen["partition"][rows].tolist())


# What is known of each client: what was planned for it, and then what it reported itself.


_LEVELS = {
    None: Isolation.NOT_A_READER,
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
    "read_committed": Isolation.READ_COMMITTED,
}
_ACKS = {"0": 0, "1": 1, "all": -1}
_REPORTING = frozenset({"producer", "keyed-producer", "errors-producer"})
"""The roles that record a send before they make it, and that end only when all sends are answered."""
TIMEOUTS_LATE_NS = 2_000_000_000
"""How late a timeout may be reported. librdkafka looks for timeouts once a second, and a starved client a little later."""


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """Facts about clients, as arrays indexed by client id. `PartitionHistory` has the same."""

    role: np.ndarray
    isolation: np.ndarray
    issued: np.ndarray
    acks: np.ndarray
    clock: np.ndarray
    reported_until_ns: np.ndarray


def client_facts(plan: Plan, table: Mapping[str, np.ndarray], *, revealed: bool = False) -> ClientFacts:
    """Returns the facts about clients, from the plan and the table `clients`. The recorder's own id is left out.
    `revealed`: the audit did not reach some partitions, and others show what was in them."""
    rows = {name: values[table["client"] < RECORDER_CLIENT] for name, values in table.items()}
    ids = rows["client"]
    if (ids < 0).any():
        raise HistoryUnreadable(
            f"table clients names client {int(ids.min())}. Ids are numbers from 0: make the history again."
        )
    size = 1 + max([int(ids.max(initial=-1)), *(planned.client for planned in plan.clients)], default=-1)
    role = np.zeros(size, dtype=np.int32)
    isolation = np.full(size, Isolation.NOT_A_READER, dtype=np.int32)
    issued = np.full(size, NONE, dtype=np.int64)
    acks = np.zeros(size, dtype=np.int32)
    for planned in plan.clients:
        role[planned.client] = role_named(planned.role)
        level = Isolation.UNREPORTED if planned.reads_by_command else _LEVELS[planned.isolation_level]
        isolation[planned.client] = level
        if planned.producer is not None:
            acks[planned.client] = _ACKS[planned.producer.acks]
    clock = np.full(size, NONE, dtype=np.int32)
    role[ids], isolation[ids], clock[ids] = rows["role"], rows["isolation"], rows["clock"]
    # A client that took a planned one's place has its configuration.
    restarted = rows["planned"] != NONE
    if (odd := (rows["planned"] < NONE) | (rows["planned"] >= size)).any():
        raise HistoryUnreadable(
            f"table clients says that client {int(ids[odd][0])} has the place of client {int(rows['planned'][odd][0])}, and "
            "there is none. Make the history again."
        )
    acks[ids[restarted]] = acks[rows["planned"][restarted]]
    # A client that did not close its files may have issued more than it could record: nothing is stated of those.
    assert len(role) == len(isolation) == len(issued) == len(acks) == len(clock) == size, "facts by client id"
    issued[ids] = np.where(rows["complete"] == 1, rows["issued"], NONE)
    issued[(role == Role.MEMBER.value) & ~_sending(plan, rows, size)] = 0
    reported_until_ns = _reported_until_ns(plan, rows, size)
    if revealed or not plan.audited:  # whoever reads L(p) and V(p) out of what others saw
        role = np.append(role, np.full(len(REVEALED), Role.AUDIT, dtype=np.int32))
        isolation = np.append(isolation, np.array(REVEALED, dtype=np.int32))
        issued, acks, clock = (
            np.append(array, np.zeros(len(REVEALED), array.dtype)) for array in (issued, acks, clock)
        )
    for array in (role, isolation, issued, acks, clock, reported_until_ns):
        array.setflags(write=False)
    assert len(role) == len(isolation) == len(issued) == len(acks) == len(clock), "facts by client id"
    return ClientFacts(role, isolation, issued, acks, clock, reported_until_ns)


def _sending(plan: Plan, rows: Mapping[str, np.ndarray], size: int) -> np.ndarray:
    """Returns bool[size]: may this client send records? A member of a group may only if there is a retry topic."""
    sending = np.zeros(size, dtype=bool)
    sending[[c.client for c in plan.clients if c.producer is not None]] = True
    restarted = rows["planned"] != NONE
    sending[rows["client"][restarted]] = sending[rows["planned"][restarted]]
    return sending


def _reported_until_ns(plan: Plan, rows: Mapping[str, np.ndarray], size: int) -> np.ndarray:
    """Returns int64[size], as `PartitionHistory.client_reported_until_ns`. Only a client that ended in order, and by itself,
    got a report of everything: of all sends until the last delivery timeout before its end."""
    reported_until_ns = np.full(size, MISSING, dtype=np.int64)
    timeout_ms = {c.client: c.producer.delivery_timeout_ms for c in plan.clients if c.role in _REPORTING and c.producer}
    for client, planned, ended_ns, code, complete in zip(
        *(rows[name].tolist() for name in ("client", "planned", "ended_ns", "exit_code", "complete")), strict=True
    ):
        if planned in timeout_ms and complete == 1 and code == 0 and ended_ns != MISSING:
            reported_until_ns[client] = ended_ns - timeout_ms[planned] * 1_000_000 - TIMEOUTS_LATE_NS
    return reported_until_ns


# What acknowledgements and reads reveal of a log that nobody audited: derived reads of two clients with the role AUDIT.
#
# At every offset from which a consumer received a record, or that an acknowledgement named, one record stands: the
# record that was read last, or else the one that was acknowledged. If somebody saw another record there, that is left
# to `offset-conflict`.


REVEALED = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
"""The isolation levels of the two clients that stand for an audit. L(p) is what anybody saw. V(p) is what read_committed
consumers and confirmed commits show."""


def nobody_audited(partition: int) -> str:
    """Returns why nothing can be concluded from what consumers did not receive."""
    return f"nobody audited partition {partition}: an imported history"


class RevealedReads(Mapping[str, np.ndarray]):
    """The reads of a partition, and behind them those of the clients `first_id` (L(p)) and `first_id` + 1 (V(p)), which
    stand for an audit. Each column is made when it is first asked for. For one thread.

    `sends`, `reads`: columns of one partition, in the Parquet form. `isolation`: Isolation by client id. O(n), and
    O(n log n) where offsets are far apart.
    """

    def __init__(
        self,
        sends: Mapping[str, np.ndarray],
        reads: Mapping[str, np.ndarray],
        isolation: np.ndarray,
        *,
        first_id: int,
    ) -> None:
        self._sends, self._reads, self._isolation, self._first_id = sends, reads, isolation, first_id
        self._held: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._held:
            if name not in READS.column_names:
                raise KeyError(name)
            self._held[name] = self._column(name)
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(READS.column_names)

    def __len__(self) -> int:
        return len(READS.column_names)

    def _column(self, name: str) -> np.ndarray:
        own = np.asarray(self._reads[name])
        if name == "client":
            numbers = [np.full(len(level.row), self._first_id + n, own.dtype) for n, level in enumerate(self._shown)]
            return np.concatenate([own, *numbers])
        sent = _AS_SENT.get(name)
        if sent is None:
            fixed = 0 if name in ("span", "flags") else NONE
            count = sum(len(level.row) for level in self._shown)
            return np.concatenate([own, np.full(count, fixed, dtype=own.dtype)])
        first, second = self._shown
        part = first.of(own, self._sends[sent])
        return np.concatenate([own, part, part if second is first else second.of(own, self._sends[sent])])

    @cached_property
    def _shown(self) -> tuple["_Revealed", "_Revealed"]:
        """Returns what shows the records of each of REVEALED."""
        reads, sends = self._reads, self._sends
        level = of_clients(self._isolation, reads["client"], unknown=Isolation.NOT_A_READER)
        given = (reads["log_offset"] != NONE) & ((reads["flags"] & ReadFlag.CORRUPT.value) == 0)
        acknowledged = np.flatnonzero((sends["outcome"] == Outcome.OK.value) & (sends["log_offset"] != NONE))
        of_all = _Revealed(*_last_at(sends, acknowledged, reads, np.flatnonzero(given)))
        committed = given & (level == Isolation.READ_COMMITTED.value)
        if np.array_equal(committed, given):
            return of_all, of_all
        return of_all, _Revealed(*_last_at(sends, acknowledged, reads, np.flatnonzero(committed)))


class _Revealed:
    """Says what shows the records of a log, ascending by offset: a row of `reads`, or else of `sends`."""

    def __init__(self, by_read: np.ndarray, row: np.ndarray) -> None:
        self.row = row
        self._read, self._sent = np.flatnonzero(by_read), np.flatnonzero(~by_read)

    def of(self, read: np.ndarray, sent: np.ndarray) -> np.ndarray:
        """Returns a column of these records, from that of `reads` and that of `sends`."""
        found = np.empty(len(self.row), dtype=np.result_type(read, sent))
        assert len(self._read) + len(self._sent) == len(self.row), "each record is shown by one of the two"
        found[self._read], found[self._sent] = read[self.row[self._read]], sent[self.row[self._sent]]
        return found


_AS_SENT = {
    "read_ns": "completed_ns",
    "log_offset": "log_offset",
    "sequence": "sequence",
    "key": "key",
    "sender": "client",
    "partition": "partition",
    "sent_partition": "partition",
}
"""What a column of `reads` is called of a record in `sends`."""
_SPARSE = 4
"""Offsets that are further apart than this, on average, are sorted."""


def _last_at(
    sends: Mapping[str, np.ndarray], acknowledged: np.ndarray, reads: Mapping[str, np.ndarray], rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns what shows a record at each offset, ascending: is it a read, and the row of `reads` or of `sends`. It is the
    last at that offset of these rows of `reads`; where there is none, of the rows `acknowledged` of `sends` the last."""
    parts = (
        (acknowledged, taken(sends["log_offset"], acknowledged), taken(sends["completed_ns"], acknowledged)),
        (rows, taken(reads["log_offset"], rows), taken(reads["read_ns"], rows)),
    )
    offsets = np.concatenate([offset for _, offset, _ in parts])
    if not len(offsets):
        return np.empty(0, dtype=bool), np.empty(0, dtype=np.intp)
    low, high = int(offsets.min()), int(offsets.max())
    if high - low > _SPARSE * len(offsets) + 1024:
        return _last_at_sparse(parts)
    # One entry for each offset from the least to the greatest; those without a record stay -1, and are left out at the end.
    # Example: 5 and 7 were acknowledged, and 7 was read at 2 s and 4 s: the rows are the send of 5, -1, the read at 4 s.
    row, by_read = np.full(high - low + 1, -1, dtype=np.intp), np.zeros(high - low + 1, dtype=bool)
    for number, (part, offset, time_ns) in enumerate(parts):
        index = offset - low
        latest_ns = np.full(high - low + 1, np.iinfo(np.int64).min)
        np.maximum.at(latest_ns, index, time_ns)
        last = time_ns == latest_ns[index]
        # Reads come second, and so take an offset over from acknowledgements.
        row[index[last]] = part[last]  # of several at one time numpy keeps the last
        by_read[index] = number == 1
    assert len(row) == high - low + 1, "an entry for each offset in between"
    there = row >= 0
    return by_read[there], row[there]


def _last_at_sparse(
    parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    row, offset, time_ns = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    by_read = np.arange(len(row)) >= len(parts[0][0])
    order = np.lexsort((time_ns, by_read, offset))
    # Example: offset 5 was acknowledged at 3 s, and read at 1 s and 2 s. In order these are the acknowledgement and the two
    # reads; the last one, read at 2 s, shows what stands there.
    last = order[np.append(offset[order][1:] != offset[order][:-1], True)]
    return by_read[last], row[last]


# When nodes were certainly out of reach, by what faults were seen to do to them.


ENDS_OR_FREEZES = frozenset({"kill", "stop", "pause", "power-loss", "wipe"})
"""Faults whose nodes neither answer nor ask anybody, from when that was observed until the fault is undone."""
NOT_UNDONE_NS = 2**62
"""When a fault ends that was never undone."""


def nodes_out(
    faults: Mapping[str, np.ndarray], dictionaries: Mapping[str, Sequence[str]]
) -> Mapping[int, tuple[tuple[int, int], ...]]:
    """Returns, for each node, since when and until when it was out of reach, in ns: ascending, none within another.

    Example: a kill of node 2 is observed at 5 s and undone at 30 s, a pause of it is observed at 20 s and undone at 40 s.
    Node 2 was out from 5 s to 40 s.
    """
    names = dictionaries.get("fault", ())
    codes = [code for code, name in enumerate(names) if name in ENDS_OR_FREEZES]
    mine = np.isin(faults["kind"], codes)
    seen = np.flatnonzero(mine & (faults["phase"] == FaultPhase.VERIFIED) & (faults["effect"] == Tristate.YES))
    found: dict[int, list[tuple[int, int]]] = {}
    for row in seen.tolist():  # a few faults
        node = int(faults["node"][row])
        of_fault = mine & (faults["fault"] == faults["fault"][row]) & (faults["phase"] == FaultPhase.UNDONE)
        undone = faults["time_ns"][of_fault & np.isin(faults["node"], (node, -1))]
        found.setdefault(node, []).append(
            (int(faults["time_ns"][row]), int(undone.min()) if len(undone) else NOT_UNDONE_NS)
        )
    return {node: _joined(spans) for node, spans in sorted(found.items())}


def _joined(spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    joined: list[tuple[int, int]] = []
    for begin_ns, end_ns in sorted(spans):
        if end_ns <= begin_ns:
            continue
        if joined and begin_ns <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end_ns))
        else:
            joined.append((begin_ns, end_ns))
    return tuple(joined)
