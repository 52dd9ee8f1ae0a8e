"""Clients count what they do once a second: librdkafka's statistics and a Java client's metrics become rows of
`metrics`."""

import json
import re
import socket
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from prozess.harness.recording.jolokia import HEADERS, PATH, Attribute, reads, values
from prozess.harness.recording.metrics import MICRO, code_of
from prozess.harness.recording.rows import RowWriter
from prozess.harness.recording.verifiable_output import Parse
from prozess.harness.schema import METRICS, NONE

# What librdkafka counts of itself, once a second, as rows of `metrics` that the client writes itself.
#
# Fields: https://github.com/confluentinc/librdkafka/blob/master/STATISTICS.md. Counters are summed over the brokers
# the client knows; an offset below zero is not known, and what depends on it absent.


INTERVAL_MS = 1_000
INTERVAL_PROPERTY = "statistics.interval.ms"
_COUNTED = {
    "client_retries": "txretries",
    "client_request_errors": "txerrs",
    "client_timeouts": "req_timeouts",
    "client_outbound_requests": "outbuf_cnt",
}
_OF_BROKERS = ("client_known_brokers", "client_stray_partitions")
_ASKED = ("configured", "learned")
"""Brokers of these sources are asked for metadata; connections to coordinators, which are "logical", are not."""


