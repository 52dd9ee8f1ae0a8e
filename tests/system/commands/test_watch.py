"""`prozess watch` on a real cluster: what it reports and within which time, what it does not, and what it leaves there.

How long it took until something learned is printed (`pytest -s`) and not asserted: the machine may be busy.
"""

import re
import shutil
import signal
import subprocess
import threading
import urllib.request

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from prozess.clusters.existing.canary_topic import PREFIX
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.exit_codes import ExitCode
from tests.support.command import OURS
from tests.support.servers.secured import NODES, SecuredCluster

pytestmark = pytest.mark.cluster
CLOCK = SystemClock()
LIMIT_S = 90.0
KAFKAS_DEFAULTS = "broker.session.timeout.ms=9000\nbroker.heartbeat.interval.ms=2000\n"
OTHER = "somebody-elses"
MANY, OUTAGES = 20, 6
SOAK_MINUTES = 5


class Watching:
    """`prozess watch` as a process, with each of its lines and the moment at which it came."""

    def __init__(self, directory, servers, *words):
        self.errors = (directory / "watch.err").open("w+")
        command = [*OURS, "watch", "--cluster", servers, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.lines, self.changed = [], threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append((CLOCK.monotonic_ns() / 1e9, line.rstrip("\n")))
                self.changed.notify_all()

    def told(self, pattern, *, since_s=0.0, timeout_s=LIMIT_S):
        """The seconds from `since_s` to the first line after it that matches, and the match."""
        with self.changed:
            found = self.changed.wait_for(lambda: self._found(pattern, since_s) or self._ended(), timeout_s)
            hit = self._found(pattern, since_s)
            assert hit, f"no {pattern!r} within {timeout_s} s ({found}): {self.lines} {self._said()}"
            return hit

    def await_all_over(self):
        """Returns once every outage that learned is over."""
        with self.changed:
            over = self.changed.wait_for(lambda: not self._out() or self._ended(), LIMIT_S)
            assert over, self.lines

    def _out(self):
        """The numbers of the partitions with an outage that is not over."""
        out = set()
        for _, line in self.lines:
            if begun := re.search(r"Z (OUTAGE|OVER): (.*?)(: | takes? | can )", line):
                numbers = set(re.findall(r"-(\d+)(?=,|$)", begun[2]))
                out = out | numbers if begun[1] == "OUTAGE" else out - numbers
        return out

    def metric(self, name):
        """The sum of a metric over all of its labels."""
        with urllib.request.urlopen(self.told("metrics are at (.*)")[1][1], timeout=5) as answer:
            values = re.findall(rf"^prozess_watch_{name}(?:{{.*}})? (.*)$", answer.read().decode(), re.M)
        assert values, name
        return sum(map(float, values))

    def _found(self, pattern, since_s):
        hits = ((at - since_s, re.search(pattern, line)) for at, line in self.lines if at >= since_s)
        return next(((after, match) for after, match in hits if match), None)

    def _ended(self):
        return not self._thread.is_alive() or self.process.poll() is not None

    def _said(self):
        self.errors.seek(0)
        return self.errors.read()

    @property
    def topic(self):
        return self.told(f"with the topic ({PREFIX}[^,]+), ")[1][1]

    def end(self, number=signal.SIGINT):
        """Stops it, and returns its exit code and everything that it stated."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(LIMIT_S)
        self._thread.join(LIMIT_S)
        return code, "\n".join(line for _, line in self.lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._thread.join()
        self.process.stdout.close()
        self.errors.close()


@pytest.fixture(scope="module")
def secured(need, tmp_path_factory):
    need("java")
    with SecuredCluster(tmp_path_factory.mktemp("watched"), more=KAFKAS_DEFAULTS) as cluster:
        yield cluster


@pytest.fixture
def servers(secured):
    """Where the cluster takes clients that do not log in."""
    return secured.servers("INNER")


def topics(servers):
    """All but Kafka's own, which brokers make when somebody asks for the coordinator of a group."""
    return set(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=20).topics) - {"__consumer_offsets"}


