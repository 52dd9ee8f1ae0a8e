"""The part of the model of Kafka that knows keys: producers write values and tombstones, and an honest cleaner removes what a
later record of its key supersedes, and old tombstones. What spoils such a history.
"""

import random
from collections import Counter
from itertools import pairwise

from hypothesis import strategies as st

from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import NONE
from tests.support.cells.partitions import CRASHED, FAIL, INFO, OK
from tests.support.kafka_model.anomalies import Expected
from tests.support.kafka_model.partition import Entry, Facts, drawn_facts, facts

KEYS = 4


def cleaned(made: tuple[Facts, random.Random]) -> tuple[Facts, random.Random]:
    """The same history of a compacted topic: its records have keys, some are tombstones, and the cleaner ran up to
    somewhere. Who read before it did was given everything."""
    history, rng = made
    history.compacted = True
    keys = {identity: rng.randrange(KEYS) for identity, send in history.sends.items() if send["transaction"] == NONE}
    keys = {identity: key for identity, key in keys.items() if identity[0] != SENTINEL_CLIENT}
    for identity, key in keys.items():
        size = NONE if identity[0] != CRASHED and rng.random() < 0.2 else 100
        history.sends[identity] |= {"key": key, "size": size}
    for entry in (*history.log, *history.beyond):
        entry.overrides["key"] = keys.get(entry.identity, NONE)
    for row in history.rows():
        row["key"] = keys.get((row["sender"], row["sequence"]), NONE)
    for key in range(KEYS):
        _clean(history, key, rng)
    return history, rng


def _clean(history: Facts, key: int, rng: random.Random) -> None:
    stands = of_key(history, key)
    dirty_from = rng.randrange(len(stands) + 1) if rng.random() < 0.3 else len(stands)
    superseded = stands[:dirty_from][:-1]
    last = stands[:dirty_from][-1:]
    gone = superseded + [entry for entry in last if is_tombstone(history, entry) and rng.random() < 0.5]
    remove(history, gone)


def of_key(history: Facts, key: int) -> list[Entry]:
    """In the order of the log."""
    return [entry for entry in history.log if entry.overrides.get("key") == key]


def is_tombstone(history: Facts, entry: Entry) -> bool:
    send = history.sends.get(entry.identity)
    return send is not None and send["size"] == NONE


def remove(history: Facts, gone: list[Entry]) -> None:
    history.removed += gone
    history.log[:] = [entry for entry in history.log if not any(entry is other for other in gone)]


compacted = st.builds(cleaned, facts())
"""A valid history of a compacted topic, and chance for whoever goes on with it."""
long_compacted = st.integers(0, 2**32).map(lambda seed: cleaned(drawn_facts(seed)))
"""The same, longer on the average, so that more of them have a place for what spoils them."""


# --- what spoils them -----------------------------------------------------------------------------------------------


def _acknowledged(history: Facts, key: int) -> list[tuple[int, tuple[int, int]]]:
    """(offset, identity) of acknowledged sends of this key, ascending."""
    told = [
        (send["log_offset"], identity)
        for identity, send in history.sends.items()
        if send["key"] == key and send["outcome"] == OK and 0 <= send["log_offset"] < history.sentinel
    ]
    return sorted(told)


def _hidden_tombstone(history: Facts, key: int) -> bool:
    """May one stand at an offset that nobody was reported, or does one behind the sentinel?"""
    return any(
        send["outcome"] == INFO or not 0 <= send["log_offset"] < history.sentinel
        for send in history.sends.values()
        if send["key"] == key and send["size"] == NONE and send["outcome"] != FAIL
    )


def compacted_away(history: Facts, rng: random.Random) -> Expected | None:
    """The last value of a key is gone, which was the last that anybody wrote; so is, for good, what it had superseded."""
    places = []
    for key in range(KEYS):
        told, stands = _acknowledged(history, key), of_key(history, key)
        if told and stands and not _hidden_tombstone(history, key):
            last = stands[-1]
            if told[-1] == (last.offset, last.identity) and not is_tombstone(history, last):
                places.append((key, last))
    if not places:
        return None
    key, gone = rng.choice(places)
    remove(history, [gone])
    missing = _missing(history, key)
    given = Counter(row["log_offset"] for row in history.rows())
    proven = [e for e in missing if given[e.offset] or history.sends.get(e.identity, {}).get("outcome") == OK]
    return {"compacted-away": 1, "lost": len(proven), "dirty-read": sum(given[entry.offset] for entry in missing)}


def _missing(history: Facts, key: int) -> list[Entry]:
    """What was removed of the key behind whatever stands of it and its last tombstone."""
    of_this = [entry for entry in history.removed if entry.overrides["key"] == key]
    excusing = [entry.offset for entry in of_key(history, key)]
    excusing += [offset for offset, who in _acknowledged(history, key) if history.sends[who]["size"] == NONE]
    return [entry for entry in of_this if entry.offset > max(excusing, default=-1)]


def tombstone_lost(history: Facts, rng: random.Random) -> Expected | None:
    """A key's last record is its tombstone, which is gone although a value from before it stands."""
    places = []
    for key in range(KEYS):
        told, stands = _acknowledged(history, key), of_key(history, key)
        if not told or history.sends[told[-1][1]]["size"] != NONE or len(told) < 2:
            continue
        if any(entry.offset > told[-1][0] for entry in stands):
            continue
        values = [(offset, who) for offset, who in told[:-1] if history.sends[who]["size"] != NONE]
        if values:
            places.append((key, told[-1], values))
    if not places:
        return None
    key, (offset, tombstone), values = rng.choice(places)
    remove(history, [entry for entry in of_key(history, key) if entry.identity == tombstone])
    if not of_key(history, key):
        back, identity = rng.choice(values)
        entry = Entry(back, *identity, overrides={"key": key})
        history.log.append(entry)
        history.log.sort(key=lambda e: e.offset)
        if any(_read_over(rows, back) for rows in history.reads.values()):
            return None
    assert all(entry.offset < offset for entry in of_key(history, key))
    return {"tombstone-lost": 1}


def _read_over(rows: list[dict[str, int]], offset: int) -> bool:
    """Did a reader pass this offset without being given it?"""
    return any(a["span"] == b["span"] and a["log_offset"] < offset < b["log_offset"] for a, b in pairwise(rows))


SPOILERS = {"compacted-away": compacted_away, "tombstone-lost": tombstone_lost}
