"""A producer of keyed upserts and tombstones: the log workload's, with a key for every record and now and then no value.

Which key, and whether the value is absent, is drawn from a generator that the trial's seed begins. A tombstone's identity
travels in the record header `prozess`; its delivery report knows neither value nor headers, so it has a callback of its own.
"""

import random
import struct
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import KafkaException

from harness.schema import MISSING, NONE
from workloads.bulk import PartitionName
from workloads.carrier import HEADER_NAME, VALUE_BYTES_MIN, encoder, key_id
from workloads.client import Client
from workloads.producer import LogProducer
from workloads.send_rows import completer_at

_KEY = struct.Struct("<I")
"""Four bytes: the id of a key is its crc32, which is one-to-one on four bytes, so two keys never share an id."""

Draw = Callable[[], tuple[int, bool]]


def drawing(rng: random.Random, *, keys: int, tombstone_share: float) -> Draw:
    """A function that draws (number of the key, is it a tombstone?)."""
    uniform = rng.random
    return lambda: (int(uniform() * keys), uniform() < tombstone_share)


class KeyedProducer(LogProducer):
    """The role `keyed-producer`. Options: `seed` (any text), `keys`, `tombstone_share`. Commands as of LogProducer."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        options = client.spec.options
        self._draw = drawing(
            random.Random(options["seed"]), keys=options["keys"], tombstone_share=options["tombstone_share"]
        )
        keys = [_KEY.pack(number) for number in range(options["keys"])]
        self._keys = [(key, key_id(key)) for key in keys]
        self._encode_header = encoder(sender=client.spec.client, value_bytes=VALUE_BYTES_MIN)
        self._complete = completer_at(self._sends, client.spec.properties, client.now_ns, self._settled)

    def _issue(self, turns: Sequence[PartitionName]) -> None:
        """One record for each turn, recorded before it is attempted."""
        for dense, topic, number in turns:
            if self._in_flight[dense] >= self._spec.unacknowledged_max:
                self._withheld.hold(dense)
                continue
            self._withheld.release(dense)
            key_number, tombstone = self._draw()
            key, identifier = self._keys[key_number]
            sequence = self._sends.count
            size = NONE if tombstone else self._spec.value_bytes
            self._sends.append(self._now_ns(), MISSING, NONE, sequence, NONE, identifier, dense, 0, 0, size)
            self._in_flight[dense] += 1
            try:
                if tombstone:
                    self._bury(dense, sequence, topic, number, key)
                else:
                    self._producer.produce(topic, self._encode(dense, sequence), key, number)
            except (BufferError, KafkaException) as error:
                if not self._goes_on(sequence, dense, error):
                    return

    def _bury(self, dense: int, sequence: int, topic: str, number: int, key: bytes) -> None:
        self._producer.produce(
            topic,
            None,
            key,
            number,
            on_delivery=partial(self._complete, dense, sequence),
            headers={HEADER_NAME: self._encode_header(dense, sequence)},
        )
