"""Copiers that are not ours: any process of the user's, and Kafka's TransactionalMessageCopier. Each is a child of a client
process, which starts it, beats for it, and ends it; it records nothing, so what it did is seen in its output topic alone.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from workloads.client import Client, FatalClient
from workloads.producer import NS_PER_S
from workloads.verifiable_properties import written
from workloads.verifiable_tool import Tool, die_with_parent

POLL_S = 0.05
FAILED_MAX = 5
"""So many times in a row a tool may end with an error, before it is given up."""
AGAIN_NS = 300_000_000
"""Between the end of a tool and its next start."""
SAMPLE_NS = NS_PER_S
"""Its status comes with every poll; a row of `metrics` no oftener than so."""
REMAINING_NOT_KNOWN = 2**63 - 1
"""What the tool says before it was first assigned partitions (Long.MAX_VALUE)."""


class ApplicationFailed(FatalClient):
    """The application ended by itself, or could not be started."""

    what = "the application failed"


class _Child:
    """What both have in common: obey, beat, and end the child within its limit."""

    def __init__(self, client: Client) -> None:
        self._client, self._options = client, client.spec.options
        self._stopped_ns: int | None = None

    def run(self) -> None:
        """Until `stop` and the end of the child. ApplicationFailed if it fails before."""
        try:
            while not self._over():
                for command in self._client.control.until(timeout_s=POLL_S):
                    if command["do"] == "stop" and self._stopped_ns is None:
                        self._stopped_ns = self._client.now_ns()
                        self._ask_to_end()
                    self._client.control.tell("done", number=command["number"])
                self._client.heartbeat(self._client.now_ns())
                self._look_after()
                if self._late():
                    self._client.log("the child did not end in time: killed")
                    self._kill()
        finally:
            self._kill()

    def issued(self) -> int:
        """It records nothing."""
        return 0

    def close(self) -> None:
        """There is nothing to flush."""

    def _late(self) -> bool:
        limit_ns = int(float(self._options["stop_s"]) * NS_PER_S)
        return self._stopped_ns is not None and self._client.now_ns() - self._stopped_ns >= limit_ns

    def _over(self) -> bool:
        raise NotImplementedError

    def _ask_to_end(self) -> None:
        raise NotImplementedError

    def _look_after(self) -> None:
        raise NotImplementedError

    def _kill(self) -> None:
        raise NotImplementedError


class Application(_Child):
    """The role `application`: a process of the user's. Options: command, environment, stop_s. It has a session of its
    own, so that what it starts is hit by faults, and ended, with it. Its output goes to `logs/NAME.stdout` and `.stderr`."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start it, and see `_Child.run`. ApplicationFailed if it cannot be started."""
        name, logs = self._client.spec.name.replace("/", "_"), self._client.rows.parent / "logs"
        logs.mkdir(exist_ok=True)
        with (logs / f"{name}.stdout").open("ab") as output, (logs / f"{name}.stderr").open("ab") as errors:
            self._errors = logs / f"{name}.stderr"
            try:
                self._process = subprocess.Popen(
                    list(self._options["command"]),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    env=os.environ | dict(self._options["environment"]),
                    preexec_fn=_in_a_session_of_its_own,
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise ApplicationFailed(f"it could not be started: {error}") from error
        self._client.control.tell("child", session=self._process.pid)
        super().run()

    def _over(self) -> bool:
        return self._stopped_ns is not None and self._code() is not None

    def _code(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def _look_after(self) -> None:
        code = self._code()
        if code is not None and self._stopped_ns is None:
            how = f"was killed by signal {-code}" if code < 0 else f"ended by itself with exit code {code}"
            raise ApplicationFailed(f"it {how}; its last words: {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._errors.read_text(encoding="utf-8", errors="replace")[-4096:].strip().splitlines()
        return lines[-1][:300] if lines else "none"

    def _ask_to_end(self) -> None:
        self._signal(signal.SIGTERM)

    def _kill(self) -> None:
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """To it and what it started and left in its group."""
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


class JavaCopier(_Child):
    """The role `java-copier`: Kafka's TransactionalMessageCopier. Options: command, files, stop_s.

    The tool ends once it has copied what was there when it was last assigned partitions; so it is started again, until
    it is told to stop. What it says of its progress becomes `metrics`.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._tool: Tool | None = None
        self._failed, self._again_ns = 0, 0
        self._before = self._copied = 0
        """Copied by tools that have ended; by this one."""
        self._sampled_ns = 0

    def _over(self) -> bool:
        return self._stopped_ns is not None and self._tool is None

    def _look_after(self) -> None:
        tool = self._tool
        if tool is None:
            if self._stopped_ns is None and self._client.now_ns() >= self._again_ns:
                self._start()
            return
        for status in tool.events(wait_s=0):
            self._take(status)
        code = tool.ended()
        if code is None:
            return
        self._client.control.tell("child-ended", session=tool.pid)
        self._before, self._copied, self._tool = self._before + self._copied, 0, None
        self._again_ns = self._client.now_ns() + AGAIN_NS
        self._failed = self._failed + 1 if code else 0
        if self._stopped_ns is None and self._failed:
            self._client.log(f"the tool ended with exit code {code}: started again")
            if self._failed >= FAILED_MAX:
                raise ApplicationFailed(f"the tool ended {self._failed} times in a row, last with exit code {code}")

    def _start(self) -> None:
        command = written(self._options["command"], self._options["files"], self._client.rows.parent / "tools")
        try:
            self._tool = Tool(command, now_ns=self._client.now_ns, parse=parse_status)
        except OSError as error:
            raise ApplicationFailed(f"it could not be started: {error}") from error
        self._client.control.tell("child", session=self._tool.pid)

    def _take(self, status: Mapping[str, Any]) -> None:
        self._copied, remaining = int(status["totalProcessed"]), int(status["remaining"])
        now_ns = self._client.now_ns()
        if now_ns - self._sampled_ns < SAMPLE_NS:
            return
        self._sampled_ns = now_ns
        self._client.statistics.sample("copier_records", float(self._before + self._copied))
        known = remaining < REMAINING_NOT_KNOWN
        self._client.statistics.sample("copier_remaining", float(remaining) if known else None)

    def _ask_to_end(self) -> None:
        if self._tool is not None:
            self._tool.stop()

    def _kill(self) -> None:
        if self._tool is not None:
            self._tool.kill()
            self._tool = None


def parse_status(line: bytes) -> dict[str, Any] | None:
    """A status line of TransactionalMessageCopier (statusAsJson, shutDownString); None if it is none."""
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
