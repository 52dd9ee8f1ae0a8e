"""The recording of one test: its run directory, its clients' rows, its steps; and at its end the verdict on them."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import catalogue
from harness.clock import SystemClock
from harness.configuration import Variant
from harness.errors import BadInput, ClusterFailed, NotReady, ProzessError
from harness.plan import Plan, parse_plan
from harness.processes import process_status
from harness.run_directory import RunDirectory, write_json
from harness.schedule import Step
from harness.stages.check import CheckOptions, check_run
from harness.stages.ground_truth import measure_wall_offset
from harness.stages.judge import judge_run
from harness.testing.plans import Told, make_test_plan, notes_of
from harness.testing.registry import RECORDING_VARIABLE, Registry
from harness.testing.session import ClusterSession
from harness.trial import Limits
from harness.verdict import TrialVerdict

DELIVER_S = 30.0
"""For what clients have under way when the test ends; the cluster is whole then."""
END_S = 10.0
"""For clients to let go of Kafka; a moment, unless their cluster is gone."""
GRACE_S = 60.0
"""What the session may need beyond the limits it works with."""
LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a test. `verdict`: None where nothing was recorded, and nothing broken."""

    run: RunDirectory
    verdict: TrialVerdict | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A cluster that nobody here started, as far as an audit needs one."""

    bootstrap_servers: str

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        """The same ones: there is no other way to it."""
        found = [server.strip().rpartition(":") for server in self.bootstrap_servers.split(",")]
        return {number: (host, int(port)) for number, (host, _, port) in enumerate(found, start=1)}


class Recording:
    """From the first fixture of a test to its verdict. For one thread; its clients may be in others."""

    def __init__(self, run: RunDirectory, *, test: str, command: str, session: ClusterSession | None = None) -> None:
        self.run, self._test, self.session = run, test, session
        self.registry = Registry(run.path)
        self.steps: list[Step] = []
        self.whole = True
        """Could the cluster be made whole at the end?"""
        self._concluded = False
        run.create()
        write_json(run.source, {"command": command})
        self._write_plan(())
        if session is not None:
            session.call("begin", run=str(run.path))
            return
        clock = SystemClock()
        offset_ns, error_ns = measure_wall_offset(clock)
        times = {"wall_minus_monotonic_ns": offset_ns, "wall_error_ns": error_ns}
        write_json(run.clock, {"start_monotonic_ns": clock.monotonic_ns(), **times})

    def step(self, step: Step, *, timeout_s: float) -> str | None:
        """Have it carried out; why it was not done, if it was not."""
        assert self.session is not None, "there is nothing to break without a cluster"
        number = len(self.steps)
        self.steps.append(step)
        self._write_plan(())
        answer = self.session.call("step", step_number=number, step=step.model_dump(mode="json"), timeout_s=timeout_s)
        return None if answer is None else str(answer)

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Recorded clients of processes that are started meanwhile belong to this."""
        before = os.environ.get(RECORDING_VARIABLE)
        os.environ[RECORDING_VARIABLE] = str(self.run.path)
        try:
            yield
        finally:
            os.environ.pop(RECORDING_VARIABLE, None)
            if before is not None:
                os.environ[RECORDING_VARIABLE] = before

    def client_class(self, service: str) -> type[Any]:
        """A class of recorded clients that belong to this, and find its cluster by themselves."""
        base = catalogue.service(service)
        servers = {} if self.session is None else {"bootstrap.servers": self.session.bootstrap_servers}
        return type(base.__name__, (base,), {"recording": self.run.path, "defaults": servers})

    def plan(self) -> Plan:
        """As it was judged."""
        return parse_plan(self.run.plan.read_text(encoding="utf-8"), source=str(self.run.plan))

    def cell_of(self, role: str, name: str) -> int:
        """The cell whose group, or whose first transactional.id, has this name. BadInput if there is none."""
        plan = make_test_plan(self._told(()))
        for client in plan.clients:
            has = client.group_id if role == "group-coordinator" else client.transactional_id
            if has == name and client.cell is not None:
                return client.cell
        raise BadInput(f"nemesis: {role}({name}): no recorded client of this test was seen to use that name yet.")

    def conclude(self) -> Judged:
        """Heal, let clients end what they have under way, audit, check, judge, report. Once."""
        assert not self._concluded
        self._concluded = True
        doubts = self._heal()
        catalogue.service("seal-recorded")(self.run, timeout_s=DELIVER_S)
        doubts += self._still_at_work()
        told = self._told(tuple(doubts))
        self._fill_processed(told)
        plan = make_test_plan(told)
        if not plan.cells and not plan.steps and not plan.doubts:
            if not self.registry.clients:
                self._finish(doubts)
                return Judged(self.run, None)
            doubts.append("the test has recorded clients, and none of them sent or read anything")
        self._write_plan(tuple(doubts))
        finished = len(doubts)
        self._finish(doubts)
        if len(doubts) > finished:
            self._write_plan(tuple(doubts))
        findings = check_run(self.run, CheckOptions(engine="local", workers=2))
        verdict = judge_run(self.run, findings)
        return Judged(self.run, verdict, tuple(notes_of(told)))

    def report(self) -> None:
        """Write the reports; `prozess report` does it later."""
        from harness.report import report_run

        report_run(self.run)

    def close(self) -> None:
        """When nobody uses its clients any more: they end for good. Without a verdict nobody asks for one now, and what it
        broke is healed."""
        if not self._concluded:
            self._concluded = True
            with suppress(ProzessError):
                self._heal()
            catalogue.service("seal-recorded")(self.run, timeout_s=0.0)
        catalogue.service("end-recorded")(self.run, timeout_s=END_S)

    # --- parts ------------------------------------------------------------------------------------------------------

    def _heal(self) -> list[str]:
        """Why the cluster could not be made whole, if it could not."""
        if self.session is None:
            return []
        try:
            self.session.call("heal", timeout_s=LIMITS.heal_s + GRACE_S, **{"limit_s": LIMITS.heal_s})
        except ProzessError as error:
            self.whole = False
            return [f"the cluster could not be healed: {error}"]
        return []

    def _finish(self, doubts: list[str]) -> None:
        """The audit, and what nodes' files say."""
        try:
            if self.session is None:
                told = self._audit_elsewhere()
            else:
                told = self.session.call("finish", timeout_s=2 * LIMITS.audit_s + GRACE_S)
        except ProzessError as error:
            doubts.append(f"the topics could not be audited: {error}")
            return
        doubts += [f"the audit is incomplete: {why}" for why in told.get("incomplete", ())[:3]]

    def _audit_elsewhere(self) -> dict[str, Any]:
        """By processes of this one, at the addresses that the clients used."""
        plan = make_test_plan(self._told(()))
        if not plan.cells:
            return {}
        servers = {str(c.properties.get("bootstrap.servers", "")) for c in self.registry.clients}
        if len(servers) > 1:
            return {"incomplete": [f"the clients use different addresses ({', '.join(sorted(servers))})"]}
        there = Elsewhere(servers.pop())
        with suppress(ClusterFailed, NotReady):  # then nothing is known of it, which the verdict says
            told = catalogue.service("describe-elsewhere")(there.bootstrap_servers, plan.variant, SystemClock())
            write_json(self.run.cluster, told)
        workload = catalogue.service("clients")(plan, self.run, cluster=there, clock=SystemClock())
        try:
            workload.fence(timeout_s=LIMITS.audit_s)
            result = workload.audit(timeout_s=LIMITS.audit_s)
        finally:
            workload.close()
        return {"incomplete": sorted(set(result.incomplete.values()))}

    def _still_at_work(self) -> list[str]:
        """Clients of other processes that live: what they still do is not in the history."""
        own = os.getpid()
        return [
            f"client {client.kind}-{client.client} is still at work in process {client.pid}; end it before the test ends"
            for client in self.registry.clients
            if client.pid != own and process_status(client.pid) is not None
        ]

    def _fill_processed(self, told: Told) -> None:
        """Of groups that said nothing of processing: given is processed."""
        plan = make_test_plan(told)
        said = {c.client for c in told.clients if "processing" in c.how}
        groups = {c.group_id for c in plan.clients if c.role == "recorded-member" and c.partitions}
        for group_id in groups:
            members = [c.client for c in plan.clients if c.group_id == group_id and c.role == "recorded-member"]
            if not said.intersection(members):
                catalogue.service("fill-processed")(self.run, members, 0)

    def _told(self, doubts: tuple[str, ...]) -> Told:
        told = Told(
            name=plan_name(self._test),
            title=self._test,
            topics=self.registry.topics,
            clients=self.registry.clients,
            steps=tuple(self.steps),
            doubts=doubts,
            limits=LIMITS,
        )
        if self.session is None:
            return replace(told, backend="attach", blind=True, variant=Variant(brokers=self._brokers()))
        return replace(told, backend=self.session.plan.backend, variant=self.session.variant)

    def _brokers(self) -> int:
        """At least so many: copies are on different ones."""
        return max([1, *(len(a) for topic in self.registry.topics for a in topic.assignment)])

    def _write_plan(self, doubts: tuple[str, ...]) -> None:
        text = make_test_plan(self._told(doubts)).model_dump_json(indent=1)
        part = self.run.plan.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(self.run.plan)


def plan_name(test: str) -> str:
    """A test's id as the name of a trial."""
    return re.sub(r"[^a-z0-9]+", "-", test.rpartition("::")[2].lower()).strip("-") or "test"


def directory_for(runs: Path, test: str) -> RunDirectory:
    """A directory of its own for a test under `runs`: tests of several workers may have one name."""
    name = plan_name(test)
    for attempt in range(1, 10_000):
        path = runs.resolve() / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise BadInput(f"prozess_runs {str(runs)!r}: cannot make {path.name} there ({error.strerror}).") from error
        return RunDirectory(path)
    raise BadInput(f"prozess_runs {str(runs)!r} has ten thousand recordings of {name}; remove some.")
