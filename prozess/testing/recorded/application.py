"""Recorded clients of confluent_kafka's asyncio, and how all clients of an application become recorded ones. An
asyncio client has a synchronous client within, which it asks in threads; that one is the recorded one, so that the
rows and their meaning are the same.

A record is recorded when it leaves the producer's batch for librdkafka: a record that is never flushed was never sent.
"""

import contextvars
import threading
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import confluent_kafka
import confluent_kafka.aio
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.aio import AIOConsumer, AIOProducer, _AIOConsumer
from confluent_kafka.aio._common import ReentryContext
from confluent_kafka.aio.producer import _AIOProducer

from prozess.testing.recorded.consumer import CallsUnderWay, RecordedConsumer
from prozess.testing.recorded.producer import RecordedProducer

_WITHIN: contextvars.ContextVar[type | None] = contextvars.ContextVar("the client to be made within", default=None)


class _Clients:
    """Replaces the module confluent_kafka in its asyncio clients, so that they create recorded clients within."""

    def __getattr__(self, name: str) -> object:
        within = _WITHIN.get() if name in ("Producer", "Consumer") else None
        return getattr(confluent_kafka, name) if within is None else within


for _module in (_AIOProducer, _AIOConsumer):
    vars(_module)["confluent_kafka"] = _Clients()


class _ProducerWithin(RecordedProducer):
    """The producer within an asyncio producer, which sends by one method more."""

    def produce_batch(  # type: ignore[override]
        self, topic: str, messages: Sequence[dict[str, Any]], partition: int = -1
    ) -> int:
        """Sends messages, as confluent_kafka does: one that could not be sent has `_error`. TypeError, before anything
        is sent, for a value of a wrong type."""
        for message in messages:
            for part in ("value", "key"):
                if not isinstance(message.get(part), str | bytes | None):
                    raise TypeError(f"a {part} must be str or bytes, and not {type(message[part]).__name__}")
        sent = 0
        for message in messages:
            try:
                self.produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    partition,
                    on_delivery=message.get("callback"),
                    timestamp=message.get("timestamp", 0),
                )
                sent += 1
            except BufferError:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            except KafkaException as error:
                message["_error"] = error.args[0]
        return sent


class _ConsumerWithin(RecordedConsumer):
    """The consumer within an asyncio consumer. A call from a callback comes from another thread than the call that
    made the callback, and belongs to it."""

    @staticmethod
    def _new_uses() -> CallsUnderWay:
        return CallsUnderWay(_who)


def _who() -> Hashable:
    identity = ReentryContext.current_id()
    return ("call", identity) if identity else threading.get_ident()


class _Recorded:
    """The base of both asyncio clients: where they record, and how the client within is made."""

    recording: ClassVar[Path | None] = None
    defaults: ClassVar[Mapping[str, Any]] = {}
    within: ClassVar[type]

    def __init__(self, config: Mapping[str, Any] | None = None, /, *given: object, **more: object) -> None:
        own = {"recording": self.recording, "defaults": self.defaults}
        before = _WITHIN.set(type(self.within.__name__, (self.within,), own))
        try:
            super().__init__(dict(config or {}), *given, **more)  # type: ignore[call-arg] # of the client beside it
        finally:
            _WITHIN.reset(before)


class RecordedAIOProducer(_Recorded, AIOProducer):
    """A drop-in for `confluent_kafka.aio.AIOProducer`. `recording`: the test's directory; None = the environment names
    it."""

    within = _ProducerWithin


class RecordedAIOConsumer(_Recorded, AIOConsumer):
    """A drop-in for `confluent_kafka.aio.AIOConsumer`. `recording`: as of the producer."""

    within = _ConsumerWithin

    def processing(self, messages: Message | Sequence[Message]) -> AbstractContextManager[None]:
        """A context for the processing of these records, in which you may await: they count as processed once it ends
        without an exception."""
        within: Any = self._consumer
        processing: AbstractContextManager[None] = within.processing(messages)
        return processing


# Makes every Kafka client of an application's process a recorded one, so that the application need not know of it.


_NOT_RECORDED = ("SerializingProducer", "DeserializingConsumer", "DeserializingShareConsumer", "ShareConsumer")


_NOT_RECORDED_AIO = ("AsyncSerializingProducer", "AsyncDeserializingConsumer")


def record_clients() -> None:
    """Replaces the clients by recorded ones for all later imports from `confluent_kafka`, `confluent_kafka.aio`
    and aiokafka. A client that nobody would record is refused when it is made."""
    module: Any = confluent_kafka
    aio: Any = confluent_kafka.aio
    module.Producer, module.Consumer = RecordedProducer, RecordedConsumer
    aio.AIOProducer, aio.AIOConsumer = RecordedAIOProducer, RecordedAIOConsumer
    if find_spec("aiokafka") is not None:
        other: Any = import_module("aiokafka")
        clients: Any = import_module("prozess.testing.recorded.aiokafka")
        other.AIOKafkaProducer, other.AIOKafkaConsumer = (
            clients.RecordedAIOKafkaProducer,
            clients.RecordedAIOKafkaConsumer,
        )
    for owner, names in ((module, _NOT_RECORDED), (aio, _NOT_RECORDED_AIO)):
        for name in names:
            if hasattr(owner, name):
                setattr(owner, name, _refusing(f"{owner.__name__}.{name}"))


def _refusing(name: str) -> type:
    def refuse(self: object, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(
            f"{name} is not recorded, so that nothing could be stated of what it does. Use Producer or "
            "Consumer in the test, and serialize beside them."
        )

    return type(name.rpartition(".")[2], (), {"__init__": refuse})
