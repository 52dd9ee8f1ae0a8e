"""Has the objects behind the fixtures `kafka_cluster`, `nemesis` and `trial`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from prozess.app.run.outside_sandbox import fault_needs, why_no_client_clocks
from prozess.app.trial_run import TrialRun, TrialSource
from prozess.app.trial_run import run as run_trial
from prozess.harness.config.impairments import Capability
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.interfaces.application import Record
from prozess.harness.plan.checks import capabilities_needed, check_parameters, why_nobody
from prozess.harness.plan.schedule import FaultAction, HealAction, Step, parse_target
from prozess.nemesis.registry import fault_named
from prozess.testing.expectations import Expectation, StateExpectation
from prozess.testing.recording import Recording
from prozess.testing.session import ClusterSession, TestSettings, spread

PREPARED = frozenset(
    {
        *(Capability.FILL_DISK, Capability.SLOW_DISK, Capability.FREEZE_DISK, Capability.FAIL_DISK),
        *(Capability.LOSE_POWER, Capability.SHIFT_CLOCK),
    }
)
"""Capabilities for which nodes must be prepared before they start."""
_OF_TOPIC = re.compile(r"(?P<role>[a-z-]+)\((?P<topic>[A-Za-z0-9._-]+)/(?P<number>\d+)(?P<rest>[^)]*)\)")
_OF_GROUP = re.compile(r"(?P<role>group-coordinator|transaction-coordinator)\((?P<name>[^)]+)\)")
STRIKE_S = 120.0
"""The time beyond the step's own limit: some faults are slow (a rolling restart)."""