def copied(servers, topic, number, offset):
    """Writes the record at this offset to the end of its partition again, as nobody should."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "copier", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, offset)])
    (message,) = consumer.consume(1, timeout=20)
    assert message.error() is None
    consumer.close()
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, message.value(), partition=number)
    assert producer.flush(20) == 0


def shown(what, told):
    print(f"{what}: reported after {told[0]:.1f} s: {told[1].string if told[1] else ''}")  # noqa: T201 - figures for docs/watch.md


def end_of(servers, topic, number):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "looker"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
    consumer.close()
    return end


def await_whole(servers):
    """Returns once every partition of every topic has all of its replicas in sync, as whoever restarts brokers awaits."""
    client = AdminClient({"bootstrap.servers": servers})
    seen = ["nothing"]

    def whole():
        found = client.list_topics(timeout=10).topics.values()
        seen[0] = str(
            [(t.topic, p.id, p.isrs) for t in found for p in t.partitions.values() if len(p.isrs) < len(p.replicas)]
        )
        return seen[0] == "[]"

    wait_until(whole, awaited="every ISR to be whole", timeout_s=LIMIT_S, clock=CLOCK, last_seen=lambda: seen[0])


def restart(secured, node):
    secured.stop(node)
    secured.start(node)
    secured.await_started(node)
    await_whole(secured.servers("INNER"))


@pytest.mark.long  # its cheaper neighbours: an outage that is reported, and test_secured_cluster.py
def test_a_cluster_that_is_well_is_watched_over_tls_and_sasl_and_left_as_it_was(secured, servers, tmp_path):
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(OTHER, 1, 3)])[OTHER].result(30)
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(OTHER, b"mine")
    assert producer.flush(20) == 0
    before = topics(servers)
    login = ("--client-config", str(secured.file("SCRAM-SHA-512")))
    with Watching(tmp_path, secured.servers("SASL"), *login, "--metrics", "0", "--for", "12s") as watch:
        url = watch.told(r"metrics are at (http://127\.0\.0\.1:\d+/metrics)")[1][1]
        assert watch.topic in topics(servers)

        def scraped():
            with urllib.request.urlopen(url, timeout=5) as answer:
                text = answer.read().decode()
            return text if "sends_total{" in text and not re.search(r"reads_total{[^}]*} 0\n", text) else None

        text = wait_until(scraped, awaited="records in the metrics", timeout_s=20, clock=CLOCK)
        assert text.count("prozess_watch_outage{") == 2 * len(NODES)
        assert {f'prozess_watch_broker_answers{{broker="{node}"}} 1' for node in NODES} <= set(text.splitlines())
        code, said = watch.end(signal.SIGCONT)  # which asks for nothing: it ends by itself
        assert (code, said.count("UNKNOWN"), said.count("OUTAGE")) == (ExitCode.HELD, 0, 0), said
        assert "Nothing was seen" in said
        assert secured.password not in said + watch._said()
    assert topics(servers) == before
    assert end_of(servers, OTHER, 0) == 1


@pytest.mark.long
def test_a_topic_that_is_there_already_is_not_touched(servers, tmp_path):
    admin = AdminClient({"bootstrap.servers": servers})
    mine = f"{PREFIX}of-mine"
    admin.create_topics([NewTopic(mine, 1, 1)])[mine].result(30)
    try:
        with Watching(tmp_path, servers, "--topic", mine) as watch:
            code, _ = watch.process.wait(LIMIT_S), watch._thread.join(LIMIT_S)
            assert code == ExitCode.BAD_INPUT
            assert f"has a topic '{mine}' already" in watch._said()
        assert mine in topics(servers)
        with Watching(tmp_path, servers, "--for", "8s", "--keep-topic") as watch:
            watch.told(f"note: {mine} has not grown for .* Look before you delete it")
            kept = watch.topic
            assert watch.process.wait(LIMIT_S) == ExitCode.HELD
        assert {mine, kept} <= topics(servers)
        admin.delete_topics([kept])[kept].result(30)
    finally:
        admin.delete_topics([mine])[mine].result(30)


def test_deleted_records_a_copied_record_and_an_outage_are_each_told(secured, servers, tmp_path):
    with Watching(tmp_path, servers) as watch:
        topic = watch.topic
        wait_until(lambda: end_of(servers, topic, 0) > 8, awaited="records", timeout_s=30, clock=CLOCK)
        began_s = CLOCK.monotonic_ns() / 1e9
        copied(servers, topic, 0, 6)
        shown("copied record", watch.told(r"VIOLATION \((duplicate|reordered)\): .*-0:", since_s=began_s))
        began_s = CLOCK.monotonic_ns() / 1e9
        admin = AdminClient({"bootstrap.servers": servers})
        (future,) = admin.delete_records([TopicPartition(topic, 1, 4)]).values()
        assert future.result(30).low_watermark == 4
        shown("deleted records", watch.told(r"UNREADABLE: .*-1: .*offsets 0 to 3", since_s=began_s))
        began_s = CLOCK.monotonic_ns() / 1e9
        for node in NODES[1:]:  # without a quorum nobody is elected
            secured.kill(node)
        told = watch.told(r"OUTAGE: .*: no send was acknowledged", since_s=began_s)
        shown("outage", told)
        assert "do not answer from here" in told[1].string
        for node in NODES[1:]:
            secured.start(node)
        for node in NODES[1:]:
            secured.await_started(node)
        watch.told(r"OVER: .* takes? records again after", since_s=began_s)
        await_whole(servers)
        watch.await_all_over()
        code, said = watch.end()
        assert code == ExitCode.VIOLATED, said
        assert "VIOLATION (lost)" not in said
        assert "watermark-regression" not in said
    # A record that stands there twice is a finding, so the topic is evidence.
    assert f"kept: the topic {topic} is evidence" in said
    admin.delete_topics([topic])[topic].result(30)


@pytest.mark.long
@pytest.mark.timeout(1800)  # 60 restarts one after the other, each of which a busy machine makes 10 s long
def test_rolling_restarts_done_right_raise_no_alarm(secured, servers, tmp_path):
    with Watching(tmp_path, servers, "--metrics", "0") as watch:
        assert watch.topic
        url = watch.told("metrics are at (.*)")[1][1]
        for _ in range(MANY):
            for node in NODES:
                restart(secured, node)
        with urllib.request.urlopen(url, timeout=5) as answer:
            longest = re.findall(r"(longest_silence_seconds.*)\n", answer.read().decode())
        code, said = watch.end()
    assert code == ExitCode.HELD, said
    print(f"the longest silences in {MANY} rolling restarts: {longest}")  # noqa: T201 - for docs/watch.md


@pytest.mark.long
def test_outages_are_told_again_and_again(secured, servers, tmp_path):
    with Watching(tmp_path, servers) as watch:
        assert watch.topic
        for _ in range(OUTAGES):
            began_s = CLOCK.monotonic_ns() / 1e9
            for node in NODES[1:]:
                secured.kill(node)
            shown("outage", watch.told(r"OUTAGE: .*: no send was acknowledged", since_s=began_s))
            for node in NODES[1:]:
                secured.start(node)
            for node in NODES[1:]:
                secured.await_started(node)
            await_whole(servers)
            watch.await_all_over()
        code, said = watch.end()
    print(said)  # noqa: T201 - figures for docs/watch.md
    assert code == ExitCode.VIOLATED, said
    assert "VIOLATION" not in said


@pytest.mark.long
def test_a_broker_that_hangs_is_an_outage_and_what_it_answers_afterwards_is_no_loss(secured, servers, tmp_path):
    with Watching(tmp_path, servers) as watch:
        assert watch.topic
        for node in NODES:
            began_s = CLOCK.monotonic_ns() / 1e9
            secured.pause(node)
            try:
                shown("hanging broker", watch.told(r"OUTAGE: .*: no send was acknowledged", since_s=began_s))
                watch.await_all_over()  # the others have fenced it, and it still takes itself for a leader
            finally:
                secured.resume(node)
            await_whole(servers)
        code, said = watch.end()
    assert code == ExitCode.VIOLATED, said
    assert "VIOLATION" not in said
    assert "UNREADABLE" not in said


def everything_of(servers, topic, number):
    """The values of all records of a partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "looker", "enable.auto.commit": False})
    start, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
    consumer.assign([TopicPartition(topic, number, start)])
    found, last = set(), start - 1
    deadline_ns = CLOCK.monotonic_ns() + int(LIMIT_S * 1e9)
    while last < end - 1 and CLOCK.monotonic_ns() < deadline_ns:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None
            found.add(message.value())
            last = message.offset()
    consumer.close()
    return found


