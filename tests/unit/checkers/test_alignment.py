"""Where reads stand in the log, as stretches: the same as when each is looked up by itself."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers import alignment, partition_index
from prozess.checkers.alignment import align, rows_that, rows_where, strictly_ascends
from prozess.checkers.lookup import Lookup
from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.reading.receipts import NEVER, Receipts
from prozess.harness.interfaces.checking import PartitionHistory
from tests.support.examples import examples
from tests.support.kafka_model.anomalies import KINDS, Spoiler
from tests.support.kafka_model.partition import facts

OFFSETS = st.lists(st.integers(0, 30), unique=True, max_size=20).map(sorted).map(np.array)
READS = st.lists(st.tuples(st.integers(1, 3), st.lists(st.integers(0, 33), min_size=1, max_size=25)), max_size=5)


@pytest.fixture(params=[(1, 1), (2, 3), (1 << 7, 1 << 16)])
def blocks(request, monkeypatch):
    """How much is looked at in one go: a little, or more than any test has."""
    monkeypatch.setattr(alignment, "_FIRST_LOOK", request.param[0])
    monkeypatch.setattr(alignment, "_BLOCK", request.param[1])


def ascending(offsets: list[int], *, step: bool) -> list[int]:
    return list(range(offsets[0], offsets[0] + len(offsets))) if step else offsets


@pytest.mark.usefixtures("blocks")
def test_each_read_is_in_one_stretch_or_elsewhere_just_as_the_log_has_its_offset(monkeypatch):
    monkeypatch.setattr(alignment, "_STRETCHES_FEW", 6)
    seen = {"stretches": 0, "elsewhere": 0, "given up": 0}

    @settings(max_examples=examples(200), deadline=None)
    @given(OFFSETS, READS, st.booleans())
    def check(log_offset, reads, step):
        parts = [(client, ascending(offsets, step=step)) for client, offsets in reads]
        ends = np.cumsum([0, *(len(offsets) for _, offsets in parts)]).tolist()
        runs = [(ends[n], ends[n + 1], client) for n, (client, _) in enumerate(parts)]
        offset = np.array([offset for _, offsets in parts for offset in offsets], dtype=np.int64)
        find = Lookup(log_offset.astype(np.int64)).find
        found = align(offset, runs, log_offset.astype(np.int64), find)
        if found is None:
            seen["given up"] += 1
            return
        position = np.full(len(offset), -1)
        for one in found.stretches:
            assert (position[one.rows] == -1).all()
            assert any(first <= one.first < one.last <= last for first, last, _ in runs)
            position[one.rows] = np.arange(one.positions.start, one.positions.stop)
        assert position.tolist() == find(offset).tolist()
        assert found.elsewhere.tolist() == np.flatnonzero(position < 0).tolist()
        assert [one.first for one in found.stretches] == sorted(one.first for one in found.stretches)
        seen["stretches"] += len(found.stretches)
        seen["elsewhere"] += len(found.elsewhere)

    check()
    assert min(seen.values()) > 0, seen


def test_stretches_of_one_record_each_are_not_worth_it_and_a_few_long_ones_are():
    log = np.arange(1_000)
    runs = [(0, len(log), 1)]
    assert align(log[::-1].copy(), runs, log, Lookup(log).find) is None
    found = align(np.roll(log, 400), runs, log, Lookup(log).find)
    assert found is not None
    assert [tuple(one) for one in found.stretches] == [(0, 400, 600), (400, 1_000, 0)]


def test_of_an_empty_log_every_read_is_elsewhere():
    nothing = np.empty(0, dtype=np.int64)
    found = align(np.array([3, 4]), [(0, 2, 1)], nothing, Lookup(nothing).find)
    assert found is not None
    assert (found.stretches, found.elsewhere.tolist()) == ([], [0, 1])


@pytest.mark.usefixtures("blocks")
@given(st.lists(st.integers(-2, 2), max_size=12), st.booleans())
def test_rows_are_chosen_a_block_at_a_time_as_all_at_once(values, one_value):
    array = np.array(values, dtype=np.int64)
    if one_value and values:
        array = np.broadcast_to(array[0], len(values))
    expected = np.flatnonzero(array > 0).tolist()
    assert rows_that(array, lambda some: some > 0).tolist() == expected
    assert rows_where(len(array), lambda rows: array[rows] > 0).tolist() == expected
    assert strictly_ascends(array) == all(a < b for a, b in pairwise(array.tolist()))


def told(index: PartitionIndex) -> dict[str, object]:
    """What an index says, as far as it may be distinguished from stretches."""
    before, after = index.uneven_steps
    rows = index.unconfirmed_reads
    return {
        "unconfirmed": rows.tolist(),
        "unmatched": index.unmatched_reads.tolist(),
        "keys": index.keys_of_reads(rows).tolist(),
        "send of read": index.send_of_read.tolist(),
        "steps": list(zip(before.tolist(), after.tolist(), strict=True)),
    }


def receipts_of(index: PartitionIndex) -> dict[str, object]:
    """When each group of readers first received what, and by which read."""
    found: dict[str, object] = {}
    everybody = np.unique(index.readers)
    for clients in [everybody, *everybody.reshape(-1, 1)]:
        mine, every = Receipts(index, clients), np.arange(len(index.sends["client"]))
        name = str(clients.tolist())
        found[f"{name} first"] = mine.first(every).tolist()
        found[f"{name} ns"] = mine.given_ns(every).tolist()
        found[f"{name} by position"] = mine.given_at.tolist()
    return found


def first_by_hand(history: PartitionHistory, index: PartitionIndex, clients: np.ndarray) -> list[int]:
    """The first receipt of each record, looked for read by read."""
    send = {int(key): row for row, key in enumerate(index.send_key)}
    first = [NEVER] * len(send)
    for row, (client, key) in enumerate(zip(history.reads["client"].tolist(), index.read_key.tolist(), strict=True)):
        if client in clients and key in send:
            first[send[key]] = min(first[send[key]], int(history.reads["read_ns"][row]))
    return first


@pytest.mark.usefixtures("blocks")
@settings(max_examples=examples(60), deadline=None)
@given(facts(), st.lists(st.sampled_from(KINDS), max_size=4))
def test_what_stretches_tell_is_what_each_read_tells(made, kinds):
    spoiler = Spoiler(*made)
    for kind in kinds:
        getattr(spoiler, kind)()
    history = made[0].history()
    one_by_one = PartitionIndex(history)
    assert one_by_one.alignment is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_index, "ALIGNED_ROWS_MIN", 0)
        patch.setattr(alignment, "_STRETCHES_FEW", len(history.reads["client"]) + 1)
        aligned = PartitionIndex(replace(history))
        assert aligned.alignment is not None
        assert told(aligned) == told(one_by_one)
        assert receipts_of(aligned) == receipts_of(one_by_one)
    for client in np.unique(one_by_one.readers).tolist():
        every = np.arange(len(history.sends["client"]))
        given_ns = Receipts(one_by_one, np.array([client])).given_ns(every).tolist()
        assert given_ns == first_by_hand(history, one_by_one, np.array([client]))
