"""The pytest plugin: a Kafka cluster under faults, recorded clients, and a verdict at the end of each test that uses them.

Every pytest run loads it where prozess is installed. Therefore it imports nothing of prozess until a test asks for it.
Users read `docs/pytest.md`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from prozess.testing.summary import NotJudgedWarning, SummaryEntry, write_summary

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from prozess.testing.application import Applications, Crash, RecordedCommands
    from prozess.testing.fixture_objects import KafkaCluster, RunTrial, TestNemesis
    from prozess.testing.recording import Recording
    from prozess.testing.session import Clusters, ClusterSession, TestSettings

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
_STRICT = "a test fails if it says nothing of what the application must do (default: a warning)"
_CLUSTERS: pytest.StashKey[Clusters] = pytest.StashKey()
_RECORDING: pytest.StashKey[Recording] = pytest.StashKey()
_RUNS: pytest.StashKey[Path] = pytest.StashKey()
_SUMMARY: pytest.StashKey[SummaryEntry] = pytest.StashKey()
_CLUSTER: pytest.StashKey[KafkaCluster] = pytest.StashKey()
_ITEM: pytest.StashKey[pytest.Item] = pytest.StashKey()
"""The test that runs: a fixture of a session or a module is set up for the first test that asks for it."""
_WIDE: pytest.StashKey[list[pytest.FixtureDef[Any]]] = pytest.StashKey()
"""The fixtures of a session, a module or a class that are being set up, the innermost last."""
_STDERR: pytest.StashKey[int] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds each option to the command line, and to the ini file as prozess_NAME."""
    group = parser.getgroup("prozess", "Kafka on trial")
    for name, text in _OPTIONS.items():
        group.addoption(f"--prozess-{name}", default=None, help=text)
        parser.addini(f"prozess_{name}", text, default=None)
    group.addoption("--prozess-strict", action="store_const", const="true", default=None, help=_STRICT)
    parser.addini("prozess_strict", _STRICT, default=None)
    group.addoption(
        "--prozess-runs",
        default=None,
        help="the directory for histories and reports (default: pytest's temporary directory)",
    )
    parser.addini("prozess_runs", "the directory for histories and reports", default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Adds the marker, and saves standard error for final messages before capturing begins."""
    with suppress(OSError):
        config.stash[_STDERR] = os.dup(2)
    config.addinivalue_line(
        "markers",
        "prozess(**settings): settings of this test's cluster, and the anomalies that fail the test: "
        + ", ".join(_OPTIONS),
    )
    config.stash[_WIDE] = []


def pytest_itemcollected(item: pytest.Item) -> None:
    """Gives each test that uses the cluster a recording of its own. It is set up after the fixtures of a session or
    a module, and before the test's own."""
    names: list[str] = getattr(item, "fixturenames", [])
    if "kafka_cluster" in names:
        if "_prozess_recording" in names:
            names.remove("_prozess_recording")
        known = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
        own = (at for at, name in enumerate(names) if name in known and known[name][-1].scope == "function")
        names.insert(next(own, len(names)), "_prozess_recording")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remembers which test runs."""
    item.config.stash[_ITEM] = item


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Remembers which fixture of more than one test is being set up: it may ask for the cluster, and then holds it."""
    if fixturedef.scope == "function":
        return (yield)
    setting_up = request.config.stash[_WIDE]
    setting_up.append(fixturedef)
    try:
        return (yield)
    finally:
        setting_up.pop()


# Fixtures.


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> KafkaCluster:
    """Returns the running cluster: of the test that runs, or of the fixture that asks, whatever its scope."""
    return _cluster(request.config)


@pytest.fixture
def nemesis(kafka_cluster: KafkaCluster, _prozess_recording: Recording) -> TestNemesis:
    """Makes faults in the cluster; active faults are healed when the test ends."""
    from prozess.testing.fixture_objects import TestNemesis

    assert _prozess_recording.session is not None
    return TestNemesis(_prozess_recording.session, _prozess_recording)


def _recorded_class(fixture: str, module: str, name: str, instead_of: str) -> Callable[..., type[Any]]:
    """Makes the fixture of this name. It returns the class of a module of `prozess.testing.recorded`, for the test alone."""

    def recorded(_prozess_recording: Recording) -> type[Any]:
        found: type[Any] = getattr(import_module(f"prozess.testing.recorded.{module}"), name)
        return _prozess_recording.client_class(found)

    recorded.__doc__ = f"Returns a class to use in place of {instead_of}."
    return pytest.fixture(name=fixture)(recorded)


recorded_producer = _recorded_class(
    "recorded_producer",
    "producer",
    "RecordedProducer",
    "confluent_kafka.Producer. With `kafka_cluster`, bootstrap.servers may be left out",
)
recorded_consumer = _recorded_class("recorded_consumer", "consumer", "RecordedConsumer", "confluent_kafka.Consumer")
recorded_aio_producer = _recorded_class(
    "recorded_aio_producer", "application", "RecordedAIOProducer", "confluent_kafka.aio.AIOProducer"
)
recorded_aio_consumer = _recorded_class(
    "recorded_aio_consumer", "application", "RecordedAIOConsumer", "confluent_kafka.aio.AIOConsumer"
)
recorded_aiokafka_producer = _recorded_class(
    "recorded_aiokafka_producer", "aiokafka", "RecordedAIOKafkaProducer", "aiokafka.AIOKafkaProducer"
)
recorded_aiokafka_consumer = _recorded_class(
    "recorded_aiokafka_consumer", "aiokafka", "RecordedAIOKafkaConsumer", "aiokafka.AIOKafkaConsumer"
)


@pytest.fixture
def run_application(_prozess_recording: Recording) -> Applications:
    """Starts the application under test as a process of its own, whose clients are recorded."""
    from prozess.harness.clock import SystemClock
    from prozess.testing.application import Applications

    applications = Applications(_prozess_recording, SystemClock())
    _prozess_recording.companions.append(applications)
    return applications


@pytest.fixture
def recorded_command(run_application: Applications, _prozess_recording: Recording) -> RecordedCommands:
    """Starts a program in any language, whose client is recorded by its output."""
    from prozess.testing.application import RecordedCommands

    commands = RecordedCommands(_prozess_recording, run_application)
    _prozess_recording.companions.append(commands)
    return commands


@pytest.fixture
def crash(run_application: Applications) -> Crash:
    """Kills the application under test between two of its own steps: `crash.before("commit", nth=2)`."""
    from prozess.testing.application import Crash

    return Crash(run_application)


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> RunTrial:
    """Runs a trial (by name, by file or as a `Trial`), and returns its verdict for assertions."""
    from prozess.testing.fixture_objects import RunTrial

    return RunTrial(_runs(request.config), _settings(request.node))


@pytest.fixture
def _prozess_recording(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """Records what the test does; its verdict is asked for when the test's own code is over."""
    from prozess.harness.errors import ProzessError
    from prozess.harness.watchdog import say_to
    from prozess.testing.outcome import hidden_in_threads
    from prozess.testing.recording import Recording, directory_for

    item = request.node
    say_to(item.config.stash.get(_STDERR, None))
    settings = _settings(item)
    session = None
    if "kafka_cluster" in request.fixturenames:
        session = _started(item.config, settings)
    try:
        run = directory_for(_runs(item.config), item.nodeid)
        recording = Recording(
            run,
            test=item.nodeid,
            command=_command(item),
            session=session,
            forbid=settings.forbid,
            strict=settings.strict,
        )
    except ProzessError as error:
        raise _failure(f"prozess: {error}") from None
    item.stash[_RECORDING] = recording
    hidden = nullcontext() if item.config.getoption("fulltrace") else hidden_in_threads()
    with recording.environment(), hidden:
        if session is None:
            yield recording
        else:
            with _cluster(item.config).under(recording):
                yield recording
    recording.close()
    if session is not None:
        clusters = _clusters(item.config)
        if not recording.whole or (settings.scope == "function" and not clusters.held):
            clusters.end()


def _cluster(config: pytest.Config) -> KafkaCluster:
    from prozess.testing.fixture_objects import KafkaCluster

    if _CLUSTER not in config.stash:
        config.stash[_CLUSTER] = KafkaCluster(lambda: _held(config))
    return config.stash[_CLUSTER]


def _held(config: pytest.Config) -> ClusterSession:
    """Returns the cluster for a fixture of a session, a module or a class, which holds it until the fixture's end."""
    clusters, setting_up = _clusters(config), config.stash[_WIDE]
    if not setting_up:
        if (session := clusters.held_session) is not None:  # such a fixture may still ask at its end
            return session
        raise _failure("prozess: make kafka_cluster an argument of the test or of one of its fixtures.")
    holder = setting_up[-1]
    session = _started(config, _settings(config.stash[_ITEM]))
    if holder.argname not in clusters.held:
        clusters.held[holder.argname] = holder.scope
        holder.addfinalizer(lambda: clusters.held.pop(holder.argname, None))
    return session


def _started(config: pytest.Config, settings: TestSettings) -> ClusterSession:
    from prozess.harness.errors import ProzessError

    clusters = _clusters(config)
    if why := clusters.conflict(settings):
        raise _failure(f"prozess: {why}")
    try:
        return clusters.get(settings)
    except ProzessError as error:
        raise _unavailable(settings, error) from None


def _failure(text: str) -> BaseException:
    """Raise it `from None`: the cause does not help the reader."""
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
    """Runs the test's own code, then judges the recording. An exception of the test itself stays its failure."""
    try:
        result = yield
    except BaseException as error:
        if isinstance(error, Exception | pytest.fail.Exception) and _RECORDING in item.stash:
            section = _conclude(item) or _where(item.stash[_RECORDING])
            if section is not None:
                item.add_report_section("call", "prozess", section)
        raise
    if _RECORDING in item.stash:
        failure = _conclude(item)
        if failure is not None:
            pytest.fail(failure, pytrace=False)
        carried = item.stash.get(_SUMMARY, None)
        if carried is not None and carried["silent"]:
            adds = ", or ".join(dict.fromkeys(gap[3] for gap in carried["unjudged"]))
            item.warn(NotJudgedWarning(f"prozess judged nothing of what your application does; {adds}."))
    return result


def _conclude(item: pytest.Item) -> str | None:
    """Returns the failure that the recording proves; None if there is none."""
    from prozess.harness.errors import ProzessError
    from prozess.testing.outcome import outcome_of

    recording = item.stash[_RECORDING]
    try:
        judged = recording.conclude()
        outcome = outcome_of(judged, recording.plan(), forbid=judged.forbid)
        if outcome.failure is not None or outcome.costs:
            recording.report()
    except ProzessError as error:
        return f"prozess: unknown: the recorded history could not be judged: {error}\n  recorded:  {recording.run.path}"
    report = recording.run.path / "report.html"
    seen = [f"permitted, and seen: {text} ({report})" for text in outcome.costs]
    summary: SummaryEntry = {
        "clients": judged.verdict is not None,
        "silent": judged.silent,
        "seen": [*(seen if outcome.failure is None else ()), *(f"not judged: {text}" for text in outcome.notes)],
        "unjudged": [[", ".join(one.anomalies), one.where, one.why, one.add] for one in outcome.unjudged],
    }
    item.stash[_SUMMARY] = summary
    return outcome.failure


def _where(recording: Recording) -> str | None:
    """Returns a note with the path of the recording of a test that failed by itself."""
    if not recording.run.verdict.exists():
        return None
    return f"every promise that was judged held. `prozess report {recording.run.path}` shows what happened."


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Adds the unjudged promises to the report: a worker of xdist sends it to the process that writes the summary."""
    _hide_our_frames(item, call)
    report = yield
    if call.when == "call" and _SUMMARY in item.stash:
        report.prozess_summary = item.stash[_SUMMARY]
    return report


def _hide_our_frames(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Shows the user's own line and the error's text in place of the frames of prozess; --full-trace shows those."""
    if call.excinfo is None or _RECORDING not in item.stash or item.config.getoption("fulltrace"):
        return
    from prozess.harness.errors import ProzessError
    from prozess.testing.outcome import hide_our_frames

    error = call.excinfo.value
    if not hide_our_frames(error) and isinstance(error, ProzessError):
        error = _failure(f"prozess: {error}").with_traceback(error.__traceback__)
    call.excinfo = pytest.ExceptionInfo.from_exception(error)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Prints the permitted anomalies of passing tests, and the anomalies that could not be judged. Nothing else
    would show them."""
    write_summary(terminalreporter)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Takes the cluster down after a module, if scope = module, and after the last test."""
    if _CLUSTERS not in item.config.stash:
        return
    clusters = _clusters(item.config)
    module_ends = nextitem is None or nextitem.path != item.path
    if nextitem is None or (module_ends and not clusters.held and _settings(item).scope == "module"):
        clusters.end()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Takes down the cluster: nothing outlives the session."""
    if _CLUSTERS in config.stash:
        config.stash[_CLUSTERS].end()
    if _STDERR in config.stash:
        os.close(config.stash[_STDERR])
        del config.stash[_STDERR]


# The settings of a test.


def _settings(item: pytest.Item) -> TestSettings:
    from prozess.harness.errors import BadInput
    from prozess.testing.session import settings_from

    configured = {}
    for name in (*_OPTIONS, "strict"):
        value = item.config.getoption(f"--prozess-{name}") or item.config.getini(f"prozess_{name}")
        if value:
            configured[name] = value
    marked: dict[str, Any] = {}
    for marker in item.iter_markers("prozess"):  # the nearest marker first
        marked = {**marker.kwargs, **marked}
    try:
        return settings_from(configured, marked)
    except BadInput as error:
        raise _failure(f"prozess: {error}") from None


def _clusters(config: pytest.Config) -> Clusters:
    from prozess.testing.session import Clusters

    if _CLUSTERS not in config.stash:
        config.stash[_CLUSTERS] = Clusters(_runs(config))
    return config.stash[_CLUSTERS]


def _runs(config: pytest.Config) -> Path:
    """Returns the directory for the runs of this process: each worker of xdist has its own."""
    if _RUNS not in config.stash:
        directory = config.getoption("--prozess-runs") or config.getini("prozess_runs")
        if directory:
            base = Path(directory) if Path(directory).is_absolute() else config.rootpath / directory
        else:
            base = Path(config._tmp_path_factory.getbasetemp()) / "prozess"  # type: ignore[attr-defined]
        worker = getattr(config, "workerinput", {}).get("workerid", "")
        config.stash[_RUNS] = base / worker if worker else base
    return config.stash[_RUNS]


def _command(item: pytest.Item) -> str:
    """Returns the command that runs this test again, with the options of prozess that were given."""
    given = {name: item.config.getoption(f"--prozess-{name}") for name in _OPTIONS}
    words = [f"--prozess-{name}={value}" for name, value in given.items() if value]
    words += ["--prozess-strict"] if item.config.getoption("--prozess-strict") else []
    return shlex.join(["pytest", item.nodeid, *words])
