"""Garbage of many kinds, from a seed: cheap enough for thousands of cases."""

import json
import random
from typing import Any

from tests.support.edn_histories import edn

_SCRAPS = (
    "{", "}", "[", "]", "(", ")", "#{", "#_", "#tag", "#jepsen.history.Op{", ":type", ":ok", ":f", ":send", "nil", "true",
    "0", "-1", "5N", "1.5", "1/2", "##Inf", "\\a", '"s"', '"', "\\", ";", ",", "'x", "#", "é", "\x00", "\n", "9" * 30,
)  # fmt: skip
_ATOMS = (None, True, 0, -1, 7, 2**40, 2**63, 2**70, ":a", ":poll", ":send", "x", "a b", "", 'q"\\')


def text(rng: random.Random) -> str:
    """Scraps of EDN, with blanks or without, or anything."""
    if rng.random() < 0.2:
        return "".join(chr(rng.choice((rng.randrange(128), rng.randrange(0xD7FF)))) for _ in range(rng.randrange(30)))
    return rng.choice(("", " ")).join(rng.choice(_SCRAPS) for _ in range(rng.randrange(25)))


def value(rng: random.Random, depth: int = 3) -> Any:
    """A value of EDN."""
    kind = rng.random()
    if depth == 0 or kind < 0.4:
        return rng.choice(_ATOMS)
    if kind < 0.8:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.randrange(9): value(rng, depth - 1) for _ in range(rng.randrange(3))}


def operation(rng: random.Random, *, odd: float = 0.1) -> str:
    """A line of Jepsen's, each part of which is odd with that probability."""

    def usually(good: Any) -> Any:
        return value(rng, 2) if rng.random() < odd else good

    def key() -> Any:
        return usually(rng.choice((0, 1, "t")))

    def pair() -> Any:
        return usually([usually(rng.randrange(6)), usually(rng.randrange(9))])

    def micro() -> Any:
        if rng.random() < 0.5:
            return [":send", key(), rng.choice((pair(), usually(rng.randrange(9))))]
        shown = {rng.choice((0, 1)): usually([pair() for _ in range(rng.randrange(4))])}
        return rng.choice(([":poll"], [":poll", usually(shown)]))

    f = rng.choice((":send", ":poll", ":txn", ":assign", ":subscribe", ":crash"))
    parts = [key() for _ in range(2)] if f in (":assign", ":subscribe") else [usually(micro()) for _ in range(2)]
    made = {
        ":process": usually(rng.randrange(3)),
        ":type": usually(rng.choice((":invoke", ":ok", ":ok", ":info", ":fail"))),
        ":f": usually(f),
        ":value": usually(parts[: rng.randrange(3)]),
    }
    if rng.random() < 0.2:
        made[":rebalance-log"] = usually([{":keys": [key()]}])
    return edn(made)


def event(rng: random.Random, *, odd: float = 0.2) -> str:
    """A line of a verifiable client's."""

    def usually(good: Any) -> Any:
        return rng.choice((None, True, -2, 2**70, 1.5, "x", "", [], {})) if rng.random() < odd else good

    place = {"topic": usually("t"), "partition": usually(rng.randrange(2)), "offset": usually(rng.randrange(6))}
    name = rng.choice(
        ("producer_send_success", "producer_send_error", "record_data", "offsets_committed", "partitions_assigned")
    )
    made = {
        "timestamp": usually(rng.randrange(10**9)),
        "name": usually(name),
        "value": usually(f"1.{rng.randrange(6)}"),
    }
    return json.dumps(
        made | place | {"offsets": usually([place]), "partitions": usually([place]), "success": usually(True)}
    )
