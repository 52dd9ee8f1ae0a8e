"""The metrics of a watch in Prometheus's format, and the endpoint that serves them.

The text is Prometheus's text format 0.0.4. The endpoint answers one request at a time, each within a deadline. Therefore
slow or frequent clients take no memory or threads from the watch.
"""

import socket
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.errors import BadInput

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of histograms: an acknowledgement of a cluster that is well takes some milliseconds, and one that comes
within delivery.timeout.ms, 30 s at most. Records that an outage kept from the reader may take longer."""
ANSWER_LIMIT_S = 2.0
"""How long one request may take, from its first byte to the last of the answer."""
REQUEST_BYTES_MAX = 8192
BACKLOG = 8

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PrometheusMetric:
    """A metric as Prometheus' text format has it: name, kind, help text, and a line for each sample."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Sequence[tuple[str, Labels, float]]
    """(what follows the name, such as `_bucket`; labels; value)."""


PREFIX_OF_METRICS = "prozess_watch_"


def counter(name: str, help_: str, samples: Sequence[tuple[str, Labels, float]]) -> PrometheusMetric:
    """Returns a counter of the watch. `name`: without PREFIX_OF_METRICS."""
    return PrometheusMetric(PREFIX_OF_METRICS + name, "counter", help_, samples)


def gauge(name: str, help_: str, samples: Sequence[tuple[str, Labels, float]]) -> PrometheusMetric:
    """Returns a gauge of the watch. `name`: without PREFIX_OF_METRICS."""
    return PrometheusMetric(PREFIX_OF_METRICS + name, "gauge", help_, samples)


def histogram(name: str, help_: str, samples: Sequence[tuple[str, Labels, float]]) -> PrometheusMetric:
    """Returns a histogram of the watch. `name`: without PREFIX_OF_METRICS."""
    return PrometheusMetric(PREFIX_OF_METRICS + name, "histogram", help_, samples)


@dataclass(slots=True)
class Histogram:
    """Counts seconds in the bins of BOUNDS_S."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, value_s: float) -> None:
        """Counts a value in the buckets of the histogram."""
        self.counts[bisect_left(BOUNDS_S, value_s)] += 1
        self.sum_s += value_s

    def samples(self, labels: Labels) -> list[tuple[str, Labels, float]]:
        """Returns the samples of one histogram: cumulative buckets, sum and count."""
        found: list[tuple[str, Labels, float]] = []
        total = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self.counts, strict=True):
            total += count
            found.append(("_bucket", {**labels, "le": bound}, total))
        return [*found, ("_sum", labels, self.sum_s), ("_count", labels, total)]


def text_of(metrics: Iterable[PrometheusMetric]) -> str:
    """Returns metrics in Prometheus's text format."""
    lines = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escaped(metric.help, quotes=False)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for suffix, labels, value in metric.samples:
            pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.append(
                f"{metric.name}{suffix}{{{pairs}}} {_number(value)}"
                if pairs
                else f"{metric.name}{suffix} {_number(value)}"
            )
    return "\n".join(lines) + "\n"


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def parse_address(text: str) -> tuple[str, int]:
    """Turns "9464" or "0.0.0.0:9464" into (host, port). Without a host it is loopback. BadInput for anything else."""
    host, separator, port = text.rpartition(":")
    host = host.strip("[]")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535 or (separator and not host):
        raise BadInput(f"--metrics {text!r} is no port. Give one, such as 9464, or HOST:PORT, such as 0.0.0.0:9464.")
    return host or "127.0.0.1", int(port)


class Endpoint:
    """Answers GET /metrics with the text that `text` returns. One thread serves one request at a time."""

    def __init__(self, address: tuple[str, int], text: Callable[[], str], clock: Clock) -> None:
        """`text` is called by the endpoint's thread. BadInput if the address cannot be used."""
        self._text, self._clock = text, clock
        try:
            self._listener = socket.create_server(address, backlog=BACKLOG)
        except OSError as error:
            where = f"{address[0]}:{address[1]}"
            raise BadInput(
                f"--metrics {where} cannot be used: {error.strerror or error}. Give another port."
            ) from error
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        """The address that it listens on, with the real port if 0 was asked for."""
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the endpoint. It is safe to call this twice."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, which close() would not
        self._listener.close()
        self._thread.join(ANSWER_LIMIT_S * 2)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):  # the client may disconnect, or be too slow
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        deadline_ns = self._clock.monotonic_ns() + int(ANSWER_LIMIT_S * NS_PER_S)
        asked = b""
        while b"\r\n\r\n" not in asked and len(asked) < REQUEST_BYTES_MAX:
            connection.settimeout(self._left_s(deadline_ns))
            got = connection.recv(REQUEST_BYTES_MAX - len(asked))
            if not got:
                return
            asked += got
        answer = answer_to(asked, self._text)
        connection.settimeout(self._left_s(deadline_ns))
        connection.sendall(answer)

    def _left_s(self, deadline_ns: int) -> float:
        left_s = (deadline_ns - self._clock.monotonic_ns()) / NS_PER_S
        if left_s <= 0:
            raise TimeoutError("no time left")
        return left_s


def answer_to(request: bytes, text: Callable[[], str]) -> bytes:
    """Returns the answer of HTTP/1.1 to a request, of which the first line matters."""
    words = request.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return _answer(400, "Bad Request", "This is no request of HTTP/1.1.\n")
    if words[0] not in (b"GET", b"HEAD"):
        return _answer(405, "Method Not Allowed", "Only GET is answered.\n")
    if words[1].split(b"?", 1)[0] != b"/metrics":
        return _answer(404, "Not Found", "Only /metrics is here.\n")
    return _answer(200, "OK", text(), body=words[0] == b"GET", kind="text/plain; version=0.0.4; charset=utf-8")


def _answer(code: int, reason: str, text: str, *, body: bool = True, kind: str = "text/plain; charset=utf-8") -> bytes:
    content = text.encode()
    head = f"HTTP/1.1 {code} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (content if body else b"")
