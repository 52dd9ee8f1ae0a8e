"""A producer of text for applications: keys and values that any program can read, the identity beside them in the
record header `prozess`. A delivery report gives neither back, so each send has a callback of its own."""

import json
from collections.abc import Sequence
from functools import partial
from typing import TypeGuard

from confluent_kafka import KafkaException

from harness.schema import MISSING, NONE
from workloads.bulk import PartitionName
from workloads.carrier import HEADER_NAME, VALUE_BYTES_MIN, encoder, key_id
from workloads.client import Client
from workloads.producer import LogProducer
from workloads.send_rows import completer_at

ACCOUNTS = 100
"""Different keys."""
CLIENTS_END, NUMBERS_END = 2**31, 2**62
"""Beyond the columns of a history."""


class TextProducer(LogProducer):
    """The role `text-producer`. Commands as of LogProducer. A value is a JSON object of `value_bytes` bytes:
    {"client", "order", "account", "note"}; its key is the account."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._keys = [(f"account-{number}".encode(), number) for number in range(ACCOUNTS)]
        self._encode_header = encoder(sender=client.spec.client, value_bytes=VALUE_BYTES_MIN)
        self._complete = completer_at(self._sends, client.spec.properties, client.now_ns, self._settled)

    def _issue(self, turns: Sequence[PartitionName]) -> None:
        """One record for each turn, recorded before it is attempted."""
        for dense, topic, number in turns:
            if self._in_flight[dense] >= self._spec.unacknowledged_max:
                self._withheld.hold(dense)
                continue
            self._withheld.release(dense)
            sequence = self._sends.count
            key, account = self._keys[sequence % ACCOUNTS]
            value = text_value(self._spec.client, sequence, account, size=self._spec.value_bytes)
            self._sends.append(self._now_ns(), MISSING, NONE, sequence, NONE, key_id(key), dense, 0, 0, len(value))
            self._in_flight[dense] += 1
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    number,
                    on_delivery=partial(self._complete, dense, sequence),
                    headers={HEADER_NAME: self._encode_header(dense, sequence)},
                )
            except (BufferError, KafkaException) as error:
                if not self._goes_on(sequence, dense, error):
                    return


def text_value(client: int, order: int, account: int, *, size: int) -> bytes:
    """A value of at least `size` bytes, different for every (client, order)."""
    told = {"client": client, "order": order, "account": account, "note": ""}
    bare = json.dumps(told, separators=(",", ":"))
    return (bare[:-2] + "." * (size - len(bare)) + bare[-2:]).encode()


def text_identity(value: object) -> tuple[int, int]:
    """(client, order) of such a value; (NONE, NONE) unless it is one to the letter."""
    try:
        told = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return NONE, NONE
    if not isinstance(told, dict):
        return NONE, NONE
    numbers = [n for name in ("client", "order", "account") if _is_number(n := told.get(name))]
    if len(numbers) < 3 or not isinstance(value, str):
        return NONE, NONE
    client, order, account = numbers
    whole = text_value(client, order, account, size=len(value)) == value.encode("utf-8", "surrogatepass")
    return (client, order) if whole and client < CLIENTS_END else (NONE, NONE)


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < NUMBERS_END
