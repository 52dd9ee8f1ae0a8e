"""This module says what every client of librdkafka needs beside its properties: a login, a limit to its retry back-off,
and a close that cannot hang."""

import faulthandler
import sys
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition, libversion

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.config.existing_clusters import login_here
from prozess.harness.errors import NotReady

# What every client of a run is given beside its own properties: how to log in, where the cluster is somebody else's.
#
# It is added where a client of librdkafka is made, and not before: specifications of clients are sent, kept and shown.


def logged_in(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties with those of the login that the environment names. Don't keep them: they are secret."""
    login = login_here()
    return {**({} if login is None else login.properties), **properties}


def library_version() -> str:
    """Returns the version of librdkafka that this process has. confluent-kafka 2.12.0 reports it as text, all others as text
    and number."""
    version: object = libversion()
    return str(version[0] if isinstance(version, tuple) else version)


LOST_POSITION = frozenset(
    getattr(KafkaError, name)
    for name in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION")
    if hasattr(KafkaError, name)  # _LOG_TRUNCATION is there since 2.1.0 (KIP-320)
)
"""Codes of errors that come in place of a record to a consumer whose position is gone."""


# How long a producer waits before it sends again. Pure.
#
# librdkafka's n-th retry of a record waits for retry.backoff.ms * 2^(n-1), give or take a fifth, and for
# retry.backoff.max.ms at most. It multiplies in 32 bits: from the 26th retry on (of 100 ms) the wait is no longer, but
# nothing, or begins anew. Records of one batch that were not tried equally often are then due at different times, and
# an idempotent producer, which must send the very same batch again, ends with _INCONSISTENT, "Unable to reconstruct
# MessageSet". Therefore the limit is to be one at which a record's time is over before that. [librdkafka rdkafka_partition.c,
# rd_kafka_retry_msgq; rdkafka_msgset_writer.c; confluent-kafka-dotnet#2519, open]


BACKOFF_MS = 100
"""librdkafka's default wait before the first retry."""
BACKOFF_KEY, LIMIT_KEY = "retry.backoff.ms", "retry.backoff.max.ms"
_LIVES_KEYS = ("delivery.timeout.ms", "message.timeout.ms")
"""Two names of one setting, the time that a record may live."""
_INT_MAX = 2**31 - 1
_LEAST_PERCENT = 80
_STEP_MS = 100
_LIMIT_MIN_MS, _LIMIT_MAX_MS, _LIMIT_DEFAULT_MS = 200, 300_000, 1_000
"""The least limit makes the time to recover the cluster's and not the client's. The other two are librdkafka's own."""


def backoff_limit_ms(properties: Mapping[str, str | int | float | bool]) -> int:
    """Returns the least retry.backoff.max.ms, in steps of 100 ms, with which the retries that are counted rightly last
    longer than a record lives. Librdkafka's default where it lives for ever."""
    lives_ms = next((_number(properties[key]) for key in reversed(list(properties)) if key in _LIVES_KEYS), 0)
    backoff_ms = _number(properties.get(BACKOFF_KEY, "")) or BACKOFF_MS
    if not lives_ms:
        return max(backoff_ms, _LIMIT_DEFAULT_MS)
    limits = range(_LIMIT_MIN_MS, _LIMIT_MAX_MS, _STEP_MS)
    at = bisect_left(limits, lives_ms, key=lambda limit_ms: least_retry_ms(backoff_ms, limit_ms))
    return max(backoff_ms, limits[at] if at < len(limits) else _LIMIT_MAX_MS)


def least_retry_ms(backoff_ms: int, limit_ms: int) -> int:
    """Returns how long the retries that librdkafka counts correctly take at least, if answers take no time."""
    counted = (_INT_MAX // backoff_ms).bit_length()  # 25 of 100 ms
    return sum(min((backoff_ms << retry) * _LEAST_PERCENT // 100, limit_ms) for retry in range(counted))


def _number(value: str | int | float | bool) -> int:
    """Returns a setting as a number; 0 if it is none, which is for librdkafka to refuse."""
    return int(text) if (text := str(value).strip()).isdigit() else 0


# How a consumer that subscribed is closed, so that the close cannot stand still for ever.
#
# librdkafka's `rd_kafka_consumer_close` serves rebalance callbacks, and the binding's (`Consumer_rebalance_cb` of
# Consumer.c) asks librdkafka's main thread for the protocol, without a limit and with the interpreter's lock. While a
# group ends (rdkafka_cgrp.c, `rd_kafka_cgrp_terminate0`), an assignment that the application was not reported yet keeps
# nothing back; once it has ended, the main thread drops such a question without an answer (`rd_kafka_cgrp_op_serve`).
# Then every thread of the process waits for the lock, and no time-out of Python's can fire. librdkafka#4041, #4884 and
# confluent-kafka-go#1016 report it; a way out that librdkafka#4527 names is the one here: unsubscribe, wait until
# nothing is assigned, close.


LEAVE_LIMIT_S = 5.0
"""How long leaving the group may take: a member with partitions waits for its last commits."""
HANG_LIMIT_S = 120.0
"""A close that takes longer is not slow but hangs: librdkafka waits no longer than 60 s for an answer."""
_LOOK_S = 0.005
_QUIET_LOOKS = 3


def close(consumer: Consumer, properties: Mapping[str, Any], *, leave_limit_s: float = LEAVE_LIMIT_S) -> None:
    """Closes a consumer, with every rebalance callback made before. Nobody else may be using it.

    Raises what the application's callbacks raised, when it is closed.

    `properties`: what the consumer was made with. A static member of the classic protocol does not leave its group
    (KIP-345): it only hears what is due. Any other leaves, as it would in its close. What was fetched and not given yet is
    neither given nor stored.
    """
    looks = _Looks(consumer, properties)
    try:
        with suppress(NotReady):  # whatever is left to be reported: the close is the same
            wait_until(
                looks.over,
                awaited="the consumer to have left its group",
                timeout_s=leave_limit_s,
                clock=SystemClock(),
                interval_s=_LOOK_S,
            )
    finally:
        Consumer.close(consumer)
    if looks.raised is not None:
        raise looks.raised


class _Looks:
    """Looks at what a consumer that is about to close still has to be reported. It calls the base class's methods: a
    subclass's may record."""

    def __init__(self, consumer: Consumer, properties: Mapping[str, Any]) -> None:
        self._consumer = consumer
        classic = properties.get("group.protocol", "classic") != "consumer"
        self._stays = classic and bool(properties.get("group.instance.id"))
        self._id_ends = classic and not self._stays
        """Whether it has no member id any more once it has left."""
        self._quiet = 0
        self.raised: Exception | None = None
        """The first exception of the application's callbacks."""

    def over(self) -> bool:
        """Says whether the consumer has learned everything."""
        if not self._stays:
            self._unsubscribe()
        before = self._assigned()
        with suppress(KafkaException):
            # Paused, what was fetched is dropped: it would be given to nobody, and yet be stored to be committed.
            Consumer.pause(self._consumer, before)
        try:
            Consumer.poll(self._consumer, 0)
        except Exception as error:  # noqa: BLE001 - whatever an application's callback raises
            dead = isinstance(error, KafkaException) and error.args[0].fatal()
            self.raised = self.raised or (None if dead else error)
        after = self._assigned()
        settled = len(after) == len(before) and (self._stays or (not after and self._has_left()))
        self._quiet = self._quiet + 1 if settled else 0
        return self._quiet >= _QUIET_LOOKS

    def _unsubscribe(self) -> None:
        """Unsubscribes at each look: amid a rebalance librdkafka puts it off, and without a coordinator that is for
        ever."""
        try:
            Consumer.unsubscribe(self._consumer)
        except KafkaException:  # it died, and is a member no more
            self._id_ends = False

    def _assigned(self) -> list[TopicPartition]:
        try:
            return list(Consumer.assignment(self._consumer))
        except KafkaException:
            return []

    def _has_left(self) -> bool:
        return not self._id_ends or not Consumer.memberid(self._consumer)


@contextmanager
def end_if_hanging(limit_s: float = HANG_LIMIT_S) -> Iterator[None]:
    """Ends a process that hangs in here for `limit_s`, with status 1 and its stacks on standard error: by a thread of
    C, which needs no interpreter's lock. For processes that set no other such timer."""
    faulthandler.dump_traceback_later(limit_s, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
