"""The run stage as a session: brings a cluster up and keeps it, for tests that come one after the other.

    python -m prozess.app.run.session DIRECTORY --isolation namespaces --relay BROKER:FD …

It reads commands as JSON lines on standard input, and answers each by an event on standard output. The clients are
elsewhere: a test's own, in its process, through the relay. Each test has a run directory of its own, in which this writes
what every run stage does: faults, steps, metadata, replicas. The end of standard input is the end of the session.
"""

import argparse
import json
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from prozess.app.run.admin_calls import AdminCalls
from prozess.app.run.child import EventLog, InterruptibleClock, carry_out, events_on_standard_output
from prozess.app.run.cluster_state import Inspector, keep_ground_truth
from prozess.app.run.coordinators_logs import keep_coordinators_logs
from prozess.app.run.hanging_transactions import end_hanging
from prozess.app.run.kill_rows import rows_from_json, write_rows
from prozess.app.run.limits_reached import StageLimits, fence_and_audit
from prozess.app.run.samplers import Sampler
from prozess.app.run.schedule_runner import Actors, Context, ScheduleRunner, wait_whole
from prozess.app.run.trial_topics import TrialTopics
from prozess.app.wiring import TOOLBOX
from prozess.clusters.existing.adoption import made_in
from prozess.clusters.local.cluster import LocalCluster
from prozess.clusters.protocol.admin import Admin
from prozess.clusters.registry import backend_named
from prozess.harness.clock import measure_wall_offset
from prozess.harness.config.existing_clusters import only_if
from prozess.harness.errors import ProzessError
from prozess.harness.interfaces import AdminProtocol, Cluster, TopicSpec
from prozess.harness.plan.plan import Plan, read_plan
from prozess.harness.plan.schedule import ClientCommand, Step
from prozess.harness.recording.rows import Recorder
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.nemesis.nemesis import Nemesis
from prozess.workloads.runtime.clients import Clients
from prozess.workloads.runtime.processes import ForkServers

TOPICS_S = 60.0


