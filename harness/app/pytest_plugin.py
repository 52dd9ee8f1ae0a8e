"""The pytest plugin: a Kafka cluster under faults, recorded clients, and a verdict at the end of each test that used them.

Loaded by every pytest run where prozess is installed, so that it imports nothing of prozess until a test asks for it.
`docs/pytest.md` is for who uses it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from prozess.harness.app.testing.application import Applications, Crash, RecordedCommands
    from prozess.harness.app.testing.fixtures import KafkaCluster, RunTrial, TestNemesis
    from prozess.harness.app.testing.recording import Recording
    from prozess.harness.app.testing.session import Clusters, TestSettings

_OPTIONS = {
    "backend": "where the cluster runs: local (default) or compose",
    "variant": "the kind of cluster: kraft-isolated (default), kraft-combined or zookeeper",
    "version": "the version of Kafka (default: 4.4.0; with ZooKeeper: 3.9.2)",
    "brokers": "the number of brokers, 1 to 9 (default: 3)",
    "scope": "how long tests share a cluster: session (default), module or function",
    "faults": "faults that the nodes must be prepared for before they start, such as clock and disk-full",
    "forbid": "anomalies that fail a test although its configuration permits them",
    "unavailable": "what happens to a test whose cluster cannot be started here: fail (default) or skip",
    "isolation": "how the nodes of a local cluster are kept apart: auto (default), namespaces or signals",
}
_CLUSTERS: pytest.StashKey[Clusters] = pytest.StashKey()
_RECORDING: pytest.StashKey[Recording] = pytest.StashKey()
_RUNS: pytest.StashKey[Path] = pytest.StashKey()
_TOLD: pytest.StashKey[list[str]] = pytest.StashKey()
_UNJUDGED: pytest.StashKey[list[list[str]]] = pytest.StashKey()
_NAMED_MAX = 3
_STDERR: pytest.StashKey[int] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds each option to the command line, and to the ini file as prozess_NAME."""
    group = parser.getgroup("prozess", "Kafka on trial")
    for name, text in _OPTIONS.items():
        group.addoption(f"--prozess-{name}", default=None, help=text)
        parser.addini(f"prozess_{name}", text, default=None)
    group.addoption(
        "--prozess-runs",
        default=None,
        help="the directory for histories and reports (default: pytest's temporary directory)",
    )
    parser.addini("prozess_runs", "the directory for histories and reports", default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Adds the marker, and keeps standard error for last words, while no capture is on yet."""
    with suppress(OSError):
        config.stash[_STDERR] = os.dup(2)
    config.addinivalue_line(
        "markers",
        "prozess(**settings): settings of this test's cluster, and the anomalies that fail the test: "
        + ", ".join(_OPTIONS),
    )


# Fixtures.


@pytest.fixture
def kafka_cluster(_prozess_recording: Recording) -> KafkaCluster:
    """Returns a running cluster, shared with the tests that ask for one like it."""
    from prozess.harness.app.testing.fixtures import KafkaCluster

    if _prozess_recording.session is None:
        pytest.fail(
            "prozess: make kafka_cluster an argument of the test or of one of its fixtures: the cluster must "
            "start before the test does.",
            pytrace=False,
        )
    return KafkaCluster(_prozess_recording.session, _prozess_recording)


@pytest.fixture
def nemesis(kafka_cluster: KafkaCluster, _prozess_recording: Recording) -> TestNemesis:
    """Breaks the cluster; what is broken when the test ends is healed."""
    from prozess.harness.app.testing.fixtures import TestNemesis

    assert _prozess_recording.session is not None
    return TestNemesis(_prozess_recording.session, _prozess_recording)


@pytest.fixture
def recorded_producer(_prozess_recording: Recording) -> type[Any]:
    """Returns a class to use in place of confluent_kafka.Producer. With `kafka_cluster`, bootstrap.servers may be left
    out."""
    from prozess.workloads.recorded.producer import RecordedProducer

    return _prozess_recording.client_class(RecordedProducer)


@pytest.fixture
def recorded_consumer(_prozess_recording: Recording) -> type[Any]:
    """Returns a class to use in place of confluent_kafka.Consumer."""
    from prozess.workloads.recorded.consumer import RecordedConsumer

    return _prozess_recording.client_class(RecordedConsumer)


@pytest.fixture
def recorded_aio_producer(_prozess_recording: Recording) -> type[Any]:
    """Returns a class to use in place of confluent_kafka.aio.AIOProducer."""
    from prozess.workloads.recorded.application import RecordedAIOProducer

    return _prozess_recording.client_class(RecordedAIOProducer)


@pytest.fixture
def recorded_aio_consumer(_prozess_recording: Recording) -> type[Any]:
    """Returns a class to use in place of confluent_kafka.aio.AIOConsumer."""
    from prozess.workloads.recorded.application import RecordedAIOConsumer

    return _prozess_recording.client_class(RecordedAIOConsumer)


@pytest.fixture
def recorded_aiokafka_producer(_prozess_recording: Recording) -> type[Any]:
    """Returns a class to use in place of aiokafka.AIOKafkaProducer."""
    from prozess.workloads.recorded.aiokafka import RecordedAIOKafkaProducer

    return _prozess_recording.client_class(RecordedAIOKafkaProducer)


@pytest.fixture
def recorded_aiokafka_consumer(_prozess_recording: Recording) -> type[Any]:
    """Returns a class to use in place of aiokafka.AIOKafkaConsumer."""
    from prozess.workloads.recorded.aiokafka import RecordedAIOKafkaConsumer

    return _prozess_recording.client_class(RecordedAIOKafkaConsumer)


@pytest.fixture
def run_application(_prozess_recording: Recording) -> Applications:
    """Starts the application under test as a process of its own, whose clients are recorded."""
    from prozess.harness.app.testing.application import Applications
    from prozess.harness.clock import SystemClock

    applications = Applications(_prozess_recording, SystemClock())
    _prozess_recording.companions.append(applications)
    return applications


@pytest.fixture
def recorded_command(run_application: Applications, _prozess_recording: Recording) -> RecordedCommands:
    """Starts a program in any language, whose client is recorded by what it prints."""
    from prozess.harness.app.testing.application import RecordedCommands

    commands = RecordedCommands(_prozess_recording, run_application)
    _prozess_recording.companions.append(commands)
    return commands


@pytest.fixture
def crash(run_application: Applications) -> Crash:
    """Kills the application under test between two of its own steps: `crash.before("commit", nth=2)`."""
    from prozess.harness.app.testing.application import Crash

    return Crash(run_application)


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> RunTrial:
    """Runs a trial (by name, file or as built), and gives its verdict to be asserted on."""
    from prozess.harness.app.testing.fixtures import RunTrial

    return RunTrial(_runs(request.config), _settings(request.node))


@pytest.fixture
def _prozess_recording(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """Records what the test does; its verdict is asked for when the test's own code is over."""
    from prozess.harness.app.testing.outcome import hidden_in_threads
    from prozess.harness.app.testing.recording import Recording, directory_for
    from prozess.harness.errors import ProzessError
    from prozess.harness.watchdog import say_to

    item = request.node
    say_to(item.config.stash.get(_STDERR, None))
    session = None
    if "kafka_cluster" in request.fixturenames:
        settings = _settings(item)
        clusters = _clusters(item.config)
        try:
            session = clusters.get(settings)
        except ProzessError as error:
            raise _unavailable(settings, error) from None
    try:
        run = directory_for(_runs(item.config), item.nodeid)
        forbid = _settings(item).forbid
        recording = Recording(run, test=item.nodeid, command=_command(item), session=session, forbid=forbid)
    except ProzessError as error:
        raise _failure(f"prozess: {error}") from None
    item.stash[_RECORDING] = recording
    hidden = nullcontext() if item.config.getoption("fulltrace") else hidden_in_threads()
    with recording.environment(), hidden:
        yield recording
    recording.close()
    if session is not None and (not recording.whole or _settings(item).scope == "function"):
        _clusters(item.config).end()


def _failure(text: str) -> BaseException:
    """Raise it `from None`: how it came about is of no use to who reads it."""
    return pytest.fail.Exception(text, pytrace=False)


def _unavailable(settings: TestSettings, error: Exception) -> BaseException:
    """Returns what to raise if a cluster cannot be started here."""
    what = f"{settings.backend} cluster ({settings.variant}, Kafka {settings.version})"
    text = f"prozess: a {what} cannot be started here: {error}"
    if settings.unavailable == "skip":
        return pytest.skip.Exception(f"{text} (SKIPPED because prozess_unavailable = skip)")
    return _failure(f"{text} `prozess doctor` says what this machine offers.")


# The verdict on a test.


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """The test's own code; then the verdict on what was recorded. What the test itself raised stays what it failed with."""
    try:
        result = yield
    except BaseException as error:
        if isinstance(error, Exception | pytest.fail.Exception) and _RECORDING in item.stash:
            told = _conclude(item) or _where(item.stash[_RECORDING])
            if told is not None:
                item.add_report_section("call", "prozess", told)
        raise
    if _RECORDING in item.stash:
        failure = _conclude(item)
        if failure is not None:
            pytest.fail(failure, pytrace=False)
    return result


def _conclude(item: pytest.Item) -> str | None:
    """Returns why the test fails by what was recorded; None if it does not."""
    from prozess.harness.app.testing.outcome import outcome_of
    from prozess.harness.errors import ProzessError

    recording = item.stash[_RECORDING]
    try:
        judged = recording.conclude()
        outcome = outcome_of(judged, recording.plan(), forbid=_settings(item).forbid)
        if outcome.failure is not None or outcome.costs:
            recording.report()
    except ProzessError as error:
        return f"prozess: unknown: the recorded history could not be judged: {error}\n  recorded:  {recording.run.path}"
    for text in outcome.costs if outcome.failure is None else ():
        item.add_report_section(
            "call", "prozess", f"permitted, and seen: {text} ({recording.run.path / 'report.html'})"
        )
    item.stash[_UNJUDGED] = [[", ".join(one.anomalies), one.where, one.why, one.add] for one in outcome.unjudged]
    for text in outcome.notes:
        item.add_report_section("call", "prozess", f"not judged: {text}")
    return outcome.failure


def _where(recording: Recording) -> str | None:
    """Returns where to find the recording of a test that failed by itself: what happened is recorded, although nothing
    was broken."""
    if not recording.run.verdict.exists():
        return None
    return f"every promise that was judged held. `prozess report {recording.run.path}` shows what happened."


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Puts what was not judged into the report: a worker of xdist sends it to who writes the summary."""
    _hide_our_frames(item, call)
    report = yield
    if call.when == "call" and _UNJUDGED in item.stash:
        report.prozess_unjudged = item.stash[_UNJUDGED]
    return report


def _hide_our_frames(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """The user's own line and the error's text, in place of the frames of prozess; --full-trace shows those."""
    if call.excinfo is None or _RECORDING not in item.stash or item.config.getoption("fulltrace"):
        return
    from prozess.harness.app.testing.outcome import hide_our_frames
    from prozess.harness.errors import ProzessError

    error = call.excinfo.value
    if not hide_our_frames(error) and isinstance(error, ProzessError):
        error = _failure(f"prozess: {error}").with_traceback(error.__traceback__)
    call.excinfo = pytest.ExceptionInfo.from_exception(error)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Prints what passing tests have shown that their configuration permits, and what nobody could judge: said, because
    it would not be seen otherwise."""
    told = [
        (report.nodeid, text)
        for report in terminalreporter.getreports("passed")
        for name, text in getattr(report, "sections", ())
        if report.when == "call" and name == "prozess"
    ]
    unjudged = _not_judged(terminalreporter)
    if told or unjudged:
        terminalreporter.section("prozess")
    for nodeid, text in told:
        terminalreporter.line(f"{nodeid}: {text}")
    for line in unjudged:
        terminalreporter.line(line)


def _not_judged(terminalreporter: TerminalReporter) -> list[str]:
    """Returns a line for each kind of thing, with the tests that it concerns: what nothing told, and what to add."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for anomalies, where, why, add in getattr(report, "prozess_unjudged", ()):
            found.setdefault((anomalies, add), {}).setdefault(report.nodeid, f"{where}: {why}")
    lines = []
    for (anomalies, add), tests in found.items():
        names = [nodeid.rpartition("::")[2] for nodeid in tests]
        more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        said = f"{next(iter(tests.values()))}; {add}."
        lines.append(f"not judged in {', '.join(names[:_NAMED_MAX])}{more}: {anomalies}: {said}")
    return lines


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Takes the cluster down after a module, if scope = module, and after the last test."""
    if _CLUSTERS not in item.config.stash:
        return
    if nextitem is None or (nextitem.path != item.path and _settings(item).scope == "module"):
        _clusters(item.config).end()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Takes down the cluster: nothing outlives the session."""
    if _CLUSTERS in config.stash:
        config.stash[_CLUSTERS].end()
    if _STDERR in config.stash:
        os.close(config.stash[_STDERR])
        del config.stash[_STDERR]


# The settings of a test.


def _settings(item: pytest.Item) -> TestSettings:
    from prozess.harness.app.testing.session import settings_from
    from prozess.harness.errors import BadInput

    configured = {}
    for name in _OPTIONS:
        value = item.config.getoption(f"--prozess-{name}") or item.config.getini(f"prozess_{name}")
        if value:
            configured[name] = value
    marked: dict[str, Any] = {}
    for marker in item.iter_markers("prozess"):  # the nearest first
        marked = {**marker.kwargs, **marked}
    try:
        return settings_from(configured, marked)
    except BadInput as error:
        raise _failure(f"prozess: {error}") from None


def _clusters(config: pytest.Config) -> Clusters:
    from prozess.harness.app.testing.session import Clusters

    if _CLUSTERS not in config.stash:
        config.stash[_CLUSTERS] = Clusters(_runs(config))
    return config.stash[_CLUSTERS]


def _runs(config: pytest.Config) -> Path:
    """Returns the directory for the runs of this process: each worker of xdist has its own."""
    if _RUNS not in config.stash:
        told = config.getoption("--prozess-runs") or config.getini("prozess_runs")
        if told:
            base = Path(told) if Path(told).is_absolute() else config.rootpath / told
        else:
            base = Path(config._tmp_path_factory.getbasetemp()) / "prozess"  # type: ignore[attr-defined]
        worker = getattr(config, "workerinput", {}).get("workerid", "")
        config.stash[_RUNS] = base / worker if worker else base
    return config.stash[_RUNS]


def _command(item: pytest.Item) -> str:
    """Returns the command that runs this test again, with the options of prozess that were given."""
    given = {name: item.config.getoption(f"--prozess-{name}") for name in _OPTIONS}
    return shlex.join(["pytest", item.nodeid, *(f"--prozess-{name}={value}" for name, value in given.items() if value)])
