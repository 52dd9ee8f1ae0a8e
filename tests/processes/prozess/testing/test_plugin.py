"""The plugin where nobody asks for it, and what it refuses: no cluster is started here."""

import json
import os
import re
import subprocess
import sys
import time
from importlib.metadata import entry_points

import pytest

from prozess.app.run.judge import judge_run
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import Verdict
from tests.support.mock_kafka import mock_kafka

HEAVY = (
    "confluent_kafka",
    "pyarrow",
    "pyspark",
    "numpy",
    "pydantic",
    "prozess.harness.plan.plan",
    "prozess.harness.errors",
)
START_UP_MS_MAX = 50


def run(tmp_path, source, *arguments):
    """pytest on this source, with the plugin, however it is installed here."""
    (tmp_path / "test_it.py").write_text(source)
    installed = any(point.value == "prozess.testing.plugin" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "prozess.testing.plugin"]
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-c", os.devnull]
    return subprocess.run(
        [*command, "--rootdir", str(tmp_path), *arguments, str(tmp_path / "test_it.py")],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_unused_it_loads_nothing(tmp_path):
    told = run(tmp_path, f"import sys\ndef test_it():\n    assert not set(sys.modules) & set({HEAVY})\n")
    assert told.returncode == 0, told.stdout


def test_unused_it_costs_less_than_fifty_milliseconds_of_processor_time():
    code = (
        "import json, pytest, time; begun = time.process_time(); import prozess.testing.plugin; "
        "print(json.dumps(1000 * (time.process_time() - begun)))"
    )
    costs = [json.loads(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)]
    assert min(costs) < START_UP_MS_MAX, f"{time.strftime('%H:%M')} {costs}"


def test_its_options_and_marker_are_told(tmp_path):
    told = run(tmp_path, "def test_it(): pass\n", "--help")
    assert "--prozess-variant" in told.stdout
    markers = run(tmp_path, "def test_it(): pass\n", "--markers")
    assert "@pytest.mark.prozess(**settings)" in markers.stdout


WRONG_SETTINGS = {
    "versoin='4.4.0'": "did you mean 'version'?",
    "backend='cloud'": "backend = 'cloud' is not known. Known: local, compose.",
    "version='4.4.0', variant='zookeeper'": "3.9 is the last line of Kafka that has a ZooKeeper mode",
}


def test_a_wrong_setting_fails_the_test_with_the_rule_and_is_never_skipped(tmp_path):
    tests = (
        f"@pytest.mark.prozess({marked})\ndef test_{number}(kafka_cluster): pass\n"
        for number, marked in enumerate(WRONG_SETTINGS)
    )
    told = run(tmp_path, "import pytest\n" + "".join(tests), "--prozess-unavailable=skip")
    assert told.returncode == 1
    assert f"{len(WRONG_SETTINGS)} errors in" in told.stdout.splitlines()[-1]
    errors = told.stdout[told.stdout.index("= ERRORS =") : told.stdout.index("short test summary")]
    shown = re.split(r"^_+ ERROR at setup of test_\d _+$", errors, flags=re.MULTILINE)[1:]
    for rule, text in zip(WRONG_SETTINGS.values(), shown, strict=True):
        assert rule in text
    assert "Traceback" not in told.stdout
    assert "During handling" not in told.stdout


def test_what_runs_a_test_again_has_its_options_with_their_values(tmp_path):
    source = (
        "def test_it(trial): assert False, trial._runs\ndef test_that(recorded_producer): recorded_producer({}).x\n"
    )
    told = run(
        tmp_path, source, "--prozess-brokers", "1", "--prozess-runs", str(tmp_path / "runs"), "--prozess-version=3.9.2"
    )
    assert told.returncode == 1
    source = next((tmp_path / "runs").glob("test-that*/source.json"))
    assert json.loads(source.read_text())["command"].endswith("::test_that --prozess-version=3.9.2 --prozess-brokers=1")


WIDE = """
import pytest
@pytest.fixture(scope="session")
def servers(kafka_cluster): return kafka_cluster.bootstrap_servers
@pytest.fixture(scope="module")
def application(servers): return servers
@pytest.mark.prozess(backend='compose')
def test_it(application): pass
"""
NARROW = "@pytest.mark.prozess(backend='compose')\ndef test_narrow(kafka_cluster): pass\n"


@pytest.mark.parametrize(("unavailable", "code", "printed"), [("fail", 1, "2 errors"), ("skip", 0, "2 skipped")])
def test_a_cluster_that_cannot_be_started_is_an_error_or_a_loud_skip_whatever_fixture_asks(
    tmp_path, monkeypatch, unavailable, code, printed
):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")  # nobody listens there
    told = run(tmp_path, WIDE + NARROW, "-rs", f"--prozess-unavailable={unavailable}")
    assert told.returncode == code, told.stdout
    assert f"{printed} in" in told.stdout.splitlines()[-1]
    assert "a compose cluster (kraft-isolated, Kafka 4.4.0) cannot be started here: " in told.stdout


def test_a_client_that_a_failed_test_held_does_nothing_in_the_tests_after_it(tmp_path):
    source = (
        "import time\n"
        "from pathlib import Path\n"
        "HELD = []\n"
        "def name(thread):\n"
        "    try: return thread.read_text()\n"
        "    except (FileNotFoundError, ProcessLookupError): return ''  # it has ended\n"
        "def at_work(): return [t for t in Path('/proc/self/task').glob('*/comm') if name(t).startswith('rdk:')]\n"
        "def none_at_work(until):  # a thread that was joined is listed for a moment more\n"
        "    return not at_work() or (time.monotonic() < until and none_at_work(until))\n"
        "def test_one(recorded_producer, recorded_consumer):\n"
        "    HELD.append(recorded_producer({'bootstrap.servers': '127.0.0.1:1'}))\n"
        "    HELD.append(recorded_consumer({'bootstrap.servers': '127.0.0.1:1', 'group.id': 'g'}))\n"
        "    assert not at_work(), 'they are there'\n"
        "def test_two(): assert len(HELD) == 2 and none_at_work(time.monotonic() + 0.1)\n"
    )
    told = run(tmp_path, source)
    assert "AssertionError: they are there" in told.stdout
    assert "1 failed, 1 passed" in told.stdout, told.stdout


def test_workers_of_xdist_have_directories_of_their_own_and_each_says_how_its_test_is_run_again(tmp_path):
    names = ("one", "two")
    source = "\n".join(f"def test_{name}(recorded_producer): producer = recorded_producer({{}})" for name in names)
    told = run(tmp_path, source, "-n", "2", f"--prozess-runs={tmp_path / 'runs'}", "--prozess-scope", "module")
    assert "2 failed" in told.stdout, "clients that sent nothing: unknown"
    assert {p.parent.parent.name for p in (tmp_path / "runs").glob("*/test-*/report.html")} == {"gw0", "gw1"}
    for name in names:
        assert f"reproduce: pytest test_it.py::test_{name} --prozess-scope=module" in told.stdout


PRODUCING = """
import json
import pytest
import prozess.clusters.existing.adoption
from prozess.harness.interfaces.application import Registry
prozess.clusters.existing.adoption.ASK_TIMEOUT_S = 0.2  # the made-up broker never answers who it is, nor what a topic is like
def produce(make, *numbers, topic="orders", **more):
    Registry(make.recording).add_topic(topic, [[1]], {{}})
    producer = make({{"bootstrap.servers": "{servers}", "enable.idempotence": True}}, **more)
    for number in numbers:
        producer.produce(topic, json.dumps(number))
    assert producer.flush(30) == 0
def test_one(recorded_producer): produce(recorded_producer, 1, 1)
def test_two(recorded_producer): produce(recorded_producer, 1, 1)
@pytest.mark.prozess(forbid=["repeated"])
def test_forbidding(recorded_producer): produce(recorded_producer, 1)
def test_telling(recorded_producer): produce(recorded_producer, 2, 2, identity=json.loads)
@pytest.mark.prozess(strict=True)
def test_strict(recorded_producer): produce(recorded_producer, 1, topic="strict")
"""


SILENT = {"test_one", "test_two", "test_forbidding", "test_strict"}


# Its cheaper neighbours with workers: the same without, and the directories of workers, above.
@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.long)], ids=["alone", "workers"])
def test_what_was_not_judged_is_said_once_for_all_tests_and_fails_who_forbids_it(tmp_path, workers):
    with mock_kafka() as kafka:
        for topic in ("orders", "strict"):
            kafka.create(topic, partitions=1)
        runs = f"--prozess-runs={tmp_path / 'runs'}"
        told = run(tmp_path, PRODUCING.format(servers=kafka.bootstrap_servers), runs, *workers)
    assert "3 failed, 2 passed, 2 warnings" in told.stdout, told.stdout
    block = told.stdout[told.stdout.index("= prozess: your application was not judged =") :].splitlines()
    assert block[1].startswith("4 of 5 tests judged nothing of what your application does: ")
    assert {line.strip().rpartition("::")[2] for line in block[2:6]} == SILENT
    assert block[6].startswith("add: give recorded_producer(…, identity=…)")
    assert told.stdout.count("NotJudgedWarning: prozess judged nothing of what your application does; ") == 2
    assert "prozess: unknown: repeated in strict: nothing says what the application must do (strict)" in told.stdout
    (line,) = [line for line in told.stdout.splitlines() if line.startswith("not judged in ")]
    assert "test_strict" in line or "and 1 more" in line
    assert "test_one" in line
    assert "test_two" in line
    assert "test_telling" not in line
    assert line.endswith("; give recorded_producer(…, identity=…) or kafka_cluster.identity(topic, …).")
    assert "not judged, and forbidden by the test (forbid): repeated in orders: nothing says which sends" in told.stdout
    assert "prozess: violated: repeated in orders" in told.stdout
    assert "- 2: orders/0, offset " in told.stdout
    the_runs_say_the_same(tmp_path / "runs")


