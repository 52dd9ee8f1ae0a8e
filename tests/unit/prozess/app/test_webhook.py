"""What is posted to a webhook, by a real HTTP server on this machine: a message per violation and one at the end."""

import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.app import webhook
from prozess.app.conduct import TrialOutcome, conduct_and_notify
from prozess.app.run_options import RunOptions
from prozess.app.run_process import StopRequest, run_trial_command
from prozess.app.webhook import VARIABLE, Webhook, message, posting_failure, verdict_message, webhook_of
from prozess.campaigns.campaign_runner import run_campaign
from prozess.harness.clock import SystemClock
from prozess.harness.errors import BadInput, HarnessFailed
from prozess.harness.exit_codes import ExitCode
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import TrialVerdict, Verdict
from tests.support.campaigns import a_campaign, begun_in
from tests.unit.prozess.campaigns.test_campaign_runner import RUN

SECRET = "T0K3N"


class Server:
    """Takes messages. `answers`: the status codes of the next ones; 200 when they are used up."""

    def __init__(self, url):
        self.url, self.texts, self.kinds, self.answers, self.paths = url, [], [], [], []


@contextmanager
def serving():
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.kinds.append(self.headers["Content-Type"])
            server.paths.append(self.path)
            server.texts.append(json.loads(body)["text"])
            code = server.answers.pop(0) if server.answers else 200
            self.send_response(code)
            if 300 <= code < 400:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{http.server_port}/services/{SECRET}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join(10)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(webhook, "_BACKOFF_S", 0)
    with serving() as started:
        yield started


@pytest.fixture
def hook(server):
    return Webhook(server.url, "a machine")


def verdict(kind=Verdict.VIOLATED, sentence="Violated: 3 <lost> & gone."):
    return TrialVerdict(verdict=kind, sentence=sentence, trial="t", title="", seed=3, cells=())


def test_a_message_is_slacks_json_with_the_text_alone(server, hook):
    assert hook.post("hello – ✗")
    assert (server.texts, server.kinds) == (["hello – ✗"], ["application/json"])


def test_what_is_not_taken_is_posted_again_and_then_said_without_the_secret(server, hook, capsys):
    server.answers = [503, 429]
    assert hook.post("third time")
    assert len(server.texts) == 3
    server.answers = [404]
    assert not hook.post("nowhere")
    server.answers = [503] * 9
    assert not hook.post("never")
    said = capsys.readouterr().err
    assert said.count("prozess: the webhook at 127.0.0.1 did not take the message: it answered") == 2
    assert SECRET not in said + repr(hook)


def test_a_redirection_is_not_followed(server, hook, capsys):
    server.answers = [302]
    assert not hook.post("here")
    assert all(SECRET in path for path in server.paths)
    assert "it answered 302" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_said_and_no_error(capsys, monkeypatch):
    monkeypatch.setattr(webhook, "_BACKOFF_S", 0)
    with serving() as gone:
        pass
    assert not Webhook(gone.url, "a machine").post("hello")
    said = capsys.readouterr().err
    assert "did not take the message: ConnectionError" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    "url", ["hooks.example.org/x", "ftp://host/x", "http://", "http://host:port/x", "http://[::1/x"]
)
def test_what_is_no_address_is_refused_without_being_shown(url):
    with pytest.raises(BadInput, match="--webhook is no address of a webhook") as error:
        webhook_of(url, {})
    assert url not in str(error.value)
    with pytest.raises(BadInput, match=f"{VARIABLE} is no address of a webhook"):
        webhook_of(None, {VARIABLE: url})


def test_the_option_has_the_last_word_and_no_child_inherits_the_secret():
    environment = {VARIABLE: "https://one.example.org/x"}
    assert webhook_of(None, environment).url == "https://one.example.org/x"
    assert environment == {}
    environment = {VARIABLE: "https://one.example.org/x"}
    assert webhook_of("https://two.example.org/x", environment).url == "https://two.example.org/x"
    assert environment == {}
    assert webhook_of(None, {}) is None


@given(st.text(), st.lists(st.text(), max_size=3))
def test_no_text_of_a_run_is_a_mark_of_slack_or_makes_a_message_too_long(host, lines):
    text = message("*held* smoke", lines, host)
    assert len(text) <= webhook._TEXT_MAX
    assert not set("<>") & set(text)


def test_a_verdict_says_what_and_where():
    text = verdict_message("smoke, seed 3", verdict(), Path("/runs/smoke-3"), "a machine")
    assert text.splitlines() == [
        "✗ *violated* smoke, seed 3 (prozess on a machine)",
        "Violated: 3 &lt;lost&gt; &amp; gone.",
        "run: /runs/smoke-3",
        "again: prozess replay /runs/smoke-3",
    ]


