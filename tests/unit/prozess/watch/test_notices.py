"""What is posted to a webhook, and that whoever takes the messages never holds up the watch."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from prozess.app.webhook import Webhook
from prozess.harness.clock import SystemClock, wait_until
from prozess.watch import notices as module
from prozess.watch.notices import LINES_MAX, Notices, title_of

LIMIT_S = 20


@contextmanager
def serving(*, code=200):
    """A server, the messages that it was given, and an event without which it does not answer."""
    texts, let = [], threading.Event()
    let.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert body.keys() == {"text"}
            let.wait(LIMIT_S)
            texts.append(body["text"])
            self.send_response(code)
            self.end_headers()

        def log_message(self, *_):
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/s3cret", texts, let
    finally:
        let.set()
        http.shutdown()
        http.server_close()
        thread.join(LIMIT_S)


def test_lines_that_wait_together_are_one_message_and_the_worst_names_it(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    with serving() as (url, texts, let):
        let.clear()
        notices = Notices(Webhook(url, "here"), "prozess watch of cluster x")
        notices.put("OVER", "first")
        wait_until(lambda: not notices._lines, awaited="the first message", timeout_s=LIMIT_S, clock=SystemClock())
        notices.put("UNKNOWN", "second <")
        notices.put("OUTAGE", "third")
        let.set()
        assert notices.close(LIMIT_S)
    assert texts == [
        "✓ *OVER* prozess watch of cluster x (prozess on here)\nfirst",
        "✗ *OUTAGE* prozess watch of cluster x (prozess on here)\nsecond &lt;\nthird",
    ]
    assert (notices.posted, notices.failed, notices.dropped) == (2, 0, 0)


def test_whoever_does_not_answer_holds_nothing_up_and_too_many_lines_are_dropped_and_counted():
    with serving() as (url, _, let):
        let.clear()
        notices = Notices(Webhook(url, "here"), "x")
        notices.put("OUTAGE", "first")
        wait_until(lambda: not notices._lines, awaited="the first message", timeout_s=LIMIT_S, clock=SystemClock())
        for number in range(LINES_MAX + 7):
            notices.put("OUTAGE", str(number))
        assert (len(notices._lines), notices.dropped) == (LINES_MAX, 7)
        assert not notices.close(0.05)
        let.set()
        notices._thread.join(LIMIT_S)


def test_a_message_that_nobody_takes_is_counted_and_its_address_is_not_shown(monkeypatch, capsys):
    monkeypatch.setattr("prozess.app.webhook.TRIES", 1)
    with serving(code=400) as (url, _, _let):
        notices = Notices(Webhook(url, "here"), "x")
        notices.put("OUTAGE", "first")
        assert notices.close(LIMIT_S)
    assert (notices.posted, notices.failed) == (0, 1)
    assert "s3cret" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kinds", "title"),
    [({"OVER", "UNREADABLE"}, "✗ *UNREADABLE* x"), ({"UNKNOWN"}, "? *UNKNOWN* x"), (set(), "*note* x")],
)
def test_the_worst_line_names_a_message(kinds, title):
    assert title_of(kinds, "x") == title
