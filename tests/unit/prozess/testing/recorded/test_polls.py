"""Rows of when an application asked its client: a row for each stretch without a pause, whatever thread asks."""

import pytest

from prozess.harness.recording.rows import read_rows
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE, OBSERVATIONS, ObservationKind
from prozess.testing.recorded import polls as module
from prozess.testing.recorded.polls import AskedRows

S, CLIENT = 1_000_000_000, 3
ASKED, CALLED = ObservationKind.ASKED, ObservationKind.CALLED


class Asking:
    """A client whose clock the test sets."""

    def __init__(self, run):
        self.run, self.rows, self.now_s = run, AskedRows(run.rows, CLIENT), 0.0

    def found(self):
        rows, torn = read_rows(self.run.rows, OBSERVATIONS, CLIENT)
        assert torn == 0
        return [
            (ObservationKind(row["kind"]), row["time_ns"] / S, NONE if row["value"] == NONE else row["value"] / S)
            for row in rows
        ]

    def short(self, *moments):
        for moment in moments:
            self.now_s = moment
            self.rows.short += 1
            self.rows.look()


@pytest.fixture
def asking(tmp_path, monkeypatch):
    run = RunDirectory(tmp_path / "run")
    run.create()
    made = Asking(run)
    monkeypatch.setattr(module, "now_ns", lambda: round(made.now_s * S))
    return made


def test_calls_that_follow_one_another_are_one_stretch_and_a_pause_ends_it(asking):
    asking.short(1, 1.5, 2.5, 3.4, 9)
    assert asking.found() == [(ASKED, 1, 2.4), (ASKED, 9, 0)]


def test_a_look_without_calls_writes_nothing(asking):
    asking.rows.look()
    assert asking.found() == []
    asking.short(1)
    asking.now_s = 1.5
    asking.rows.look()
    assert asking.found() == [(ASKED, 1, 0)]


def test_a_call_that_may_last_is_open_until_it_returns(asking):
    asking.now_s = 5
    with asking.rows.asking(CALLED, may_last=True):
        asking.now_s = 40
        assert asking.found() == [(CALLED, 5, NONE)]
    assert asking.found() == [(CALLED, 5, 35)]
    asking.now_s = 40.5
    with asking.rows.asking(CALLED, may_last=True):
        asking.now_s = 60
    assert asking.found() == [(CALLED, 5, 55)], "made again at once"


def test_a_call_that_is_under_way_when_the_rows_end_lasts_until_the_client_ends(asking):
    asking.now_s = 5
    asking.rows.begin(CALLED, may_last=True)
    asking.rows.close()
    asking.rows.end(CALLED)
    asking.short(7)
    assert asking.found() == [(CALLED, 5, NONE)]


def test_two_threads_that_ask_are_one_stretch_until_the_last_has_its_answer(asking):
    asking.now_s = 1
    with asking.rows.asking(ASKED, may_last=True):
        asking.now_s = 2
        with asking.rows.asking(ASKED, may_last=True):
            asking.now_s = 3
        asking.now_s = 9
    assert asking.found() == [(ASKED, 1, 8)]
