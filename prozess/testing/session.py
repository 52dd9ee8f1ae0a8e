"""Starts the Kafka clusters that tests share, each in a process of its own, with the settings that tests ask for.

A test asks by marker, else on the command line, else in the ini file. Each cluster runs in its sandbox and gets its commands
over a pipe. Tests that need a cluster like it share it."""

import json
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from prozess.app.run.outside_sandbox import begin_plan
from prozess.app.run.progress import ProgressView
from prozess.app.run.supervisor import start_supervisor
from prozess.clusters.registry import backend_named
from prozess.harness.config.configuration import LAST_WITH_ZOOKEEPER, NEWEST_VERSION, Variant, version_numbers
from prozess.harness.config.known_properties import misspelt
from prozess.harness.errors import BadInput, ClusterFailed, HarnessFailed, NotReady
from prozess.harness.machine_record import record_of
from prozess.harness.plan import catalogue
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.plan.trial import Limits
from prozess.harness.run_directory import RunDirectory
from prozess.harness.suggestions import did_you_mean
from prozess.testing.expectations import OF_APPLICATIONS

SCOPES = ("function", "module", "session")
UNAVAILABLE = ("fail", "skip")
METADATA_MODES = ("kraft-isolated", "kraft-combined", "zookeeper")
NO_ZOOKEEPER = (4,)
BACKENDS = ("local", "compose")
"""The backends that start a cluster of their own. For any other cluster, give clients its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSettings:
    """The settings of one test. `faults`: faults for which nodes must be prepared before they start (disks, clocks,
    power)."""

    __test__ = False

    backend: str = "local"
    variant: str = "kraft-isolated"
    version: str = NEWEST_VERSION
    """Where the variant is ZooKeeper's and no version is asked for: the last that has it."""
    brokers: int = 3
    scope: str = "session"
    properties: tuple[tuple[str, str], ...] = ()
    """Properties of the brokers."""
    faults: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    """Anomalies that fail the test although the configuration permits them."""
    unavailable: str = "fail"
    isolation: str = "auto"
    strict: bool = False
    """True if a test without expectations about its application fails."""

    @property
    def cluster(self) -> tuple[object, ...]:
        """Returns a key that is equal for tests that can share a cluster."""
        return (self.backend, self.variant, self.version, self.brokers, self.properties, self.faults, self.isolation)


def settings_from(configured: Mapping[str, object], marked: Mapping[str, object]) -> TestSettings:
    """Returns the settings of a test. `configured`: of command line and ini file; `marked`: of its markers.
    BadInput for what is not known."""
    known = [f.name for f in fields(TestSettings)]
    for name in marked:
        if name not in known:
            hint = did_you_mean(name, known, otherwise=f"Known: {', '.join(known)}.")
            raise BadInput(f"@pytest.mark.prozess({name}=…) is not known; {hint}")
    given = {**configured, **marked}
    default = TestSettings()
    variant = str(given.get("variant", default.variant))
    version = LAST_WITH_ZOOKEEPER if variant == "zookeeper" else default.version
    settings = TestSettings(
        backend=str(given.get("backend", default.backend)),
        variant=variant,
        version=str(given.get("version", version)),
        brokers=_brokers(given.get("brokers", default.brokers)),
        scope=str(given.get("scope", default.scope)),
        properties=_properties(given.get("properties", ())),
        faults=_names("faults", given.get("faults", ())),
        forbid=_names("forbid", given.get("forbid", ())),
        unavailable=str(given.get("unavailable", default.unavailable)),
        isolation=str(given.get("isolation", default.isolation)),
        strict=_truth("strict", given.get("strict", default.strict)),
    )
    for name, allowed in (
        ("backend", BACKENDS),
        ("variant", METADATA_MODES),
        ("scope", SCOPES),
        ("unavailable", UNAVAILABLE),
        ("isolation", ("auto", "namespaces", "signals")),
    ):
        value = getattr(settings, name)
        if value not in allowed:
            raise BadInput(f"prozess {name} = {value!r} is not known. Known: {', '.join(allowed)}.")
    _refuse_unknown_names(settings)
    if settings.variant == "zookeeper" and version_numbers(settings.version) >= NO_ZOOKEEPER:
        raise BadInput(
            f"prozess version = {settings.version!r}: 3.9 is the last line of Kafka that has a ZooKeeper mode (KIP-833). "
            f"Leave it away, or give {LAST_WITH_ZOOKEEPER}, or another variant."
        )
    return settings


