"""What the fixtures `kafka_cluster` and `nemesis` give to a test."""

import itertools
import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from harness import catalogue
from harness.capabilities import Capability
from harness.errors import BadInput, ClusterFailed
from harness.needs import capabilities_needed
from harness.plan_checks import why_nobody
from harness.schedule import FaultAction, HealAction, Step
from harness.stages.run import fault_needs
from harness.targets import parse_target
from harness.testing.recording import Recording
from harness.testing.session import ClusterSession, spread

PREPARED = frozenset(
    {
        *(Capability.FILL_DISK, Capability.SLOW_DISK, Capability.FREEZE_DISK, Capability.FAIL_DISK),
        *(Capability.LOSE_POWER, Capability.SHIFT_CLOCK),
    }
)
"""What nodes must be prepared for before they start."""
_OF_TOPIC = re.compile(r"(?P<role>[a-z-]+)\((?P<topic>[A-Za-z0-9._-]+)/(?P<number>\d+)(?P<rest>[^)]*)\)")
_OF_GROUP = re.compile(r"(?P<role>group-coordinator|transaction-coordinator)\((?P<name>[^)]+)\)")
STRIKE_S = 120.0
"""Beyond the step's own limit: some faults take their time (a rolling restart)."""


class KafkaCluster:
    """A cluster under a test. Clients of this process, and of processes it starts, reach it at `bootstrap_servers`."""

    _tests = itertools.count(1)

    def __init__(self, session: ClusterSession, recording: Recording) -> None:
        self._session, self._recording = session, recording
        self._suffix = f"t{next(self._tests)}"

    @property
    def bootstrap_servers(self) -> str:
        """For any client."""
        return self._session.bootstrap_servers

    @property
    def version(self) -> str:
        """Of Kafka."""
        return self._session.variant.kafka_version

    @property
    def nodes(self) -> Sequence[str]:
        """Names: broker-1, …, controller-3001, …; targets say `node:NAME`."""
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
        """Create it, and return its name once every broker knows it.

        The name has the test's number behind it, because tests share a cluster; `exact`: it has not. Without
        `replication_factor`: 3, or as many as there are brokers.
        """
        brokers = list(self._session.plan.broker_ids)
        factor = min(3, len(brokers)) if replication_factor is None else replication_factor
        assignment = spread(brokers, partitions=partitions, replication_factor=factor)
        settings = {key: str(v).lower() if isinstance(v, bool) else str(v) for key, v in (config or {}).items()}
        topic = name if exact else f"{name}-{self._suffix}"
        if self._recording.registry.topic(topic) is not None:
            raise BadInput(f"topic {topic!r} is there already. Give another name.")
        self._session.call(
            "create_topics", topics=[{"name": topic, "assignment": assignment, "properties": settings}], timeout_s=90
        )
        self._recording.registry.add_topic(topic, assignment, settings)
        return topic


class Strike:
    """A fault that was made; as a context, it is undone at the end."""

    def __init__(self, nemesis: "TestNemesis", name: str) -> None:
        self._nemesis, self.name = nemesis, name

    def heal(self) -> None:
        """Undo it."""
        self._nemesis.heal(self)

    def __enter__(self) -> "Strike":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()


class TestNemesis:
    """Breaks the cluster under a test, by roles as in trial files, with topics by name: `leader(orders-t1/0)`. What is broken
    when the test ends is healed."""

    __test__ = False

    def __init__(self, session: ClusterSession, recording: Recording) -> None:
        self._session, self._recording = session, recording
        self._healed: set[str] = set()

    def strike(self, fault: str, *targets: str, **parameters: Any) -> Strike:  # noqa: ANN401 - of the fault's model
        """Make a fault of `docs/faults.md`, and see that it took effect. BadInput if it cannot be made here; ClusterFailed if
        it was not made. One that was made and had no effect makes the test unknown."""
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
            raise ClusterFailed(f"nemesis: {fault} of {', '.join(targets)} was not made: {why}")
        return Strike(self, name)

    def kill(self, *targets: str) -> Strike:
        """SIGKILL; healed, it is started again."""
        return self.strike("kill", *targets)

    def stop(self, *targets: str, **parameters: Any) -> Strike:  # noqa: ANN401
        """SIGTERM: a controlled shutdown; healed, it is started again."""
        return self.strike("stop", *targets, **parameters)

    def pause(self, *targets: str) -> Strike:
        """SIGSTOP; healed, it goes on."""
        return self.strike("pause", *targets)

    def partition(self, *targets: str, **parameters: Any) -> Strike:  # noqa: ANN401
        """Cut the network between the targets and others."""
        return self.strike("partition", *targets, **parameters)

    def heal(self, strike: Strike | None = None) -> None:
        """Undo that fault, or every one."""
        if strike is not None and strike.name in self._healed:
            return
        number = len(self._recording.steps) + 1
        name = f"{number}: heal" + (f" {strike.name.partition(': ')[2]}" if strike else " everything")
        step = Step(name=name, do=HealAction(kind="heal", step=strike.name if strike else None))
        if (why := self._recording.step(step, timeout_s=STRIKE_S)) is not None:
            raise ClusterFailed(f"nemesis: it could not be healed: {why}")
        self._healed |= {strike.name} if strike else set()

    def wait(self, condition: str, *, timeout_s: float = 30.0, **details: Any) -> None:  # noqa: ANN401
        """Until every broker's own view says so: `leader-moved`, `isr`, `offline` (of every partition of the test, or of
        `partition="orders-t1/0"`), `unfenced` (`node="broker-1"`), `elapsed` (`seconds=2`). ClusterFailed after the limit."""
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

    # --- roles ------------------------------------------------------------------------------------------------------

    def _role(self, text: str) -> str:
        """A target as a plan has it: partitions, groups and transactional.ids by number."""
        if match := _OF_TOPIC.fullmatch(text):
            return f"{match['role']}({self._dense(match['topic'] + '/' + match['number'])}{match['rest']})"
        if (match := _OF_GROUP.fullmatch(text)) and not match["name"].isdigit():
            return f"{match['role']}({self._recording.cell_of(match['role'], match['name'])})"
        return f"node:{text}" if text in self._session.facts["nodes"] else text

    def _roles_within(self, value: Any) -> Any:  # noqa: ANN401
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
        """BadInput, before anything is touched, for what cannot be made here."""
        fault = catalogue.resolve(catalogue.FAULTS, action.fault, what="fault")
        nodes = self._session.facts["nodes"]
        catalogue.service("check-fault")(action.fault, action.parameters, targets=action.targets, nodes=nodes)
        for text in action.targets:
            target = parse_target(text)
            if why := why_nobody(target, self._session.variant):
                raise BadInput(f"nemesis: {text} {why}.")
            if target.node is not None and target.node not in nodes:
                raise BadInput(f"nemesis: there is no node {target.node!r}. Nodes: {', '.join(nodes)}.")
        needs, lacks = fault_needs(fault, action.parameters), self._session.facts["lacks"]
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
