"""Copiers that are not prozess's own: any application of the user's, and Kafka's TransactionalMessageCopier. Each runs
as a child of a client process, which starts it, writes its heartbeats and ends it. It records nothing, so what it
did is seen in its output topic alone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from prozess.harness.clock import NS_PER_S
from prozess.harness.plan.cell_work import ApplicationWork, CopierWork, work_as
from prozess.harness.plan.plan import Cell, PlannedClient
from prozess.harness.plan.trial_files import trial_directories
from prozess.workloads import messages
from prozess.workloads.client import Client, FatalClient
from prozess.workloads.settings import LaunchContext, RoleOptions, Settings, options_of
from prozess.workloads.verifiable.clients import Tool, die_with_parent
from prozess.workloads.verifiable.settings import java_command, written

POLL_S = 0.05
FAILED_MAX = 5
"""A tool that ended with an error this many times in a row is given up."""
RETRY_AFTER_NS = 300_000_000
"""How long to wait between the end of a tool and its next start."""
SAMPLE_NS = NS_PER_S
"""How often its status becomes a row of `metrics`, at most. The status comes with every poll."""
REMAINING_NOT_KNOWN = 2**63 - 1
"""What the tool reports before it was first assigned partitions (Long.MAX_VALUE)."""


class ApplicationFailed(FatalClient):
    """The application ended by itself, or could not be started."""

    what = "the application failed"


class ChildProcess(Protocol):
    """A process that a client starts and looks after."""

    def ended(self) -> bool:
        """Says whether no process runs any more, whichever way it ended."""
        ...

    def ask_to_end(self) -> None:
        """Sends what makes it finish its work and end by itself. Returns at once."""
        ...

    def look_after(self, *, stopped: bool) -> None:
        """Does what is due for the child process. `stopped`: it was asked to end. ApplicationFailed if it fails before
        that."""
        ...

    def kill(self) -> None:
        """Ends it at once. Safe on one that has ended."""
        ...


def look_after_child(child: ChildProcess, client: Client, *, stop_s: float) -> None:
    """Returns once the client was asked to stop and its child has ended. Until then it writes the client's
    heartbeats and obeys its commands.

    A child that does not end within `stop_s` is killed. ApplicationFailed if it fails before.
    """
    limit_ns = int(stop_s * NS_PER_S)
    stopped_ns: int | None = None
    try:
        while stopped_ns is None or not child.ended():
            for order in client.control.until(timeout_s=POLL_S):
                if isinstance(order.command, messages.StopCommand) and stopped_ns is None:
                    stopped_ns = client.now_ns()
                    child.ask_to_end()
                client.control.send(messages.DoneEvent(number=order.number))
            client.heartbeat(client.now_ns())
            child.look_after(stopped=stopped_ns is not None)
            if stopped_ns is not None and client.now_ns() - stopped_ns >= limit_ns:
                client.log("the child did not end in time: killed")
                child.kill()
    finally:
        child.kill()


class ApplicationOptions(RoleOptions):
    """Says how an application of the user's is started, and how long it may take to end."""

    command: tuple[str, ...]
    environment: dict[str, str]
    stop_s: float


class Application:
    """Runs an application of the user's (role `application`). It has a session
    of its own, so that what it starts is hit by faults, and ended, with it. Its output goes to `logs/NAME.stdout`
    and `.stderr`."""

    def __init__(self, client: Client) -> None:
        self._client, self._options = client, options_of(client.spec, ApplicationOptions)
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Starts it, and returns once it was asked to stop and has ended. ApplicationFailed if it fails before."""
        name, logs = self._client.spec.name.replace("/", "_"), self._client.rows.parent / "logs"
        logs.mkdir(exist_ok=True)
        with (logs / f"{name}.stdout").open("ab") as output, (logs / f"{name}.stderr").open("ab") as errors:
            self._errors = logs / f"{name}.stderr"
            try:
                self._process = subprocess.Popen(
                    list(self._options.command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    env=os.environ | self._options.environment,
                    preexec_fn=_in_a_session_of_its_own,
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise ApplicationFailed(f"it could not be started: {error}") from error
        self._client.control.send(messages.ChildEvent(session=self._process.pid))
        look_after_child(self, self._client, stop_s=self._options.stop_s)

    def issued(self) -> int:
        """Returns 0: an application records nothing."""
        return 0

    def close(self) -> None:
        """There is nothing to flush."""

    def ended(self) -> bool:
        """Says whether its first process has ended."""
        return self._code() is not None

    def _code(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def look_after(self, *, stopped: bool) -> None:
        """ApplicationFailed if it has ended by itself."""
        code = self._code()
        if code is not None and not stopped:
            how = f"was killed by signal {-code}" if code < 0 else f"ended by itself with exit code {code}"
            raise ApplicationFailed(f"it {how}; its last words: {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._errors.read_text(encoding="utf-8", errors="replace")[-4096:].strip().splitlines()
        return lines[-1][:300] if lines else "none"

    def ask_to_end(self) -> None:
        """Asks the application to end, by SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL to it and to what it has started."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """Sends a signal to the application, and to what it has started and left in its group."""
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


class CopierToolOptions(RoleOptions):
    """Says how Kafka's copier is started, and how long it may take to end."""

    command: tuple[str, ...]
    files: dict[str, str]
    stop_s: float


