"""Cells with a delivery bound, drawn: who sends, who is to be given it, who sleeps, dies and is replaced meanwhile."""

import random

import numpy as np

from prozess.harness.config.configuration import GroupConfiguration, Variant
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.plan.cell_work import work_with
from prozess.harness.schema import NONE
from tests.support.cells.delivery import LOG, TRANSACTIONAL, cell, lives
from tests.support.cells.evidence import ns
from tests.support.cells.partitions import (
    FAIL,
    INFO,
    OK,
    PARTITION,
    PRODUCER,
    PRODUCER_2,
    READER,
    READER_2,
    READER_COMMITTED,
)

SUCCESSOR = 14
READS_IN_S = (0.1, 0.5, 1.9, 2.1, 3.0, 8.0)
SHORT_S, LONG_S = 12.0, 24.0
BEAT_S = 0.25


def drawn_delivery(seed: int) -> CellHistory:
    """One partition; the bound is 2 s."""
    rng = random.Random(seed)
    kind, roles, positions = _kind(rng)
    planned = [*roles]
    lived = [
        _drawn_life(PRODUCER, rng),
        _drawn_life(PRODUCER_2, rng),
        *(_drawn_life(client, rng) for client in planned),
    ]
    readers = [*planned]
    if rng.random() < 0.4:
        lived.append(_drawn_life(SUCCESSOR, rng, begin_s=rng.randrange(3, 16), planned=READER))
        readers.append(SUCCESSOR)
    lived = [life for life in lived if rng.random() < 0.97]
    sends = _sends(rng)
    more = {"log_start": rng.randrange(6)} if rng.random() < 0.2 else {}
    if rng.random() < 0.15:
        more["sentinel"] = None
    return cell(sends, _reads(sends, readers, rng), lived=lived, kind=kind, roles=roles, positions=positions, **more)


def _kind(rng):
    """(kind of cell, planned client → role, rows of `positions`)."""
    drawn = rng.random()
    if drawn < 0.3:
        reset = rng.choice(("earliest", "latest"))
        kind = LOG.model_copy(
            update={"workload": "group", "work": work_with(GroupConfiguration(auto_offset_reset=reset), Variant())}
        )
        row = {"client": READER, "time_ns": 0, "event": rng.choice((1, 3)), "partition": PARTITION}
        positions = [row | {"log_offset": rng.choice((0, 0, 3))}] if rng.random() < 0.9 else []
        return kind, dict.fromkeys((READER, READER_2), "member"), positions
    roles = dict.fromkeys(rng.sample((READER, READER_2, READER_COMMITTED), rng.choice((1, 2, 2, 3))), "reader")
    return (TRANSACTIONAL if drawn < 0.5 else LOG), roles, []


def _drawn_life(client, rng, *, begin_s=None, planned=None):
    begin_s = rng.choice((-3.0, -3.0, -3.0, 4.0)) if begin_s is None else begin_s
    end_s = rng.choice((SHORT_S, LONG_S, LONG_S))
    hearts = np.arange(begin_s, end_s, BEAT_S)
    for _ in range(rng.choice((0, 0, 1, 2))):
        asleep_s = rng.uniform(0, end_s)
        hearts = hearts[(hearts < asleep_s) | (hearts > asleep_s + rng.choice((0.3, 0.7, 1.5, 6.0)))]
    return lives(client, begin_s, end_s, planned=planned, killed=rng.random() < 0.3, beats=hearts)


def _sends(rng):
    rows, numbers = [], {PRODUCER: 0, PRODUCER_2: 0}
    for offset in range(rng.randrange(3, 25)):
        client, outcome = rng.choice((PRODUCER, PRODUCER_2)), rng.choice((OK, OK, OK, OK, INFO, FAIL))
        at_s = rng.choice((rng.uniform(-2, LONG_S), SHORT_S - rng.choice((0.5, 1.0, 1.9, 2.1))))
        acknowledged = offset if outcome == OK and rng.random() < 0.9 else NONE
        when = {"invoked_ns": ns(at_s), "completed_ns": ns(at_s + 0.01)}
        rows.append((client, numbers[client], outcome, acknowledged, when))
        numbers[client] += 1
    return rows


def _reads(sends, readers, rng):
    reads = []
    for reader in readers:
        given = []
        for offset, (client, number, *_, when) in enumerate(sends):
            for _ in range(rng.choice((0, 1, 1, 1, 1, 2))):
                at_ns = when["invoked_ns"] + ns(rng.choice(READS_IN_S))
                given.append((reader, offset, client, number, {"read_ns": at_ns}))
        reads += sorted(given, key=lambda row: row[-1]["read_ns"])
    return reads
