"""Coordinators of groups: that they are there before anybody needs them.

On a new cluster `__consumer_offsets` is made when the first coordinator is looked for, and brokers learn of it one after the
other. librdkafka 2.16 does not live well with what they say meanwhile: a consumer whose first look at the committed offsets
is answered NOT_COORDINATOR owns its partitions and never reads them (librdkafka#5586).
"""

import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from clusters.wire import Cursor, Request, WireClient, string
from harness.clock import Clock, wait_until

_GROUP = b"\x00"
_ALL_TOPICS = struct.pack(">i", -1)
_COMMITTED = struct.Struct(">iqi")  # partition, offset, leader epoch
TRY_S = 5.0


@dataclass(frozen=True, slots=True)
class FoundCoordinator:
    """`error` ≠ 0: not yet known."""

    error: int
    node_id: int


def find_coordinator_request(group_id: str) -> Request[FoundCoordinator]:
    """FindCoordinator v1 (KIP-98): makes `__consumer_offsets` where it is not there yet."""
    return Request(10, 1, string(group_id) + _GROUP, _found_coordinator)


def _found_coordinator(cursor: Cursor) -> FoundCoordinator:
    cursor.int32()  # throttle time
    error = cursor.int16()
    cursor.string()  # error message
    return FoundCoordinator(error, cursor.int32())


def offset_fetch_request(group_id: str) -> Request[int]:
    """OffsetFetch v5 of everything that a group has committed; only the error code is read. 0 = this broker is its
    coordinator, and has loaded what it must know."""
    return Request(9, 5, string(group_id) + _ALL_TOPICS, _offset_fetch_error)


def _offset_fetch_error(cursor: Cursor) -> int:
    cursor.int32()  # throttle time
    for _ in range(cursor.int32()):
        cursor.string()
        for _ in range(cursor.int32()):
            cursor.numbers(_COMMITTED)
            cursor.string()  # metadata
            cursor.int16()
    return cursor.int16()


def await_coordinators(
    group_ids: Collection[str],
    wire: WireClient,
    brokers: Callable[[], Sequence[int]],
    *,
    clock: Clock,
    timeout_s: float,
) -> None:
    """Return once each of the running `brokers` names a coordinator of each group that answers for it. NotReady with what the
    last one lacked."""
    lacking = {group_id: "no broker was asked yet" for group_id in sorted(group_ids)}

    def none_lacks() -> bool:
        for group_id in list(lacking):
            why = _why_not(group_id, wire, brokers())
            if why is not None:
                lacking[group_id] = why
                return False
            del lacking[group_id]
        return True

    wait_until(
        none_lacks,
        awaited=f"the coordinators of {len(group_ids)} groups",
        timeout_s=timeout_s,
        clock=clock,
        last_seen=lambda: next((f"{group_id}: {why}" for group_id, why in lacking.items()), "all of them"),
    )


def _why_not(group_id: str, wire: WireClient, brokers: Sequence[int]) -> str | None:
    """None = its coordinator is at work, and every broker knows it."""
    named = set()
    for broker in brokers:
        found = wire.ask(broker, find_coordinator_request(group_id), timeout_s=TRY_S)
        if found is None:
            return f"broker {broker} does not answer"
        if found[0].error:
            return f"broker {broker} names no coordinator (error code {found[0].error})"
        named.add(found[0].node_id)
    for node_id in named:
        answers = wire.ask(node_id, offset_fetch_request(group_id), timeout_s=TRY_S)
        if answers is None or answers[0]:
            why = "does not answer" if answers is None else f"is not ready (error code {answers[0]})"
            return f"broker {node_id}, which is its coordinator, {why}"
    return None
