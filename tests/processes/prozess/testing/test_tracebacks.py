"""What a user is shown of their own mistakes: no frame of prozess, and no line of librdkafka's between the tests."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from tests.support.paths import ROOT

_OF_OURS = re.compile(
    r"(?:^|[\s/\"])(?:harness|clusters|nemesis|workloads|checkers|prozess/testing|prozess/app)/\w[\w/]*\.py"
)
HEAD = """
NOBODY = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "socket.timeout.ms": 1000}
def the_application(client, *given, **more):
    return client(*given, **more)
"""
MISTAKES = {
    "a_wrong_value": """
def test_it(recorded_producer, monkeypatch):
    monkeypatch.setattr("prozess.testing.recorded.topics.ASK_S", 0.5)
    producer = recorded_producer({"bootstrap.servers": "127.0.0.1:1"})
    the_application(producer.produce, "orders", "x")
""",
    "a_wrong_argument": """
def test_it(recorded_producer):
    the_application(recorded_producer, {"bootstrap.servers": "127.0.0.1:1"}, 7)
""",
    "an_unknown_property": """
def test_it(recorded_consumer):
    the_application(recorded_consumer, {**NOBODY, "gruop.id": "h"})
""",
    "a_batch": """
def test_it(recorded_producer):
    the_application(recorded_producer(NOBODY | {"group.id": "x"}).produce_batch, "orders", [])
""",
    "use_after_close": """
def test_it(recorded_consumer):
    consumer = recorded_consumer(NOBODY)
    consumer.close()
    the_application(consumer.poll, 0)
""",
    "an_error_of_their_own": """
def test_it(recorded_consumer):
    consumer = recorded_consumer(NOBODY)
    consumer.close()
    try:
        the_application(consumer.poll, 0)
    except RuntimeError as error:
        raise KeyError("lost my way") from error
""",
}
SAID = {
    "a_wrong_value": "topic 'orders' cannot be looked up",
    "a_wrong_argument": "TypeError",
    "an_unknown_property": 'No such configuration property: "gruop.id"',
    "a_batch": "A recorded producer has no produce_batch",
    "use_after_close": "RuntimeError: Consumer closed",
    "an_error_of_their_own": "lost my way",
}


def run(tmp_path, source, *arguments):
    """pytest on this source in a process of its own, with the plugin, however it is installed here."""
    (tmp_path / "test_it.py").write_text(HEAD + source)
    installed = any(point.value == "prozess.testing.plugin" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "prozess.testing.plugin"]
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-c", os.devnull]
    return subprocess.run(
        [*command, "--rootdir", str(tmp_path), f"--prozess-runs={tmp_path / 'runs'}", *arguments, "test_it.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def of_ours(told):
    return [line for line in (told.stdout + told.stderr).splitlines() if _OF_OURS.search(line)]


@pytest.fixture(
    scope="module", params=["long", pytest.param("native", marks=pytest.mark.long)]
)  # two ways of one filter
def all_mistakes(request, tmp_path_factory):
    """What pytest shows of each mistake, one test each, in one style of tracebacks: name of the mistake → text."""
    source = "".join(text.replace("def test_it", f"def test_{name}") for name, text in MISTAKES.items())
    told = run(tmp_path_factory.mktemp(request.param), source, f"--tb={request.param}")
    assert f"{len(MISTAKES)} failed" in told.stdout, told.stdout
    assert not of_ours(told), told.stdout
    failures = told.stdout[: told.stdout.index("short test summary")]
    names_and_texts = re.split(r"^_+ test_(\w+) _+$", failures, flags=re.MULTILINE)[1:]
    return dict(zip(names_and_texts[::2], names_and_texts[1::2], strict=True))


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_mistake_of_the_users_is_shown_where_they_made_it_and_without_a_frame_of_prozess(all_mistakes, mistake):
    shown = all_mistakes[mistake]
    assert SAID[mistake] in shown, shown
    assert "return client(*given, **more)" in shown, "the line of the user's that led there"


def test_an_error_that_ends_a_thread_is_shown_without_a_frame_of_prozess(tmp_path):
    source = """
import threading
def test_it(recorded_consumer):
    consumer = recorded_consumer(NOBODY)
    consumer.close()
    thread = threading.Thread(target=the_application, args=(consumer.poll, 0))
    thread.start()
    thread.join()
    assert False, "so that nothing is judged"
"""
    told = run(tmp_path, source)
    assert "RuntimeError: Consumer closed" in told.stdout
    assert "return client(*given, **more)" in told.stdout
    assert not of_ours(told), told.stdout


def test_full_trace_shows_every_frame(tmp_path):
    told = run(tmp_path, MISTAKES["use_after_close"], "--full-trace")
    assert any("recorded/consumer.py" in line for line in of_ours(told)), told.stdout


def test_a_mistake_of_ours_stays_whole(tmp_path):
    source = """
def test_it(recorded_consumer, monkeypatch):
    monkeypatch.setattr("prozess.harness.interfaces.application.Registry.add_client", lambda *_: 99)
    recorded_consumer(NOBODY).subscribe(["orders"])
"""
    told = run(tmp_path, source)
    assert "KeyError: 99" in told.stdout
    assert any("interfaces/application.py" in line for line in of_ours(told)), told.stdout


def test_what_the_client_says_by_itself_is_in_the_folder_of_the_run_and_not_between_the_tests(tmp_path):
    source = """
def test_it(recorded_producer, recorded_consumer):
    producer, consumer = recorded_producer(NOBODY | {"group.id": "x"}), recorded_consumer(NOBODY)
    for _ in range(8):
        producer.poll(0.25)
        consumer.poll(0.25)
    assert False, "so that what was captured is shown"
"""
    told = run(tmp_path, source, "-s")
    assert "1 failed" in told.stdout, told.stdout
    assert "FAIL" not in (told.stdout + told.stderr).replace("FAILED", "").replace("FAILURES", ""), told.stderr
    (log,) = (tmp_path / "runs").glob("*/logs/clients.log")
    lines = log.read_text().splitlines()
    for name in ("producer", "consumer"):
        assert any(f"FAIL [rdkafka#{name}-" in line for line in lines), lines


def test_a_logger_of_the_users_is_given_the_lines(tmp_path):
    source = """
import logging
class Kept(logging.Handler):
    kept = []
    def emit(self, record): self.kept.append(record.getMessage())
def test_it(recorded_producer):
    mine = logging.getLogger("mine")
    mine.addHandler(Kept())
    producer = recorded_producer(NOBODY | {"group.id": "x"}, logger=mine)
    for _ in range(8):
        producer.poll(0.25)
    assert any("FAIL" in line for line in Kept.kept), Kept.kept
    assert False, "heard"
"""
    told = run(tmp_path, source)
    assert "AssertionError: heard" in told.stdout, told.stdout
    assert not list((tmp_path / "runs").glob("*/logs/clients.log"))
