"""The run stage, inside the sandbox: brings a cluster up, lets the clients work, carries out the schedule, heals, audits.

    python -m prozess.app.run.inside_sandbox RUN_DIRECTORY --isolation namespaces

Stage two of plan → run → check → report: the only one that touches a cluster. It never judges. It speaks with the outer
process over two pipes: events go out on standard output, and standard input says `stop` (or ends, when the outer process is
gone); both mean: heal, keep what was recorded, end.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from prozess.app.run.admin_calls import AdminCalls
from prozess.app.run.admin_register import AdminRegister
from prozess.app.run.child import EventLog, InterruptibleClock, carry_out, events_on_standard_output
from prozess.app.run.cluster_state import Inspector, keep_ground_truth
from prozess.app.run.coordinators_logs import keep_coordinators_logs
from prozess.app.run.hanging_transactions import end_hanging
from prozess.app.run.limits_reached import StageLimits, fence_and_audit
from prozess.app.run.message_rows import MessageRows
from prozess.app.run.metrics_sampler import MetricsSampler
from prozess.app.run.samplers import MetadataSamples, Sampler
from prozess.app.run.schedule_runner import Actors, Context, Recovery, ScheduleRunner, wait_whole
from prozess.app.run.server_log_rows import keep_server_logs
from prozess.app.run.trial_topics import TrialTopics
from prozess.app.wiring import TOOLBOX
from prozess.clusters.existing.adoption import made_in
from prozess.clusters.protocol.admin import Admin
from prozess.clusters.registry import backend_named
from prozess.harness.clock import NS_PER_S, measure_wall_offset, wait_until
from prozess.harness.config.existing_clusters import only_if
from prozess.harness.errors import NotReady, ProzessError
from prozess.harness.history.convert import finish_recording
from prozess.harness.interfaces import Cluster, Node, Progress, Workload
from prozess.harness.interfaces.cluster import HangingTransaction
from prozess.harness.plan.plan import Plan, read_plan
from prozess.harness.plan.schedule import ResumeSends, Step
from prozess.harness.recording.rows import Recorder
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.nemesis.nemesis import Nemesis
from prozess.workloads.runtime.clients import Clients

WARM_UP_ACKNOWLEDGED = 10
"""At most this many records must be acknowledged on each partition, in each of two looks, before the trial's clock starts."""


