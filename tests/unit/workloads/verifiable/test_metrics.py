"""What Java tools say of themselves: asked without ever waiting, absent whenever they do not answer."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.recording.metrics import METRICS, code_of
from prozess.harness.recording.rows import read_rows
from prozess.harness.recording.verifiable_output import parse_event
from prozess.harness.schema import METRICS as TABLE
from prozess.workloads.metrics import ATTRIBUTES, HOST, INTERVAL_PROPERTY, JavaMetrics, Statistics

S = 1_000_000_000
PRODUCER = "kafka.producer:type=producer-metrics,client-id="


@contextmanager
def agent(answer: Callable[[list[dict[str, Any]]], object]) -> Iterator[int]:
    """A real HTTP server on a free port that answers as Jolokia does. `answer`: reads in, answers out."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(answer(asked)).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class Bench:
    """Metrics of one tool, on a clock that a test sets."""

    def __init__(self, directory: Path, kind: str = "producer", *, wanted: bool = True) -> None:
        self.directory, self.now_ns = directory, 10 * S
        properties = {INTERVAL_PROPERTY: 1000} if wanted else {}
        self._statistics = Statistics(
            directory, client=3, properties=properties, partitions={}, now_ns=lambda: self.now_ns
        )
        self.metrics = JavaMetrics(kind, self._statistics, lambda: self.now_ns)

    def hears(self, port: int) -> None:
        """The line with which the agent says where it listens."""
        line = f"Jolokia: Agent 2.5.1 started with URL http://127.0.0.1:{port}/jolokia and PID 7"
        assert self.metrics.heard(parse_event)(line.encode()) is None

    def told(self, metric: str) -> list[tuple[int, float | None]]:
        """(time, value) of each row so far."""
        rows, torn = read_rows(self.directory, TABLE, 3)
        assert torn == 0
        mine = rows[rows["metric"] == code_of(metric)]
        values = np.where(mine["absent"] == 1, None, mine["value_micro"] / 1e6)
        return list(zip(mine["time_ns"].tolist(), values.tolist(), strict=True))

    def turns_until(self, count: int, metric: str) -> None:
        """Turn in real time, the trial's clock standing still, until there are so many rows."""

        def enough() -> bool:
            self.metrics.turn()
            return len(self.told(metric)) >= count

        self.metrics.turn()
        wait_until(enough, awaited=f"{count} rows", timeout_s=10, clock=SystemClock(), interval_s=0.005)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.metrics.close()


def by_pattern(told: dict[str, dict[str, object]]) -> Callable[[list[dict[str, Any]]], object]:
    """Answers to reads of patterns: `told` is MBean → attributes."""

    def answers(asked: list[dict[str, Any]]) -> object:
        found = []
        for read in asked:
            names = read["mbean"].removesuffix("*")
            value = {m: {a: v for a, v in of.items() if a in read["attribute"]} for m, of in told.items() if names in m}
            found.append({"status": 200, "value": value} if value else {"status": 404, "error": "none"})
        return found

    return answers


def test_every_metric_of_java_clients_is_asked_of_one_kind_of_tool() -> None:
    asked = [attribute.metric for attributes in ATTRIBUTES.values() for attribute in attributes]
    assert sorted(asked) == sorted(metric.name for metric in METRICS if metric.name.startswith("java_"))


def test_what_the_tool_measured_is_told_and_what_it_did_not_yet_is_absent(bench: Bench) -> None:
    of: dict[str, object] = {
        "record-error-total": -1.0,
        "record-retry-total": 7.0,
        "request-latency-avg": None,
        "record-send-rate": "NaN",
        "record-send-total": 2.5,
    }
    with agent(by_pattern({f'{PRODUCER}"a/b"': of})) as port:
        bench.hears(port)
        bench.turns_until(1, "java_record_retries")
    assert bench.told("java_record_retries") == [(10 * S, 7.0)]
    assert bench.told("java_records_sent") == [(10 * S, 2.5)]
    for unknown in ("java_request_latency_avg", "java_record_send_rate", "java_record_errors"):
        assert bench.told(unknown) == [(10 * S, None)]


def test_two_clients_in_one_tool_are_not_taken_for_one(bench: Bench) -> None:
    with agent(by_pattern({f"{PRODUCER}{n}": {"record-retry-total": 7.0} for n in (1, 2)})) as port:
        bench.hears(port)
        bench.turns_until(1, "java_record_retries")
    assert bench.told("java_record_retries") == [(10 * S, None)]


def test_a_question_is_asked_once_a_second_and_not_more_often(bench: Bench) -> None:
    with agent(by_pattern({f"{PRODUCER}a": {"record-retry-total": 7.0}})) as port:
        bench.hears(port)
        for second in range(3):
            bench.turns_until(second + 1, "java_record_retries")
            for _ in range(5):
                bench.now_ns += S // 5
                if bench.now_ns % S:
                    bench.metrics.turn()
    assert [time_ns // S for time_ns, _ in bench.told("java_record_retries")] == [10, 11, 12]


def test_a_tool_that_is_not_up_yet_is_absent_every_second(bench: Bench) -> None:
    for _ in range(12):
        bench.metrics.turn()
        bench.now_ns += S // 4
    assert bench.told("java_record_errors") == [(second * S, None) for second in (10, 11, 12)]


def test_a_tool_that_stands_still_is_absent_and_nobody_waits_for_it(bench: Bench) -> None:
    with socket.create_server((HOST, 0)) as frozen:  # the kernel accepts for it, as for a JVM that was stopped
        bench.hears(frozen.getsockname()[1])
        for _ in range(40):  # 10 s; would any turn wait, the test would not end
            bench.metrics.turn()
            bench.now_ns += S // 4
    assert bench.told("java_record_errors") == [(int(at_s * S), None) for at_s in (10.5, 13.5, 16.5)]


def test_a_tool_whose_agent_is_gone_or_answers_nonsense_is_absent(bench: Bench) -> None:
    with socket.create_server((HOST, 0)) as closed:
        gone = closed.getsockname()[1]
    bench.hears(gone)
    bench.turns_until(1, "java_record_errors")
    bench.now_ns += S
    with agent(lambda _: {"no": "list"}) as port:
        bench.hears(port)
        bench.turns_until(2, "java_record_errors")
    assert bench.told("java_record_errors") == [(10 * S, None), (11 * S, None)]


def test_a_tool_that_died_is_absent_from_then_on(bench: Bench) -> None:
    with agent(by_pattern({f"{PRODUCER}a": {"record-retry-total": 7.0}})) as port:
        bench.hears(port)
        bench.turns_until(1, "java_record_retries")
    bench.now_ns += S // 3
    bench.metrics.absent()
    assert bench.told("java_record_retries")[-1] == (10 * S + S // 3, None)


def test_nothing_is_written_where_no_metrics_are_wanted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, wanted=False)
    bench.metrics.turn()
    assert not list(tmp_path.iterdir())
