"""A pipelined producer: issues at a rate, interleaved over its partitions, and records every send.

A send's row is written before produce() and completed in place by its delivery report; a row nobody completes is INFO. So
nothing that reached Kafka is missing from the history, whoever is killed when. What a partition's cap of unacknowledged
records holds back is recorded as withheld, and is no send.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from harness.rows import RowWriter
from harness.schema import MISSING, NONE, SENDS, WITHHELD
from workloads.carrier import encoder
from workloads.client import Client, FatalClient
from workloads.offsets import Offsets
from workloads.outcomes import INSTANCE_IS_DEAD
from workloads.send_rows import WithheldRows, complete_refused, completer

POLL_S = 0.02
CATCH_UP_NS = 100_000_000
"""What a starved producer is behind by more than this is not caught up: a burst would be another workload."""
ISSUE_MAX = 500
"""Records issued between two polls."""
FATAL_DRAIN_NS = 500_000_000
"""How long a dead instance may still hand out delivery reports."""
HANDLED_LIMIT_NS, HANDLED_QUIET_NS, HANDLED_INTERVAL_S = 10_000_000_000, 1_500_000_000, 0.05
"""With acks=0, at the end: how long to wait at most, how long without growth, how often to look."""
NS_PER_S = 1_000_000_000

PartitionName = tuple[int, str, int]
"""Dense id, topic, number within the topic."""


class LogProducer:
    """The role `producer`. Starts paused; commands: resume, pause, send, finish, stop."""

    def __init__(self, client: Client) -> None:
        spec = client.spec
        self._client, self._spec, self._now_ns = client, spec, client.now_ns
        self._sends = RowWriter(client.rows, SENDS, spec.client)
        self._withheld = WithheldRows(RowWriter(client.rows, WITHHELD, spec.client), client.now_ns)
        self._encode = encoder(sender=spec.client, value_bytes=spec.value_bytes)
        self._in_flight = {dense: 0 for dense, _, _ in spec.partitions}
        self._reported = dict(self._in_flight)
        """By dense partition: reported without an error."""
        report = completer(self._sends, spec.properties, client.now_ns, self._settled)
        callbacks = {"on_delivery": report, "error_cb": client.on_error, **client.statistics.callbacks}
        self._producer = Producer({**spec.properties, **callbacks})
        self._period_ns = NS_PER_S / (spec.rate_hz * len(spec.partitions)) if spec.rate_hz else 0.0
        self._resumed, self._stopped = False, False
        self._due_ns, self._turn = 0.0, 0
        self._asked: deque[PartitionName] = deque()
        self._asked_by: deque[tuple[int, int]] = deque()
        self._asked_count = self._asked_done = 0
        self._finish_by_ns: int | None = None

    def run(self) -> None:
        """Until `stop`, or until `finish` and every delivery report has come, or its limit has."""
        while not self._done():
            for command in self._client.control.commands():
                self._obey(command)
            now_ns = self._now_ns()
            self._client.heartbeat(now_ns)
            self._issue_asked()
            wait_s = 0.0 if self._asked else self._issue_due(now_ns)
            self._client.serve(self._producer.poll, wait_s)
            if self._client.fatal is not None:
                self._drain_dead()
        if not self._stopped and str(self._spec.properties.get("acks")) == "0":
            self._wait_until_handled()

    def issued(self) -> int:
        """Rows of `sends`: each is one sequence."""
        return self._sends.count

    def close(self) -> None:
        """Flush `sends` and `withheld`."""
        self._sends.close()
        self._withheld.close()

    # --- commands ---------------------------------------------------------------------------------------------------

    def _obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "resume":
                self._resumed, self._due_ns = True, float(self._now_ns())
            case "pause":
                self._resumed = False
                self._withheld.end_all()
            case "send":
                return self._ask(command)
            case "finish":
                self._resumed = False
                self._asked.clear()
                self._finish_by_ns = self._now_ns() + int(command["timeout_s"] * NS_PER_S)
            case "stop":
                self._stopped = True
            case unknown:
                raise AssertionError(unknown)
        self._client.control.tell("done", number=command["number"])

    def _ask(self, command: dict[str, Any]) -> None:
        """Answered once everything asked for has been issued."""
        chosen = set(command["partitions"])
        round_ = [partition for partition in self._spec.partitions if partition[0] in chosen]
        self._asked.extend(round_ * command["count"])
        self._asked_count += len(round_) * command["count"]
        self._asked_by.append((self._asked_count, command["number"]))

    def _done(self) -> bool:
        if self._stopped or self._finish_by_ns is None:
            return self._stopped
        return not any(self._in_flight.values()) or self._now_ns() >= self._finish_by_ns

    # --- issuing ----------------------------------------------------------------------------------------------------

    def _issue_asked(self) -> None:
        count = min(ISSUE_MAX, len(self._asked))
        if count:
            self._issue([self._asked.popleft() for _ in range(count)])
            self._asked_done += count
        while self._asked_by and self._asked_by[0][0] <= self._asked_done:
            self._client.control.tell("done", number=self._asked_by.popleft()[1])

    def _issue_due(self, now_ns: int) -> float:
        """Issue what the rate owes until now, and return how long to wait for the next, in seconds."""
        if not self._resumed or not self._period_ns:
            return POLL_S
        self._due_ns = max(self._due_ns, now_ns - CATCH_UP_NS)
        if self._due_ns <= now_ns:
            count = min(ISSUE_MAX, int((now_ns - self._due_ns) / self._period_ns) + 1)
            partitions, turn = self._spec.partitions, self._turn
            self._issue(partitions[(turn + i) % len(partitions)] for i in range(count))
            self._turn = (turn + count) % len(partitions)
            self._due_ns += count * self._period_ns
        return min(POLL_S, max(0.0, (self._due_ns - now_ns) / NS_PER_S))

    def _issue(self, turns: Iterable[PartitionName]) -> None:
        """One record for each turn, recorded before it is attempted."""
        in_flight, now_ns, encode, produce = self._in_flight, self._now_ns, self._encode, self._producer.produce
        append, size, cap, holding = (
            self._sends.append,
            self._spec.value_bytes,
            self._spec.unacknowledged_max,
            self._withheld,
        )
        sequence = self._sends.count
        for dense, topic, number in turns:
            if in_flight[dense] >= cap:
                holding.hold(dense)
                continue
            if holding.open:
                holding.release(dense)
            append(now_ns(), MISSING, NONE, sequence, NONE, NONE, dense, 0, 0, size)
            try:
                produce(topic, encode(dense, sequence), None, number)
                in_flight[dense] += 1
            except BufferError:
                self._refused(sequence, KafkaError._QUEUE_FULL)
                self._client.serve(self._producer.poll, 0)
            except KafkaException as error:
                self._refused(sequence, error.args[0].code())
                if error.args[0].fatal() or error.args[0].code() in INSTANCE_IS_DEAD:
                    self._client.fatal = self._client.fatal or error.args[0].str()
                    return
            sequence += 1

    def _refused(self, sequence: int, code: int) -> None:
        """produce() raised: the record never entered the client's queue, so it certainly failed."""
        complete_refused(self._sends, sequence, code=code, completed_ns=self._now_ns())

    def _settled(self, partition: int, error: KafkaError | None) -> None:
        self._in_flight[partition] -= 1
        self._reported[partition] += error is None
        if error is not None and (error.fatal() or error.code() in INSTANCE_IS_DEAD):
            self._client.fatal = self._client.fatal or f"{error.name()}: {error.str()}"

    def _wait_until_handled(self) -> None:
        """Stay connected until the brokers have handled what acks=0 only put into sockets.

        A broker that is behind may find, among the produce requests, one that it answers. If this process has ended by then,
        its kernel resets the connection, and the broker drops everything behind that request: lost by us and not by Kafka
        (seen without any fault: the last 1.7 s of a partition). No answer tells when it has caught up; so look until the
        partitions hold as many records as were sent, or have not grown for a while, because some were really lost.
        """
        offsets, began_ns = Offsets(self._client), self._now_ns()
        last: dict[int, int] = {}
        grown_ns = began_ns
        while (now_ns := self._now_ns()) - began_ns < HANDLED_LIMIT_NS and now_ns - grown_ns < HANDLED_QUIET_NS:
            ends = {dense: found.offset for dense, found in offsets.latest().items()}
            if all(ends.get(dense, 0) >= count for dense, count in self._reported.items()):
                return
            if ends != last:
                last, grown_ns = ends, self._now_ns()
            self._client.serve(self._producer.poll, HANDLED_INTERVAL_S)
            self._client.heartbeat(self._now_ns())

    def _drain_dead(self) -> None:
        """The instance is dead. What it still reports is recorded; everything else stays INFO."""
        until_ns = self._now_ns() + FATAL_DRAIN_NS
        while any(self._in_flight.values()) and self._now_ns() < until_ns:
            self._client.serve(self._producer.poll, POLL_S)
            self._client.heartbeat(self._now_ns())
        raise FatalClient(self._client.fatal)
