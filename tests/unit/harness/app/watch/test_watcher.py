"""What a watch tells, counts and shows of what its clients and the brokers say. Clients and brokers are played."""

import numpy as np
import pytest

from prozess.clusters.existing.canary_topic import CanarySample
from prozess.clusters.protocol.admin import PartitionOffsets
from prozess.harness.app.watch.metrics import text_of
from prozess.harness.app.watch.watcher import ClusterWatch, WatchOptions
from prozess.harness.clock import NS_PER_S
from prozess.harness.errors import ClusterFailed, ExitCode
from prozess.harness.interfaces import PartitionView
from prozess.harness.schema import NONE, Outcome
from tests.support.clock import FakeClock

NAME = "prozess-watch-x"


class Topic:
    """As much of a topic as is asked of it while nothing runs."""

    name, cluster_id, copies, min_in_sync, made = NAME, "c", 3, 2, True
    brokers = {1: ("h", 1), 2: ("h", 2)}  # noqa: RUF012 - nobody changes it


class Canary:
    def __init__(self):
        self.sought = []

    def seek(self, partition, offset):
        self.sought.append((partition, offset))


class Playing:
    """A watch of two partitions, and a hand that plays its clients and brokers."""

    def __init__(self):
        self.clock, self.lines, self.canary, self.sequence = FakeClock(NS_PER_S), [], Canary(), -1
        self.watch = ClusterWatch(WatchOptions("h:1"), Topic(), tell=self.lines.append, clock=self.clock)
        self.offsets = {0: 0, 1: 0}

    def send(self, partition=0):
        self.sequence += 1
        now_ns = self.clock.now_ns
        self.watch.invoked(partition, client=1, sequence=self.sequence, invoked_ns=now_ns, size=100)
        return self.sequence

    def complete(self, sequence, partition=0, outcome=Outcome.OK):
        offset = self.offsets[partition] if outcome is Outcome.OK else NONE
        self.offsets[partition] += outcome is Outcome.OK
        self.watch.completed(
            partition, sequence, completed_ns=self.clock.now_ns, log_offset=offset, outcome=outcome, error="", code=0
        )
        return offset

    def read(self, sequence, offset, partition=0):
        columns = {
            "read_ns": self.clock.now_ns,
            "log_offset": offset,
            "sequence": sequence,
            "key": NONE,
            "origin": NONE,
        }
        columns |= {"sender": 1, "partition": partition, "sent_partition": partition, "span": 0, "flags": 0}
        self.watch.read(partition, {name: np.array([value]) for name, value in (columns | {"leader_epoch": 1}).items()})

    def both(self, partition=0):
        sequence = self.send(partition)
        self.read(sequence, self.complete(sequence, partition), partition)

    def pass_s(self, seconds, last_error=""):
        """Time passes, and the watch looks at it as it does in a run."""
        for _ in range(round(seconds / 0.1)):
            self.clock.sleep(0.1)
            self.watch._judge_outages(self.clock.now_ns, last_error)
        self.watch._check(self.clock.now_ns)

    def sample(self, *, views=None, high_watermark=None):
        now_ns = self.clock.now_ns
        view = {(NAME, n): PartitionView(1, 4, (1, 2), (1,)) for n in (0, 1)}
        offsets = {}
        if high_watermark is not None:
            offsets = {(NAME, 0): [PartitionOffsets(1, 4, 0, high_watermark, high_watermark)]}
        made = CanarySample(now_ns, now_ns + 1, {1: view, 2: None} if views is None else views, offsets)
        self.watch._take(made, self.canary)

    def told(self, kind):
        return [line for line in self.lines if f"Z {kind}" in line]


@pytest.fixture
def playing():
    return Playing()


def test_a_watch_that_saw_nothing_ends_with_0(playing):
    for _ in range(20):
        playing.both()
        playing.pass_s(0.5)
    assert (playing.lines, playing.watch.counts.exit_code) == ([], ExitCode.HELD)


def test_an_outage_is_told_with_what_the_brokers_say_and_so_is_its_end(playing):
    playing.sample()
    playing.both()
    sequence = playing.send()
    playing.pass_s(8, "broker transport failure")
    (line,) = playing.told("OUTAGE")
    assert f"{NAME}-0: no send was acknowledged for 6." in line
    assert "broker 1 says: broker 1 leads in epoch 4, in sync: 1 of 1, 2, fewer than min.insync.replicas=2" in line
    assert line.endswith("broker 2 does not answer from here. The client's last error: broker transport failure.")
    assert "OUTAGE of 0" in playing.watch.status()
    playing.read(sequence, playing.complete(sequence))
    playing.pass_s(0.1)
    assert playing.told("OVER")
    assert playing.watch.counts.exit_code == ExitCode.VIOLATED


def test_sends_that_end_in_doubt_do_not_end_an_outage(playing):
    playing.both()
    sequences = []
    for _ in range(10):
        sequences.append(playing.send())
        playing.pass_s(1)
    for sequence in sequences:
        playing.complete(sequence, outcome=Outcome.INFO)
        playing.pass_s(0.1)
    assert (len(playing.told("OUTAGE")), playing.told("OVER")) == (1, [])