class SessionRun:
    """One test of a session: its recorder, its nemesis and its audit, from `begin` to `finish`."""

    def __init__(
        self,
        run: RunDirectory,
        cluster: Cluster,
        admin: AdminProtocol,
        clock: InterruptibleClock,
        servers: ForkServers,
    ) -> None:
        self.run, self._cluster, self._admin, self._clock, self._servers = run, cluster, admin, clock, servers
        self.recorder = Recorder(run)
        self.nemesis = Nemesis(run, cluster, admin, self.recorder, clock)
        self._sampling: ExitStack | None = None
        self._sampled: tuple[str, ...] = ()
        self._reported: dict[int, str] = {}
        self._wall_minus_monotonic_ns, error_ns = measure_wall_offset(clock)
        self._start_ns = clock.monotonic_ns()
        write_json(
            run.clock,
            {
                "start_monotonic_ns": self._start_ns,
                "wall_minus_monotonic_ns": self._wall_minus_monotonic_ns,
                "wall_error_ns": error_ns,
            },
        )
        write_json(run.cluster, dict(cluster.describe()))

    def step(self, number: int, step: Step) -> str | None:
        """Carries out a step. Returns why it was not done, or None."""
        plan = self._plan()
        workload = _NoWorkload()
        inspector = Inspector(plan, self._cluster, self.recorder, self._clock, lambda *_, **__: None)
        topics = TrialTopics(plan, self._admin, workload, self.recorder)
        runner = ScheduleRunner(
            self._context(plan, inspector),
            Actors(workload, self.nemesis, inspector, topics),
            recorder=self.recorder,
            clock=self._clock,
            start_ns=self._start_ns,
            announce=lambda at, _, what: self._reported.update({at: what}),
        )
        return None if runner.carry_out(number, step) else self._reported[number]

    def heal(self, *, timeout_s: float) -> None:
        """Undoes every fault, and waits until every replica is in sync on every broker's own view."""
        with self._clock.shielded():
            self.nemesis.heal(None)
        context = self._context(self._plan())
        if context.plan.partitions:
            wait_whole(context, timeout_s=timeout_s, clock=self._clock, keep_up=self.nemesis.keep_up)

    def finish(self, emit: Callable[..., None]) -> dict[str, Any]:
        """Fences and audits, and records what the nodes' own files say. The test's clients have written their last rows
        before."""
        plan, audited = self._plan(), {}
        try:
            if plan.partitions:
                audited = self._audit(plan)
                Inspector(plan, self._cluster, self.recorder, self._clock, emit).inspect(
                    [p.partition for p in plan.partitions]
                )
            self._stop_sampling()
            keep_coordinators_logs(plan, self._cluster, self.recorder, self._wall_minus_monotonic_ns, emit)
            try:
                keep_ground_truth(plan, self._cluster, self.recorder, self._wall_minus_monotonic_ns)
            except ProzessError as error:
                audited["no_ground_truth"] = str(error)
        finally:
            self.close()
        return audited

    def close(self) -> None:
        """Writes no more rows. You may call it twice."""
        self._stop_sampling()
        self.recorder.close()

    def _audit(self, plan: Plan) -> dict[str, Any]:
        workload = Clients(
            plan, self.run, cluster=self._cluster, clock=self._clock, toolbox=TOOLBOX, servers=self._servers
        )
        try:
            unfenced, result = fence_and_audit(
                workload,
                StageLimits(self.run, lambda *_, **__: None),
                plan.limits.audit_s,
                end_open=lambda unfenced: end_hanging(
                    plan,
                    self.run,
                    self._cluster,
                    self._admin,
                    self._clock,
                    unfenced=unfenced,
                    emit=lambda *_, **__: None,
                ),
                topics_may_go=True,
            )
        finally:
            workload.close()
        incomplete = sorted(set(result.incomplete.values()))
        return {"audited": len(result.complete), "incomplete": incomplete, "unfenced": dict(unfenced)}

    def _plan(self) -> Plan:
        """Reads the plan as far as the test has come. Sampling is started again if the test has new topics."""
        plan = read_plan(self.run)
        self.nemesis.reread_plan()
        topics = tuple(sorted({p.topic_name for p in plan.partitions}))
        if topics != self._sampled or self._sampling is None:
            self._stop_sampling()
            self._sampled, self._sampling = topics, ExitStack()
            self._sampling.enter_context(Sampler(plan, self._cluster, self.recorder, self._clock))
            self._sampling.enter_context(AdminCalls(plan, self._cluster, self.recorder, self._clock))
        return plan

    def _stop_sampling(self) -> None:
        if self._sampling is not None:
            self._sampling.close()
            self._sampling = None

    def _context(self, plan: Plan, inspector: Inspector | None = None) -> Context:
        return Context(
            plan=plan,
            admin=self._admin,
            progress=dict,
            unhealed=self.nemesis.unhealed,
            now_ns=self._clock.monotonic_ns,
            log_ends=(lambda _: {}) if inspector is None else inspector.log_ends,
        )


class _NoWorkload:
    """Stands for the workload of a session: a test commands its clients itself."""

    def command(self, action: ClientCommand) -> None:
        """Is never called: no step of a test commands clients."""
        raise AssertionError(action)

    def begin(self, partitions: Collection[int]) -> None:
        """Is never called: no test has late partitions."""
        raise AssertionError(partitions)

    def appeared(self, partitions: Collection[int], *, there: bool) -> None:
        """Does nothing: a session has no clients of its own."""