class JavaCopier:
    """Runs Kafka's TransactionalMessageCopier (role `java-copier`). Options: command, files, stop_s.

    The tool ends once it has copied what was there when it was last assigned partitions; so it is started again, until
    it is asked to stop. What it says of its progress becomes `metrics`.
    """

    def __init__(self, client: Client) -> None:
        self._client, self._options = client, options_of(client.spec, CopierToolOptions)
        self._tool: Tool | None = None
        self._failed, self._again_ns = 0, 0
        self._before = self._copied = 0
        """How many records were copied by tools that have ended, and by the one that runs."""
        self._sampled_ns = 0

    def run(self) -> None:
        """Returns once it was asked to stop and the tool has ended. ApplicationFailed if the tool keeps failing."""
        look_after_child(self, self._client, stop_s=self._options.stop_s)

    def issued(self) -> int:
        """Returns 0: the tool records nothing."""
        return 0

    def close(self) -> None:
        """There is nothing to flush."""

    def ended(self) -> bool:
        """Says whether no tool runs."""
        return self._tool is None

    def look_after(self, *, stopped: bool) -> None:
        """Reads what the tool prints, and starts it again when it has ended. ApplicationFailed if it keeps failing."""
        tool = self._tool
        if tool is None:
            if not stopped and self._client.now_ns() >= self._again_ns:
                self._start()
            return
        for status in tool.events(wait_s=0):
            self._take(status)
        code = tool.ended()
        if code is None:
            return
        self._client.control.send(messages.ChildEndedEvent(session=tool.pid))
        self._before, self._copied, self._tool = self._before + self._copied, 0, None
        self._again_ns = self._client.now_ns() + RETRY_AFTER_NS
        self._failed = self._failed + 1 if code else 0
        if not stopped and self._failed:
            self._client.log(f"the tool ended with exit code {code}: started again")
            if self._failed >= FAILED_MAX:
                raise ApplicationFailed(f"the tool ended {self._failed} times in a row, last with exit code {code}")

    def _start(self) -> None:
        command = written(self._options.command, self._options.files, self._client.rows.parent / "tools")
        try:
            self._tool = Tool(command, now_ns=self._client.now_ns, parse=parse_status)
        except OSError as error:
            raise ApplicationFailed(f"it could not be started: {error}") from error
        self._client.control.send(messages.ChildEvent(session=self._tool.pid))

    def _take(self, status: Mapping[str, Any]) -> None:
        self._copied, remaining = int(status["totalProcessed"]), int(status["remaining"])
        now_ns = self._client.now_ns()
        if now_ns - self._sampled_ns < SAMPLE_NS:
            return
        self._sampled_ns = now_ns
        self._client.statistics.sample("copier_records", float(self._before + self._copied))
        known = remaining < REMAINING_NOT_KNOWN
        self._client.statistics.sample("copier_remaining", float(remaining) if known else None)

    def ask_to_end(self) -> None:
        """Sends SIGTERM to the tool, if one runs."""
        if self._tool is not None:
            self._tool.stop()

    def kill(self) -> None:
        """Kills the tool, if one runs."""
        if self._tool is not None:
            self._tool.kill()
            self._tool = None


def parse_status(line: bytes) -> dict[str, Any] | None:
    """Parses a status line of TransactionalMessageCopier (statusAsJson, shutDownString). None if the line is none."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        status = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(status, dict):
        return None
    counts = (status.get("totalProcessed"), status.get("remaining"))
    return status if all(isinstance(n, int) and not isinstance(n, bool) for n in counts) else None


def _in_a_session_of_its_own() -> None:
    os.setsid()
    die_with_parent()


# How copiers that are not ours are started: a process of the user's, and TransactionalMessageCopier from the jars.


JAVA_STOP_S = 15.0
"""How long the tool may take to end: its shutdown hook closes producer and consumer, which may wait for brokers."""


def launch_application(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `application`."""
    application = work_as(ApplicationWork, context.planned.work).configuration
    words = placeholders(context)
    return Settings(
        {},
        ApplicationOptions(
            command=tuple(word.format_map(words) for word in application.command),
            environment={name: value.format_map(words) for name, value in application.environment.items()},
            stop_s=application.stop_s,
        ),
    )


def placeholders(context: LaunchContext) -> dict[str, str]:
    """Returns the values of the placeholders in a command (`prozess.harness.plan.axes.PLACEHOLDERS`)."""
    planned = context.planned
    cell = _cell_of(context, planned)
    assert planned.group_id is not None, planned
    assert cell.derived_topic_name is not None, cell
    return {
        "bootstrap": context.servers,
        "input": cell.topic_name,
        "output": cell.derived_topic_name,
        "group": planned.group_id,
        "instance": str(planned.instance),
        "delivery": cell.delivery or "",
        "python": sys.executable,
        "trials": str(trial_directories()[0]),
    }


def launch_java_copier(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `java-copier`. `--group-mode` subscribes; `--use-group-metadata`
    fences by generation (KIP-447); the number of a partition is required all the same. The tool keeps its own
    settings: no file can be given."""
    planned, copier = context.planned, work_as(CopierWork, context.planned.work).configuration
    assert planned.transactional_id is not None, planned
    named = placeholders(context)
    arguments = [
        *("--broker-list", named["bootstrap"], "--input-topic", named["input"], "--input-partition", "0"),
        *("--output-topic", named["output"]),
        *("--consumer-group", named["group"], "--group-mode", "--use-group-metadata"),
        *("--transactional-id", planned.transactional_id, "--transaction-size", str(copier.batch)),
        *("--transaction-timeout", str(copier.transaction_timeout_ms), "--enable-random-aborts"),
    ]
    version = context.plan.java_version(planned)
    runtime, jars = context.toolbox.java(), context.toolbox.jars(version)
    command, files = java_command(version, "org.apache.kafka.tools.TransactionalMessageCopier", runtime, jars)
    return Settings({}, CopierToolOptions(command=(*command, *arguments), files=files, stop_s=JAVA_STOP_S))


def _cell_of(context: LaunchContext, planned: PlannedClient) -> Cell:
    assert planned.cell is not None, planned
    return context.plan.cells[planned.cell]
