"""The rolling window of a watch: recent sends and reads as rows of a history, and the findings of the checkers in it.

Nobody audits a cluster that is in use. Therefore the window is judged as an imported history is: its log is what
acknowledgements and the reader reveal. A row is dropped once its record is proven, or is reported as missing. Therefore
the window stays small for days."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from prozess.checkers.registry import select
from prozess.harness.checking.kernels import check_partition
from prozess.harness.clock import NS_PER_S
from prozess.harness.history.participants import REVEALED, RevealedReads
from prozess.harness.interfaces.checking import PartitionHistory
from prozess.harness.schema import (
    MISSING,
    NONE,
    OBSERVATIONS,
    READS,
    SENDS,
    Isolation,
    ObservationKind,
    Outcome,
    Role,
    Table,
)

READER = 0
"""The client id of the reader. Producers are 1, 2, …: each new one has the next id."""
KEEP_NS = 15 * NS_PER_S
"""How long a row of a proven record is kept, so that a second copy or a wrong order can be seen."""
ANSWERS_KEEP_NS = 60 * NS_PER_S
ROWS_MAX = 50_000
"""How many rows of one partition are kept. More wait only if nothing could be read for hours."""
RETENTION_NS = 30 * 60 * NS_PER_S
"""The retention.ms of the watched topic (`prozess.clusters.existing.canary_topic`)."""
_MARK_NS, _MARGIN_NS = 10 * NS_PER_S, 60 * NS_PER_S
_EPOCHS_KEPT = 8

LOST, REGRESSION = "lost", "watermark-regression"
KERNELS = select(
    (
        "lost", "duplicate", "reordered", "offset-conflict", "phantom", "corrupt", "misplaced", "resurrected", "rewound",
        "time-travel",
    )
).kernels  # fmt: skip
"""The kernels of `prozess check` that look at records and at their order. Those that ask for the controllers' log or for
copies have nothing to look at here."""
WATERMARK_KERNEL = select((REGRESSION,)).kernels[REGRESSION]

DISTURBED_NS = 60 * NS_PER_S
DOUBTED_AFTER_CHANGES = frozenset({"duplicate", "reordered", "time-travel", "offset-conflict", "rewound"})
"""Anomalies that are reported as unknown if the leader changed within the window, or if a send failed or the producer was
replaced within DISTURBED_NS. An idempotent producer begins a new epoch after a failure, and sends again what it cannot know
to be appended: known defects of clients (librdkafka#4953, KAFKA-14034), seen with 2.16.0 after two of three brokers were
killed.
"""
FOREIGN = frozenset({"phantom", "misplaced", "corrupt"})
"""Anomalies that another program which writes to the topic would cause. They are reported as unknown, except for damage to an
acknowledged record."""

WORDS = {
    "lost": "acknowledged records are gone",
    "duplicate": "records stand in the log twice",
    "reordered": "records stand in the log in another order than they were sent",
    "offset-conflict": "different records were seen at one offset",
    "phantom": "records were read that the watch never sent",
    "corrupt": "records cannot be read as they were sent",
    "misplaced": "records were read from another partition than they were sent to",
    "resurrected": "records were read whose sending certainly had failed",
    "rewound": "the reader was given an offset that it had already passed",
    "time-travel": "records were acknowledged or read before they, or records in front of them, were sent",
    REGRESSION: "the high watermark went back, so acknowledged records are gone",
    "deleted": "records were removed before the topic's retention allows it",
    "not-followed": "acknowledged records could not be followed to the reader",
    "judge-failed": "the checkers could not judge the window",
    "stuck": "a producer with something to send gets no acknowledgement, and nothing holds it up",
    "stalled": "acknowledged records are not read, and nothing holds them up",
    "leaderless": "a partition has no leader, although a replica in sync could lead",
}
"""Name of a sighting → its meaning."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """Something that was seen in a partition and is reported once."""

    partition: int
    name: str
    """An anomaly of the checkers; a promise of progress; or `deleted`, `not-followed` or
    `judge-failed`."""
    certain: bool
    """False: something else may explain it, so it is unknown and no violation."""
    count: int
    detail: str
    sequences: tuple[int, ...] = ()
    """The records that are lost, if it is about lost records."""

    @property
    def text(self) -> str:
        """Returns what was found in a sentence for a person."""
        return f"{WORDS[self.name]} ({self.count}; {self.detail})."


class WindowRows:
    """Rows of one table, in the order in which they came. The oldest can be dropped."""

    def __init__(self, table: Table) -> None:
        self._names = table.column_names
        kinds = {"client": "i4"} | {column.name: column.kind for column in table.columns}
        self._held = np.empty(256, dtype=[(name, f"<{kinds[name]}") for name in self._names])
        self.count = 0

    @property
    def all(self) -> np.ndarray:
        """Returns the rows as one structured array. It may be written to, and is valid until the next change."""
        return self._held[: self.count]

    def append(self, **values: int) -> None:
        """Adds a row with these columns, which are all of the table's."""
        self._make_room(1)
        self._held[self.count] = tuple(values[name] for name in self._names)
        self.count += 1

    def extend(self, columns: Mapping[str, np.ndarray | int]) -> None:
        """Adds rows with these columns, which are arrays of one length, or one value for all."""
        many = max(len(values) for values in columns.values() if isinstance(values, np.ndarray))
        self._make_room(many)
        for name in self._names:
            self._held[name][self.count : self.count + many] = columns[name]
        self.count += many

    def keep(self, chosen: np.ndarray) -> None:
        """Drops the rows that are not chosen (bool[count])."""
        kept = self.all[chosen]
        self._held = np.empty(max(256, 2 * len(kept)), dtype=self._held.dtype)
        self._held[: len(kept)], self.count = kept, len(kept)

    def columns(self) -> dict[str, np.ndarray]:
        """Returns a copy in the Parquet form: column name → array."""
        return {name: self.all[name].copy() for name in self._names}

    def _make_room(self, many: int) -> None:
        if self.count + many > len(self._held):
            grown = np.empty(2 * (self.count + many), dtype=self._held.dtype)
            grown[: self.count] = self.all
            self._held = grown


class PartitionWindow:
    """The window of one partition. All times are of one monotonic clock, in nanoseconds."""

    def __init__(self, partition: int, *, retention_ns: int = RETENTION_NS) -> None:
        self.partition = partition
        self._retention_ns = retention_ns
        self._sends, self._reads, self._answers = WindowRows(SENDS), WindowRows(READS), WindowRows(OBSERVATIONS)
        self._producers = self._issued = 0
        self._floor = 0
        self._log_start = 0
        self._reported: set[tuple[str, bool, tuple[int, ...]]] = set()
        self._seen: set[tuple[str, bool, tuple[int, ...]]] = set()
        """The findings of the last look, reported or not."""
        self._marks: deque[tuple[int, int]] = deque()
        self._deleted_to = 0
        self._disturbed_ns: int | None = None
        self._pending: list[Sighting] = []
        self.end = 0
        """The offset behind the last record that was acknowledged or read."""

    # Recording.

    def invoked(self, *, client: int, sequence: int, invoked_ns: int, size: int) -> None:
        """Notes a send before it is attempted. `sequence` is greater than every one before."""
        self._producers, self._issued = client, sequence + 1
        self._sends.append(
            client=client,
            invoked_ns=invoked_ns,
            completed_ns=MISSING,
            log_offset=NONE,
            sequence=sequence,
            transaction=NONE,
            key=NONE,
            partition=self.partition,
            outcome=int(Outcome.INFO),
            code=0,
            size=size,
        )

    def completed(self, sequence: int, *, completed_ns: int, log_offset: int, outcome: Outcome, code: int) -> None:
        """Notes how a send ended. `log_offset`: NONE if it was not reported."""
        rows = self._sends.all
        row = int(np.searchsorted(rows["sequence"], sequence))
        assert row < len(rows), (sequence, len(rows))
        assert rows["sequence"][row] == sequence, sequence
        for name, value in (
            ("log_offset", log_offset), ("outcome", int(outcome)), ("code", code), ("completed_ns", completed_ns)
        ):  # fmt: skip
            rows[name][row] = value
        if outcome is Outcome.OK and log_offset >= 0:
            self.end = max(self.end, log_offset + 1)

    def disturbed(self, now_ns: int) -> None:
        """Notes that a send to any partition failed, or that the producer was replaced."""
        self._disturbed_ns = now_ns

    def read(self, columns: Mapping[str, np.ndarray | int]) -> None:
        """Notes records that the reader was given: the columns of `reads` but `client`."""
        self._reads.extend({**columns, "client": READER})
        self.end = max(self.end, int(np.max(columns["log_offset"])) + 1)

    def answered(
        self, *, time_ns: int, node: int, leader_epoch: int, log_start: int | None, high_watermark: int | None
    ) -> None:
        """Records the offsets that a broker reported about a partition that it leads. `time_ns`: when the answer came."""
        if high_watermark is not None and leader_epoch >= 0:
            self._answers.append(
                client=NONE,
                time_ns=time_ns,
                value=high_watermark,
                partition=self.partition,
                kind=int(ObservationKind.LEADER_HIGH_WATERMARK),
                node=node,
                leader_epoch=leader_epoch,
                isolation=int(Isolation.READ_UNCOMMITTED),
                step=NONE,
            )
        newest = int(self._answers.all["leader_epoch"].max(initial=NONE))
        if log_start is not None and leader_epoch >= newest:
            self._note_log_start(log_start, time_ns)

    def _note_log_start(self, log_start: int, time_ns: int) -> None:
        while len(self._marks) > 1 and self._marks[1][0] <= time_ns - self._retention_ns + _MARGIN_NS:
            self._marks.popleft()
        if not self._marks or time_ns - self._marks[-1][0] >= _MARK_NS:
            self._marks.append((time_ns, self.end))
        first_ns, first_end = self._marks[0]
        allowed = first_end if first_ns <= time_ns - self._retention_ns + _MARGIN_NS else 0
        missing = log_start - max(allowed, self._log_start)
        if missing > 0:
            span = f"offsets {log_start - missing} to {log_start - 1}"
            detail = f"{span}; somebody deleted them, or the replica that leads now never had them"
            self._pending.append(Sighting(self.partition, "deleted", True, missing, detail))
            self._deleted_to = log_start
        self._log_start = log_start

    def cut(self, lost: np.ndarray, first_offset: int, leader_epoch: int) -> None:
        """Forgets records (sequences) that the log of another leader lacks, because they are reported, and what was read
        from the first of them on. The reader reads from there once more."""
        sends, answers = self._sends.all, self._answers.all
        self._sends.keep(~np.isin(sends["sequence"], lost))
        self._reads.keep(self._reads.all["log_offset"] < first_offset)
        self._answers.keep(answers["leader_epoch"] >= leader_epoch)
        self._floor, self._marks = min(self._floor, first_offset), deque()
        self.end = max(first_offset, 1 + int(self._sends.all["log_offset"].max(initial=NONE)))

    # Queries.

    @property
    def rows(self) -> int:
        """Returns how many rows the window holds."""
        return self._sends.count + self._reads.count + self._answers.count

    def unread_since(self) -> int | None:
        """Returns when the oldest record beyond the reader's last one was acknowledged. None if there is none."""
        sends = self._sends.all
        waiting = (sends["outcome"] == Outcome.OK) & (sends["log_offset"] > self._furthest())
        waiting &= sends["log_offset"] >= self._log_start
        times = sends["completed_ns"][waiting]
        return int(times.min()) if len(times) else None

    def unproven(self) -> int:
        """Returns how many acknowledged records the reader was not given."""
        sends = self._sends.all
        return int(np.count_nonzero((sends["outcome"] == Outcome.OK) & ~self._proven()))

    def restart_offset(self, high_watermark: int) -> int:
        """Returns where the reader begins again if its position has left the log: at the first record that the window still
        holds, within the log."""
        return max(self._log_start, min(self._floor, high_watermark))

    # Judging.

    def look(self, now_ns: int) -> list[Sighting]:
        """Returns the sightings that were not reported before. They stay unreported until `settle`: a later look may find
        another reason for them."""
        found = list(self._pending)
        self._seen = set()
        # First: records behind the end of a truncated log are reported by that, and judged no more.
        if regression := self._regression():
            return found + regression
        for finding in check_partition(self._history(), KERNELS):
            witnesses = finding.result.witnesses
            if finding.result.incomplete and not finding.result.judged and "failed" in finding.result.incomplete:
                key = ("judge-failed", False, ())
                self._seen.add(key)
                if key not in self._reported:
                    found.append(Sighting(self.partition, "judge-failed", False, 1, finding.result.incomplete))
            if not len(witnesses):
                continue
            certain = self._certain(finding.anomaly, witnesses, now_ns)
            for value in (True, False):
                chosen = witnesses[certain == value]
                keys = [(finding.anomaly, value, key) for key in _keys(chosen)]
                new = [row for row, key in enumerate(keys) if key not in self._reported]
                self._seen.update(keys)
                if new:
                    detail = self._detail(finding.anomaly, chosen[new], certain=value)
                    lost = tuple(chosen[new]["sequence"].tolist()) if finding.anomaly == LOST else ()
                    found.append(Sighting(self.partition, finding.anomaly, value, len(new), detail, lost))
        return found

    def settle(self, now_ns: int) -> list[Sighting]:
        """Marks the findings of the last look as reported, and drops the rows that are no longer needed. Returns
        the sightings that cannot be followed any further."""
        self._pending.clear()
        if self._regression():
            self._forget_truncated()
        self._reported = self._seen
        return self._drop(now_ns)

    def check(self, now_ns: int) -> list[Sighting]:
        """Returns the sightings that were not reported before, and marks them as reported."""
        return self.look(now_ns) + self.settle(now_ns)

    def _regression(self) -> list[Sighting]:
        (finding,) = check_partition(self._history(), {REGRESSION: WATERMARK_KERNEL})
        witnesses = finding.result.witnesses
        if not len(witnesses):
            return []
        first, end = witnesses[0], self.end
        detail = (
            f"broker {first['reader']} stated {first['log_offset']} in leader epoch {first['sequence']}, and broker "
            f"{first['other_client']} had stated {first['other_offset']} in epoch {first['other_sequence']}; the last record "
            f"that was acknowledged or read had offset {end - 1}; the records between are gone"
        )
        gone = max(1, max(end, int(first["other_offset"])) - int(self._last_answer()["value"]))
        return [Sighting(self.partition, REGRESSION, True, gone, detail)]

    def _last_answer(self) -> np.void:
        answers = self._answers.all
        last: np.void = answers[answers["leader_epoch"] == answers["leader_epoch"].max()][-1]
        return last

    def _history(self) -> PartitionHistory:
        sends, reads = self._sends.columns(), self._reads.columns()
        clients = 1 + self._producers
        role = np.full(clients + len(REVEALED), Role.PRODUCER, dtype=np.int32)
        role[READER], role[clients:] = Role.READER, Role.AUDIT
        isolation = np.full(len(role), Isolation.NOT_A_READER, dtype=np.int32)
        isolation[READER], isolation[clients:] = Isolation.READ_UNCOMMITTED, REVEALED
        issued = np.full(len(role), NONE, dtype=np.int64)
        issued[READER + 1 : clients] = self._issued  # sequences go on from one producer to the next
        acks = np.where(role == Role.PRODUCER, -1, 0).astype(np.int32)
        return PartitionHistory(
            partition=self.partition,
            sends=sends,
            reads=RevealedReads(sends, reads, isolation, first_id=clients),
            client_role=role,
            client_isolation=isolation,
            client_issued=issued,
            client_acks=acks,
            audit_end={},
            audited=False,
            log_start=max(self._floor, self._log_start),
            client_clock=np.zeros(len(role), dtype=np.int32),
            observations=self._answers.columns(),
        )

    def _certain(self, anomaly: str, witnesses: np.ndarray, now_ns: int) -> np.ndarray:
        """Returns bool[witnesses]: can nothing else explain it?"""
        if anomaly in FOREIGN:
            sends = self._sends.all
            acknowledged = sends["log_offset"][sends["outcome"] == Outcome.OK]
            return np.isin(witnesses["log_offset"], acknowledged) & (anomaly == "corrupt")
        return np.full(len(witnesses), not (anomaly in DOUBTED_AFTER_CHANGES and self._changed(now_ns)))

    def _changed(self, now_ns: int) -> bool:
        """Returns whether the leader or the producer changed, or a send failed, so lately that it may explain an order."""
        if self._disturbed_ns is not None and now_ns - self._disturbed_ns < DISTURBED_NS:
            return True
        epochs = np.concatenate([self._reads.all["leader_epoch"], self._answers.all["leader_epoch"]])
        clients = self._sends.all["client"]
        return len(np.unique(epochs[epochs >= 0])) > 1 or len(np.unique(clients)) > 1

    def _detail(self, anomaly: str, witnesses: np.ndarray, *, certain: bool) -> str:
        first = witnesses[0]
        offsets = witnesses["log_offset"]
        known = offsets[offsets >= 0]
        where = f"offset {known.min()}" if len(known) else "no offset was reported"
        if len(known) and known.max() > known.min():
            where = f"offsets {known.min()} to {known.max()}"
        doubt = ""
        if not certain:
            doubt = (
                "; somebody else may write to this topic"
                if anomaly in FOREIGN
                else "; a send failed, or the leader or the producer changed, shortly before, which can cause this"
            )
        whose = f", such as record {first['sequence']} of producer {first['client']}" if first["sequence"] >= 0 else ""
        passed = "; the reader was given later records, and never these" if anomaly == LOST else ""
        return f"{where}{whose}{passed}{doubt}"

    # Dropping rows.

    def _furthest(self) -> int:
        return int(self._reads.all["log_offset"].max(initial=NONE))

    def _proven(self) -> np.ndarray:
        return np.isin(self._sends.all["sequence"], self._reads.all["sequence"])

    def _forget_truncated(self) -> None:
        """Drops the rows behind the end of a truncated log, because they are reported."""
        last, sends, reads, answers = self._last_answer(), self._sends.all, self._reads.all, self._answers.all
        newest, end, time_ns = int(last["leader_epoch"]), int(last["value"]), int(last["time_ns"])
        self._sends.keep((sends["log_offset"] < end) | (sends["completed_ns"] > time_ns))
        self._reads.keep((reads["log_offset"] < end) | (reads["leader_epoch"] >= newest))
        self._answers.keep((answers["leader_epoch"] == newest) & (answers["time_ns"] == time_ns))
        self._floor, self.end = min(self._floor, end), max(end, self._furthest() + 1)
        self._marks.clear()

    def _drop(self, now_ns: int) -> list[Sighting]:
        sends, reads, answers = self._sends.all, self._reads.all, self._answers.all
        offset, ok = sends["log_offset"], sends["outcome"] == Outcome.OK
        proven, furthest = self._proven(), self._furthest()
        over = (sends["completed_ns"] != MISSING) & (sends["completed_ns"] < now_ns - KEEP_NS)
        read_since = int(reads["sequence"].max(initial=NONE))
        mask = ok & (offset >= 0) & (offset <= furthest)
        removed = ok & ~proven & (offset >= 0) & (offset < self._log_start)
        nowhere = ok & ~proven & (offset == NONE) & (sends["sequence"] < read_since)
        beyond = np.zeros(len(sends), dtype=bool)
        if len(sends) > ROWS_MAX:
            beyond[:-ROWS_MAX] = True
            over |= beyond
        gone = over & (proven | mask | ~ok | removed | nowhere | beyond)
        unknown = int(
            np.count_nonzero(gone & ((removed & (offset >= self._deleted_to)) | nowhere | (beyond & ok & ~proven)))
        )
        kept = sends["sequence"][~gone]
        stays = (reads["read_ns"] >= now_ns - KEEP_NS) | np.isin(reads["sequence"], kept)
        if len(stays):
            stays[-1] = True
        if len(stays) > ROWS_MAX:
            stays[:-ROWS_MAX] = False
        last = answers["time_ns"] >= now_ns - ANSWERS_KEEP_NS
        for column, most in (("leader_epoch", _EPOCHS_KEPT), ("node", len(answers))):
            for value in np.unique(answers[column])[-most:].tolist():
                mine = np.flatnonzero(answers[column] == value)
                # The greatest of an epoch is what later answers are compared with; the last of a node says when it was asked.
                last[mine[np.argmax(answers["value"][mine])] if column == "leader_epoch" else mine[-1]] = True
        self._sends.keep(~gone)
        self._reads.keep(stays)
        self._answers.keep(last)
        left = [self._reads.all["log_offset"], self._sends.all["log_offset"]]
        offsets = np.concatenate(left)
        offsets = offsets[offsets >= 0]
        if len(offsets):
            self._floor = max(self._floor, int(offsets.min()))
        if not unknown:
            return []
        detail = "they were acknowledged, but without an offset, or retention removed them before they could be read"
        return [Sighting(self.partition, "not-followed", False, unknown, detail)]


def _keys(witnesses: np.ndarray) -> list[tuple[int, ...]]:
    """Returns the keys that distinguish the witnesses of one anomaly."""
    columns = ("client", "sequence", "log_offset", "other_client", "other_sequence", "other_offset")
    return list(zip(*(witnesses[name].tolist() for name in columns), strict=True))