class RunStage:
    """Runs one trial, from an empty directory to a recorded history."""

    def __init__(
        self, plan: Plan, run: RunDirectory, *, isolation: str, clock: InterruptibleClock, events: EventLog
    ) -> None:
        self.plan, self.run, self.clock, self.events = plan, run, clock, events
        self.recorder = Recorder(run)
        self.cluster: Cluster = backend_named(plan.backend).make(plan, run, clock=clock, isolation=isolation)
        self.admin = Admin(self.cluster, made=made_in(plan, run))
        self.workload: Workload = Clients(plan, run, cluster=self.cluster, clock=clock, toolbox=TOOLBOX)
        targets = WithClients(self.cluster, self.workload)
        self.nemesis = Nemesis(
            run, targets, self.admin, self.recorder, clock, report=lambda text: events.emit("mended", text=text)
        )
        self.inspector = Inspector(plan, self.cluster, self.recorder, clock, events.emit)
        self.topics = TrialTopics(plan, self.admin, self.workload, self.recorder)
        self.recovery = Recovery(run, events.emit)
        self.limits = StageLimits(run, events.emit)
        if (messages := self.cluster.messages) is not None:
            unwritten = partial(events.emit, "message-not-recorded")
            messages.on_message = MessageRows(
                plan, self.cluster, self.admin, self.recorder, lambda why: unwritten(error=why)
            )
        self._wall_minus_monotonic_ns = 0

    def carry_out(self) -> None:
        """Does all phases in order. Whatever happens, it heals, ends the clients, keeps the logs and takes the cluster
        down."""
        with ExitStack() as at_exit:
            at_exit.callback(self._seal)
            at_exit.callback(self.recorder.close)
            at_exit.callback(self._keep_ground_truth)
            at_exit.callback(self._keep_replicas)
            at_exit.callback(self._keep_server_logs)
            at_exit.callback(self._take_down)
            at_exit.callback(self._end_clients)
            at_exit.callback(self._heal_in_the_end)
            self._bring_up()
            at_exit.enter_context(Sampler(self.plan, self.cluster, self.recorder, self.clock))
            at_exit.enter_context(MetadataSamples(self.plan, self.cluster, self.recorder, self.clock))
            at_exit.enter_context(MetricsSampler(self.plan, self.cluster, self.recorder, self.clock))
            at_exit.enter_context(AdminCalls(self.plan, self.cluster, self.recorder, self.clock))
            at_exit.enter_context(AdminRegister(self.plan, self.cluster, self.recorder, self.clock))
            self._warm_up()
            done = self._follow_schedule()
            self._recover(done)
            self._audit()

    def _bring_up(self) -> None:
        with self._phase("cluster"):
            self.cluster.setup()
            self.cluster.wait_ready(timeout_s=self.plan.limits.ready_s)
            write_json(self.run.cluster, dict(self.cluster.describe()))
        with self._phase("topics", count=len(self.plan.cells)):
            self.topics.create()

    def _warm_up(self) -> None:
        """Waits until every partition acknowledges records. The trial's clock starts after that."""
        with self._phase("warm-up"):
            self.workload.start()
            self.workload.command(ResumeSends(kind="resume_sends"))
            for _ in range(2):
                before = self.workload.progress()
                wait_until(
                    lambda before=before: self._acknowledged_everywhere(before),  # type: ignore[misc]
                    awaited=f"{WARM_UP_ACKNOWLEDGED} acknowledgements on every partition",
                    timeout_s=self.plan.limits.warm_up_s,
                    clock=self.clock,
                    last_seen=lambda: self._traffic() + self._dead(),
                )
            self._start_clock()

    def _acknowledged_everywhere(self, before: Mapping[int, Progress]) -> bool:
        now = self.workload.progress()
        there = self.plan.written - set(self.topics.absent())
        return all(now[p].ok - before[p].ok >= WARM_UP_ACKNOWLEDGED for p in there)

    def _start_clock(self) -> None:
        offset_ns, error_ns = measure_wall_offset(self.clock)
        self._wall_minus_monotonic_ns = offset_ns
        self.start_ns = self.clock.monotonic_ns()
        write_json(
            self.run.clock,
            {"start_monotonic_ns": self.start_ns, "wall_minus_monotonic_ns": offset_ns, "wall_error_ns": error_ns},
        )
        self.events.emit("clock", start_monotonic_ns=self.start_ns)

    def _context(self) -> Context:
        return Context(
            plan=self.plan,
            admin=self.admin,
            progress=self.workload.progress,
            unhealed=self.nemesis.unhealed,
            now_ns=self.clock.monotonic_ns,
            log_ends=self.inspector.log_ends,
            absent=self.topics.absent,
            messages=self.cluster.messages,
        )

    def _follow_schedule(self) -> bool:
        with self._phase("schedule", steps=len(self.plan.steps)):
            runner = ScheduleRunner(
                self._context(),
                Actors(self.workload, self.nemesis, self.inspector, self.topics),
                recorder=self.recorder,
                clock=self.clock,
                start_ns=self.start_ns,
                announce=self._announce,
            )
            return runner.run()

    def _announce(self, number: int, step: Step, what: str) -> None:
        kind = step.do.kind if step.do is not None else "wait"
        self.events.emit("step", number=number, name=step.name, kind=kind, what=what, traffic=self._totals())

    def _recover(self, schedule_done: bool) -> None:
        """Heals, and goes on to the end even if the cluster does not recover: what clients saw is recorded."""
        with self._phase("heal", schedule_done=schedule_done):
            self._heal()
            self.recovery.attempt(self._wait_whole)
            self.workload.command(ResumeSends(kind="resume_sends"))
            self.clock.sleep(self.plan.settle_s)
            drain_s = self.plan.limits.drain_s
            sending = self.workload.finish_sends(timeout_s=drain_s)
            self.limits.note("the end of sending", drain_s, [f"{name} did not end by itself" for name in sending])
            if not self.recovery.failed:
                self.recovery.attempt(self._wait_whole)
            self.limits.note("the drain", None, self.workload.drain(timeout_s=drain_s))

    def _heal(self) -> None:
        with self.clock.shielded():
            self.recovery.attempt(lambda: self.nemesis.heal(None))

    def _wait_whole(self) -> None:
        wait_whole(self._context(), timeout_s=self.plan.limits.heal_s, clock=self.clock, keep_up=self.nemesis.keep_up)

    def _audit(self) -> None:
        with self._phase("audit"):
            audit_s = self.plan.limits.audit_s
            _, result = fence_and_audit(self.workload, self.limits, audit_s, end_open=self._end_open)
            first = next(iter(result.incomplete.values()), "")
            self.events.emit("audited", complete=len(result.complete), incomplete=len(result.incomplete), first=first)

    def _end_open(self, unfenced: Mapping[str, str]) -> Collection[HangingTransaction]:
        if unfenced:
            self.events.emit("not-fenced", transactional_ids=dict(unfenced))
        return end_hanging(
            self.plan,
            self.run,
            self.cluster,
            self.admin,
            self.clock,
            absent=self.topics.absent(),
            unfenced=unfenced,
            emit=self.events.emit,
        )

    def _end_clients(self) -> None:
        self.limits.note("the end of the clients", None, [f"{name} had to be killed" for name in self.workload.close()])

    def _heal_in_the_end(self) -> None:
        self._heal()
        dead = self.workload.dead_clients()
        write_json(self.run.path / "dead_clients.json", dict(dead))
        if dead:
            self.events.emit("dead-clients", clients=dict(dead))

    def _take_down(self) -> None:
        with self.clock.shielded(), self._phase("teardown"):
            self.cluster.teardown()
            self.cluster.collect_logs(self.run.logs)

    def _keep_server_logs(self) -> None:
        """Records the traces of known defects in the servers' own logs."""
        if self.run.clock.exists():
            with self.clock.shielded(), self._phase("server-logs"):
                keep_server_logs(self.run, self.plan, self.cluster.nodes, self.recorder)

    def _keep_replicas(self) -> None:
        """Records the content of each replica's own files at the end."""
        if self.run.clock.exists():
            with self.clock.shielded(), self._phase("replicas"):
                self.inspector.inspect(sorted(self.plan.recorded.values()))
                if self.plan.topics_end:
                    self.inspector.keep_directories()
                keep_coordinators_logs(
                    self.plan, self.cluster, self.recorder, self._wall_minus_monotonic_ns, self.events.emit
                )

    def _keep_ground_truth(self) -> None:
        """Decodes the controllers' own log, or ZooKeeper's: the source for who led and who was in sync."""
        if not self.run.clock.exists():
            return
        try:
            rows = keep_ground_truth(self.plan, self.cluster, self.recorder, self._wall_minus_monotonic_ns)
        except ProzessError as error:
            self.events.emit("no-ground-truth", error=str(error))
            return
        self.events.emit("ground-truth", rows=rows)

    def _seal(self) -> None:
        """Writes the manifest; nothing is recorded after it. Without a manifest the verdict is unknown."""
        try:
            finish_recording(self.run)
        except (OSError, ProzessError) as error:
            self.events.emit("not-sealed", error=str(error))

    @contextmanager
    def _phase(self, name: str, **details: object) -> Iterator[None]:
        begun_ns = self.clock.monotonic_ns()
        self.events.emit("phase", name=name, **details)
        try:
            yield
        except NotReady as error:
            self.limits.note(f"the phase {name}", None, [str(error)])
            raise
        took_s = (self.clock.monotonic_ns() - begun_ns) / NS_PER_S
        self.events.emit("phase-done", name=name, took_s=round(took_s, 3), traffic=self._totals())

    def _totals(self) -> dict[str, int]:
        try:
            counts = list(self.workload.progress().values())
        except (OSError, RuntimeError):
            return {}
        return {name: sum(getattr(c, name) for c in counts) for name in ("issued", "ok", "failed", "info")}

    def _traffic(self) -> str:
        quiet = sorted(p for p, c in self.workload.progress().items() if c.ok == 0 and p in self.plan.written)
        return (
            f"{self._totals()}; {len(quiet):,} {'partition' if len(quiet) == 1 else 'partitions'} without a single one"
            + (f", such as {quiet[0]}" if quiet else "")
        )

    def _dead(self) -> str:
        dead = self.workload.dead_clients()
        return "".join(f"; client {name} ended: {words}" for name, words in list(dead.items())[:1])


