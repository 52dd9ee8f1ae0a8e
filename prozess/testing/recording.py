"""Holds the recording of one test: its run directory, its clients' rows, its steps; and at its end the verdict on them."""

import atexit
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.app.run.kill_rows import FAULT, TextRow, kill_rows, restart_rows, write_rows
from prozess.harness.clock import SystemClock, measure_wall_offset
from prozess.harness.config.configuration import Variant
from prozess.harness.config.existing_clusters import Login, meanwhile
from prozess.harness.errors import BadInput, ClusterFailed, NotReady, ProzessError
from prozess.harness.history.convert import finish_recording
from prozess.harness.interfaces.application import RECORDING_VARIABLE, Contents, Record, RegisteredClient, Registry
from prozess.harness.plan.plan import Plan, parse_plan
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.plan.trial import Limits
from prozess.harness.processes import process_status
from prozess.harness.recording.rows import Recorder, read_rows
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.schema import CLIENTS, FAULTS, METADATA, RECORDER_CLIENT, SENDS, TRANSACTIONS
from prozess.harness.verdict import TrialVerdict
from prozess.testing.expectations import (
    ApplicationFinding,
    Doubt,
    Expectation,
    Identity,
    StateExpectation,
    Unjudged,
    application_verdict,
    commits_first,
    judge_expectation,
    judge_identities,
    never_again,
    unjudged_of,
)
from prozess.testing.open_transactions import TransactionalClient, open_transactions
from prozess.testing.plans import RecordedTest, group_of, make_test_plan, notes_of
from prozess.testing.session import ClusterSession
from prozess.testing.states import judge_state

if TYPE_CHECKING:
    from prozess.workloads.runtime.processes import ForkServers

DELIVER_S = 30.0
"""How long clients may take to finish their open requests when the test ends; the cluster is whole then."""
END_S = 10.0
"""How long clients may take to close their connections. It is short unless their cluster is gone."""
GRACE_S = 60.0
"""The time that the session may need beyond its own limits."""
LIMITS = Limits()
TOKEN_BYTES = 8


@cache
def _fork_servers() -> "ForkServers":
    """Returns the fork servers, which tests of this process share until it ends."""
    from prozess.workloads.runtime.processes import ForkServers

    servers = ForkServers()
    atexit.register(servers.close)
    return servers


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on one test. `verdict`: None where nothing was recorded, and nothing broken."""

    run: RunDirectory
    verdict: TrialVerdict | None
    notes: tuple[str, ...] = ()
    found: tuple[ApplicationFinding, ...] = ()
    """The findings about the test's expectations of its application."""
    unjudged: tuple[Unjudged, ...] = ()
    silent: bool = False
    """True if the test states no expectation about its application, although it has records."""
    strict: bool = False
    """True if a test without expectations fails."""
    forbid: tuple[str, ...] = ()
    """Anomalies that fail the test; a strict one that is silent forbids whatever was not judged."""


@dataclass(frozen=True, slots=True)
class ForeignCluster:
    """A cluster that nobody here started, as far as an audit needs one."""

    bootstrap_servers: str
    client_prefix: Sequence[str] = ()

    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]:
        """Returns the same addresses as those of clients: there is no other way to this cluster."""
        found = [server.strip().rpartition(":") for server in self.bootstrap_servers.split(",")]
        return {number: (host, int(port)) for number, (host, _, port) in enumerate(found, start=1)}


T = TypeVar("T")


class Companion(Protocol):
    """A helper of a test that ends before the test is judged."""

    def conclude(self) -> list[str]:
        """Ends its work, and returns the findings that this makes unknown."""
        ...

    def end(self) -> None:
        """Cleans up, whatever the outcome of the test."""
        ...


