"""A session of the run stage, from the test process: starts it in its sandbox, tells it what to do, ends it."""

import json
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from harness import catalogue
from harness.configuration import Variant
from harness.errors import BadInput, ClusterFailed, HarnessFailed, NotReady
from harness.plan import Plan
from harness.run_directory import RunDirectory
from harness.supervisor import start_supervisor

START_S = 180.0
"""From nothing to a cluster that takes writes, on a busy machine: the stage has its own limits, which are shorter."""
ANSWER_S = 60.0
END_S = 60.0
_ERRORS: Mapping[str, type[HarnessFailed | BadInput]] = {"BadInput": BadInput, "UnsupportedFault": BadInput}


class ClusterSession:
    """A running cluster. For one thread at a time."""

    def __init__(self, plan: Plan, run: RunDirectory, *, isolation: str) -> None:
        """Start it; returns once it takes writes. HarnessFailed, with the reason, if it does not."""
        self.plan, self.run = plan, run
        run.create()
        run.plan.write_text(plan.model_dump_json(indent=1), encoding="utf-8")
        listeners: dict[int, socket.socket] = {}
        if plan.backend == "local":  # the nodes are in a network of their own
            listeners = catalogue.service("listen")(plan.broker_ids)
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
        """For clients of this process."""
        return str(self.facts["bootstrap_servers"])

    @property
    def variant(self) -> Variant:
        """The kind of cluster."""
        return self.plan.variant

    @property
    def alive(self) -> bool:
        """Is the stage there?"""
        return self._process.poll() is None

    def call(self, do: str, *, timeout_s: float = ANSWER_S, **arguments: Any) -> Any:  # noqa: ANN401 - JSON values
        """Tell it to do something; what it answers. What it raised is raised here; NotReady if it does not answer."""
        self._number += 1
        number = self._number
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"number": number, "do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._gone() from error
        said = self._await(lambda event: event.get("number") == number, f"the cluster's answer to {do}", timeout_s)
        if "error" in said:
            raise _ERRORS.get(said["kind"], ClusterFailed)(said["error"])
        return said["result"]

    def end(self) -> None:
        """Take the cluster down. Safe to repeat."""
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

    def _start(self, listeners: Mapping[int, socket.socket], isolation: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-P", "-m", "harness.stages.session", str(self.run.path), "--isolation", isolation]
        for broker, listener in listeners.items():
            command += ["--relay", f"{broker}:{listener.fileno()}"]
        if isolation == "namespaces":
            command = catalogue.service("sandbox")(command)
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
        """The event that is waited for. What the stage says of its end is raised."""
        while True:
            try:
                event = self._events.get(timeout=timeout_s)  # each event is a sign of life
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
        return " | ".join(lines[-3:]) or "it said nothing"


def spread(brokers: Sequence[int], *, partitions: int, replication_factor: int) -> list[list[int]]:
    """Brokers of each partition, preferred leader first: round robin. BadInput if there are too few brokers."""
    if not 1 <= replication_factor <= len(brokers):
        raise BadInput(
            f"replication_factor = {replication_factor}: the cluster has {len(brokers)} brokers. Give 1 to {len(brokers)}."
        )
    if partitions < 1:
        raise BadInput(f"partitions = {partitions}: a topic has at least one. Give a positive number.")
    return [[brokers[(p + shift) % len(brokers)] for shift in range(replication_factor)] for p in range(partitions)]
