"""An object store that answers late is waited for."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from prozess.harness.history.store import stored_run

STILL_S = 4.0
"""Longer than the AWS SDK waits by itself, which is 3 s."""


class Late(BaseHTTPRequestHandler):
    """An S3 store with one object, which answers the first request after STILL_S seconds."""

    ended = threading.Event()
    requests = 0

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(b"whole")

    def _answer(self, body: bytes) -> None:
        Late.requests += 1
        if Late.requests == 1:
            self.ended.wait(STILL_S)
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.send_header("Last-Modified", "Sat, 28 Nov 2026 22:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def store(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Late)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "some",
        "AWS_SECRET_ACCESS_KEY": "thing",
        "AWS_REGION": "eu-west-1",
    }.items():
        monkeypatch.setenv(name, value)
    yield
    Late.ended.set()
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_a_store_that_stands_still_for_some_seconds_is_asked_once_and_waited_for(store):
    found = stored_run("s3a://bucket/run")
    with found.filesystem.open_input_stream(f"{found.directory}/file") as stream:
        assert stream.read() == b"whole"
    assert Late.requests == 2, "one for the size, one for the content"