class Session:
    """A cluster, and the tests that use it one after the other."""

    def __init__(
        self, plan: Plan, run: RunDirectory, *, isolation: str, clock: InterruptibleClock, events: EventLog,
        listeners: Mapping[int, socket.socket],
    ) -> None:  # fmt: skip
        self._plan, self._run, self._clock, self._events = plan, run, clock, events
        ports = {broker: listener.getsockname()[1] for broker, listener in listeners.items()}
        self._relayed = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        self._cluster: Cluster
        self._start_relay: Callable[[], subprocess.Popen[bytes] | None]
        if ports:
            relayed = LocalCluster(plan, run, clock=clock, isolation=isolation, relay_ports=ports)
            self._cluster, self._start_relay = relayed, lambda: relayed.start_relay(listeners)
        else:
            self._cluster = backend_named(plan.backend).make(plan, run, clock=clock, isolation=isolation)
            self._start_relay = lambda: None
        self._admin = Admin(self._cluster, made=made_in(plan, run))
        self._recording: SessionRun | None = None
        self._servers = ForkServers()

    def serve(self, commands: "queue.Queue[dict[str, Any] | None]") -> None:
        """Obeys commands until there are no more. Whatever happens, the cluster is taken down."""
        with ExitStack() as at_exit:
            at_exit.callback(self._take_down)
            at_exit.callback(self._servers.close)
            self._cluster.setup()
            relay = self._start_relay()
            if relay is not None:
                at_exit.callback(_end, relay)
            self._cluster.wait_ready(timeout_s=self._plan.limits.ready_s)
            write_json(self._run.cluster, dict(self._cluster.describe()))
            self._events.emit("ready", **self._facts())
            while (command := commands.get()) is not None:
                self._obey(command)

    def _facts(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self._relayed or self._cluster.bootstrap_servers,
            "nodes": [node.name for node in self._cluster.nodes],
            "capabilities": {str(name): how for name, how in self._cluster.capabilities.items()},
            "lacks": {str(name): why for name, why in self._cluster.lacks.items()},
        }

    def _obey(self, command: dict[str, Any]) -> None:
        number = command["number"]
        try:
            self._events.emit("answer", number=number, result=self._do(command))
        except ProzessError as error:
            self._events.emit("answer", number=number, error=str(error), kind=type(error).__name__)

    def _do(self, command: dict[str, Any]) -> object:
        match command["do"]:
            case "begin":
                self._forget()
                run = RunDirectory(Path(command["run"]))
                self._recording = SessionRun(run, self._cluster, self._admin, self._clock, self._servers)
            case "create_topics":
                specs = [
                    TopicSpec(t["name"], tuple(map(tuple, t["assignment"])), t["properties"]) for t in command["topics"]
                ]
                self._admin.create_topics(specs, timeout_s=TOPICS_S)
            case "step":
                return self._current().step(command["step_number"], Step.model_validate(command["step"]))
            case "note":
                write_rows(self._current().recorder, rows_from_json(command["rows"]))
            case "heal":
                self._current().heal(timeout_s=command["limit_s"])
            case "finish":
                return self._current().finish(self._events.emit)
            case unknown:
                raise AssertionError(unknown)
        return None

    def _current(self) -> SessionRun:
        assert self._recording is not None, "begin comes first"
        return self._recording

    def _forget(self) -> None:
        """Closes a test that did not finish."""
        if self._recording is not None:
            self._recording.close()

    def _take_down(self) -> None:
        with self._clock.shielded():
            self._forget()
            self._cluster.teardown()
            self._cluster.collect_logs(self._run.logs)


def _end(relay: "subprocess.Popen[bytes]") -> None:
    relay.kill()
    relay.wait()


def _listen(clock: InterruptibleClock) -> "queue.Queue[dict[str, Any] | None]":
    """Returns a queue of the commands as they come; None means that there are no more."""
    commands: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            commands.put(json.loads(line))
        clock.ask_to_stop("the test process has ended the session")
        commands.put(None)

    def stop(*_: object) -> None:
        clock.ask_to_stop("SIGTERM")
        commands.put(None)

    threading.Thread(target=listen, name="commands", daemon=True).start()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return commands


def main(argv: list[str] | None = None) -> int:
    """Holds a session and returns its exit code. An error at its beginning goes out as an `error` event."""
    parser = argparse.ArgumentParser(prog="prozess session")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--isolation", required=True)
    parser.add_argument("--relay", action="append", default=[], help="BROKER:LISTENING_SOCKET")
    arguments = parser.parse_args(argv)
    run, clock = RunDirectory(arguments.directory), InterruptibleClock()
    events = events_on_standard_output(run, clock)
    commands = _listen(clock)
    listeners = {int(broker): socket.socket(fileno=int(fd)) for broker, fd in (r.split(":") for r in arguments.relay)}
    plan = read_plan(run)
    only_if(plan.attach is not None)
    session = partial(
        Session, plan, run, isolation=arguments.isolation, clock=clock, events=events, listeners=listeners
    )
    return carry_out(run, events, lambda: session().serve(commands))


if __name__ == "__main__":
    if not __debug__:
        raise SystemExit("prozess needs its assertions: do not run Python with -O.")
    raise SystemExit(main())
