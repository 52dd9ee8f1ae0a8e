"""What a watch says, counts and shows of what its clients and the brokers say. Clients and brokers are played."""

import numpy as np
import pytest

from prozess.app.webhook import Webhook
from prozess.clusters.existing.canary_topic import CanarySample
from prozess.clusters.existing.cluster_health import health_of
from prozess.clusters.protocol.admin import PartitionOffsets
from prozess.harness.clock import NS_PER_S
from prozess.harness.errors import ClusterFailed
from prozess.harness.exit_codes import ExitCode
from prozess.harness.interfaces import PartitionView
from prozess.harness.schema import NONE, Outcome
from prozess.watch.metrics import metrics_of, status_of
from prozess.watch.metrics_endpoint import text_of
from prozess.watch.notices import Notices
from prozess.watch.state import WatchOptions
from prozess.watch.surroundings import PartitionAdded
from prozess.watch.watcher import ClusterWatch
from tests.support.clock import FakeClock
from tests.support.paths import ROOT

NAME = "prozess-watch-x"


class Topic:
    """As much of a topic as is asked of it while nothing runs."""

    name, cluster_id, copies, min_in_sync, made, admin, id = NAME, "c", 3, 2, True, None, None

    def __init__(self):
        self.brokers, self.assignment = {1: ("h", 1), 2: ("h", 2)}, [[1, 2], [2, 1]]
        self.done = []

    def create(self, stop):
        self.done.append("create")

    def keep(self, retention_ms, *, timeout_s):
        self.done.append("keep")

    def remove_group(self, group, *, timeout_s):
        self.done.append("remove_group")

    def remove(self):
        self.done.append("remove")

    def close(self):
        self.done.append("close")


class Canary:
    def __init__(self):
        self.sought, self.audits, self.added = [], [], []

    def seek(self, partition, offset):
        self.sought.append((partition, offset))

    def audit(self, partition, start, end):
        self.audits.append((partition, start, end))

    def add(self, partition, *, timeout_s):
        self.added.append(partition)


class Playing:
    """A watch of two partitions, and a hand that plays its clients and brokers."""

    def __init__(self):
        self.clock, self.lines, self.canary, self.sequence = FakeClock(NS_PER_S), [], Canary(), -1
        self.kinds = []
        self.watch = ClusterWatch(WatchOptions("h:1"), Topic(), report=self.take, clock=self.clock)
        self.watch._canary = self.canary
        self.offsets = {0: 0, 1: 0}
        self.log = {0: {}, 1: {}}

    def take(self, kind, line):
        self.kinds.append(kind)
        self.lines.append(line)

    def send(self, partition=0):
        self.sequence += 1
        now_ns = self.clock.now_ns
        self.watch.invoked(partition, client=1, sequence=self.sequence, invoked_ns=now_ns, size=100)
        return self.sequence

    def complete(self, sequence, partition=0, outcome=Outcome.OK):
        offset = self.offsets[partition] if outcome is Outcome.OK else NONE
        if outcome is Outcome.OK:
            self.log[partition][offset] = sequence
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
            if last_error:
                self.watch.complained(last_error)
            self.watch._judge_outages(self.clock.now_ns)
        self.watch._check(self.clock.now_ns)

    def wait_s(self, seconds):
        """Time passes, and the brokers are asked each second; those of the first sample say no offsets."""
        for _ in range(seconds):
            self.pass_s(1)
            self.sample()

    def sample(self, *, views=None, high_watermark=None, epoch=4, node=1):
        now_ns = self.clock.now_ns
        view = {(NAME, n): PartitionView(node, epoch, (1, 2), (1,)) for n in (0, 1)}
        offsets = {}
        if high_watermark is not None:
            offsets = {(NAME, 0): [PartitionOffsets(node, epoch, 0, high_watermark, high_watermark)]}
        self.watch._take(CanarySample(now_ns, now_ns + 1, {1: view, 2: None} if views is None else views, offsets))

    def led_by_another(self, end, *, epoch=5):
        """Broker 2 leads partition 0, and its log ends there. The auditor reads what the test's log has."""
        for _ in range(2):
            self.clock.sleep(1)
            self.sample(high_watermark=end, epoch=epoch, node=2)
        log = {offset: sequence for offset, sequence in self.log[0].items() if offset < end}
        columns = {"log_offset": [*log], "sequence": [*log.values()], "flags": [0] * len(log)}
        self.watch.audited(0, {name: np.array(v, dtype=np.int64) for name, v in columns.items()}, whole=True)

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
    assert f"{NAME}-0: no send was acknowledged for 7." in line
    assert "broker 1 says: broker 1 leads in epoch 4, in sync: 1 of 1, 2, fewer than min.insync.replicas=2" in line
    assert line.endswith(
        "broker 2 does not answer from here. The clients' last error: broker transport failure (0 s ago)."
    )
    assert "OUTAGE of 0" in status_of(playing.watch, playing.clock)
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
    playing.watch.client_replaced("producer", "fatal")
    playing.complete(playing.send())
    playing.both()
    playing.pass_s(0.1)
    assert not playing.told("VIOLATION")  # nobody was asked who leads
    playing.wait_s(10)
    (line,) = playing.told("VIOLATION (lost)")
    assert f"{NAME}-0: acknowledged records are gone" in line
    assert playing.watch.counts.exit_code == ExitCode.VIOLATED