def test_a_run_posts_its_verdict_and_keeps_its_exit_code(server, hook, monkeypatch, tmp_path, plan):
    run = RunDirectory(tmp_path / "smoke-1")
    server.answers = [404]
    for kind, code in ((Verdict.VIOLATED, 1), (Verdict.HELD, 0), (Verdict.UNKNOWN, 2)):
        conducted = TrialOutcome(run, code, verdict(kind, "A sentence."))
        monkeypatch.setattr("prozess.app.conduct.conduct_trial", lambda *_, done=conducted: done)
        assert conduct_and_notify(plan, OPTIONS, hook) == code
    assert [text.split(" (")[0] for text in server.texts] == [
        "✗ *violated* small, seed 1",
        "✓ *held* small, seed 1",
        "? *unknown* small, seed 1",
    ]


def test_a_run_without_a_verdict_posts_that_it_failed(server, hook, monkeypatch, tmp_path, plan):
    conducted = TrialOutcome(RunDirectory(tmp_path / "smoke-1"), 255)
    monkeypatch.setattr("prozess.app.conduct.conduct_trial", lambda *_: conducted)
    assert conduct_and_notify(plan, OPTIONS, hook) == 255
    (text,) = server.texts
    assert text.startswith("? *failed* small, seed 1")
    assert "exit code 255" in text


def test_an_error_is_posted_and_goes_on(server, hook):
    with pytest.raises(HarnessFailed), posting_failure(hook, "smoke"):
        raise HarnessFailed("There is no Java.")
    with pytest.raises(KeyboardInterrupt), posting_failure(hook, "smoke"):
        raise KeyboardInterrupt
    assert [text.split(" (")[0] for text in server.texts] == ["? *failed* smoke", "? *interrupted* smoke"]
    assert "There is no Java." in server.texts[0]


def test_an_error_goes_on_without_a_webhook_too():
    with pytest.raises(HarnessFailed, match="no Java"), posting_failure(None, "smoke"):
        raise HarnessFailed("There is no Java.")


def test_a_campaign_posts_each_violation_at_once_and_its_end(server, hook, tmp_path):
    directory = begun_in(tmp_path / "campaign", a_campaign("good", "bad", rounds=1), duration_s=None)
    assert run_campaign(directory, clock=SystemClock(), runner=RUN, webhook=hook) == ExitCode.VIOLATED
    first, last = server.texts
    assert first.startswith("✗ *violated* bad, seed ")
    assert str(directory.runs) in first
    assert last.startswith("✗ *violated* ")
    assert "1 held, 1 violated" in last or "1 violated, 1 held" in last
    assert f"index: {directory.index}" in last


def test_a_trial_of_many_does_not_inherit_the_secret(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "https://one.example.org/x")
    script = f"import os, pathlib; pathlib.Path('{tmp_path}/told').write_text(str('{VARIABLE}' in os.environ))"
    words, log = [sys.executable, "-c", script], tmp_path / "log"
    assert run_trial_command(words, tmp_path, log, timeout_s=60, stop=StopRequest())[0] == 0
    assert (tmp_path / "told").read_text() == "False"


def test_a_campaign_that_ends_by_an_error_posts_why(server, hook, tmp_path):
    directory = begun_in(
        tmp_path / "campaign", a_campaign("broken", rounds=9, retries=0, failures_in_a_row_max=2), duration_s=None
    )
    with pytest.raises(HarnessFailed):
        run_campaign(directory, clock=SystemClock(), runner=RUN, webhook=hook)
    (text,) = server.texts
    assert text.startswith("? *failed* ")
    assert "2 trials in a row gave no verdict" in text


OPTIONS = RunOptions(Path("runs"), "local", 1, "auto", quiet=True, as_json=False)


@pytest.fixture
def plan():
    from prozess.harness.plan.planning import make_plan
    from prozess.harness.plan.trial_files import parse_trial
    from tests.support.small_runs import TRIAL

    return make_plan(parse_trial(TRIAL, source="test"), seed=1)


def test_the_command_refuses_an_address_before_anything_starts(monkeypatch, capsys):
    from prozess import command

    monkeypatch.setattr(sys, "argv", ["prozess", "run", "smoke", "--webhook", "nowhere"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == ExitCode.BAD_INPUT
    assert "--webhook is no address of a webhook" in capsys.readouterr().err