class Recording:
    """Describes what happens in one test, from its first fixture to its verdict. For one thread; its clients may be in
    others."""

    def __init__(
        self,
        run: RunDirectory,
        *,
        test: str,
        command: str,
        session: ClusterSession | None = None,
        forbid: Sequence[str] = (),
        strict: bool = False,
    ) -> None:
        """`forbid`: anomalies that fail the test although nothing else forbids them. `strict`: a test that says nothing of
        its application fails by what was not judged."""
        self.run, self._test, self.session, self._forbid = run, test, session, tuple(forbid)
        self._strict = strict
        self.registry = Registry(run.path)
        self.steps: list[Step] = []
        self.whole = True
        """True if the cluster recovered at the end."""
        self.identities: dict[str, Identity] = {}
        """Keyed by topic."""
        self.expectations: list[Expectation] = []
        self.states: list[StateExpectation] = []
        self.transactions_end = False
        """The test says that each transaction is ended."""
        self.companions: list[Companion] = []
        """The companions that end with the test: the applications that it has started."""
        self._recorder: Recorder | None = None
        self._concluded = False
        run.create()
        write_json(run.source, {"command": command})
        self.registry.begin(token_bytes(TOKEN_BYTES))
        self._write_plan(())
        if session is not None:
            session.call("begin", run=str(run.path))
            return
        clock = SystemClock()
        offset_ns, error_ns = measure_wall_offset(clock)
        times = {"wall_minus_monotonic_ns": offset_ns, "wall_error_ns": error_ns}
        write_json(run.clock, {"start_monotonic_ns": clock.monotonic_ns(), **times})

    def step(self, step: Step, *, timeout_s: float) -> str | None:
        """Carries out a step, and returns why it was not done, or None."""
        assert self.session is not None, "there is nothing to break without a cluster"
        number = len(self.steps)
        self.steps.append(step)
        self._write_plan(())
        answer = self.session.call("step", step_number=number, step=step.model_dump(mode="json"), timeout_s=timeout_s)
        return None if answer is None else str(answer)

    def note_kill(self, what: str, clients: Sequence[RegisteredClient], *, killed_ns: int, seen_ns: int) -> int:
        """Notes that an application was killed, with these clients: a step of the test like any fault; its number."""
        number = len(self.steps)
        named = tuple(f"client:{client.kind}-{client.client}" for client in clients) or (f"client:{what.split()[0]}",)
        action = FaultAction(kind="fault", fault=FAULT, targets=named)
        self.steps.append(Step(name=f"{number + 1}: kill {what}", do=action))
        self._write_plan(())
        seen = "its process was gone, by SIGKILL"
        self._note(kill_rows(number, [c.client for c in clients], killed_ns=killed_ns, seen_ns=seen_ns, seen=seen))
        return number

    def note_restart(self, step: int, clients: Sequence[int], *, started_ns: int) -> None:
        """Notes that the application that was killed in this step was started again."""
        self._note(restart_rows(step, clients, started_ns=started_ns))

    def _note(self, rows: Sequence[TextRow]) -> None:
        """Writes rows through the session, which has the history's dictionaries, or here if there is no session."""
        if self.session is not None:
            self.session.call("note", rows=[row.as_json() for row in rows])
            return
        self._recorder = self._recorder or Recorder(self.run)
        write_rows(self._recorder, rows)

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

    def client_class(self, base: type[T]) -> type[T]:
        """Returns a class of recorded clients that belong to this recording, and find its cluster by themselves."""
        servers = {} if self.session is None else {"bootstrap.servers": self.session.bootstrap_servers}
        return type(base.__name__, (base,), {"recording": self.run.path, "defaults": servers})

    def plan(self) -> Plan:
        """Returns the plan by which the test is judged."""
        return parse_plan(self.run.plan.read_text(encoding="utf-8"), source=str(self.run.plan))

    def cell_of(self, role: str, name: str) -> int:
        """Returns the cell whose group, or whose first transactional.id, has this name. BadInput if there is none."""
        plan = make_test_plan(self._recorded(()))
        for client in plan.clients:
            has = client.group_id if role == "group-coordinator" else client.transactional_id
            if has == name and client.cell is not None:
                return client.cell
        raise BadInput(f"nemesis: {role}({name}): no recorded client of this test has used that name yet.")

    def conclude(self) -> Judged:
        """Heals, lets clients finish, audits, checks, judges, and returns the verdict. Works once."""
        from prozess.testing.recorded.client import seal_clients

        assert not self._concluded
        self._concluded = True
        doubts = self._heal()
        for companion in self.companions:
            doubts += companion.conclude()
        seal_clients(self.run, timeout_s=DELIVER_S)
        doubts += self._still_at_work()
        recorded = self._recorded(tuple(doubts))
        self._fill_processed(recorded)
        plan = make_test_plan(recorded)
        if not plan.cells and not plan.steps and not plan.doubts:
            if not self.registry.clients:
                self._finish(doubts)
                return Judged(self.run, None)
            doubts.append("the test has recorded clients, but none of them sent or read anything")
        self._write_plan(tuple(doubts))
        finished = len(doubts)
        self._finish(doubts)
        doubts += self._never_again(recorded)
        if len(doubts) > finished:
            self._write_plan(tuple(doubts))
        if self._recorder is not None:
            self._recorder.close()
        judged = self._judge_contents()
        found = [*commits_first(recorded), *(one for one in judged if isinstance(one, ApplicationFinding))]
        found += open_transactions(self._transactional(), recorded.topics, expected=self.transactions_end)
        unjudged = unjudged_of(
            recorded,
            identities=self.identities,
            expectations=self.expectations,
            states=self.states,
            doubts=self._doubtful(recorded),
        )
        unjudged += [one for one in judged if isinstance(one, Unjudged)]
        silent = bool(unjudged) and not self._says_something()
        unwanted = {name for one in unjudged for name in one.anomalies} if silent and self._strict else set()
        forbid = tuple(dict.fromkeys([*self._forbid, *sorted(unwanted)]))
        application = application_verdict(found, unjudged, forbid)
        if application.anomalies or application.not_judged:
            self.run.application.write_text(application.model_dump_json(indent=1), encoding="utf-8")
        finish_recording(self.run)
        findings = check_run(self.run, CheckOptions(engine="local", workers=2))
        verdict = judge_run(self.run, findings)
        self.run.keep_private()
        notes = tuple(notes_of(recorded))
        return Judged(
            self.run,
            verdict,
            notes,
            tuple(found),
            tuple(unjudged),
            silent=silent,
            strict=self._strict,
            forbid=forbid,
        )

    def report(self) -> None:
        """Writes the reports; `prozess report` can do it later."""
        from prozess.harness.report.reports import report_run

        report_run(self.run)
        self.run.keep_private()

    def close(self) -> None:
        """Ends the recording's clients for good. Without a verdict nobody asks for one now, and what it
        broke is healed."""
        from prozess.testing.recorded.client import end_clients, seal_clients

        for companion in self.companions:
            companion.end()
        if not self._concluded:
            self._concluded = True
            with suppress(ProzessError):
                self._heal()
            seal_clients(self.run, timeout_s=0.0)
        end_clients(self.run, timeout_s=END_S)

    # Parts.

    def _says_something(self) -> bool:
        """Returns whether the test says anything of what its application must do with records."""
        marks = {mark for client in self.registry.clients for mark in client.how}
        asked = (self.expectations, self.states, self.identities, self.transactions_end)
        return any(asked) or bool(marks & {"identity", "processing"})

    def _heal(self) -> list[str]:
        """Heals the cluster, and returns why it could not be made whole."""
        if self.session is None:
            return []
        try:
            self.session.call("heal", timeout_s=LIMITS.heal_s + GRACE_S, **{"limit_s": LIMITS.heal_s})
        except ProzessError as error:
            self.whole = False
            return [f"the cluster could not be healed: {error}"]
        return []

    def _finish(self, doubts: list[str]) -> None:
        """Audits the topics, and reads the nodes' files."""
        try:
            if self.session is None:
                audited: object = self._audit_elsewhere()
            else:
                audited = self.session.call("finish", timeout_s=2 * LIMITS.audit_s + GRACE_S)
        except ProzessError as error:
            doubts.append(f"the topics could not be audited: {error}")
            return
        incomplete = audited.get("incomplete") if isinstance(audited, dict) else None
        doubts += [f"the audit is incomplete: {why}" for why in (incomplete or ())[:3]]

    def _audit_elsewhere(self) -> dict[str, Any]:
        """Audits a cluster of somebody else's, at the addresses that the clients used."""
        from prozess.testing.recorded.client import recorded_login

        plan = make_test_plan(self._recorded(()))
        if not plan.cells or not self.registry.clients:
            return {}
        servers = {str(c.properties.get("bootstrap.servers", "")) for c in self.registry.clients}
        if len(servers) > 1:
            return {"incomplete": [f"the clients use different addresses ({', '.join(sorted(servers))})"]}
        with meanwhile(recorded_login(self.run)) as login:
            return self._audit_at(ForeignCluster(servers.pop()), plan, login)

    def _audit_at(self, there: ForeignCluster, plan: Plan, login: Login | None) -> dict[str, Any]:
        from prozess.app.run.limits_reached import StageLimits, fence_and_audit
        from prozess.app.wiring import TOOLBOX
        from prozess.clusters.existing.adoption import describe_elsewhere
        from prozess.workloads.runtime.clients import Clients

        with suppress(ClusterFailed, NotReady):  # then nothing is known of it, which the verdict says
            described = describe_elsewhere(there.bootstrap_servers, plan.variant, SystemClock(), login)
            write_json(self.run.cluster, described)
        workload = Clients(plan, self.run, cluster=there, clock=SystemClock(), toolbox=TOOLBOX, servers=_fork_servers())
        try:
            limits = StageLimits(self.run, lambda *_, **__: None)
            _, result = fence_and_audit(workload, limits, LIMITS.audit_s, topics_may_go=True)
        finally:
            workload.close()
        return {"incomplete": sorted(set(result.incomplete.values()))}

    def _never_again(self, recorded: RecordedTest) -> list[str]:
        """Returns doubts about programs that may not have continued after a fault or a deleted topic."""
        faults, metadata = (read_rows(self.run.rows, table, RECORDER_CLIENT)[0] for table in (FAULTS, METADATA))
        return never_again(recorded, faults=faults, metadata=metadata)

    def _still_at_work(self) -> list[str]:
        """Returns the clients of other processes that still run: their further operations are not in the history."""
        own = os.getpid()
        return [
            f"client {client.kind}-{client.client} is still running in process {client.pid}; end it before the test ends"
            for client in self.registry.clients
            if client.pid != own and process_status(client.pid) is not None
        ]

    def _fill_processed(self, recorded: RecordedTest) -> None:
        """Marks records as processed for groups that did not mark their processing: a member that asks for the
        next record has processed the one before."""
        from prozess.testing.recorded.processing_steps import fill_processed

        for members in self._silent_groups(recorded):
            fill_processed(self.run, members, 0)

    def _doubtful(self, recorded: RecordedTest) -> list[Doubt]:
        """Returns the records that such groups committed past and may not have processed."""
        from prozess.testing.recorded.processing_steps import doubtful_records

        return [doubt for members in self._silent_groups(recorded) for doubt in doubtful_records(self.run, members)]

    @staticmethod
    def _silent_groups(recorded: RecordedTest) -> list[list[int]]:
        """Returns the members of each group in which no member marked its processing."""
        plan = make_test_plan(recorded)
        processing = {c.client for c in recorded.clients if "processing" in c.how}
        members: dict[str | None, list[int]] = {}
        for client in plan.clients:
            if client.role == "recorded-member":
                members.setdefault(client.group_id, []).append(client.client)
        judged = {c.group_id for c in plan.clients if c.role == "recorded-member" and c.partitions}
        return [
            found for group_id, found in members.items() if group_id in judged and not processing.intersection(found)
        ]

    def _transactional(self) -> list[TransactionalClient]:
        """Returns the rows of each recorded producer that has a transactional.id."""
        found = []
        for client in self.registry.clients:
            if client.kind == "producer" and "transactional.id" in client.properties:
                rows = {
                    table: read_rows(self.run.rows, table, client.client)[0] for table in (TRANSACTIONS, SENDS, CLIENTS)
                }
                whole = bool(len(rows[CLIENTS])) and bool(rows[CLIENTS]["complete"][-1])
                name = str(client.properties["transactional.id"])
                found.append(TransactionalClient(client.client, name, rows[TRANSACTIONS], rows[SENDS], whole))
        return found

    def _judge_contents(self) -> list[ApplicationFinding | Unjudged]:
        """Checks the user's expectations about records against the contents of the topics."""
        from prozess.testing.recorded.processing_steps import greatest_commits
        from prozess.testing.recorded.topics import read_contents

        topics = {topic.name: topic for topic in self.registry.topics}
        named = [name for client in self.registry.clients if "identity" in client.how for name in client.wrote]
        identified = dict.fromkeys([*self.identities, *named])
        expected = [name for e in self.expectations for name in (e.input, e.output)]
        expected += [name for state in self.states for name in (state.input, state.table)]
        wanted = [topics[name] for name in dict.fromkeys([*identified, *expected])]
        if not wanted:
            return []
        try:
            contents = read_contents(self.run, wanted, self._addresses(), clock=SystemClock(), timeout_s=LIMITS.audit_s)
        except ProzessError as error:
            contents = {topic.name: Contents((), str(error)) for topic in wanted}
        committed = greatest_commits(self.run, [c.client for c in self.registry.clients])
        groups = {client.client: group_of(client) for client in self.registry.clients}

        def past(record: Record) -> str:
            dense = topics[record.topic].first + record.partition
            who = {repr(groups[client]) for client, top in committed.items() if top.get(dense, -1) > record.offset}
            return f"committed by group {', '.join(sorted(who))}" if who else "committed by no group"

        found = [f for e in self.expectations for f in judge_expectation(e, contents, past)]
        found += [f for state in self.states for f in judge_state(state, contents)]
        found += [f for name in identified for f in judge_identities(name, contents[name], self.identities.get(name))]
        return found

    def _addresses(self) -> str:
        """Returns the addresses of the cluster that has the test's topics."""
        if self.session is not None:
            return self.session.bootstrap_servers
        return str(next(c.properties.get("bootstrap.servers", "") for c in self.registry.clients))

    def _recorded(self, doubts: tuple[str, ...]) -> RecordedTest:
        recorded = RecordedTest(
            name=plan_name(self._test),
            title=self._test,
            topics=self.registry.topics,
            clients=self.registry.clients,
            steps=tuple(self.steps),
            doubts=doubts,
            token=self.registry.token.hex(),
            limits=LIMITS,
        )
        if self.session is None:
            return replace(recorded, backend="attach", blind=True, variant=Variant(brokers=self._brokers()))
        return replace(recorded, backend=self.session.plan.backend, variant=self.session.variant)

    def _brokers(self) -> int:
        """Returns the least number of brokers: copies are on different ones."""
        return max([1, *(len(a) for topic in self.registry.topics for a in topic.assignment)])

    def _write_plan(self, doubts: tuple[str, ...]) -> None:
        text = make_test_plan(self._recorded(doubts)).model_dump_json(indent=1)
        part = self.run.plan.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(self.run.plan)


def plan_name(test: str) -> str:
    """Returns a test's id as the name of a trial."""
    return re.sub(r"[^a-z0-9]+", "-", test.rpartition("::")[2].lower()).strip("-") or "test"


def directory_for(runs: Path, test: str) -> RunDirectory:
    """Returns a new directory for a test under `runs`: tests of several workers may have one name."""
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
