"""The pytest plugin: a Kafka cluster under faults, recorded clients, and a verdict at the end of each test that used them.

Loaded by every pytest run where prozess is installed, so that it imports nothing of prozess until a test asks for it.
`docs/pytest.md` is for who uses it.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from harness.testing.cluster import KafkaCluster, TestNemesis
    from harness.testing.clusters import Clusters
    from harness.testing.recording import Recording
    from harness.testing.settings import TestSettings
    from harness.testing.trials import RunTrial

_OPTIONS = {
    "backend": "where the cluster runs: local (default) or compose",
    "variant": "kraft-isolated (default), kraft-combined or zookeeper",
    "version": "of Kafka",
    "brokers": "how many",
    "scope": "how long a cluster is kept: session (default), module or function",
    "faults": "faults that nodes are to be prepared for before they start, such as clock and disk-full",
    "forbid": "anomalies that fail a test although its configuration permits them",
    "unavailable": "a cluster that cannot be started here: fail (default) or skip",
    "isolation": "auto (default), namespaces or signals",
}
_CLUSTERS: pytest.StashKey[Clusters] = pytest.StashKey()
_RECORDING: pytest.StashKey[Recording] = pytest.StashKey()
_RUNS: pytest.StashKey[Path] = pytest.StashKey()
_TOLD: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Each option on the command line, and in the ini file as prozess_NAME."""
    group = parser.getgroup("prozess", "Kafka on trial")
    for name, text in _OPTIONS.items():
        group.addoption(f"--prozess-{name}", default=None, help=text)
        parser.addini(f"prozess_{name}", text, default=None)
    group.addoption("--prozess-runs", default=None, help="where histories and reports go (default: pytest's own tmp)")
    parser.addini("prozess_runs", "where histories and reports go", default=None)


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line(
        "markers", "prozess(**settings): the cluster of this test, and what it forbids: " + ", ".join(_OPTIONS)
    )


# --- fixtures -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def kafka_cluster(_prozess_recording: Recording) -> KafkaCluster:
    """A running cluster, shared with the tests that ask for one like it."""
    from harness.testing.cluster import KafkaCluster

    if _prozess_recording.session is None:
        pytest.fail(
            "prozess: take kafka_cluster as an argument of the test, or of a fixture: it comes first.", pytrace=False
        )
    return KafkaCluster(_prozess_recording.session, _prozess_recording)


@pytest.fixture
def nemesis(kafka_cluster: KafkaCluster, _prozess_recording: Recording) -> TestNemesis:
    """Breaks the cluster; what is broken when the test ends is healed."""
    from harness.testing.cluster import TestNemesis

    assert _prozess_recording.session is not None
    return TestNemesis(_prozess_recording.session, _prozess_recording)


@pytest.fixture
def recorded_producer(_prozess_recording: Recording) -> type[Any]:
    """A class to use in place of confluent_kafka.Producer. With `kafka_cluster`, bootstrap.servers may be left out."""
    return _prozess_recording.client_class("recorded-producer")


@pytest.fixture
def recorded_consumer(_prozess_recording: Recording) -> type[Any]:
    """A class to use in place of confluent_kafka.Consumer."""
    return _prozess_recording.client_class("recorded-consumer")


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> RunTrial:
    """Runs a trial (by name, file or as built), and gives its verdict to be asserted on."""
    from harness.testing.trials import RunTrial

    return RunTrial(_runs(request.config), _settings(request.node))


@pytest.fixture
def _prozess_recording(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """What the test does, recorded; its verdict is asked for when the test's own code is over."""
    from harness.errors import ProzessError
    from harness.testing.recording import Recording, directory_for

    item = request.node
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
        recording = Recording(run, test=item.nodeid, command=_command(item), session=session)
    except ProzessError as error:
        raise _failure(f"prozess: {error}") from None
    item.stash[_RECORDING] = recording
    with recording.environment():
        yield recording
    recording.close()
    if session is not None and (not recording.whole or _settings(item).scope == "function"):
        _clusters(item.config).end()


def _failure(text: str) -> BaseException:
    """Raise it `from None`: how it came about is of no use to who reads it."""
    return pytest.fail.Exception(text, pytrace=False)


def _unavailable(settings: TestSettings, error: Exception) -> BaseException:
    """What to raise."""
    what = f"{settings.backend} cluster ({settings.variant}, Kafka {settings.version})"
    text = f"prozess: a {what} cannot be started here: {error}"
    if settings.unavailable == "skip":
        return pytest.skip.Exception(f"{text} (SKIPPED because prozess_unavailable = skip)")
    return _failure(f"{text} `prozess doctor` says what this machine offers.")


# --- the verdict --------------------------------------------------------------------------------------------------------


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
    """Why the test fails by what was recorded; None if it does not."""
    from harness.errors import ProzessError
    from harness.testing.outcome import outcome_of

    recording = item.stash[_RECORDING]
    try:
        judged = recording.conclude()
        outcome = outcome_of(judged, recording.plan(), forbid=_settings(item).forbid)
        if outcome.failure is not None or outcome.costs:
            recording.report()
    except ProzessError as error:
        return f"prozess: unknown: what was recorded could not be judged: {error}\n  recorded:  {recording.run.path}"
    for text in outcome.costs if outcome.failure is None else ():
        item.add_report_section(
            "call", "prozess", f"permitted, and seen: {text} ({recording.run.path / 'report.html'})"
        )
    for text in outcome.notes:
        item.add_report_section("call", "prozess", f"not judged: {text}")
    return outcome.failure


def _where(recording: Recording) -> str | None:
    """For who looks into a test that failed by itself: what happened is recorded, although nothing was broken."""
    if not recording.run.verdict.exists():
        return None
    return f"every promise held. `prozess report {recording.run.path}` shows what happened."


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """What passing tests have shown that their configuration permits: said, because it would not be seen otherwise."""
    told = [
        (report.nodeid, text)
        for report in terminalreporter.getreports("passed")
        for name, text in getattr(report, "sections", ())
        if report.when == "call" and name == "prozess"
    ]
    if told:
        terminalreporter.section("prozess")
        for nodeid, text in told:
            terminalreporter.line(f"{nodeid}: {text}")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """With scope = module a cluster ends with the module."""
    if _CLUSTERS not in item.config.stash:
        return
    if nextitem is None or (nextitem.path != item.path and _settings(item).scope == "module"):
        _clusters(item.config).end()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Nothing outlives the session."""
    if _CLUSTERS in config.stash:
        config.stash[_CLUSTERS].end()


# --- settings -----------------------------------------------------------------------------------------------------------


def _settings(item: pytest.Item) -> TestSettings:
    from harness.errors import BadInput
    from harness.testing.settings import settings_from

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
    from harness.testing.clusters import Clusters

    if _CLUSTERS not in config.stash:
        config.stash[_CLUSTERS] = Clusters(_runs(config))
    return config.stash[_CLUSTERS]


def _runs(config: pytest.Config) -> Path:
    """Of this process: workers of xdist each have their own."""
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
    """What runs this test again, with the options of prozess that were given."""
    given = {name: item.config.getoption(f"--prozess-{name}") for name in _OPTIONS}
    return shlex.join(["pytest", item.nodeid, *(f"--prozess-{name}={value}" for name, value in given.items() if value)])