def test_a_copy_after_a_send_to_another_partition_failed_is_unknown(playing):
    playing.both()
    playing.complete(playing.send(1), 1, outcome=Outcome.INFO)
    playing.both()
    playing.read(0, 2)
    playing.wait_s(3)
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
        playing.watch._take(ClusterFailed("broker 1: no such user."))
        playing.clock.sleep(1)
    assert playing.lines == []
    for _ in range(20):
        playing.watch._take(ClusterFailed("broker 1: no such user."))
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

    monkeypatch.setattr(playing.watch.topic, "remove", refused)
    monkeypatch.setattr(playing.watch, "_watch", lambda *_: playing.watch._seen("OUTAGE", "of all"))
    assert playing.watch.run(lambda: True) == ExitCode.VIOLATED
    assert "something is left in the cluster" in playing.told("UNKNOWN")[0]


def test_the_metrics_name_each_metric_once_and_count_what_was_told(playing):
    playing.sample()
    playing.both()
    playing.both(1)
    text = text_of(metrics_of(playing.watch, None, playing.clock))
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
    lines = text_of(metrics_of(playing.watch, None, playing.clock)).count("\n")
    for _ in range(300):
        playing.both()
        playing.pass_s(0.2)
    assert text_of(metrics_of(playing.watch, None, playing.clock)).count("\n") == lines
    assert playing.watch.partitions[0].window.rows < 200


def test_every_record_that_another_leader_lacks_is_told_and_counted_once(playing):
    playing.sample(high_watermark=0)
    for _ in range(60):  # what the window has forgotten is lost, too
        playing.both()
        playing.pass_s(0.5)
    assert playing.watch.partitions[0].window.rows < 120
    del playing.log[0][59]
    playing.led_by_another(12)
    (line,) = playing.told("VIOLATION (lost)")
    assert "acknowledged records are gone (48; offsets 12 to 59, records 12 to 59; broker 2 leads in epoch 5" in line
    assert playing.canary.audits == [(0, 0, 12)]
    assert playing.canary.sought == [(0, 12)]
    assert playing.watch.partitions[0].records.lost == 48
    playing.offsets[0] = 12
    for _ in range(10):
        playing.both()
        playing.pass_s(0.5)
        playing.sample(high_watermark=playing.offsets[0], epoch=5, node=2)
    assert len(playing.lines) == 1
    assert playing.watch.counts.exit_code == ExitCode.VIOLATED
    text = text_of(metrics_of(playing.watch, None, playing.clock))
    assert f'prozess_watch_lost_records_total{{topic="{NAME}",partition="0"}} 48' in text
    assert f'prozess_watch_audits_total{{topic="{NAME}",partition="0"}} 1' in text


def test_another_leader_that_has_every_record_is_not_told(playing):
    playing.sample(high_watermark=0)
    for _ in range(20):
        playing.both()
        playing.pass_s(0.5)
    playing.led_by_another(20)
    playing.pass_s(1)
    assert playing.lines == []
    assert playing.watch.counts.exit_code == ExitCode.HELD


