"""Look-ups by time: which times leaders are asked for, and what is recorded of their answers."""

import random
from itertools import pairwise

import pytest

from prozess.app.run.time_lookups import AT_ONCE, TimeLookups
from prozess.clusters.protocol.requests import OffsetAnswer
from prozess.harness.errors import ClusterFailed
from prozess.harness.recording.rows import Recorder, read_rows
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE, OBSERVATIONS, ObservationKind
from tests.support.clock import FakeClock

PARTITIONS = {("t", number): 40 + number for number in range(AT_ONCE + 4)}


class Leaders:
    """Answers as broker 1 would that leads every partition: a record a second, from offset 0 at `began_ms` on."""

    def __init__(self, began_ms, length):
        self.began_ms, self.length, self.asked, self.error = began_ms, length, [], 0

    def first_since(self, node_id, asked_ms, *, timeout_s):
        self.asked.append((node_id, dict(asked_ms)))
        if node_id == 3:
            raise ClusterFailed("it does not answer")
        found = {}
        for key, wanted_ms in asked_ms.items():
            offset = max(0, -(-(wanted_ms - self.began_ms) // 1000))
            there = offset < self.length
            found[key] = OffsetAnswer(
                6 if node_id == 2 else 0,
                offset if there else -1,
                0,
                self.began_ms + 1000 * offset if there else -1,
            )
        return found


@pytest.fixture
def looked(tmp_path):
    run, clock = RunDirectory(tmp_path), FakeClock()
    run.create()
    leaders = Leaders(clock.wall_ns() // 1_000_000, 60)
    recorder = Recorder(run)
    return TimeLookups(leaders, PARTITIONS, recorder, clock, random.Random(3)), leaders, clock, run, recorder


def test_every_partition_has_its_turn_and_each_answer_is_two_rows_of_one_time(looked):
    lookups, leaders, clock, run, recorder = looked
    for _ in range(4):
        clock.sleep(1)
        lookups.sample(1)
    assert {key for _, asked in leaders.asked for key in asked} == set(PARTITIONS)
    assert {len(asked) for _, asked in leaders.asked} == {AT_ONCE}
    rows = read_rows(run.rows, OBSERVATIONS, recorder.client)[0]
    assert rows["kind"].tolist() == [ObservationKind.TIME_ASKED, ObservationKind.TIME_FOUND] * (4 * AT_ONCE)
    assert (rows["time_ns"][::2] == rows["time_ns"][1::2]).all()
    assert (rows["partition"][::2] == rows["partition"][1::2]).all()
    wanted = [ms for _, asked in leaders.asked for ms in asked.values()]
    assert rows["value"][::2].tolist() == wanted
    assert set(rows["node"].tolist()) == {1}


def test_after_a_record_was_found_its_own_time_is_asked_for_and_a_millisecond_more(looked):
    lookups, leaders, clock, _, _ = looked
    for _ in range(20):
        clock.sleep(5)
        lookups.sample(1)
    key = ("t", 0)
    times = [asked[key] for _, asked in leaders.asked if key in asked]
    exact = [n for n, ms in enumerate(times) if n and (ms - leaders.began_ms) % 1000 == 0]
    assert exact
    assert any(later - earlier == 1 for earlier, later in pairwise(times))


def test_who_does_not_lead_or_does_not_answer_leaves_no_row_and_a_record_that_is_not_there_is_none(looked):
    lookups, leaders, _, run, recorder = looked
    lookups.sample(2)
    lookups.sample(3)
    leaders.length = 0
    lookups.sample(1)
    rows = read_rows(run.rows, OBSERVATIONS, recorder.client)[0]
    assert set(rows["node"].tolist()) == {1}
    assert set(rows["value"][1::2].tolist()) == {NONE}
