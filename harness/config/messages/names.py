"""The names and numbers of Kafka's APIs and error codes, as Kafka's own message schemas have them (package kio)."""

import difflib
from collections.abc import Iterable, Mapping
from functools import cache

BEFORE_KRAFT = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata", 7: "ControlledShutdown"}
"""APIs by which a controller speaks to brokers with ZooKeeper. Kafka 4.0 has removed their schemas, so only their headers
are read."""
SPELLED = {"k_raft": "KRaft"}


@cache
def api_names() -> Mapping[int, str]:
    """Returns the name of each API by its key: 0 → "Produce"."""
    from kio.schema.index import api_key_map  # only trials that are about messages need it

    named = {key: _camel(snake) for key, snake in api_key_map.items()}
    return dict(sorted({**BEFORE_KRAFT, **named}.items()))


@cache
def api_keys() -> Mapping[str, int]:
    """Returns the number of each API by Kafka's name of it: "Produce" → 0."""
    return {name: key for key, name in api_names().items()}


@cache
def error_codes() -> Mapping[str, int]:
    """Returns the number of each error code by Kafka's name of it: "NOT_LEADER_OR_FOLLOWER" → 6."""
    from kio.schema.errors import ErrorCode

    return {member.name.upper(): int(member) for member in ErrorCode}


@cache
def _error_names() -> Mapping[int, str]:
    return {number: name for name, number in error_codes().items()}


def error_name(number: int) -> str:
    """Returns Kafka's name of an error code; the number as text if the schemas do not have it."""
    return _error_names().get(number, f"error {number}")


def api_name(key: int) -> str:
    """Returns the name of an API; "API 99" if the schemas do not have it."""
    return api_names().get(key, f"API {key}")


def known(name: str, names: Iterable[str], what: str) -> str:
    """Returns the name if it is one of `names`. ValueError with the nearest ones if it is not. `what`: "an API"."""
    listed = list(names)
    if name in listed:
        return name
    folded = {one.replace("_", "").lower(): one for one in listed}
    near = difflib.get_close_matches(name.replace("_", "").lower(), folded, n=3, cutoff=0.5)
    hint = f"; the nearest: {', '.join(folded[one] for one in near)}" if near else ""
    raise ValueError(f"{name!r} is not {what} of Kafka{hint}")


def _camel(snake: str) -> str:
    return "".join(SPELLED.get(part, part.title()) for part in snake.split("_"))
