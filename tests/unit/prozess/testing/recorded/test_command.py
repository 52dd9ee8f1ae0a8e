"""What is noted of a program that reported no send for long: only where nothing says that it had none to make."""

from types import SimpleNamespace

import pytest

from prozess.harness.interfaces.application import Registry
from prozess.harness.recording.rows import read_rows
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import MISSING, SENDS, FaultPhase, Isolation, MetadataKind
from prozess.testing.expectations import never_again, unjudged_of
from prozess.testing.plans import RecordedTest
from prozess.testing.recorded.client import RecordedLife
from prozess.testing.recorded.command import CommandProducer
from tests.support.cells.partitions import table

S = 1_000_000_000


@pytest.fixture
def life(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create()
    Registry(run.path).add_topic("t", [[1]], {})
    made = RecordedLife(run, "producer", {"acks": "all"}, isolation=Isolation.NOT_A_READER)
    yield made
    made.end(issued=0)


def ended(life, *events, at_s):
    """Takes these (name, number, at_s) events of a program that is ended at this time, and returns what was noted."""
    lines = CommandProducer(life)
    for name, number, told_s in events:
        tool = SimpleNamespace(started_ns=0, read_ns=told_s * S, moment=lambda _, told_s=told_s: (told_s * S, 0))
        event = {"name": name, "value": f"{life.client}.{number}", "topic": "t", "partition": 0, "offset": number}
        lines.take(tool, event)
    lines.note_stop(at_s * S)
    lines.note_stop((at_s + 60) * S)  # that it then took long to end is no silence
    lines.note_end(killed=True, code=0)
    lines.close()
    return list(life.registry.clients[-1].silences)


def noted(silent_s, since_s):
    return [f"{silent_s}@{since_s * S}"]


def test_a_program_that_ran_on_without_a_word_is_noted(life):
    assert ended(life, ("producer_send_success", 0, 5), at_s=50) == noted(45, 5)
    told = RecordedTest("t", life.registry.topics, life.registry.clients)
    (stalled,) = [one for one in unjudged_of(told, identities=["t"], expectations=(), doubts=()) if one.where == "t"]
    assert stalled.anomalies == ("stuck",)
    assert "producer-1 printed no send for the last 45 s" in stalled.why


def test_and_one_that_is_ended_soon_after_its_last_send_is_not(life):
    assert ended(life, ("producer_send_success", 0, 5), ("producer_send_error", 1, 30), at_s=49) == []


def test_who_announces_its_sends_and_told_how_each_ended_had_no_more_to_make(life):
    assert ended(life, ("producer_send", 0, 4), ("producer_send_success", 0, 5), at_s=50) == []


def test_but_not_who_announces_some_alone(life):
    events = ("producer_send", 0, 4), ("producer_send_success", 0, 5), ("producer_send_success", 1, 6)
    assert ended(life, *events, at_s=50) == noted(44, 6)


def test_a_send_that_was_announced_and_never_ended_is_a_row_where_the_last_one_was_acknowledged(life):
    events = ("producer_send", 0, 4), ("producer_send_success", 0, 5), ("producer_send", 1, 6)
    assert ended(life, *events, at_s=50) == []
    rows, torn = read_rows(life.run.rows, SENDS, life.client)
    assert torn == 0
    assert rows["sequence"].tolist() == [0, 1]
    assert rows["invoked_ns"].tolist() == [4 * S, 6 * S]
    assert rows["completed_ns"].tolist() == [5 * S, MISSING]


def test_what_nobody_announced_has_the_time_at_which_its_program_started(life):
    ended(life, ("producer_send_success", 0, 5), at_s=6)
    rows, _ = read_rows(life.run.rows, SENDS, life.client)
    assert rows["invoked_ns"].tolist() == [life.started_ns]


def test_a_program_that_never_told_of_a_send_is_told_of_elsewhere(life):
    assert ended(life, at_s=50) == []


@pytest.mark.parametrize(
    ("deleted_s", "undone_s", "what"),
    [
        (None, None, None),
        (8, None, "none since a topic of it was deleted"),
        (1, None, "none since a topic of it was deleted"),
        (-1, None, None),
        (None, 9, "none since a fault was healed"),
        (None, 4, None),
    ],
)
def test_who_told_of_no_send_after_what_the_test_did_leaves_the_test_unknown(life, deleted_s, undone_s, what):
    """Its last send was acknowledged at 5 s: brokers may do so for some seconds after a topic was deleted."""
    ended(life, ("producer_send_success", 0, 5), at_s=50)
    told = RecordedTest("t", life.registry.topics, life.registry.clients)
    deleted = (
        [] if deleted_s is None else [{"time_ns": deleted_s * S, "kind": int(MetadataKind.DELETED), "partition": 0}]
    )
    undone = [] if undone_s is None else [{"time_ns": undone_s * S, "phase": int(FaultPhase.UNDONE)}]
    doubts = never_again(told, faults=table("faults", undone), metadata=table("metadata", deleted))
    assert [what in doubt and "stuck is not judged: producer-1" in doubt for doubt in doubts] == [True] * (
        what is not None
    )
