"""TransactionalMessageCopier as a copier: how it is started, what its words mean, and a client that keeps one at work.

The tool itself needs Java and brokers (trials `java-copier`); here a small program in its place says what it would say.
"""

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.metrics import MICRO, code_of
from prozess.workloads.exactly_once.applications import (
    FAILED_MAX,
    REMAINING_NOT_KNOWN,
    launch_java_copier,
    parse_status,
)
from prozess.workloads.settings import LaunchContext
from tests.support import log_workload
from tests.support.log_workload import bench
from tests.support.tools import PRETENDED

JAVA = {"copier.client": "java", "copier.protocol": "classic-eager", "copier.members": 1}
STATUS = {"progress": "t", "totalProcessed": 7, "consumed": 7, "remaining": 3, "time": "12:00", "stage": "ProcessLoop"}


def plan_of(**base):
    document = {
        "name": "test",
        "title": "test",
        "workload": "exactly-once",
        "topics": {"partitions": 2},
        "traffic": {"rate_hz": 10},
        "isolation_levels": [],
        "base": JAVA | base,
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


def test_it_is_given_topics_group_and_a_transactional_id_of_its_place():
    plan = plan_of(**{"copier.batch": 5, "copier.transaction_timeout_ms": 9000})
    (planned,) = [c for c in plan.clients if c.role == "java-copier"]
    words = launch_java_copier(
        LaunchContext(plan=plan, planned=planned, servers="h:1", limit_s=0, toolbox=PRETENDED)
    ).options.command
    assert (
        words[words.index("org.apache.kafka.tools.TransactionalMessageCopier") - 1]
        == "/jars/4.4.0/a.jar:/jars/4.4.0/b.jar"
    )
    told = dict(pairwise(words))
    assert told["--broker-list"] == "h:1"
    assert (told["--input-topic"], told["--output-topic"]) == ("cell-000", "cell-000-copy")
    assert told["--consumer-group"] == planned.group_id
    assert told["--transactional-id"] == planned.transactional_id
    assert (told["--transaction-size"], told["--transaction-timeout"]) == ("5", "9000")
    assert {"--group-mode", "--use-group-metadata", "--enable-random-aborts"} <= set(words)


def test_what_it_records_is_nothing_so_its_copies_are_judged_as_copies_alone():
    (cell,) = plan_of().cells
    assert cell.traits == {"exactly-once"}
    assert cell.carriers == ("header", "content")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (json.dumps(STATUS).encode(), STATUS),
        (b"[2026-11-20] WARN {}", None),
        (b'{"totalProcessed": 7', None),
        (b'{"totalProcessed": 7}', None),
        (b'{"totalProcessed": true, "remaining": 3}', None),
        (b"[7, 3]", None),
        (b"", None),
    ],
)
def test_a_status_is_an_object_with_both_counts(line, status):
    assert parse_status(line) == status


@given(st.one_of(st.binary(max_size=60), st.dictionaries(st.text(max_size=3), st.integers()).map(json.dumps)))
def test_any_line_is_a_status_or_none(line):
    found = parse_status(line if isinstance(line, bytes) else line.encode())
    assert found is None or {"totalProcessed", "remaining"} <= set(found)


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """(what the tool is in this test: a program in Python; the directory where it leaves a file per start)"""
    started = tmp_path / "started"
    started.mkdir()

    def install(program):
        head = f"import json, os, pathlib, sys, time\n(pathlib.Path({str(started)!r}) / str(os.getpid())).touch()\n"
        head += "def say(n, left):\n print(json.dumps({'totalProcessed': n, 'remaining': left}), flush=True)\n"
        command = [sys.executable, "-c", head + program]
        monkeypatch.setattr("prozess.workloads.exactly_once.applications.java_command", lambda *_: (command, {}))
        monkeypatch.setattr(log_workload, "TOOLBOX", PRETENDED)
        return started

    return install


def copier_of(b):
    (client,) = [c.client for c in b.plan.clients if c.role == "java-copier"]
    return client


def metric(rows, name):
    chosen = rows[(rows["metric"] == code_of(name)) & (rows["absent"] == 0)]
    return (chosen["value_micro"] // MICRO).tolist()


def test_it_is_started_again_whenever_it_is_done_and_its_counts_add_up(tmp_path, tool):
    started = tool("say(10, 0); time.sleep(1)")
    with bench(plan_of(), tmp_path / "run") as b:
        b.until(lambda: len(list(started.iterdir())) >= 3, "a third tool")
        b.until(lambda: 20 in metric(b.rows("metrics", copier_of(b)), "copier_records"), "the sum of two")
        assert b.workload.dead_clients() == {}


def test_before_it_is_assigned_what_remains_is_not_known(tmp_path, tool):
    tool(f"say(0, {REMAINING_NOT_KNOWN}); time.sleep(600)")
    with bench(plan_of(), tmp_path / "run") as b:
        b.until(lambda: len(b.rows("metrics", copier_of(b))) == 2, "two samples")
        rows = b.rows("metrics", copier_of(b))
        assert (metric(rows, "copier_records"), metric(rows, "copier_remaining")) == ([0], [])


def test_one_that_fails_again_and_again_is_a_dead_client(tmp_path, tool):
    started = tool("sys.exit(4)")
    with bench(plan_of(), tmp_path / "run") as b:
        b.until(lambda: bool(b.workload.dead_clients()), "its end")
        (told,) = b.workload.dead_clients().values()
        assert f"the tool ended {FAILED_MAX} times in a row, last with exit code 4" in told
    assert len(list(started.iterdir())) == FAILED_MAX


def test_now_and_then_it_may_fail(tmp_path, tool):
    started = tool(f"sys.exit(len(os.listdir({str(tmp_path / 'started')!r})) % 2)")
    with bench(plan_of(), tmp_path / "run") as b:
        b.until(lambda: len(list(started.iterdir())) > FAILED_MAX, "more tools than may fail in a row")
        assert b.workload.dead_clients() == {}


def test_it_is_frozen_and_killed_with_its_client_and_stopped_in_order(tmp_path, tool):
    started = tool("time.sleep(600)")
    with bench(plan_of(), tmp_path / "run") as b:
        b.until(lambda: bool(list(started.iterdir())), "the tool")
        (pid,) = (int(path.name) for path in started.iterdir())
        (node,) = [n for n in b.workload.nodes() if n.client_role == "java-copier"]
        node.pause()
        assert state_of(pid) == "T"
        node.resume()
        node.kill()
        b.until(lambda: state_of(pid) is None, "the tool to be gone")
        node.start()
        b.until(lambda: len(list(started.iterdir())) == 2, "the tool of the next client")
        node.stop(timeout_s=60)
        assert all(state_of(int(path.name)) is None for path in started.iterdir())
        assert b.workload.dead_clients() == {}


def state_of(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return None
    return None if state in "ZX" else state
