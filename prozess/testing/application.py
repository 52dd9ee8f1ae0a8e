"""Runs applications under test as processes of their own, for `run_application`, `crash` and `recorded_command`."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from prozess.harness.clock import Clock, SystemClock, wait_until
from prozess.harness.errors import BadInput, HarnessFailed, NotReady, ProzessError
from prozess.harness.interfaces.application import (
    APPLICATION_VARIABLE,
    RECORDING_VARIABLE,
    Point,
    Property,
    ReachedPoint,
    RegisteredClient,
    When,
    checked_point,
    read_reached,
    write_points,
)
from prozess.harness.recording.verifiable_output import parse_event
from prozess.harness.run_directory import RunDirectory
from prozess.testing.plans import group_of_members, producer_of
from prozess.testing.recording import Recording

START_S = 30.0
END_S = 30.0
"""How long an application may take to end by itself after SIGTERM."""
GONE_S = 20.0
_WORDS_MAX = 500
_PROCESS = "prozess.testing.application_process"
Killed = Callable[["RunningApplication", int, int, int | None], None]
"""A callback that records a crash in the history: (application, when it was about to die, when it was seen to be dead, number
of its crash point; None = the test killed it)."""


class ApplicationProcess:
    """One process of an application, from its start to its end; a guard holds it (`application_process.py`)."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path, logs: tuple[Path, Path]
    ) -> None:
        """Starts the process. BadInput if it cannot be started."""
        self._guard = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROCESS, "guard", *map(str, logs), "--", *command],
            env=dict(environment), cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._unfinished_line = b""
        self.pid: int | None = None
        self.status: int | None = None
        """The same as `subprocess.Popen.returncode`; None = it runs."""
        self.ended_ns: int | None = None
        self.asked_to_end = False
        self._listen(START_S, until=lambda: self.pid is not None)
        if self.pid is None:
            self.end()
            raise HarnessFailed(f"{command[0]} was not started within {START_S:g} s.")

    def running(self, *, wait_s: float = 0.0) -> bool:
        """Returns whether the process runs. It waits for this long for the process to end."""
        self._listen(wait_s, until=lambda: self.status is not None)
        return self.status is None

    def ask_to_end(self) -> None:
        """Sends SIGTERM to the process and its process group."""
        self.asked_to_end = True
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):
            self._guard.stdin.write(b"t")
            self._guard.stdin.flush()

    def end(self) -> None:
        """Ends the process and everything that it started. Safe to repeat."""
        self.running()
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None and not pipe.closed:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._guard.wait(GONE_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()  # the application dies with its guard
            self._guard.wait(GONE_S)

    def _listen(self, timeout_s: float, *, until: Callable[[], bool]) -> None:
        """Reads the messages of the guard, for up to this many seconds."""
        assert self._guard.stdout is not None
        if self._guard.stdout.closed:
            return
        deadline = time.monotonic() + timeout_s
        while not until():
            readable, _, _ = select.select([self._guard.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                return
            piece = os.read(self._guard.stdout.fileno(), 65_536)
            if not piece:  # the guard itself was killed, and the application with it
                self.status = -signal.SIGKILL if self.status is None else self.status
                return
            *lines, self._unfinished_line = (self._unfinished_line + piece).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, event: Mapping[str, Any]) -> None:
        if "error" in event:
            self.end()
            raise BadInput(f"the application cannot be started: {event['error']}.")
        self.pid = event.get("pid", self.pid)
        self.status, self.ended_ns = event.get("ended", self.status), event.get("at_ns", self.ended_ns)


class RunningApplication:
    """An application under test, as `run_application` returns it: an application that runs in processes of its own, whose
    clients are recorded."""

    def __init__(
        self, name: str, command: Sequence[str], *, run: RunDirectory, killed: Killed,
        restarted: Callable[["RunningApplication"], None], environment: Mapping[str, str], cwd: Path,
    ) -> None:  # fmt: skip
        self.name, self._command, self._run, self._killed, self._cwd = name, list(command), run, killed, cwd
        self._restarted = restarted
        self._environment = {**os.environ, **environment, RECORDING_VARIABLE: str(run.path)}
        self._lives = 0
        self._life: ApplicationProcess | None = None
        self._death_reported = True
        """Has the test asked how this life ended?"""
        self.restart()

    @property
    def life(self) -> str:
        """Returns the name of its current life: NAME#1 until it is restarted, then NAME#2, …"""
        return f"{self.name}#{self._lives}"

    @property
    def pid(self) -> int | None:
        """Returns the id of its process; None once that has ended."""
        return self._current.pid if self.running else None

    @property
    def running(self) -> bool:
        """Returns whether its process has not ended. If it ended at its crash point, the history says so from then on."""
        running = self._current.running()
        self._observe()
        return running

    def wait(self, *, timeout_s: float) -> int:
        """Waits until it has ended, and returns its exit status (-9 after a crash). NotReady if it still runs then."""
        if self._current.running(wait_s=timeout_s):
            raise NotReady(
                awaited=f"the application {self.name} to end",
                timeout_s=timeout_s,
                last_seen=f"it runs; {self._words()}",
            )
        self._observe()
        self._death_reported = True
        assert self._current.status is not None
        return self._current.status

    def stop(self, *, timeout_s: float = END_S) -> int:
        """Sends SIGTERM, and returns the exit status. It is killed if it does not end within `timeout_s`."""
        if self._current.running():
            self._current.ask_to_end()
            if self._current.running(wait_s=timeout_s):
                self._current.end()
                self._current.status = -signal.SIGKILL
        self._observe()
        self._death_reported = True
        assert self._current.status is not None
        return self._current.status

    def kill(self) -> None:
        """Sends SIGKILL at any point of its code. The history records this as a fault. BadInput if it does not run."""
        if not self.running or (pid := self._current.pid) is None:
            raise BadInput(f"the application {self.name} is not running, so it cannot be killed.")
        killed_ns = time.monotonic_ns()
        self._end_at_once(pid)
        if self._current.running(wait_s=GONE_S):
            raise NotReady(awaited=f"{self.name} to be gone", timeout_s=GONE_S, last_seen="it runs")
        self._death_reported = True
        assert self._current.ended_ns is not None
        self._killed(self, killed_ns, self._current.ended_ns, None)

    def restart(self) -> None:
        """Starts it again with the same command. BadInput while it runs."""
        if self._life is not None:
            if self.running:
                raise BadInput(
                    f"the application {self.name} is still running. Stop or crash it before you start it again."
                )
            self._death_reported = True
            self._life.end()
        self._lives += 1
        logs = (self.output, self._run.logs / f"{self.name}.stderr.log")
        environment = {**self._environment, APPLICATION_VARIABLE: self.life}
        self._life, self._death_reported = ApplicationProcess(self._command, environment, self._cwd, logs), False
        self._restarted(self)

    @property
    def output(self) -> Path:
        """Returns the file with its standard output, over all of its lives."""
        return self._run.logs / f"{self.name}.stdout.log"

    @property
    def reached(self) -> ReachedPoint | None:
        """Returns the crash point that ended this life; None if none has."""
        here = [reached for reached in read_reached(self._run.path) if reached.life == self.life]
        return here[0] if here and self._current.status == -signal.SIGKILL else None

    @property
    def condition(self) -> str:
        """Returns the state in words: "runs", "has ended with status 1 (its last line: …)"."""
        return "runs" if self.running else f"has ended with status {self._current.status} ({self._words()})"

    def conclude(self) -> list[str]:
        """Ends it, and returns the findings that its end makes unknown."""
        running = self.running
        if running:
            self.stop()
        self._current.end()
        status = self._current.status
        if running or self._death_reported or status == 0:
            return []
        how = f"by signal {-status}" if status is not None and status < 0 else f"with status {status}"
        return [f"the application {self.name} ended {how}, although the test did not ask for it ({self._words()})"]

    def end(self) -> None:
        """Ends it, whatever the outcome of the test."""
        self._current.end()

    # Parts.

    def _end_at_once(self, pid: int) -> None:
        os.killpg(pid, signal.SIGKILL)

    @property
    def _current(self) -> ApplicationProcess:
        assert self._life is not None
        return self._life

    def _observe(self) -> None:
        """Records once in the history that it crashed at its crash point."""
        reached = None if self._death_reported else self.reached
        if reached is not None and self._current.ended_ns is not None:
            self._death_reported = True
            self._killed(self, reached.time_ns, self._current.ended_ns, reached.number)

    def _words(self) -> str:
        path = self._run.logs / f"{self.name}.stderr.log"
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.exists() else []
        return f"its last line: {lines[-1][:_WORDS_MAX]}" if lines else "it printed nothing"


def command_of(target: str | Sequence[str], arguments: Sequence[str]) -> tuple[list[str], str]:
    """Returns the command for a target, and the application's name. BadInput if nothing can be started."""
    if not isinstance(target, str):
        command = [str(word) for word in (*target, *arguments)]
        if not command:
            raise BadInput("run_application([]): the command is empty. Give its words, or 'module:function'.")
        return command, re.sub(r"[^\w.-]", "_", Path(command[0]).name)
    module, _, function = target.partition(":")
    if not (target.endswith(".py") or (module and function)):
        raise BadInput(
            f"run_application({target!r}) is nothing that can be started. Give 'module:function', 'file.py', "
            "or a command as a list of words."
        )
    if target.endswith(".py") and not Path(target).is_file():
        raise BadInput(
            f"run_application({target!r}): there is no such file. Give its path from where pytest runs, or a whole one."
        )
    command = [sys.executable, "-P", "-m", _PROCESS, "application", target, *map(str, arguments)]
    return command, Path(target).stem if target.endswith(".py") else module.rpartition(".")[2]


# The objects behind the fixtures `run_application` and `crash`: a test's applications, and their crash points.


Started = TypeVar("Started", bound=RunningApplication)


class Applications:
    """The fixture `run_application`: the applications of one test."""

    def __init__(self, recording: Recording, clock: Clock) -> None:
        self._recording, self._clock = recording, clock
        self._running: dict[str, RunningApplication] = {}
        self._points: list[Point] = []
        self._killed: dict[str, tuple[int, list[int]]] = {}
        """Application → the step of its last kill, and the clients that it hit."""

    def __call__(
        self,
        target: str | Sequence[str],
        *arguments: str,
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
        cwd: Path | str = ".",
        kind: type[Started] = RunningApplication,  # type: ignore[assignment] # mypy asks it of every Started
    ) -> Started:
        """Starts an application as a process of its own. BadInput if it cannot be started.

        `target`: "module:function" or "file.py", whose Kafka clients are then recorded without its knowing; or the words of
        any command, whose clients are recorded if it takes them from prozess. What it imports is found as in the test.
        """
        command, short = command_of(target, arguments)
        named = self._unused(name or short)
        given = dict(environment or {})
        path = [given.get("PYTHONPATH", ""), *sys.path]
        application = kind(
            named,
            command,
            run=self._recording.run,
            killed=self._was_killed,
            restarted=self._was_restarted,
            environment=given | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
            cwd=Path(cwd),
        )
        self._running[named] = application
        return application

    def add_point(self, when: When, step: str, nth: int, application: str | None) -> Point:
        """Adds a crash point, which is active from now on."""
        point = checked_point(len(self._points), when, step, nth, application)
        self._points.append(point)
        write_points(self._recording.run.path, self._points)
        return point

    def await_reached(self, point: Point, *, timeout_s: float) -> RunningApplication:
        """Waits until an application has crashed there and its process is gone. NotReady after the limit."""
        wait_until(
            lambda: self._who_reached(point) is not None,
            awaited=f"the crash {point}",
            timeout_s=timeout_s,
            clock=self._clock,
            last_seen=lambda: "; ".join(f"{a.name} {a.condition}" for a in self._running.values()) or "no application",
        )
        application = self._who_reached(point)
        assert application is not None
        return application

    def conclude(self) -> list[str]:
        """Ends all applications, and returns the findings that this makes unknown."""
        doubts: list[str] = []
        for application in self._running.values():
            try:
                doubts += application.conclude()
            except ProzessError as error:
                doubts.append(f"how the application {application.name} ended is not in the history: {error}")
        reached = {reached_point.number for reached_point in read_reached(self._recording.run.path)}
        return doubts + [
            f"the crash {point} was never reached, so the test did not test what follows from it"
            for point in self._points
            if point.number not in reached
        ]

    def end(self) -> None:
        """Ends every application that the test started, with everything that these started. Safe to repeat."""
        for application in self._running.values():
            application.end()

    # Parts.

    def _unused(self, name: str) -> str:
        if not re.fullmatch(r"[\w.-]+", name):
            raise BadInput(
                f"run_application(name={name!r}): files have this name, too, so it may have only letters, "
                "digits, '.', '_' and '-'."
            )
        same = sum(known == name or known.rpartition("-")[0] == name for known in self._running)
        return f"{name}-{same + 1}" if same else name

    def _who_reached(self, point: Point) -> RunningApplication | None:
        for reached_point in read_reached(self._recording.run.path):
            application = self._running.get(reached_point.life.rpartition("#")[0])
            if reached_point.number == point.number and application is not None and not application.running:
                return application
        return None

    def _was_killed(self, application: RunningApplication, killed_ns: int, seen_ns: int, point: int | None) -> None:
        where = "" if point is None else f" {self._points[point]}"
        clients = [c for c in self._recording.registry.clients if c.application == application.life]
        step = self._recording.note_kill(f"{application.name}{where}", clients, killed_ns=killed_ns, seen_ns=seen_ns)
        self._killed[application.name] = step, [c.client for c in clients]

    def _was_restarted(self, application: RunningApplication) -> None:
        if (killed := self._killed.pop(application.name, None)) is not None:
            self._recording.note_restart(*killed, started_ns=self._clock.monotonic_ns())


class Crash:
    """The fixture `crash`: kills an application of the test between two of its own steps."""

    def __init__(self, applications: Applications) -> None:
        self._applications = applications

    def before(self, step: str, *, nth: int = 1, application: str | None = None) -> "CrashPoint":
        """Crashes the application before it takes this step for the nth time. BadInput for a step that is none."""
        return CrashPoint(self._applications, self._applications.add_point("before", step, nth, application))

    def after(self, step: str, *, nth: int = 1, application: str | None = None) -> "CrashPoint":
        """Crashes the application after it has taken this step for the nth time."""
        return CrashPoint(self._applications, self._applications.add_point("after", step, nth, application))


class CrashPoint:
    """A point at which an application must crash. A point that is never reached makes the test unknown."""

    def __init__(self, applications: Applications, point: Point) -> None:
        self._applications, self._point = applications, point

    def wait(self, *, timeout_s: float = 60.0) -> RunningApplication:
        """Waits until the application has crashed there and its process is gone, and returns it: the application, which can
        be started again. NotReady after the limit."""
        return self._applications.await_reached(self._point, timeout_s=timeout_s)


# The objects behind the fixture `recorded_command`: programs in any language, recorded by their output.


CommandKind = Literal["producer", "consumer"]
_NEEDED: Mapping[CommandKind, tuple[str, ...]] = {
    "producer": ("acks", "enable.idempotence", "delivery.timeout.ms"),
    "consumer": ("enable.auto.commit", "isolation.level", "auto.offset.reset"),
}
"""The settings of a program's client that the verdict needs. They have no defaults here, because those of clients differ
(idempotence: KIP-679)."""
_WITHOUT_IDEMPOTENCE = ("retries", "max.in.flight.requests.per.connection")
"""An idempotent producer has them within bounds by itself (KIP-98)."""
_MORE: Mapping[CommandKind, tuple[str, ...]] = {
    "producer": ("bootstrap.servers", "linger.ms", "compression.type"),
    "consumer": (
        *("bootstrap.servers", "group.id", "group.instance.id", "group.protocol", "partition.assignment.strategy"),
        *("session.timeout.ms", "max.poll.interval.ms"),
    ),
}


class RecordedCommand(RunningApplication):
    """A program that prints its operations. Its process is that of its recorder, which dies after it."""

    def printed(self, event: str) -> int:
        """Returns how many lines with this name it has printed so far, in all of its lives."""
        return sum(one.get("name") == event for one in map(parse_event, self.output.read_bytes().splitlines()) if one)

    def wait_printed(self, event: str, *, count: int, timeout_s: float = 60.0) -> None:
        """Waits until it has printed this many lines with this name. NotReady after the limit, or if it ends before."""
        wait_until(
            lambda: self.printed(event) >= count or not self.running,
            awaited=f"{count} × {event} of {self.name}",
            timeout_s=timeout_s,
            clock=SystemClock(),
            last_seen=lambda: f"{self.printed(event)}; it {self.condition}",
        )
        if self.printed(event) < count:
            raise NotReady(
                awaited=f"{count} × {event} of {self.name}",
                timeout_s=timeout_s,
                last_seen=f"{self.printed(event)}; it {self.condition}",
            )

    def _end_at_once(self, pid: int) -> None:
        os.kill(pid, signal.SIGUSR1)  # the program is killed first, and what it had printed is recorded


class RecordedCommands:
    """The fixture `recorded_command`: the programs of one test."""

    def __init__(self, recording: Recording, applications: Applications) -> None:
        self._recording, self._applications = recording, applications
        self._unnamed: dict[str, list[str]] = {}
        """Application → the settings that its test did not give, for each one that was started."""

    def __call__(
        self,
        words: Sequence[str],
        *,
        role: CommandKind,
        configuration: Mapping[str, Property],
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
        cwd: Path | str = ".",
    ) -> RecordedCommand:
        """Starts a program that prints its operations, as Kafka's VerifiableProducer and VerifiableConsumer do
        (docs/pytest.md).

        `{prefix}` among its words, and PROZESS_PREFIX in its environment, is what its values begin with. `configuration`: how
        its client is configured, which nobody but you knows; what is missing there makes the test unknown. BadInput if the
        program cannot be started, or if no client would be configured like that.
        """
        if isinstance(words, str) or not words:
            raise BadInput(f"recorded_command({words!r}): give the words of a command as a list.")
        checked = _checked(role, configuration)
        _findable(str(words[0]), environment or {}, Path(cwd))
        chosen = name or Path(str(words[0])).name
        servers = (
            {} if self._recording.session is None else {"bootstrap.servers": self._recording.session.bootstrap_servers}
        )
        if not servers and "bootstrap.servers" not in checked:
            raise BadInput(
                "recorded_command: nothing says where the brokers are. Take kafka_cluster as an argument of the test, or "
                "name bootstrap.servers in configuration."
            )
        properties = json.dumps({**servers, **checked, "client.id": chosen})
        runner = [sys.executable, "-P", "-m", _PROCESS, "command", role, properties]
        application = self._applications(
            [*runner, *map(str, words)], name=chosen, environment=environment, cwd=cwd, kind=RecordedCommand
        )
        self._unnamed[application.name] = _missing(role, checked)
        return application

    def conclude(self) -> list[str]:
        """Returns what is unknown about programs that have ended."""
        doubts = [
            f"{name}: prozess does not know its client's {', '.join(missing)}; give recorded_command(…, configuration={{…}})"
            for name, missing in self._unnamed.items()
            if missing
        ]
        commands = [client for client in self._recording.registry.clients if client.is_command]
        doubts += [f"{client.application}: {what}" for client in commands for what in client.doubts]
        spoke = {client.application.rpartition("#")[0] for client in commands if client.wrote or client.read}
        return doubts + [
            f"{name} printed nothing about any record, so nothing of it can be judged"
            for name in self._unnamed
            if name not in spoke
        ]

    def end(self) -> None:
        """Does nothing: the applications end themselves."""


def _findable(program: str, environment: Mapping[str, str], cwd: Path) -> None:
    """Raises BadInput if there is no such program."""
    path = environment.get("PATH", os.environ.get("PATH", ""))
    if shutil.which(program if os.sep not in program else str(cwd / program), path=path) is None:
        raise BadInput(
            f"recorded_command: {program!r} cannot be started: there is no such program. Install it, or give its whole path."
        )


def _checked(role: CommandKind, configuration: Mapping[str, Property]) -> dict[str, Any]:
    """Raises BadInput for unknown or contradictory properties."""
    if role not in _NEEDED:
        raise BadInput(f"recorded_command(role={role!r}): role is 'producer' or 'consumer'.")
    known = [*_NEEDED[role], *(_WITHOUT_IDEMPOTENCE if role == "producer" else ()), *_MORE[role]]
    for key, value in configuration.items():
        if key not in known:
            raise BadInput(
                f"recorded_command: prozess does not judge {key!r} of a program. For a {role} give "
                f"{', '.join(known)}, with librdkafka's names, and leave the rest out."
            )
        if not isinstance(value, str | int | float | bool):
            raise BadInput(
                f"recorded_command: configuration[{key!r}] = {value!r}. Give text, a number or a truth value."
            )
    checked = dict(configuration)
    if role == "producer":
        producer_of(checked)
        return checked
    if str(checked.get("enable.auto.commit", False)).lower() == "true":
        raise BadInput(
            "recorded_command: enable.auto.commit = true: the program cannot print what its client commits "
            "automatically, so prozess could not judge it. Commit after processing, and print "
            "offsets_committed."
        )
    group_of_members([RegisteredClient(1, "consumer", 0, checked)])
    return checked


def _missing(role: CommandKind, checked: Mapping[str, Property]) -> list[str]:
    idempotent = str(checked.get("enable.idempotence", False)).lower() == "true"
    needed = (*_NEEDED[role], *(_WITHOUT_IDEMPOTENCE if role == "producer" and not idempotent else ()))
    return [key for key in needed if key not in checked]