def counted_rightly(watch, servers, topic, number, before):
    """Asserts that the watch counted every record of `before` that the log does not have any more."""
    gone = len(before - everything_of(servers, topic, number))
    wait_until(
        lambda: watch.metric("lost_records_total") == gone,
        awaited=f"{gone} lost records",
        timeout_s=10,
        clock=CLOCK,
        last_seen=lambda: str(watch.metric("lost_records_total")),
    )
    assert gone
    assert watch.metric("up") == 1


@pytest.mark.long
def test_every_record_is_counted_when_the_only_replica_comes_back_empty(secured, servers, tmp_path):
    with Watching(tmp_path, servers, "--replication-factor", "1", "--metrics", "0") as watch:
        topic, node = watch.topic, NODES[1]
        wait_until(lambda: end_of(servers, topic, 1) > 40, awaited="records", timeout_s=60, clock=CLOCK)
        before = everything_of(servers, topic, 1)
        secured.kill(node)
        shutil.rmtree(secured.data(node) / f"{topic}-1")
        began_s = CLOCK.monotonic_ns() / 1e9
        secured.start(node)
        secured.await_started(node)
        shown("started", (CLOCK.monotonic_ns() / 1e9 - began_s, None))
        shown("empty replica", watch.told(r"VIOLATION \(lost\): .*-1:", since_s=began_s))
        watch.told(r"OVER: .*-1 takes? records again", since_s=began_s)
        counted_rightly(watch, servers, topic, 1, before)
        code, said = watch.end()
        assert code == ExitCode.VIOLATED, said
        assert said.count("VIOLATION") == 1, said
    await_whole(servers)


