"""The trial of somebody's configuration: a cell for each part of it, and beside them one that is expected to lose."""

from typing import Any

from harness.errors import BadInput
from harness.plan import Plan
from harness.planning import make_plan
from harness.trial import Trial, load_trial, parse_trial
from harness.validation.clients import Translated
from harness.validation.servers import variant_of

NAME = "validate"
FAULTS_OF = "safe"
"""The trial whose steps are taken: every fault, one after the other, each healed."""
CONTROL = {"producer.acks": "1", "producer.retries": "max", "producer.max_in_flight": 5}
"""Of the control: it is expected to lose where leaders die."""
HASTE = {
    "topic.properties.segment.ms": 1000,
    "topic.properties.internal.segment.bytes": 65536,
    "topic.properties.min.cleanable.dirty.ratio": 0.01,
    "topic.properties.max.compaction.lag.ms": 2000,
    "compaction.keys": 100,
}
"""Of a compacted topic: with segments of a week nothing would be compacted while a trial lasts."""
_TRANSACTION_CELL = "transactions"
PARTITIONS = 3
"""Of each cell: the steps name partitions 0 to 2."""


class Parts:
    """Somebody's configuration, translated: what there is of it."""

    def __init__(
        self, servers: Translated, producer: Translated | None, consumer: Translated | None, version: str
    ) -> None:
        self.servers, self.producer, self.consumer, self.version = servers, producer, consumer, version

    @property
    def base(self) -> dict[str, Any]:
        """Every setting, `scope.key` → value."""
        parts = (self.servers, self.producer, self.consumer)
        return {key: value for part in parts if part is not None for key, value in part.base.items()}

    @property
    def origins(self) -> dict[str, str]:
        """`scope.key` → file and line."""
        parts = (self.servers, self.producer, self.consumer)
        return {key: origin for part in parts if part is not None for key, origin in part.origins.items()}

    @property
    def notes(self) -> list[str]:
        """What was left out or is only nearly so."""
        parts = (self.servers, self.producer, self.consumer)
        notes = [note for part in parts if part is not None for note in part.notes]
        if self.compacted:
            notes.append(
                "cleanup.policy=compact: the producer's cell is compacted, and its clients are librdkafka's, whatever the "
                "file's are; segments roll and are cleaned within seconds (segment.ms, min.cleanable.dirty.ratio), so that "
                "it happens at all; groups and transactions run on topics that are not compacted"
            )
        return list(dict.fromkeys(notes))

    def trial(self, base: dict[str, Any] | None = None, *, backend: str = "local", control: bool = True) -> Trial:
        """The trial file that these settings (or `base` in their place) make. BadInput if they contradict each other."""
        settings = self.base if base is None else base
        variant = variant_of(Translated(base=settings), self.version)
        document: dict[str, Any] = {
            "name": NAME,
            "title": "Your configuration, under every fault",
            "backend": backend,
            "variant": variant.model_dump(),
            "workloads": self._workloads(settings, control=control),
            "steps": [step.model_dump(exclude_none=True) for step in _steps(self)],
        }
        if control:
            document["controls"] = [{"anomaly": "lost", "cells": {"producer.acks": "1", "workload": "log"}}]
        return parse_trial(document, source="the given configuration")

    def plan(
        self, base: dict[str, Any] | None = None, *, seed: int = 1, backend: str = "local", control: bool = True
    ) -> Plan:
        """The plan of that trial."""
        return make_plan(self.trial(base, backend=backend, control=control), seed=seed)

    def _workloads(self, settings: dict[str, Any], *, control: bool) -> list[dict[str, Any]]:
        topic = _scope(settings, "topic")
        producer = _scope(settings, "producer")
        java = producer.get("producer.client") == "java"
        found = []
        if self.producer is not None and not self.transactional and self.compacted:
            found.append(_workload("compaction", topic | _librdkafka(producer) | HASTE))
        elif self.producer is not None and not self.transactional:
            found.append(_workload("verifiable" if java else "log", topic | producer))
        topic = _not_compacted(topic)
        if self.transactional:
            mine = _librdkafka(producer) | _scope(settings, "transaction")
            limit = int(mine.get("transaction.transaction_timeout_ms", 60_000))
            mine["producer.delivery_timeout_ms"] = min(int(mine["producer.delivery_timeout_ms"]), limit)
            mine["producer.enable_idempotence"] = True
            mine["transaction.standby"] = True  # a step has every transactional.id taken over
            found.append(_workload(_TRANSACTION_CELL, topic | mine))
        if self.consumer is not None:
            safe = {"producer.acks": "all", "producer.enable_idempotence": True}
            mine = _librdkafka(producer) if producer and not self.transactional else safe
            found.append(_workload("group", topic | mine | _scope(settings, "group")))
        if not found:
            raise BadInput("There is nothing to put on trial. Give --producer or --consumer.")
        if control:
            plain = {key: value for key, value in topic.items() if not key.startswith("topic.properties.")}
            found.append(_workload("log", plain | CONTROL))
        return found

    @property
    def compacted(self) -> bool:
        """Is the topic compacted? Then records need keys, which only one workload gives them."""
        return bool(self.servers.base.get("topic.cleanup_policy") == "compact")

    @property
    def transactional(self) -> bool:
        """Has the producer a transactional.id?"""
        return self.producer is not None and "transactional.id" in self.producer.origins


def _scope(settings: dict[str, Any], scope: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key.startswith(f"{scope}.")}


def _not_compacted(topic: dict[str, Any]) -> dict[str, Any]:
    """Groups, transactions and the control are judged record by record, which compaction would take away."""
    return topic | {"topic.cleanup_policy": "delete"}


def _librdkafka(producer: dict[str, Any]) -> dict[str, Any]:
    """For workloads whose producers are librdkafka's alone: the settings that both clients share."""
    if producer.get("producer.client", "librdkafka") == "librdkafka":
        return dict(producer)
    plain = {key: value for key, value in producer.items() if not key.startswith("producer.properties.")}
    return plain | {"producer.client": "librdkafka"}


def _workload(kind: str, base: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "topics": {"partitions": PARTITIONS}, "traffic": {"rate_hz": 20}, "base": base}


def _steps(parts: Parts) -> list[Any]:
    """The steps of the trial with every fault; those about groups only where there is one, those about transactions too."""
    has_group, has_transactions = parts.consumer is not None, parts.transactional
    kept = []
    for step in load_trial(FAULTS_OF).steps:
        told = step.model_dump_json()
        if ("member(" in told and not has_group) or ('"take_over"' in told and not has_transactions):
            continue
        kept.append(step)
    return kept