class KafkaCluster:
    """A cluster under tests. Clients of this process, and of processes it starts, reach it at `bootstrap_servers`.

    One object serves a whole session, so that fixtures of every scope may ask for it. While a test runs, it stands for
    that test's cluster; topics, `identity` and `expect` belong to that test alone.
    """

    def __init__(self, start: Callable[[], ClusterSession]) -> None:
        """`start` returns the running cluster for a fixture of several tests, and starts it if necessary."""
        self._start = start
        self._test: Recording | None = None
        self._tests = 0

    @contextmanager
    def under(self, recording: Recording) -> Iterator[None]:
        """A context in which the object stands for the cluster of this test."""
        self._test, self._tests = recording, self._tests + 1
        try:
            yield
        finally:
            self._test = None

    @property
    def _session(self) -> ClusterSession:
        session = None if self._test is None else self._test.session
        return self._start() if session is None else session

    def _of_test(self, what: str) -> Recording:
        if self._test is None:
            raise BadInput(
                f"kafka_cluster.{what}: it belongs to one test, and no test runs here. Call it in the test, or in a fixture "
                "with the scope function. Fixtures with a wider scope may use bootstrap_servers, nodes and version."
            )
        return self._test

    @property
    def bootstrap_servers(self) -> str:
        """Returns the addresses of the brokers, for any client of this machine."""
        return self._session.bootstrap_servers

    @property
    def version(self) -> str:
        """Returns the version of Kafka that the brokers run."""
        return self._session.variant.kafka_version

    @property
    def nodes(self) -> Sequence[str]:
        """The names of the nodes: broker-1, …, controller-3001, …; targets say `node:NAME`."""
        return tuple(self._session.facts["nodes"])

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str | int | bool] | None = None,
        exact: bool = False,
    ) -> str:
        """Creates a topic, and returns its name once every broker knows it.

        The name has the test's number behind it, because tests share a cluster; `exact`: it has not. Without
        `replication_factor`: 3, or as many as there are brokers.
        """
        recording = self._of_test(f"create_topic({name!r})")
        brokers = list(self._session.plan.broker_ids)
        factor = min(3, len(brokers)) if replication_factor is None else replication_factor
        assignment = spread(brokers, partitions=partitions, replication_factor=factor)
        settings = {key: str(v).lower() if isinstance(v, bool) else str(v) for key, v in (config or {}).items()}
        topic = name if exact else f"{name}-t{self._tests}"
        if recording.registry.topic(topic) is not None:
            raise BadInput(f"topic {topic!r} exists already. Give another name.")
        self._session.call(
            "create_topics", topics=[{"name": topic, "assignment": assignment, "properties": settings}], timeout_s=90
        )
        recording.registry.add_topic(topic, assignment, settings)
        return topic

    def identity(self, topic: str, function: Callable[[Record], Any]) -> None:
        """Says which records of a topic mean the same thing: those for which `function(record)` returns the same. Two sends
        of one identity fail the test (`repeated`): the application sent it twice. None = a record is like no other.

        `record` has `key`, `value`, `headers`, `timestamp_ms`, `topic`, `partition`, `offset`. The function is called when
        the test is over, for each record that then stands in the topic.
        """
        recording = self._known("identity", topic)
        if topic in recording.identities:
            raise BadInput(f"identity of {topic!r}: it was given already. Give one function for a topic.")
        recording.identities[topic] = function

    def expect(
        self,
        input: str,
        output: str,
        *,
        function: Callable[[Record], Any],
        identity: Callable[[Record], Any] | None = None,
        at_least_once: bool = False,
        order: Literal["key"] | None = None,
    ) -> None:
        """Says what your application makes of each record of `input` in `output`: `function(record)` gives the output's
        value, a list of several, or None for none. It fails the test if one is not there (`missing-output`), is there twice
        (`doubled-output`, unless `at_least_once`), or if there is one that no input accounts for (`unexpected-output`).

        With `identity` outputs are compared by `identity(record)`, and that is what `function` gives. Both are called when
        the test is over, for each record that then stands in the topics. `order="key"`: outputs of records with one key
        must be in the order of these (`unordered-output`).
        """
        if order not in (None, "key"):
            raise BadInput(
                f"expect(…, order={order!r}): the order is by key, or it does not matter. Give 'key' or None."
            )
        recording = self._known("expect", input, output)
        expectation = Expectation(input, output, function, identity=identity, at_least_once=at_least_once, order=order)
        recording.expectations.append(expectation)

    def expect_state(
        self,
        input: str,
        table: str,
        *,
        fold: Callable[[Any, Record], Any],
        key: Callable[[Record], Any] | None = None,
        identity: Callable[[Record], Any] | None = None,
        any_order: bool = False,
    ) -> None:
        """Says what state your application keeps of `input` in the topic `table`: for each key, the last record of the table
        has what the fold of the input's records gives. `fold(state, record)` returns the next state; the first is None, and
        None at the end is no record, or a tombstone. It fails the test if a key has another state (`wrong-state`).

        `key(record)`: the key in the table for a record of the input; without it, its own key. `identity(record)`: what of a
        record of the table is compared with the state; without it, its value, and the state is text or bytes. `any_order`:
        the fold gives the same in whatever order the records come, so one key may have records in several partitions. The
        table may be compacted.
        """
        recording = self._known("expect_state", input)
        self._known("expect_state", table, compacted=True)
        recording.states.append(StateExpectation(input, table, fold, key=key, identity=identity, any_order=any_order))

    def expect_dead_letters(
        self,
        input: str,
        dead_letters: str,
        *,
        failed: Callable[[Record], bool],
        identity: Callable[[Record], Any] | None = None,
    ) -> None:
        """Says which records of `input` end in the topic `dead_letters`: exactly those for which `failed(record)` is true,
        each once. It fails the test if one is not there (`missing-output`), is there twice (`doubled-output`), or if
        another record is there (`unexpected-output`).

        Records are compared by key and value, or by `identity(record)`, which is called with records of both topics.
        """
        same = identity or _key_and_value
        recording = self._known("expect_dead_letters", input, dead_letters)
        recording.expectations.append(
            Expectation(
                input,
                dead_letters,
                lambda record: [same(record)] if failed(record) else None,
                identity=same,
                dead_letters=True,
            )
        )

    def expect_transactions_ended(self) -> None:
        """Says that your application commits or aborts every transaction that it begins. It fails the test if one with
        records is open when the test ends (`open-transaction`)."""
        self._of_test("expect_transactions_ended").transactions_end = True

    def _known(self, what: str, *topics: str, compacted: bool = False) -> Recording:
        """Returns the recording of the test, which knows these topics now. BadInput if one is not there, or is compacted
        although it may not be."""
        from prozess.testing.recorded.topics import ask_topic

        recording = self._of_test(what)
        for topic in topics:
            if recording.registry.topic(topic) is None:
                servers = {"bootstrap.servers": self._session.bootstrap_servers}
                ask_topic(recording.registry, topic, servers)
            facts = recording.registry.topic(topic)
            if not compacted and facts is not None and facts.properties.get("cleanup.policy", "delete") != "delete":
                raise BadInput(
                    f"{what}: {topic!r} is compacted: records leave its log, so that it does not show what was sent."
                )
        return recording


