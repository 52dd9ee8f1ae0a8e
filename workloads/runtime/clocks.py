"""Moves the wall clock of one client process while it runs, and observes where it is by what the client writes.

What is seen is the CreateTime of the newest record that the client wrote since the clock was set: librdkafka stamps it when
it is produced. [message.timestamp.type]
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, KafkaException, TopicPartition

from prozess.harness.clock import Clock
from prozess.harness.config.impairments import ClockShift
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.schedule import FaultAction
from prozess.harness.schema import NONE, Tristate
from prozess.workloads.client import clock_file_of, clocks_of
from prozess.workloads.log.producer import text_identity
from prozess.workloads.record.identity import MAGIC
from prozess.workloads.settings import ClientClocks

FAULT = "client-clock"
LOOK_BACK = 60
"""How many offsets from the end a record is looked for: some are markers of transactions, and some are of other
clients."""
ASK_S = 5.0
POLL_S = 0.5
LEAST_NS = 1_000_000_000
_SENDER = struct.Struct("<I")
_MS = 1_000_000


def prepare(plan: Plan, rows: Path, clocks: ClientClocks) -> Mapping[str, str]:
    """Returns the environment of the process that clients are forked from; {} if no step moves a client's clock."""
    if not any(isinstance(step.do, FaultAction) and step.do.fault == FAULT for step in plan.steps):
        return {}
    clocks_of(rows).mkdir(parents=True, exist_ok=True)
    common = clocks_of(rows) / "common.clock"
    for path in (common, *(clock_file_of(rows, client.client) for client in plan.clients)):
        clocks.set_clock(path, offset_ns=0, drift_ppm=0, since_ns=0)
    support = clocks.client_shim()
    return {} if support.path is None else clocks.environment(support.path, clock=common)


@dataclass(frozen=True, slots=True)
class Stamp:
    """The timestamp of a record. `ms`: its CreateTime."""

    ms: int
    by_broker: bool


class SlotClock:
    """The clock of one client's slot. `partitions`: (topic, number) that it writes; `clients`: the ids of all clients
    that have or had the slot."""

    def __init__(
        self,
        path: Path,
        *,
        partitions: Sequence[tuple[str, int]],
        servers: Callable[[], str],
        clients: Callable[[], Sequence[int]],
        clock: Clock,
        clocks: ClientClocks,
    ) -> None:
        self._path, self._partitions, self._servers = path, partitions, servers
        self._clients, self._clock, self._clocks = clients, clock, clocks
        self._from: dict[tuple[str, int], int] = {}
        """The end of each partition's log when the clock was last set: earlier records say nothing of it."""

    @property
    def there(self) -> bool:
        """Returns whether clients were started so that their clock can be moved."""
        return self._path.exists()

    @property
    def is_moved(self) -> bool:
        """Returns whether anything but the true time is asked for."""
        return self._clocks.clock_is(self._path) != (0, 0)

    def impair(self, shift: ClockShift) -> None:
        """Moves the clock. Safe to repeat."""
        if not self._is(shift):
            self._set(round(shift.offset_ms * _MS), round(shift.drift_ppm))

    def repair(self, shift: ClockShift) -> None:
        """Sets the clock right, unless another fault has moved it since: that one undoes it."""
        if self._is(shift):
            self._set(0, 0)

    def impaired(self, shift: ClockShift) -> tuple[Tristate, str]:
        """Observes, by the newest record, whether the clock is moved."""
        asked = self._is(shift)
        stamp = self._newest()
        if stamp is None:
            return Tristate.UNKNOWN, "it has written no record since its clock was set that could be read"
        if stamp.by_broker:
            return Tristate.UNKNOWN, "records of its topic are stamped by brokers (LogAppendTime)"
        off_ns = stamp.ms * _MS - self._clock.wall_ns()
        wanted_ns = self._clocks.get_clock(self._path, now_ns=self._clock.monotonic_ns())
        seen = f"its newest record is stamped {off_ns / 1e9:+.1f} s from now"
        if asked and abs(wanted_ns) >= LEAST_NS and abs(off_ns - wanted_ns) < abs(wanted_ns) / 2:
            return Tristate.YES, seen
        given_ns = abs(round(shift.offset_ms * _MS)) or 2 * LEAST_NS
        if not asked and abs(off_ns - wanted_ns) < given_ns / 2:
            return Tristate.NO, seen
        return Tristate.UNKNOWN, f"{seen}, and not {wanted_ns / 1e9:+.1f} s"

    def _is(self, shift: ClockShift) -> bool:
        wanted = round(shift.offset_ms * _MS), round(shift.drift_ppm)
        return self.there and self._clocks.clock_is(self._path) == wanted

    def _set(self, offset_ns: int, drift_ppm: int) -> None:
        now_ns = self._clock.monotonic_ns()
        self._clocks.set_clock(self._path, offset_ns=offset_ns, drift_ppm=drift_ppm, since_ns=now_ns)
        with suppress(KafkaException):
            consumer = self._consumer()
            try:
                self._from = {at: self._ends(consumer, at)[1] for at in self._partitions}
            finally:
                consumer.close()

    def _newest(self) -> Stamp | None:
        senders = frozenset(self._clients())
        try:
            consumer = self._consumer()
        except KafkaException:
            return None
        try:
            stamps = [stamp for at in self._partitions if (stamp := self._newest_of(consumer, at, senders)) is not None]
        except KafkaException:
            return None
        finally:
            consumer.close()
        return max(stamps, key=lambda found: found[0])[1] if stamps else None

    def _newest_of(self, consumer: Consumer, at: tuple[str, int], senders: frozenset[int]) -> tuple[int, Stamp] | None:
        """Returns the last record of these senders that was written since the clock was set: (how far from the end,
        negative; its stamp)."""
        low, high = self._ends(consumer, at)
        first = max(low, high - LOOK_BACK, self._from.get(at, 0))
        if first >= high:
            return None
        consumer.assign([TopicPartition(*at, first)])
        found = None
        while (message := consumer.poll(POLL_S)) is not None and message.error() is None:
            left = high - int(message.offset() or 0)
            kind, ms = message.timestamp()
            if _sender(message.value()) in senders:
                found = -left, Stamp(ms, kind != TIMESTAMP_CREATE_TIME)
            if left <= 1:
                break
        return found

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._servers(),
                "group.id": "prozess-stamps",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )

    def _ends(self, consumer: Consumer, at: tuple[str, int]) -> tuple[int, int]:
        """Returns (first offset, end) of a partition. KafkaException if it is not reported in time."""
        return consumer.get_watermark_offsets(TopicPartition(*at), timeout=ASK_S)


def _sender(value: bytes | None) -> int:
    if value is None:
        return NONE
    if value.startswith(MAGIC) and len(value) >= len(MAGIC) + _SENDER.size:
        return int(_SENDER.unpack_from(value, len(MAGIC))[0])
    return text_identity(value.decode("utf-8", "replace"))[0]
