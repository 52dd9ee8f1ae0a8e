"""How long a producer waits before it sends again. Pure.

librdkafka's n-th retry of a record waits for retry.backoff.ms * 2^(n-1), give or take a fifth, and for retry.backoff.max.ms
at most. It multiplies in 32 bits: from the 26th retry on (of 100 ms) the wait is no longer, but nothing, or begins anew.
Records of one batch that were not tried equally often are then due at different times, and an idempotent producer, which
must send the very same batch again, ends with _INCONSISTENT, "Unable to reconstruct MessageSet". So the limit is to be one
at which a record's time is over before that. [librdkafka rdkafka_partition.c, rd_kafka_retry_msgq;
rdkafka_msgset_writer.c; confluent-kafka-dotnet#2519, open]
"""

from bisect import bisect_left
from collections.abc import Mapping

BACKOFF_MS = 100
"""Before the first retry; librdkafka's own default."""
BACKOFF_KEY, LIMIT_KEY = "retry.backoff.ms", "retry.backoff.max.ms"
_LIVES_KEYS = ("delivery.timeout.ms", "message.timeout.ms")
"""Two names of one setting."""
_INT_MAX = 2**31 - 1
_LEAST_PERCENT = 80
_STEP_MS = 100
_LIMIT_MIN_MS, _LIMIT_MAX_MS, _LIMIT_DEFAULT_MS = 200, 300_000, 1_000
"""With the least the time to recover is the cluster's, and not the client's. The others are librdkafka's own."""


def backoff_limit_ms(properties: Mapping[str, str | int | float | bool]) -> int:
    """The least retry.backoff.max.ms, in steps of 100 ms, with which the retries that are counted rightly last longer than a
    record lives. Librdkafka's default where it lives for ever."""
    lives_ms = next((_number(properties[key]) for key in reversed(list(properties)) if key in _LIVES_KEYS), 0)
    backoff_ms = _number(properties.get(BACKOFF_KEY, "")) or BACKOFF_MS
    if not lives_ms:
        return max(backoff_ms, _LIMIT_DEFAULT_MS)
    limits = range(_LIMIT_MIN_MS, _LIMIT_MAX_MS, _STEP_MS)
    at = bisect_left(limits, lives_ms, key=lambda limit_ms: least_ms(backoff_ms, limit_ms))
    return max(backoff_ms, limits[at] if at < len(limits) else _LIMIT_MAX_MS)


def least_ms(backoff_ms: int, limit_ms: int) -> int:
    """How long the retries that are counted rightly take at least, answers in no time."""
    counted = (_INT_MAX // backoff_ms).bit_length()  # 25 of 100 ms
    return sum(min((backoff_ms << retry) * _LEAST_PERCENT // 100, limit_ms) for retry in range(counted))


def _number(value: str | int | float | bool) -> int:
    """What is no number is for librdkafka to refuse."""
    return int(text) if (text := str(value).strip()).isdigit() else 0
