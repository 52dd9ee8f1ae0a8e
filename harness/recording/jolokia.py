"""Asks a JVM for its metrics by Jolokia, and reads the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Jolokia, which is JMX over HTTP: how its agent is started in a JVM, what it is asked, and what its answers say. One
# POST answers for all MBeans. https://jolokia.org/reference/html/manual/jolokia_protocol.html#bulk-requests


JSON = Mapping[str, Any]
PATH = "/jolokia/?includeStackTrace=false&serializeException=false"
HEADERS = {"Content-Type": "application/json"}
_VALUE_MAX = 9.2e12
"""The greatest value of which millionths fit into an int64."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One number of one MBean. An MBean name with `*` is a pattern that must match exactly one MBean."""

    metric: str
    mbean: str
    attribute: str


def agent_flags(agent: Path | None, *, host: str, port: int) -> tuple[str, ...]:
    """Returns the JVM options that start the Jolokia agent. With port 0 it takes a free port, and prints it.
    https://jolokia.org/reference/html/manual/agents.html#agents-jvm"""
    if agent is None:
        return ()
    return (f"-javaagent:{agent}=host={host},port={port},discoveryEnabled=false,executor=single",)


def reads(attributes: Sequence[Attribute]) -> list[JSON]:
    """Returns the body of one request: one read for each MBean, with all attributes that are wanted, in the order of the
    MBeans."""
    wanted: dict[str, list[str]] = {}
    for attribute in attributes:
        wanted.setdefault(attribute.mbean, []).append(attribute.attribute)
    return [{"type": "read", "mbean": mbean, "attribute": names} for mbean, names in wanted.items()]


def values(attributes: Sequence[Attribute], answers: Sequence[JSON]) -> dict[str, float | None]:
    """Returns the value of each metric, from the answers to `reads(attributes)` in their order. None: the process did
    not report it, because the MBean is not registered yet, the value is no number, or several MBeans match a pattern."""
    found: dict[tuple[str, str], float] = {}
    for asked, answer in zip(reads(attributes), answers, strict=False):
        value = answer.get("value")
        if answer.get("status") != 200 or not isinstance(value, Mapping):
            continue
        # The answer repeats the name, but a pattern in another spelling: keys sorted.
        mbean = str(asked["mbean"])
        if "*" in mbean:
            value = next(iter(value.values())) if len(value) == 1 else {}
        if isinstance(value, Mapping):
            found |= {(mbean, name): float(number) for name, number in value.items() if is_number(number)}
    return {a.metric: found.get((a.mbean, a.attribute)) for a in attributes}


def is_number(value: object) -> bool:
    """Returns whether this is a number that can be recorded. JMX has NaN where nothing was measured yet."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) < _VALUE_MAX
