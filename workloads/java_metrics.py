"""What a Java client says of itself, once a second: the client process that runs a tool asks the metrics agent in the tool's
JVM, over loopback, which no fault touches, and writes the answers as rows of `metrics`.

The process has one thread and must not wait for a JVM that stands still. So an exchange is a few steps that never block,
one with every turn of its loop, and takes the answer when it is there.
"""

import json
import re
import socket
from collections.abc import Callable
from typing import Any

from harness.jolokia import HEADERS, PATH, Attribute, reads, values
from harness.verifiable_events import Parse
from workloads.statistics import Statistics

HOST = "127.0.0.1"
PERIOD_NS = 1_000_000_000
ANSWER_LIMIT_NS = 3_000_000_000
"""A starved machine's answer may be late; a JVM that stands still answers never."""
ABSENT_AFTER_NS = 500_000_000
"""Who did not answer is absent from so long after the question on, as servers are."""
ANSWER_BYTES_MAX = 1 << 20
_CHUNK_BYTES = 1 << 16
_STARTED = re.compile(rb"Jolokia: Agent \S+ started with URL http://[^/]*:(\d+)/")
"""Which port the agent took, since it was told to take a free one. It says so on standard output, before main() begins."""

_PRODUCER, _FETCH, _GROUP = (
    f"kafka.{kind}:type={group}-metrics,client-id=*"
    for kind, group in (
        ("producer", "producer"),
        ("consumer", "consumer-fetch-manager"),
        ("consumer", "consumer-coordinator"),
    )
)
"""Patterns: a tool has one client, whose id stands quoted in the name if it has to."""
_OF_PRODUCER = (
    Attribute("java_record_error_rate", _PRODUCER, "record-error-rate"),
    Attribute("java_record_retry_rate", _PRODUCER, "record-retry-rate"),
    Attribute("java_record_send_rate", _PRODUCER, "record-send-rate"),
    Attribute("java_record_errors", _PRODUCER, "record-error-total"),
    Attribute("java_record_retries", _PRODUCER, "record-retry-total"),
    Attribute("java_records_sent", _PRODUCER, "record-send-total"),
    Attribute("java_request_latency_avg", _PRODUCER, "request-latency-avg"),
    Attribute("java_request_latency_max", _PRODUCER, "request-latency-max"),
)
_OF_CONSUMER = (
    Attribute("java_records_lag_max", _FETCH, "records-lag-max"),
    Attribute("java_records_consumed_rate", _FETCH, "records-consumed-rate"),
    Attribute("java_records_consumed", _FETCH, "records-consumed-total"),
    Attribute("java_commits", _GROUP, "commit-total"),
    Attribute("java_commit_latency_max", _GROUP, "commit-latency-max"),
    Attribute("java_rebalances", _GROUP, "rebalance-total"),
    Attribute("java_failed_rebalances", _GROUP, "failed-rebalance-total"),
    Attribute("java_rebalance_latency_max", _GROUP, "rebalance-latency-max"),
    Attribute("java_assigned_partitions", _GROUP, "assigned-partitions"),
    Attribute("java_last_heartbeat", _GROUP, "last-heartbeat-seconds-ago"),
)
ATTRIBUTES: dict[str, tuple[Attribute, ...]] = {"producer": _OF_PRODUCER, "consumer": _OF_CONSUMER}
"""By kind of tool. Names: https://kafka.apache.org/documentation/#producer_monitoring and what follows it."""


class JavaMetrics:
    """Of the tool of one client. From its first turn on there is a row of each metric every second; absent until the tool's
    JVM is up, while it stands still, and for what it has not measured yet. A late answer takes the place
    of the next."""

    def __init__(self, kind: str, statistics: Statistics, now_ns: Callable[[], int]) -> None:
        """`kind`: of ATTRIBUTES."""
        self._attributes, self._statistics, self._now_ns = ATTRIBUTES[kind], statistics, now_ns
        body = json.dumps(reads(self._attributes)).encode()
        headers = "".join(f"{k}: {v}\r\n" for k, v in {**HEADERS, "Content-Length": str(len(body))}.items())
        # With HTTP/1.0 the answer is plain and ends with the connection.
        self._request = f"POST {PATH} HTTP/1.0\r\n{headers}\r\n".encode() + body
        self._port: int | None = None
        self._due_ns = self._asked_ns = 0
        self._connection: socket.socket | None = None
        self._answer, self._unsent = b"", b""

    def heard(self, parse: Parse) -> Parse:
        """`parse`, which also hears the agent say where it listens."""

        def both(line: bytes) -> dict[str, Any] | None:
            if found := _STARTED.match(line):
                self._port = int(found[1])
            return parse(line)

        return both

    def turn(self) -> None:
        """Go on, without ever waiting; to be called often."""
        now_ns = self._now_ns()
        if self._connection is not None:
            self._go_on()
        if self._connection is not None and now_ns - self._asked_ns >= ANSWER_LIMIT_NS:
            self.close()
            self._absent(self._asked_ns + ABSENT_AFTER_NS)
        if self._connection is None and now_ns >= self._due_ns:
            late = now_ns - self._due_ns >= PERIOD_NS
            self._due_ns = (now_ns if late else self._due_ns) + PERIOD_NS
            self._ask(now_ns)

    def absent(self) -> None:
        """From now on it tells nothing: the tool is gone."""
        self.close()
        self._absent(self._now_ns())

    def close(self) -> None:
        """Drop what is under way."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, now_ns: int) -> None:
        if self._port is None:
            self._absent(now_ns)
            return
        self._asked_ns, self._answer, self._unsent = now_ns, b"", self._request
        self._connection = socket.socket()
        self._connection.setblocking(False)
        self._connection.connect_ex((HOST, self._port))  # how it went is told by the first send
        self._go_on()

    def _go_on(self) -> None:
        assert self._connection is not None
        try:
            while self._unsent:
                self._unsent = self._unsent[self._connection.send(self._unsent) :]
            while chunk := self._connection.recv(_CHUNK_BYTES):
                self._answer += chunk
                if len(self._answer) > ANSWER_BYTES_MAX:
                    break
        except BlockingIOError:
            return
        except OSError:
            self._answer = b""
        self.close()
        self._take()

    def _take(self) -> None:
        answers = _answers(self._answer)
        if answers is None:
            self._absent(self._now_ns())
        else:
            told = values(self._attributes, answers)  # -1: never yet (AbstractCoordinator, last-heartbeat-seconds-ago)
            positive = {metric: value if value is not None and value >= 0 else None for metric, value in told.items()}
            self._statistics.samples(positive, time_ns=self._now_ns())

    def _absent(self, time_ns: int) -> None:
        self._statistics.samples({attribute.metric: None for attribute in self._attributes}, time_ns=time_ns)


def _answers(text: bytes) -> list[Any] | None:
    """Of a whole HTTP answer; None if it is none."""
    head, _, body = text.partition(b"\r\n\r\n")
    if not re.match(rb"HTTP/1\.\d 200 ", head):
        return None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(found, list) and all(isinstance(answer, dict) for answer in found)
    return found if whole else None
