"""What a machine knows of the topics that its watches made: which live, which were left behind, and which are kept."""

import os
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.machine_record import private_directory
from prozess.watch.surroundings import Surroundings
from prozess.watch.topic_records import RecordedTopic, RecordsHere, TopicRecord, parse_record, records_here
from tests.support.clock import FakeClock

ID = UUID(int=7)
NAME = "prozess-watch-y"


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "prozess"


def recorded(*, topic_id=ID):
    record = TopicRecord(RecordedTopic("c", NAME, topic_id))
    assert not record.problem
    return record


def killed(record):
    """The kernel gives the lock back, as it does when a process ends."""
    os.close(record._descriptor)


def test_a_watch_that_lives_is_known_and_one_that_was_killed_left_its_topic_behind():
    record = recorded()
    assert records_here("c") == RecordsHere(frozenset({NAME}), ())
    killed(record)
    assert records_here("c") == RecordsHere(frozenset(), (RecordedTopic("c", NAME, ID),))
    assert records_here("another cluster") == RecordsHere(frozenset(), ())


@pytest.mark.parametrize(("gone", "kept", "left"), [(True, False, 0), (False, True, 0), (False, False, 1)])
def test_what_was_removed_or_is_kept_was_not_left_behind(gone, kept, left):
    recorded().close(gone=gone, kept=kept)
    assert len(records_here("c").left) == left


def test_where_nothing_can_be_written_the_watch_goes_on_and_says_so(state):
    state.write_text("a file")
    record = TopicRecord(RecordedTopic("c", NAME, None))
    assert "cannot be used" in record.problem
    record.close(gone=False, kept=False)
    assert records_here("c") == RecordsHere(frozenset(), ())


def test_a_link_in_place_of_a_record_is_not_followed(state):
    directory = private_directory("watches")
    (directory / f"{NAME}.json").symlink_to("/dev/zero")
    assert records_here("c") == RecordsHere(frozenset(), ())
    assert TopicRecord(RecordedTopic("c", NAME, None)).problem


@given(text=st.text() | st.sampled_from(['{"cluster":1}', '{"cluster":"c","topic":"t","id":"x","kept":false}', "[]"]))
def test_a_file_that_is_no_record_says_nothing(text):
    assert parse_record(text) is None


class Topic:
    """A cluster with one more topic of a watch, whose id is known."""

    name, cluster_id = "prozess-watch-x", "c"

    def __init__(self, now):
        self.now, self.deleted = now, []

    def others(self, *, timeout_s):
        return [NAME]

    def ends(self, names):
        return {}

    def remove_left(self, name, topic_id, *, timeout_s):
        if topic_id != self.now:
            return False
        self.deleted.append(name)
        return True


def looked(topic, monkeypatch):
    monkeypatch.setattr("prozess.watch.surroundings.OTHERS_S", 0)
    surroundings = Surroundings(topic, FakeClock())
    surroundings._look_at_others()
    return [event.text for event in surroundings.events()]


def test_debris_of_this_machine_is_deleted_and_a_topic_of_the_same_name_with_another_id_is_not(monkeypatch):
    killed(recorded())
    theirs = Topic(UUID(int=8))
    (text,) = looked(theirs, monkeypatch)
    assert "Look before you delete it" in text
    assert theirs.deleted == []
    ours = Topic(ID)
    (text,) = looked(ours, monkeypatch)
    assert text == f"{NAME} was left behind by a watch of this machine that was killed. It is deleted"
    assert ours.deleted == [NAME]
    assert records_here("c").left == ()


def test_the_topic_of_a_watch_that_lives_here_is_named_and_never_deleted(monkeypatch):
    record, topic = recorded(), Topic(ID)
    (text,) = looked(topic, monkeypatch)
    assert "runs on this machine. It must stay" in text
    assert topic.deleted == []
    record.close(gone=True, kept=False)