def _refuse_unknown_names(settings: TestSettings) -> None:
    """Raises BadInput for unknown names: an unknown anomaly would forbid nothing, an unknown fault prepare nothing, and
    brokers ignore unknown properties.
    """
    asked: tuple[tuple[str, Collection[str], Callable[[], Collection[str]]], ...] = (
        ("forbid", settings.forbid, lambda: {*catalogue.ANOMALIES, *OF_APPLICATIONS}),
        ("faults", settings.faults, lambda: catalogue.FAULTS),
    )
    for name, given, names in asked:
        if not given:
            continue  # the registries are imported only if they are needed
        known = names()
        if wrong := next((value for value in given if value not in known), None):
            hint = did_you_mean(wrong, known, otherwise=f"Known: {', '.join(sorted(known))}.")
            raise BadInput(f"prozess {name} = {wrong!r} is not known; {hint}")
    for name, _ in settings.properties:
        if meant := misspelt("broker", name):
            raise BadInput(f"prozess properties: {name} is no property of Kafka's; did you mean {meant!r}?")


def _properties(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping | list | tuple):
        raise BadInput(
            f"prozess properties = {value!r} must be a mapping of names to values: {{'num.io.threads': 16}}."
        )
    return tuple(sorted((str(name), _property(each)) for name, each in dict(value).items()))


def _names(setting: str, value: object) -> tuple[str, ...]:
    """Returns the names in a marker's list, or in a line of an ini file."""
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, Iterable):
        return tuple(str(each) for each in value)
    raise BadInput(f"prozess {setting} = {value!r} must be a list of names, or names with spaces between them.")


def _brokers(value: object) -> int:
    if not str(value).isdigit() or not 1 <= int(str(value)) <= 9:
        raise BadInput(f"prozess brokers = {value!r} must be a number from 1 to 9.")
    return int(str(value))


def _truth(setting: str, value: object) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise BadInput(f"prozess {setting} = {value!r} must be true or false.")
    return str(value).lower() == "true"


def _property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


START_S = 180.0
"""How long a cluster may take to start on a busy machine: the stage has its own limits, which are shorter."""
ANSWER_S = 60.0
END_S = 60.0
CLUSTERS_MAX = 10_000
_ERRORS: Mapping[str, type[HarnessFailed | BadInput]] = {"BadInput": BadInput, "UnsupportedFault": BadInput}


