"""Configurations that librdkafka refuses, found out before anything runs: every client of a plan is made once, offline.

librdkafka checks names, ranges and contradictions when a client is made, before it connects anywhere. What it refuses is the
user's mistake, told in librdkafka's own words with the client it is about. Java clients are not asked: they say so themselves
when they run.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from harness import catalogue
from harness.errors import BadInput
from harness.plan import Plan, PlannedClient
from workloads.properties import LaunchContext, Property, Settings

_NOBODY = "127.0.0.1:1"
_CONSUMERS = frozenset({"reader", "audit", "member"})
_RUN_TOOLS = frozenset({"verifiable-producer", "verifiable-consumer", "verifiable-share-consumer", "java-member"})
_NAMES = ("client.id", "group.id", "group.instance.id", "transactional.id")
"""What tells clients of one configuration apart."""


def refuse_bad_clients(plan: Plan) -> None:
    """BadInput for the first client that librdkafka does not take, or that does not run here."""
    seen: set[str] = set()
    for planned in plan.clients:
        if planned.role in _RUN_TOOLS:
            continue
        make: Callable[[LaunchContext], Settings] = catalogue.resolve(catalogue.LAUNCHES, planned.role, what="role")
        properties = make(LaunchContext(plan=plan, planned=planned, servers=_NOBODY, limit_s=1.0)).properties
        if not properties:  # a Java producer's
            continue
        text = json.dumps({key: value for key, value in properties.items() if key not in _NAMES}, sort_keys=True)
        if (kind := f"{planned.role in _CONSUMERS} {text}") not in seen:
            seen.add(kind)
            _try(planned, properties)


def _try(planned: PlannedClient, properties: Mapping[str, Property]) -> None:
    # Without a server there is nothing to connect to.
    offline: dict[str, Any] = {key: value for key, value in properties.items() if key != "bootstrap.servers"}
    try:
        if planned.role in _CONSUMERS:
            Consumer({"group.id": "nobody", **offline}).close()
        else:
            Producer(offline)
    except KafkaException as error:
        why = str(error.args[0].str()).strip().removeprefix("Failed to create producer: ").rstrip(".")
        raise BadInput(
            f"Client {planned.name} cannot be made, librdkafka refuses its configuration: {why}. Change it in the trial's "
            "`base` or `axes`, or exclude the combination."
        ) from error