def test_a_log_that_cannot_be_read_again_is_unknown(playing):
    playing.sample(high_watermark=0)
    playing.both()
    for _ in range(8):
        playing.clock.sleep(1)
        playing.sample(high_watermark=1, epoch=5, node=2)
        if playing.watch.partitions[0].changes.under_way is not None:
            empty = {name: np.array([], dtype=np.int64) for name in ("log_offset", "sequence", "flags")}
            playing.watch.audited(0, empty, whole=False)
    (line,) = playing.told("UNKNOWN")
    assert "its log could not be read again from offset 0 to 1" in line


def test_the_death_of_one_broker_is_one_line(playing):
    playing.sample()
    for partition in (0, 1):
        playing.both(partition)
        playing.send(partition)
        playing.pass_s(0.3)
    playing.pass_s(9)
    (line,) = playing.told("OUTAGE")
    assert f"{NAME}-0, -1: no send was acknowledged for " in line
    assert playing.watch.counts.seen == 1
    assert playing.watch.silences["write"].count == 2


def run_to_the_end(playing, monkeypatch, during):
    monkeypatch.setattr(playing.watch, "_watch", lambda *_: during())
    playing.watch.run(lambda: True)
    return playing.watch.topic.done


def test_a_topic_in_whose_records_something_was_found_is_kept_as_evidence_and_its_place_is_told(playing, monkeypatch):
    def loss():
        playing.complete(playing.send())
        playing.both()
        playing.wait_s(10)

    done = run_to_the_end(playing, monkeypatch, loss)
    assert done == ["create", "remove_group", "keep", "close"]
    assert f"kept: the topic {NAME} is evidence" in playing.lines[-1]


def test_a_watch_that_fails_itself_keeps_its_topic_too(playing, monkeypatch):
    def broken():
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        run_to_the_end(playing, monkeypatch, broken)
    assert "remove" not in playing.watch.topic.done
    assert f"kept: the topic {NAME}" in playing.lines[-1]


@pytest.mark.parametrize("silent", [False, True])
def test_a_topic_without_findings_is_removed_unless_no_broker_answers(playing, monkeypatch, silent):
    done = run_to_the_end(playing, monkeypatch, lambda: playing.sample(views={1: None, 2: None} if silent else None))
    assert ("remove" in done) is not silent
    assert len(playing.told("UNKNOWN")) == silent


def test_a_watch_that_is_stopped_says_what_it_waits_for_and_waits_shorter_if_no_broker_answers(playing):
    assert playing.watch._finish_ns() == 0
    playing.complete(playing.send())
    playing.send(1)
    assert playing.watch._finish_ns() == 2.5 * NS_PER_S
    playing.sample(views={1: None, 2: None})
    assert playing.watch._finish_ns() == NS_PER_S
    assert playing.lines[-1].endswith(
        "stopping: the watch waits 1 s at most for the acknowledgement of 1 sends, and the read of 1 acknowledged records"
    )
    assert set(playing.kinds) == {"note"}


def test_a_broker_that_comes_later_is_watched(playing):
    playing.watch._surroundings._events.put(PartitionAdded(3, 2))
    playing.watch._take_events()
    assert playing.canary.added == [2]
    assert "note: broker 3 came" in playing.lines[0]
    playing.offsets[2], playing.log[2] = 0, {}
    playing.both(2)
    playing.pass_s(1)
    assert playing.watch.counts.exit_code == ExitCode.HELD
    assert playing.watch.counts.reads[2] == 1


def test_a_client_that_ends_again_and_again_is_told_a_few_times_and_counted_each_time(playing):
    for _ in range(40):
        playing.watch.client_replaced("producer", "fatal")
    assert len(playing.told("UNKNOWN")) == 5 + 4
    assert playing.watch.counts.replaced["producer"] == 40


def test_latencies_are_measured_from_the_send_to_the_acknowledgement_and_to_the_read(playing):
    sequence = playing.send()
    playing.clock.sleep(0.02)
    offset = playing.complete(sequence)
    playing.clock.sleep(0.2)
    playing.read(sequence, offset)
    playing.watch.committed(3_000_000, "", 0)
    playing.watch.committed(3_000_000, "not the coordinator", 16)
    text = text_of(metrics_of(playing.watch, None, playing.clock))
    by = f'{{topic="{NAME}",partition="0",le='
    assert f'prozess_watch_produce_latency_seconds_bucket{by}"0.01"}} 0' in text
    assert f'prozess_watch_produce_latency_seconds_bucket{by}"0.025"}} 1' in text
    assert f'prozess_watch_end_to_end_latency_seconds_bucket{by}"0.1"}} 0' in text
    assert f'prozess_watch_end_to_end_latency_seconds_bucket{by}"0.25"}} 1' in text
    assert 'prozess_watch_commit_latency_seconds_bucket{le="0.005"} 1' in text
    assert 'prozess_watch_commits_total{outcome="failed"} 1' in text