def _key_and_value(record: Record) -> tuple[bytes | None, bytes | None]:
    return record.key, record.value


class ActiveFault:
    """A fault that was made. Used as a context manager, it is healed at the end."""

    def __init__(self, nemesis: "TestNemesis", name: str) -> None:
        self._nemesis, self.name = nemesis, name

    def heal(self) -> None:
        """Undoes the fault, as the end of its `with` does. A second call does nothing. ClusterFailed if that fails."""
        self._nemesis.heal(self)

    def __enter__(self) -> "ActiveFault":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()


class TestNemesis:
    """Makes faults in the cluster under a test, by roles as in trial files, with topics by name: `leader(orders-t1/0)`.
    Faults that are active when the test ends are healed."""

    __test__ = False

    def __init__(self, session: ClusterSession, recording: Recording) -> None:
        self._session, self._recording = session, recording
        self._healed: set[str] = set()

    def inject(self, fault: str, *targets: str, **parameters: object) -> ActiveFault:
        """Makes a fault of `docs/faults.md`, and observes whether it took effect. BadInput if it cannot be made here;
        ClusterFailed if it was not made. One that was made and had no effect makes the test unknown."""
        roles = tuple(map(self._role, targets))
        given = {key: self._roles_within(value) for key, value in parameters.items()}
        try:
            action = FaultAction(kind="fault", fault=fault, targets=roles, parameters=given)
        except ValueError as error:
            raise BadInput(f"nemesis: {_first(error)}") from error
        self._refuse(action)
        name = f"{len(self._recording.steps) + 1}: {fault} {', '.join(targets)}"
        why = self._recording.step(Step(name=name, do=action), timeout_s=STRIKE_S)
        if why is not None:
            raise ClusterFailed(f"nemesis: {fault} of {', '.join(targets)} failed: {why}")
        return ActiveFault(self, name)

    def kill(self, *targets: str) -> ActiveFault:
        """Kills the targets with SIGKILL. Healing starts them again."""
        return self.inject("kill", *targets)

    def stop(self, *targets: str, **parameters: object) -> ActiveFault:
        """Stops the targets with SIGTERM, a controlled shutdown. Healing starts them again."""
        return self.inject("stop", *targets, **parameters)

    def pause(self, *targets: str) -> ActiveFault:
        """Freezes the targets with SIGSTOP. Healing lets them go on."""
        return self.inject("pause", *targets)

    def partition(self, *targets: str, **parameters: object) -> ActiveFault:
        """Cuts the network between the targets and others."""
        return self.inject("partition", *targets, **parameters)

    def heal(self, fault: ActiveFault | None = None) -> None:
        """Heals this fault, or all of them."""
        if fault is not None and fault.name in self._healed:
            return
        number = len(self._recording.steps) + 1
        name = f"{number}: heal" + (f" {fault.name.partition(': ')[2]}" if fault else " everything")
        step = Step(name=name, do=HealAction(kind="heal", step=fault.name if fault else None))
        if (why := self._recording.step(step, timeout_s=STRIKE_S)) is not None:
            raise ClusterFailed(f"nemesis: it could not be healed: {why}")
        self._healed |= {fault.name} if fault else set()

    def wait(self, condition: str, *, timeout_s: float = 30.0, **details: object) -> None:
        """Waits until every broker's own view meets a condition: `leader-moved`, `isr`, `offline` (of every partition of the
        test, or of `partition="orders-t1/0"`), `unfenced` (`node="broker-1"`), `elapsed` (`seconds=2`). ClusterFailed after
        the limit."""
        if "partition" in details:
            details["partition"] = self._dense(str(details["partition"]))
        name = f"{len(self._recording.steps) + 1}: wait for {condition}"
        try:
            step = Step.model_validate(
                {"name": name, "after": {"condition": condition, **details}, "timeout_s": timeout_s}
            )
        except ValueError as error:
            raise BadInput(f"nemesis.wait: {_first(error)}") from error
        if (why := self._recording.step(step, timeout_s=timeout_s + STRIKE_S)) is not None:
            raise ClusterFailed(f"nemesis: {why}")

    # Roles.

    def _role(self, text: str) -> str:
        """Returns a target as a plan has it: partitions, groups and transactional.ids by number."""
        if match := _OF_TOPIC.fullmatch(text):
            return f"{match['role']}({self._dense(match['topic'] + '/' + match['number'])}{match['rest']})"
        if (match := _OF_GROUP.fullmatch(text)) and not match["name"].isdigit():
            return f"{match['role']}({self._recording.cell_of(match['role'], match['name'])})"
        return f"node:{text}" if text in self._session.facts["nodes"] else text

    def _roles_within(self, value: object) -> object:
        if isinstance(value, str):
            return self._role(value)
        return [self._roles_within(v) for v in value] if isinstance(value, list | tuple) else value

    def _dense(self, named: str) -> int:
        topic, _, number = named.rpartition("/")
        facts = self._recording.registry.topic(topic)
        if facts is None or not number.isdigit() or int(number) >= len(facts.assignment):
            known = ", ".join(f"{t.name}/0…{len(t.assignment) - 1}" for t in self._recording.registry.topics)
            raise BadInput(f"nemesis: {named!r} is no partition of this test. It has: {known or 'no topic yet'}.")
        return facts.first + int(number)

    def _refuse(self, action: FaultAction) -> None:
        """Refuses a fault that cannot be made here (BadInput), before anything is touched."""
        fault = fault_named(action.fault)
        nodes = self._session.facts["nodes"]
        variant = self._session.variant
        checked = check_parameters(
            action.fault, action.parameters, targets=action.targets, nodes=nodes, variant=variant
        )
        if (why := why_no_client_clocks(fault)) is not None:
            raise BadInput(f"nemesis: {action.fault!r}: {why}.")
        for text in action.targets:
            target = parse_target(text)
            if why := why_nobody(target, self._session.variant):
                raise BadInput(f"nemesis: {text} {why}.")
            if target.node is not None and target.node not in nodes:
                raise BadInput(f"nemesis: there is no node {target.node!r}. Nodes: {', '.join(nodes)}.")
        needs, lacks = fault_needs(fault, checked), self._session.facts["lacks"]
        for capability in sorted(needs):
            if str(capability) not in self._session.facts["capabilities"]:
                why = lacks.get(str(capability), "it has no such capability")
                raise BadInput(f"nemesis: {action.fault!r} cannot be made here: {why}.")
        unprepared = (needs & PREPARED) - capabilities_needed(self._session.plan)
        if unprepared:
            raise BadInput(
                f"nemesis: {action.fault!r} needs nodes that were prepared for it before they started. Mark the test with "
                f'@pytest.mark.prozess(faults=["{action.fault}"]), or name it in prozess_faults.'
            )


def _first(error: ValueError) -> str:
    problems = getattr(error, "errors", None)
    return str(problems()[0]["msg"]).removeprefix("Value error, ") if problems else str(error)


# The fixture `trial`: runs a whole trial within a test, for its verdict.


class RunTrial:
    """Call it with a trial: its name, a file, a `Trial`, a document as a file would have it, or a plan."""

    def __init__(self, runs: Path, settings: TestSettings) -> None:
        self._runs, self._settings = runs, settings

    def __call__(
        self,
        trial: TrialSource,
        *,
        seed: int = 1,
        overrides: Mapping[str, Any] | None = None,
    ) -> TrialRun:
        """Runs the trial and judges it. HarnessFailed if it could not be run to where it can be judged. `overrides`: as
        --set."""
        isolation = self._settings.isolation
        return run_trial(trial, seed=seed, overrides=overrides, runs=self._runs, isolation=isolation)