def test_records_that_cannot_be_read_for_long_are_an_outage_too(playing):
    playing.complete(playing.send())
    playing.pass_s(8)
    (line,) = playing.told("OUTAGE")
    assert "acknowledged records cannot be read" in line


def test_a_watch_that_stood_still_says_so_and_ends_with_2(playing):
    playing.both()
    playing.pass_s(0.5)
    playing.send()
    playing.clock.sleep(30)
    playing.pass_s(0.1)
    (line,) = playing.told("UNKNOWN")
    assert "stood still for 30.1 s" in line
    assert playing.watch.counts.exit_code == ExitCode.UNKNOWN


def test_a_loss_is_a_violation_whatever_else_is_unknown(playing):
    playing.watch.producer_replaced("fatal")
    playing.complete(playing.send())
    playing.both()
    playing.pass_s(0.1)
    (line,) = playing.told("VIOLATION (lost)")
    assert f"{NAME}-0: acknowledged records are gone" in line
    assert playing.watch.counts.exit_code == ExitCode.VIOLATED


def test_a_copy_after_a_send_to_another_partition_failed_is_unknown(playing):
    playing.both()
    playing.complete(playing.send(1), 1, outcome=Outcome.INFO)
    playing.both()
    playing.read(0, 2)
    playing.pass_s(0.1)
    (line,) = playing.told("UNKNOWN")
    assert "duplicate" in line
    assert playing.watch.counts.exit_code == ExitCode.UNKNOWN


def test_the_reader_goes_on_within_the_log_once_a_sample_was_asked_after_its_position_was_lost(playing):
    for _ in range(5):
        playing.both()
    playing.sample(high_watermark=5)
    playing.watch.position_lost(0, "out of range")
    playing.sample(high_watermark=3)  # at the same moment: it may have been asked before
    assert playing.canary.sought == []
    playing.clock.sleep(1)
    playing.sample(high_watermark=3)
    ((partition, offset),) = playing.canary.sought
    assert partition == 0
    assert offset <= 3


def test_a_topic_that_every_broker_lacks_for_long_ends_the_watch_and_is_not_deleted(playing):
    playing.sample(views={1: {}, 2: None})
    assert not playing.watch._is_over()
    playing.clock.sleep(11)
    playing.sample(views={1: {}, 2: {}})
    assert playing.watch._is_over()
    assert not playing.watch.topic.made
    assert len(playing.told("UNREADABLE")) == 1


def test_one_broker_that_does_not_know_the_topic_yet_is_no_loss_of_it(playing):
    playing.sample(views={1: {}, 2: None})
    playing.clock.sleep(6)
    playing.sample()
    playing.clock.sleep(6)
    playing.sample(views={1: {}, 2: None})
    assert not playing.watch._is_over()


def test_brokers_that_refuse_to_be_asked_are_told_only_if_they_go_on(playing):
    for _ in range(20):
        playing.watch._take(ClusterFailed("broker 1: no such user."), playing.canary)
        playing.clock.sleep(1)
    assert playing.lines == []
    for _ in range(20):
        playing.watch._take(ClusterFailed("broker 1: no such user."), playing.canary)
        playing.clock.sleep(1)
    assert len(playing.told("UNKNOWN")) == 1


def test_what_was_under_way_at_the_end_is_unknown(playing):
    playing.both()
    playing.send(1)
    playing.complete(playing.send(0))
    playing.watch._last_check()
    assert len(playing.told("UNKNOWN")) == 2
    assert playing.watch.counts.exit_code == ExitCode.UNKNOWN


def test_a_topic_that_cannot_be_deleted_does_not_hide_what_was_seen(playing, monkeypatch):
    def refused():
        raise ClusterFailed("The topic could not be deleted: nobody answers.")

    topic = playing.watch.topic
    for name, does in (("create", int), ("others", list), ("close", int), ("remove", refused)):
        monkeypatch.setattr(topic, name, does, raising=False)
    monkeypatch.setattr(playing.watch, "_watch", lambda *_: playing.watch._seen("OUTAGE", "of all"))
    assert playing.watch.run(lambda: True) == ExitCode.VIOLATED
    assert "something is left in the cluster" in playing.told("UNKNOWN")[0]


def test_the_metrics_name_each_metric_once_and_count_what_was_told(playing):
    playing.sample()
    playing.both()
    playing.both(1)
    text = text_of(playing.watch.metrics())
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert all(name.startswith("prozess_watch_") for name in names)
    assert f'prozess_watch_sends_total{{topic="{NAME}",partition="1",outcome="acknowledged"}} 1' in text
    assert 'prozess_watch_broker_answers{broker="2"} 0' in text


def test_the_numbers_do_not_grow_with_time(playing):
    playing.sample()
    for _ in range(30):
        playing.both()
        playing.pass_s(0.2)
    lines = text_of(playing.watch.metrics()).count("\n")
    for _ in range(300):
        playing.both()
        playing.pass_s(0.2)
    assert text_of(playing.watch.metrics()).count("\n") == lines
    assert playing.watch._windows[0].rows < 200