def test_the_metrics_follow_prometheuss_conventions(playing):
    playing.sample()
    playing.watch.health = health_of(1, {1: ("h", 1)}, {}, controller=1, took_s=0.1)
    with_webhook = metrics_of(playing.watch, Notices(Webhook("http://127.0.0.1:1/", "here"), "x"), playing.clock)
    for metric in with_webhook:
        assert metric.name.endswith("_total") is (metric.kind == "counter"), metric.name
        assert not metric.name.endswith(("_ms", "_ns", "_milliseconds")), metric.name
        assert metric.kind != "histogram" or metric.name.endswith("_seconds"), metric.name
        assert metric.help.endswith(".")
    names = {metric.name.removeprefix("prozess_watch_") for metric in with_webhook}
    page = (ROOT / "docs" / "watch.md").read_text()
    assert {name for name in names if f"`{name}" not in page} == set()
    assert {"up", "build_info", "lost_records_total"} <= names


def played_loss(playing):
    """The reader passes the first of four records by, while the same broker leads."""
    playing.sample(high_watermark=0)
    playing.complete(playing.send())
    for _ in range(3):
        playing.both()
    playing.pass_s(0.1)
    for _ in range(2):
        playing.clock.sleep(1)
        playing.sample(high_watermark=4)
        playing.watch._check(playing.clock.now_ns)
    assert playing.lines == []
    playing.clock.sleep(1)
    playing.sample(high_watermark=4)
    assert playing.canary.audits == [(0, 0, 4)]


def audited(playing, log):
    columns = {"log_offset": [*log], "sequence": [*log.values()], "flags": [0] * len(log)}
    playing.watch.audited(0, {name: np.array(v, dtype=np.int64) for name, v in columns.items()}, whole=True)
    playing.pass_s(0.1)


def test_a_record_that_the_reader_was_not_given_is_lost_if_the_log_does_not_have_it_either(playing):
    played_loss(playing)
    audited(playing, {1: 1, 2: 2, 3: 3})
    (line,) = playing.lines
    assert "VIOLATION (lost)" in line
    assert "(1; offset 0, record 0;" in line
    assert playing.watch.partitions[0].records.lost == 1


def test_a_record_that_the_log_has_although_the_reader_was_not_given_it_is_unknown_and_not_lost(playing):
    played_loss(playing)
    audited(playing, {0: 0, 1: 1, 2: 2, 3: 3})
    (line,) = playing.lines
    assert "UNKNOWN: lost" in line
    assert "but the log has them" in line
    assert playing.watch.partitions[0].records.lost == 0


def test_what_is_found_in_the_last_second_and_not_confirmed_is_unknown(playing):
    playing.sample(high_watermark=0)
    playing.both()
    playing.read(0, 1)  # it stands there twice
    playing.pass_s(0.1)
    assert "1 findings that are to be confirmed" in playing.watch._left()
    playing.watch._last_check()
    (line,) = playing.told("UNKNOWN")
    assert "ended before it could be confirmed" in line
    assert playing.watch.counts.exit_code == ExitCode.UNKNOWN


def test_a_watch_whose_own_producer_ends_again_and_again_blames_no_broker_for_what_is_stuck(playing):
    whole = {(NAME, n): PartitionView(1, 4, (1, 2), (1, 2)) for n in (0, 1)}
    playing.both()
    playing.send()
    for second in range(80):
        playing.sample(views={1: whole, 2: whole})
        playing.pass_s(1)
        if second % 30 == 0:
            playing.watch.client_replaced("producer", "fatal")
    assert not playing.told("VIOLATION")
    for _ in range(60):
        playing.sample(views={1: whole, 2: whole})
        playing.pass_s(1)
    assert len(playing.told("VIOLATION (stuck)")) == 1
