"""The numbers of a watch as text, and the endpoint, which nobody can hold for long."""

import socket
import urllib.error
import urllib.request

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.clock import SystemClock
from prozess.harness.errors import BadInput
from prozess.watch import metrics_endpoint
from prozess.watch.metrics_endpoint import (
    BOUNDS_S,
    Endpoint,
    Histogram,
    PrometheusMetric,
    answer_to,
    parse_address,
    text_of,
)

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def endpoint():
    made = Endpoint(("127.0.0.1", 0), lambda: "up 1\n", SystemClock())
    yield made
    made.close()


def test_the_text_has_help_type_and_one_line_for_each_sample():
    made = PrometheusMetric("a_total", "counter", 'what\n"it" is', [("", {}, 3), ("", {"b": 'x"\\\n'}, 0.25)])
    assert text_of([made]) == (
        '# HELP a_total what\\n"it" is\n# TYPE a_total counter\na_total 3\na_total{b="x\\"\\\\\\n"} 0.25\n'
    )


@given(values=st.lists(st.floats(0, 100)))
def test_the_buckets_of_a_histogram_count_what_is_at_most_their_bound(values):
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    samples = histogram.samples({})
    buckets = {labels["le"]: count for suffix, labels, count in samples if suffix == "_bucket"}
    assert buckets == {str(bound): sum(v <= bound for v in values) for bound in BOUNDS_S} | {"+Inf": len(values)}
    assert samples[-1] == ("_count", {}, len(values))


@pytest.mark.parametrize(
    ("text", "address"),
    [("9464", ("127.0.0.1", 9464)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:80", ("::1", 80)), ("0", ("127.0.0.1", 0))],
)
def test_an_address_without_a_host_is_loopback(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "x", ":80", "host:", "70000", "-1", "1.2.3.4", "٣"])
def test_what_is_no_port_is_refused_with_the_way_out(text):
    with pytest.raises(BadInput, match="Give one, such as 9464"):
        parse_address(text)


def test_the_endpoint_serves_the_text(endpoint):
    with urllib.request.urlopen("http://{}:{}/metrics".format(*endpoint.address), timeout=5) as answer:
        assert answer.read() == b"up 1\n"
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")


def test_everything_else_is_not_found(endpoint):
    with pytest.raises(urllib.error.HTTPError, match="404") as raised:
        urllib.request.urlopen("http://{}:{}/".format(*endpoint.address), timeout=5)
    raised.value.close()


def test_whoever_asks_slowly_is_given_up_and_the_next_is_answered(monkeypatch):
    monkeypatch.setattr(metrics_endpoint, "ANSWER_LIMIT_S", 0.2)
    endpoint = Endpoint(("127.0.0.1", 0), lambda: "up 1\n", SystemClock())
    try:
        with socket.create_connection(endpoint.address, 5) as slow:
            slow.sendall(b"GET /met")
            with socket.create_connection(endpoint.address, 5) as next_one:
                next_one.sendall(GET)
                assert next_one.recv(4096).startswith(b"HTTP/1.1 200 OK")
            assert slow.recv(1) == b""
    finally:
        endpoint.close()


def test_an_endless_request_is_refused(endpoint):
    with socket.create_connection(endpoint.address, 5) as connection:
        connection.sendall(b"x" * metrics_endpoint.REQUEST_BYTES_MAX)
        assert connection.recv(4096).startswith(b"HTTP/1.1 400")


def test_an_address_that_is_in_use_is_refused_with_the_way_out(endpoint):
    with pytest.raises(BadInput, match="Give another port"):
        Endpoint(endpoint.address, lambda: "", SystemClock())


def test_the_endpoint_ends_at_once_and_may_be_ended_twice(endpoint):
    endpoint.close()
    endpoint.close()
    assert not endpoint._thread.is_alive()


def test_head_is_answered_without_a_body_and_post_is_refused():
    head, _, body = answer_to(b"HEAD /metrics HTTP/1.1\r\n\r\n", lambda: "up 1\n").partition(b"\r\n\r\n")
    assert (b"Content-Length: 5" in head, body) == (True, b"")
    assert answer_to(b"POST /metrics HTTP/1.1\r\n\r\n", str).startswith(b"HTTP/1.1 405")


@given(request=st.binary(max_size=200))
def test_every_request_has_an_answer(request):
    assert answer_to(request + b"\r\n\r\n", lambda: "up 1\n").startswith(b"HTTP/1.1 ")