class ClusterSession:
    """A running cluster, in a process of its own. For one thread at a time."""

    def __init__(self, plan: Plan, run: RunDirectory, *, isolation: str) -> None:
        """Starts the cluster, and returns once it accepts writes. HarnessFailed, with the reason, if it does not."""
        from prozess.clusters.local.cluster import listen

        self.plan, self.run = plan, run
        run.create()
        begin_plan(plan, run)
        listeners: dict[int, socket.socket] = {}
        if backend_named(plan.backend).relayed:
            listeners = listen(plan.broker_ids)
        try:
            self._process = self._start(listeners, isolation)
        finally:
            for listener in listeners.values():
                listener.close()  # the relay's alone
        self._supervisor = start_supervisor(run, self._process.pid)
        self._number = 0
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name="prozess-session", daemon=True)
        self._reader.start()
        try:
            self.facts = self._await(lambda event: event["event"] == "ready", "the cluster", START_S)
        except BaseException:
            self.end()
            raise

    @property
    def bootstrap_servers(self) -> str:
        """Returns the addresses of the brokers, for clients of this process."""
        return str(self.facts["bootstrap_servers"])

    @property
    def variant(self) -> Variant:
        """Returns the kind of cluster."""
        return self.plan.variant

    @property
    def alive(self) -> bool:
        """Returns whether the cluster's process is alive."""
        return self._process.poll() is None

    def call(self, do: str, *, timeout_s: float = ANSWER_S, **arguments: object) -> object:
        """Has the cluster's session do something, and returns its answer, a JSON value.

        `arguments` are JSON values. What the session raised is raised here; NotReady if it does not answer in time.
        """
        self._number += 1
        number = self._number
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"number": number, "do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._gone() from error
        answer = self._await(lambda event: event.get("number") == number, f"the cluster's answer to {do}", timeout_s)
        if "error" in answer:
            raise _ERRORS.get(answer["kind"], ClusterFailed)(answer["error"])
        return answer["result"]

    def end(self) -> None:
        """Takes the cluster down. Safe to repeat."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_S)
        self._reader.join(END_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._supervisor.done()
        if self._process.returncode == 0 and (record := record_of(self.run)) is not None:
            record.settle()  # its teardown left nothing

    def _start(self, listeners: Mapping[int, socket.socket], isolation: str) -> "subprocess.Popen[str]":
        from prozess.clusters.machine.sandbox import enter_command

        command = [
            sys.executable,
            "-P",
            "-m",
            "prozess.app.run.session",
            str(self.run.path),
            "--isolation",
            isolation,
        ]
        for broker, listener in listeners.items():
            command += ["--relay", f"{broker}:{listener.fileno()}"]
        if isolation == "namespaces":
            command = enter_command(command)
        with (self.run.logs / "run_stage.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                pass_fds=[listener.fileno() for listener in listeners.values()],
            )

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):  # a torn last line of a stage that was killed
                self._events.put(json.loads(line))
        self._events.put(None)

    def _await(self, wanted: Callable[[dict[str, Any]], bool], awaited: str, timeout_s: float) -> dict[str, Any]:
        """Waits for an event. An error that the stage reports is raised."""
        while True:
            try:
                event = self._events.get(timeout=timeout_s)  # each event shows that the stage is alive
            except queue.Empty as error:
                raise NotReady(awaited=awaited, timeout_s=timeout_s, last_seen=self._last_words()) from error
            if event is None:
                self._events.put(None)
                raise self._gone()
            if event["event"] == "error":
                raise _ERRORS.get(event["kind"], ClusterFailed)(event["text"])
            if wanted(event):
                return event

    def _gone(self) -> ClusterFailed:
        return ClusterFailed(f"The cluster's session has ended: {self._last_words()}. See {self.run.path}.")

    def _last_words(self) -> str:
        log = self.run.logs / "run_stage.log"
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
        return " | ".join(lines[-3:]) or "it printed nothing"


def spread(brokers: Sequence[int], *, partitions: int, replication_factor: int) -> list[list[int]]:
    """Returns the brokers of each partition, the preferred leader first: round robin. BadInput if there are too few
    brokers."""
    if not 1 <= replication_factor <= len(brokers):
        raise BadInput(
            f"replication_factor = {replication_factor}: the cluster has {len(brokers)} brokers. Give 1 to {len(brokers)}."
        )
    if partitions < 1:
        raise BadInput(f"partitions = {partitions}: a topic has at least one. Give a positive number.")
    return [[brokers[(p + shift) % len(brokers)] for shift in range(replication_factor)] for p in range(partitions)]


# Clusters of a test process: started when a test first needs one like it, kept for those that can share it.


QUICK_SESSIONS = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
"""Default broker properties of tests: a dead broker is detected within seconds, and a group starts at once."""


class Clusters:
    """The clusters of a test process. At most one runs at a time: each is several hundred MB."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._session: ClusterSession | None = None
        self._key: tuple[object, ...] = ()
        self.held: dict[str, str] = {}
        """The fixtures of more than one test that hold the cluster's addresses: name → scope."""

    @property
    def held_session(self) -> ClusterSession | None:
        """Returns the running cluster if a fixture holds it."""
        return self._session if self.held else None

    def conflict(self, settings: TestSettings) -> str | None:
        """Returns why a test cannot have a cluster with these settings while fixtures hold another; None if it can."""
        if not self.held:
            return None
        name, scope = next(iter(self.held.items()))
        if self._session is None or not self._session.alive:
            return (
                f"the fixture {name!r} (scope {scope}) holds the addresses of a cluster that is gone: it could not be made "
                "whole after a test, or its process died. Give the fixture a narrower scope, or mend that test."
            )
        if self._key != settings.cluster:
            return (
                f"the fixture {name!r} (scope {scope}) holds the addresses of the running cluster, and this test asks for "
                "another kind (@pytest.mark.prozess). One cluster runs at a time. Put the test into a module that does "
                "not use the fixture, and give the fixture the scope module, or ask for one kind of cluster."
            )
        return None

    def get(self, settings: TestSettings) -> ClusterSession:
        """Returns a running cluster with these settings. ProzessError with the reason if it cannot be started here."""
        if self._session is not None and (self._key != settings.cluster or not self._session.alive):
            self.end()
        if self._session is None:
            self._session, self._key = self._start(settings), settings.cluster
        return self._session

    def end(self) -> None:
        """Takes down the running cluster."""
        session, self._session = self._session, None
        if session is not None:
            session.end()

    def _start(self, settings: TestSettings) -> ClusterSession:
        from prozess.app.conduct import prepare_machine

        plan = cluster_plan(settings)
        run = new_cluster_directory(self._runs)
        with ProgressView(quiet=True) as view:
            isolation = prepare_machine(plan, settings.isolation, view)
        return ClusterSession(plan, run, isolation=isolation)