def _listen(clock: InterruptibleClock) -> None:
    """Obeys the outer process, which writes `stop` or closes its pipe."""

    def listen() -> None:
        line = sys.stdin.readline()
        clock.ask_to_stop("by the user" if line.strip() == "stop" else "the outer process is gone")

    threading.Thread(target=listen, name="control", daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: clock.ask_to_stop("SIGTERM"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main(argv: list[str] | None = None) -> int:
    """Runs the stage and returns its exit code. Errors for the user go out as an `error` event."""
    parser = argparse.ArgumentParser(prog="prozess run stage")
    parser.add_argument("run_directory", type=Path)
    parser.add_argument("--isolation", required=True)
    arguments = parser.parse_args(argv)
    run, clock = RunDirectory(arguments.run_directory), InterruptibleClock()
    events = events_on_standard_output(run, clock)
    _listen(clock)
    plan = read_plan(run)
    only_if(plan.attach is not None)
    stage = partial(RunStage, plan, run, isolation=arguments.isolation, clock=clock, events=events)
    return carry_out(run, events, lambda: stage().carry_out())


class WithClients:
    """The nodes of a cluster and the processes of its clients, so that the nemesis can strike either."""

    def __init__(self, cluster: Cluster, workload: Workload) -> None:
        self._cluster, self._workload = cluster, workload

    @property
    def nodes(self) -> Sequence[Node]:
        """Returns the cluster's nodes, then the clients."""
        return [*self._cluster.nodes, *self._workload.nodes()]


if __name__ == "__main__":
    if not __debug__:
        raise SystemExit("prozess needs its assertions: do not run Python with -O.")
    raise SystemExit(main())