class Statistics:
    """Writes librdkafka's statistics of one client as rows. It is off unless the client's properties ask for
    statistics."""

    def __init__(
        self,
        rows: Path,
        *,
        client: int,
        properties: Mapping[str, Any],
        partitions: Mapping[tuple[str, int], int],
        now_ns: Callable[[], int],
    ) -> None:
        self._rows, self._client, self._partitions, self._now_ns = rows, client, partitions, now_ns
        self._wanted = bool(properties.get(INTERVAL_PROPERTY))
        self._committed_only = properties.get("isolation.level", "read_committed") == "read_committed"
        self._writer: RowWriter | None = None

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callback that librdkafka is given beside the client's properties."""
        return {"stats_cb": self.record} if self._wanted else {}

    def callbacks_of_brokers(self, report: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
        """Returns the callback for a client of which only what it knows of brokers is recorded: a member's lag is its
        group's. `report` is called with each report."""
        return {"stats_cb": partial(self.record, only=_OF_BROKERS, report_to=report)} if self._wanted else {}

    def record(
        self, text: str, *, only: Collection[str] = (), report_to: Callable[[Mapping[str, Any]], None] | None = None
    ) -> None:
        """Writes what one report says, or `only` these metrics. librdkafka's poll calls it, in the client's own
        thread."""
        now_ns, report = self._now_ns(), json.loads(text)
        if report_to is not None:
            report_to(report)
        for metric, partition, value in samples(report, self._partitions, committed_only=self._committed_only):
            if not only or metric in only:
                self._append(now_ns, metric, partition, value)

    def sample(self, metric: str, value: float | None) -> None:
        """Writes one value that the client came to know otherwise, if statistics are wanted; None = not known."""
        self.samples({metric: value}, time_ns=self._now_ns())

    def samples(self, numbers: Mapping[str, float | None], *, time_ns: int) -> None:
        """Writes several values of one time on the trial's clock, if statistics are wanted."""
        for metric, value in numbers.items() if self._wanted else ():
            self._append(time_ns, metric, NONE, value)

    def _append(self, now_ns: int, metric: str, partition: int, value: float | None) -> None:
        if self._writer is None:
            self._writer = RowWriter(self._rows, METRICS, self._client)
        micro = 0 if value is None else round(value * MICRO)
        row = {"time_ns": now_ns, "value_micro": micro, "metric": code_of(metric), "node": NONE}
        row |= {"partition": partition, "absent": int(value is None)}
        self._writer.append(*(row[column.name] for column in METRICS.columns))

    def close(self) -> None:
        """Writes the rows to their end."""
        if self._writer is not None:
            self._writer.close()


def samples(
    report: Mapping[str, Any], partitions: Mapping[tuple[str, int], int], *, committed_only: bool
) -> list[tuple[str, int, float | None]]:
    """Returns (metric, dense partition or NONE, value) of each metric in one report of librdkafka. `committed_only`:
    the reader sees committed records only, so that its end is the last stable offset."""
    brokers = list(report.get("brokers", {}).values())
    trips = [broker["rtt"]["p99"] for broker in brokers if broker.get("rtt", {}).get("cnt")]
    found: list[tuple[str, int, float | None]] = [
        (metric, NONE, float(sum(broker.get(field, 0) for broker in brokers))) for metric, field in _COUNTED.items()
    ]
    waiting = sum(broker.get("waitresp_cnt", 0) for broker in brokers)
    found = [(m, p, (v or 0.0) + waiting) if m == "client_outbound_requests" else (m, p, v) for m, p, v in found]
    found.append(("client_rtt_p99", NONE, max(trips) / 1000 if trips else None))
    found.append(("client_known_brokers", NONE, float(sum(broker.get("source") in _ASKED for broker in brokers))))
    found.append(("client_stray_partitions", NONE, float(sum(map(_strays, _own(report, partitions).values())))))
    if report.get("type") == "producer":
        found.append(("client_queued_records", NONE, float(report.get("msg_cnt", 0))))
        found.append(("client_records_sent", NONE, float(report.get("txmsgs", 0))))
        return found
    found.append(("client_records_received", NONE, float(report.get("rxmsgs", 0))))
    return found + _lags(report, partitions, "ls_offset" if committed_only else "hi_offset")


def _own(report: Mapping[str, Any], partitions: Mapping[tuple[str, int], int]) -> dict[int, Mapping[str, Any]]:
    """Returns what a report says of the client's partitions, by their dense ids."""
    return {
        dense: partition
        for name, topic in report.get("topics", {}).items()
        for number, partition in topic.get("partitions", {}).items()
        if (dense := partitions.get((name, int(number)))) is not None
    }


def _strays(partition: Mapping[str, Any]) -> bool:
    """Says whether a partition is served within librdkafka by another broker (`broker`) than its leader (`leader`)."""
    broker = partition.get("broker", NONE)
    return bool(broker == NONE or broker != partition.get("leader", NONE))


def _lags(
    report: Mapping[str, Any], partitions: Mapping[tuple[str, int], int], end: str
) -> list[tuple[str, int, float | None]]:
    """Returns the lag in each partition that the client is reading. librdkafka's own `consumer_lag` counts from the
    committed offset, which a reader without a group has none of; so from the offset that the application has got
    to."""
    found: list[tuple[str, int, float | None]] = []
    for dense, partition in _own(report, partitions).items():
        if partition.get("fetch_state", "none") in ("none", "stopped"):
            continue
        end_offset, reached = partition.get(end, -1), partition.get("app_offset", -1)
        known = end_offset >= 0 and reached >= 0
        found.append(("consumer_lag", dense, float(max(0, end_offset - reached)) if known else None))
    return found


# What a Java client says of itself, once a second: the client process that runs a tool asks the metrics agent in the
# tool's JVM, over loopback, which no fault touches, and writes the answers as rows of `metrics`.
#
# The process has one thread and must not wait for a JVM that stands still. Therefore an exchange is a few steps that never
# block, one with every turn of its loop, and takes the answer when it is there.


HOST = "127.0.0.1"
PERIOD_NS = 1_000_000_000
ANSWER_LIMIT_NS = 3_000_000_000
"""How long an answer is waited for: a starved machine's may be late, and a JVM that stands still never answers."""
ABSENT_AFTER_NS = 500_000_000
"""A JVM that did not answer counts as absent from this long after the question on, as servers do."""
ANSWER_BYTES_MAX = 1 << 20
_CHUNK_BYTES = 1 << 16
_STARTED = re.compile(rb"Jolokia: Agent \S+ started with URL http://[^/]*:(\d+)/")
"""The line on standard output that says which port the agent took. It comes before main() begins."""

_PRODUCER, _FETCH, _GROUP = (
    f"kafka.{kind}:type={group}-metrics,client-id=*"
    for kind, group in (
        ("producer", "producer"),
        ("consumer", "consumer-fetch-manager"),
        ("consumer", "consumer-coordinator"),
    )
)
"""Patterns of names of MBeans: a tool has one client, whose id stands quoted in the name if it has to."""
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
"""The metrics that are read, by kind of tool. Names: https://kafka.apache.org/documentation/#producer_monitoring."""


class JavaMetrics:
    """Asks the JVM of one client's tool for its metrics. From its first turn on there is a row of each metric every
    second; absent until the tool's JVM is up, while it stands still, and for what it has not measured yet. A late
    answer takes the place of the next."""

    def __init__(self, kind: str, statistics: Statistics, now_ns: Callable[[], int]) -> None:
        """`kind`: a key of ATTRIBUTES."""
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
        """Returns `parse`, extended so that it also hears the agent say where it listens."""

        def both(line: bytes) -> dict[str, Any] | None:
            if found := _STARTED.match(line):
                self._port = int(found[1])
            return parse(line)

        return both

    def turn(self) -> None:
        """Goes on by what is possible without waiting. Call it often."""
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
        """Records that the tool is gone, and that nothing is known of it from now on."""
        self.close()
        self._absent(self._now_ns())

    def close(self) -> None:
        """Drops the exchange that is under way."""
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
        self._connection.connect_ex((HOST, self._port))  # how it went is shown by the first send
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
            answer = values(
                self._attributes, answers
            )  # -1: never yet (AbstractCoordinator, last-heartbeat-seconds-ago)
            positive = {metric: value if value is not None and value >= 0 else None for metric, value in answer.items()}
            self._statistics.samples(positive, time_ns=self._now_ns())

    def _absent(self, time_ns: int) -> None:
        self._statistics.samples({attribute.metric: None for attribute in self._attributes}, time_ns=time_ns)


def _answers(text: bytes) -> list[Any] | None:
    """Returns the answers in a whole HTTP response; None if it is none."""
    head, _, body = text.partition(b"\r\n\r\n")
    if not re.match(rb"HTTP/1\.\d 200 ", head):
        return None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(found, list) and all(isinstance(answer, dict) for answer in found)
    return found if whole else None