def the_runs_say_the_same(runs):
    """verdict.json of each test, and the report of the one that was violated; checked again they say it again."""
    verdicts = {path.parent.name: json.loads(path.read_text()) for path in runs.rglob("verdict.json")}
    assert verdicts["test-telling"]["verdict"] == "violated"
    assert verdicts["test-forbidding"]["verdict"] != "held", "what was not judged, and is forbidden, does not pass"
    assert any("repeated in orders" in reason for reason in verdicts["test-forbidding"]["unknown_reasons"])
    (gap,) = verdicts["test-one"]["application"]["not_judged"]
    assert (gap["anomalies"], gap["where"], gap["forbidden"]) == (["repeated"], "orders", False)
    assert verdicts["test-forbidding"]["application"]["not_judged"][0]["forbidden"]
    (found,) = verdicts["test-telling"]["application"]["anomalies"]
    assert (found["anomaly"], found["outcome"], found["count"]) == ("repeated", "violated", 1)
    assert found["witnesses"][0]["text"].startswith("2: orders/0, offset ")
    (told,) = (path.parent for path in runs.rglob("report.html") if path.parent.name == "test-telling")
    page = (told / "report.html").read_text()
    assert "violated</span> repeated 1 in orders" in page
    assert "What happened around #" in page, "the record that was sent again has its story"
    again = judge_run(RunDirectory(told))
    assert again.verdict is Verdict.VIOLATED
    assert again.application.anomalies[0].count == 1