def new_cluster_directory(runs: Path) -> RunDirectory:
    """Makes a directory for a cluster that no other has: cluster-1, or the first number that is free. Another session of
    pytest may have the same `--prozess-runs`, at the same time."""
    for number in range(1, CLUSTERS_MAX + 1):
        path = runs.resolve() / f"cluster-{number}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise BadInput(f"prozess_runs {str(runs)!r}: cannot make {path.name} there ({error.strerror}).") from error
        return RunDirectory(path)
    raise BadInput(f"prozess_runs {str(runs)!r} has ten thousand clusters of former sessions; remove some.")


def cluster_plan(settings: TestSettings) -> Plan:
    """Returns the plan that a cluster is started from: no cells, and the faults it is to be prepared for."""
    variant = Variant.model_validate(
        {
            "metadata_mode": settings.variant,
            "kafka_version": settings.version,
            "brokers": settings.brokers,
            "properties": {**_quick(settings.variant), **dict(settings.properties)},
        }
    )
    steps = [
        Step(name=f"prepared for {fault}", do=FaultAction(kind="fault", fault=fault, targets=("brokers",)))
        for fault in settings.faults
    ]
    return Plan(
        origin="recorded",
        trial="cluster",
        title="A cluster for tests",
        scenarios=(),
        seed=0,
        backend=settings.backend,
        variant=variant,
        limits=Limits(),
        settle_s=0,
        cells=(),
        excluded=(),
        partitions=(),
        clients=(),
        steps=tuple(steps),
        controls=(),
        metrics="clock" in settings.faults,
    )


def _quick(metadata_mode: str) -> dict[str, str]:
    if metadata_mode == "zookeeper":
        return {k: v for k, v in QUICK_SESSIONS.items() if not k.startswith("broker.")} | {
            "zookeeper.session.timeout.ms": "6000"
        }
    return QUICK_SESSIONS