@pytest.mark.long
def test_a_watch_outlives_an_unclean_election_and_counts_what_it_lost(secured, servers, tmp_path):
    with Watching(tmp_path, servers, "--replication-factor", "2", "--metrics", "0") as watch:
        topic, (leader, follower, _) = watch.topic, NODES
        unclean = ConfigEntry("unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[unclean])
        admin = AdminClient({"bootstrap.servers": servers})  # it must live until the answer
        (future,) = admin.incremental_alter_configs([resource]).values()
        future.result(30)
        wait_until(lambda: end_of(servers, topic, 0) > 8, awaited="records", timeout_s=60, clock=CLOCK)
        secured.kill(follower)
        behind = end_of(servers, topic, 0)
        wait_until(lambda: end_of(servers, topic, 0) > behind + 8, awaited="records", timeout_s=60, clock=CLOCK)
        before = everything_of(servers, topic, 0)
        secured.kill(leader)
        secured.start(follower)
        secured.await_started(follower)
        began_s = CLOCK.monotonic_ns() / 1e9
        shown("unclean election", watch.told(r"VIOLATION \(lost\): .*-0:", since_s=began_s))
        watch.told("UNKNOWN: the watch's producer could not go on and was replaced", since_s=began_s)
        watch.told(r"OVER: .*-0", since_s=began_s)
        secured.start(leader)
        secured.await_started(leader)
        await_whole(servers)
        counted_rightly(watch, servers, topic, 0, before)
        code, said = watch.end()
        assert code == ExitCode.VIOLATED, said
        assert said.count("VIOLATION") == 1, said
        assert f"kept: the topic {topic} is evidence" in said


@pytest.mark.long
def test_memory_does_not_grow(servers, tmp_path):
    with Watching(tmp_path, servers) as watch:
        assert watch.topic
        process, sizes = psutil.Process(watch.process.pid), []
        for _ in range(SOAK_MINUTES):
            CLOCK.sleep(60)
            sizes.append(process.memory_info().rss)
        spent = process.cpu_times()
        code, said = watch.end()
    assert code == ExitCode.HELD, said
    megabytes = [size >> 20 for size in sizes]
    print(f"{megabytes} MB after each minute, {spent.user + spent.system:.1f} s of CPU")  # noqa: T201 - for docs/watch.md
    assert sizes[-1] - sizes[1] < 8 << 20, megabytes
