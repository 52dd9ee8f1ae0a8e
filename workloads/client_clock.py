"""The wall clock of one client process, moved while it runs, and seen to be where the records say it is.

What is seen is the CreateTime of the newest record that the client wrote since the clock was set: librdkafka stamps it when
it is produced. [message.timestamp.type]
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, KafkaException, TopicPartition

from harness import catalogue
from harness.clock import Clock
from harness.impairments import ClockShift
from harness.plan import Plan
from harness.schedule import FaultAction
from harness.schema import NONE, Tristate
from workloads.carrier import MAGIC
from workloads.own_clock import clocks_of, file_of
from workloads.text_producer import text_identity

FAULT = "client-clock"
LOOK_BACK = 60
"""So many offsets from the end a record is looked for: some are markers of transactions, and some are of other clients."""
ASK_S = 5.0
POLL_S = 0.5
LEAST_NS = 1_000_000_000
_SENDER = struct.Struct("<I")
_MS = 1_000_000


def prepare(plan: Plan, rows: Path) -> Mapping[str, str]:
    """What the process that clients are forked from is started with; {} where no step moves a client's clock."""
    if not any(isinstance(step.do, FaultAction) and step.do.fault == FAULT for step in plan.steps):
        return {}
    clocks_of(rows).mkdir(parents=True, exist_ok=True)
    set_clock = catalogue.service("set-clock")
    common = clocks_of(rows) / "common.clock"
    for path in (common, *(file_of(rows, client.client) for client in plan.clients)):
        set_clock(path, offset_ns=0, drift_ppm=0, since_ns=0)
    support = catalogue.service("client-shim")()
    return dict(catalogue.service("shim-environment")(support.path, clock=common)) if support.path is not None else {}


@dataclass(frozen=True, slots=True)
class Stamp:
    """Of a record. `ms`: CreateTime."""

    ms: int
    by_broker: bool


class PlaceClock:
    """Of one place. `partitions`: (topic, number) that it writes; `clients`: who has or had the place."""

    def __init__(
        self,
        path: Path,
        *,
        partitions: Sequence[tuple[str, int]],
        servers: Callable[[], str],
        clients: Callable[[], Sequence[int]],
        clock: Clock,
    ) -> None:
        self._path, self._partitions, self._servers = path, partitions, servers
        self._clients, self._clock = clients, clock
        self._from: dict[tuple[str, int], int] = {}
        """Partition → the end of its log when the clock was last set: earlier records tell nothing of it."""

    @property
    def there(self) -> bool:
        """Were clients started so that it can be moved?"""
        return self._path.exists()

    @property
    def is_moved(self) -> bool:
        """Is anything but the true time asked for?"""
        return tuple(catalogue.service("clock-is")(self._path)) != (0, 0)

    def impair(self, shift: ClockShift) -> None:
        """Safe to repeat."""
        if not self._is(shift):
            self._set(round(shift.offset_ms * _MS), round(shift.drift_ppm))

    def repair(self, shift: ClockShift) -> None:
        """What another fault made of the clock since is that one's to undo."""
        if self._is(shift):
            self._set(0, 0)

    def impaired(self, shift: ClockShift) -> tuple[Tristate, str]:
        """By the newest record."""
        asked = self._is(shift)
        stamp = self._newest()
        if stamp is None:
            return Tristate.UNKNOWN, "it has written no record since its clock was set that could be read"
        if stamp.by_broker:
            return Tristate.UNKNOWN, "records of its topic are stamped by brokers (LogAppendTime)"
        off_ns = stamp.ms * _MS - self._clock.wall_ns()
        wanted_ns = int(catalogue.service("get-clock")(self._path, now_ns=self._clock.monotonic_ns()))
        seen = f"its newest record is stamped {off_ns / 1e9:+.1f} s from now"
        if asked and abs(wanted_ns) >= LEAST_NS and abs(off_ns - wanted_ns) < abs(wanted_ns) / 2:
            return Tristate.YES, seen
        given_ns = abs(round(shift.offset_ms * _MS)) or 2 * LEAST_NS
        if not asked and abs(off_ns - wanted_ns) < given_ns / 2:
            return Tristate.NO, seen
        return Tristate.UNKNOWN, f"{seen}, and not {wanted_ns / 1e9:+.1f} s"

    def _is(self, shift: ClockShift) -> bool:
        wanted = round(shift.offset_ms * _MS), round(shift.drift_ppm)
        return self.there and tuple(catalogue.service("clock-is")(self._path)) == wanted

    def _set(self, offset_ns: int, drift_ppm: int) -> None:
        now_ns = self._clock.monotonic_ns()
        catalogue.service("set-clock")(self._path, offset_ns=offset_ns, drift_ppm=drift_ppm, since_ns=now_ns)
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
        """(how far from the end, negative; the stamp) of the last record of these that was written since."""
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
        """(first offset, end). KafkaException if it is not told in time."""
        return consumer.get_watermark_offsets(TopicPartition(*at), timeout=ASK_S)


def _sender(value: bytes | None) -> int:
    if value is None:
        return NONE
    if value.startswith(MAGIC) and len(value) >= len(MAGIC) + _SENDER.size:
        return int(_SENDER.unpack_from(value, len(MAGIC))[0])
    return text_identity(value.decode("utf-8", "replace"))[0]
