"""This module makes and changes the topics of a trial during the run stage, under the clients that use them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

from prozess.harness.clock import Clock, wait_until
from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import AdminProtocol, BrokerView, TopicSpec
from prozess.harness.plan.plan import Cell, Plan
from prozess.harness.plan.schedule import ClientCommand, MakeTopics
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import ObservationKind

ATTEMPT_S = 0.2
"""The time between two attempts to delete or make topics."""
CALL_S = 10.0
"""How long one call may take. A controller that died is replaced within a session, and then the call is made again."""


class ScheduledClients(Protocol):
    """The part of the workload that steps of a schedule use."""

    def command(self, action: ClientCommand) -> None:
        """Has the clients carry out the action. NotReady if they do not in time."""
        ...

    def begin(self, partitions: Collection[int]) -> None:
        """Has producers write to these late partitions from now on."""
        ...

    def appeared(self, partitions: Collection[int], *, there: bool) -> None:
        """Notes that partitions (recorded ids) are there, or are there no more. Clients are not informed."""
        ...


class TrialTopics:
    """The topics of one trial, and which of its planned partitions exist. One thread uses it."""

    def __init__(self, plan: Plan, admin: AdminProtocol, producers: ScheduledClients, recorder: Recorder) -> None:
        self._plan, self._admin, self._producers, self._recorder = plan, admin, producers, recorder
        self._absent = {p.partition for p in plan.partitions if p.late}
        self._nameless = plan.nameless
        self._life = {cell.topic_name: 0 for cell in plan.cells}
        """Which topic of each name is there, or was there last."""
        self._come_back = any(isinstance(s.do, MakeTopics) and s.do.by == "clients" for s in plan.steps)
        """Whether brokers make a topic again as soon as a client asks for it."""
        self._gone: dict[str, UUID] = {}
        """The ids of topics that were deleted and not made again, by name."""

    def absent(self) -> Collection[int]:
        """Returns the dense ids of the planned partitions that do not exist now, and those under which nobody records
        anything (`Plan.nameless`)."""
        return self._absent | self._nameless

    def create(self) -> None:
        """Creates every partition that is not late, and waits for the coordinators of the groups."""
        specs = [spec for cell in self._plan.cells if not cell.life for spec in self._specs(cell, late=False)]
        timeout_s = self._plan.limits.topics_s
        self._admin.create_topics(specs, timeout_s=timeout_s)
        groups = {client.group_id for client in self._plan.clients if client.group_id is not None}
        self._admin.await_coordinators(groups, timeout_s=timeout_s)

    def add_partitions(self, cells: Sequence[Cell]) -> None:
        """Creates the late partitions and topics of these cells. Producers write to them once all brokers know them.

        ClusterFailed if there is none left to add.
        """
        cells = [cell for cell in cells if not cell.life]
        new = sorted(p for cell in cells for p in cell.late_partitions if p in self._absent)
        if not new:
            raise ClusterFailed(
                f"There are no late partitions left to add to these {len(cells)} cells. Set `topics.late_partitions` or "
                "`topics.late_topic_partitions`, and add them only once."
            )
        first = {spec.name: len(spec.assignment) for cell in cells for spec in self._specs(cell, late=False)}
        specs = [spec for cell in cells for spec in self._specs(cell, late=True)]
        grown = {spec.name: (first[spec.name], spec.assignment) for spec in specs if spec.name in first}
        timeout_s = self._plan.limits.topics_s
        self._admin.add_partitions(grown, timeout_s=timeout_s)
        self._admin.create_topics([spec for spec in specs if spec.name not in first], timeout_s=timeout_s)
        self._absent.difference_update(new)
        self._producers.begin(new)

    def delete_records(self, cells: Sequence[Cell], *, keep: int, step: int, clock: Clock) -> None:
        """Deletes all but the last `keep` records of every partition of these cells, and records where their logs begin
        since then."""
        dense = {self._name(p): p for cell in cells for p in cell.partitions if p not in self._absent}
        starts = self._admin.delete_records(list(dense), keep=keep, timeout_s=self._plan.limits.topics_s)
        now_ns = clock.monotonic_ns()  # acknowledged by now
        for name, start in starts.items():
            self._recorder.write(
                "observations",
                time_ns=now_ns,
                value=start,
                partition=dense[name],
                kind=int(ObservationKind.LOG_START),
                step=step,
            )

    def alter(self, cells: Sequence[Cell], properties: Mapping[str, str], *, clock: Clock) -> None:
        """Sets properties of the topics of these cells, and returns once Kafka reports them. Asks again where no controller
        answers. NotReady, with what was seen last."""
        names = sorted({cell.topic_name for cell in cells} - self._gone.keys())
        wanted = ", ".join(f"{name} = {value}" for name, value in properties.items())
        for name in names:
            self._until_done(
                partial(self._is_altered, name, properties),
                f"{wanted} of topic {name}",
                clock,
                "Kafka reports other values",
            )

    def _is_altered(self, name: str, properties: Mapping[str, str]) -> bool:
        self._admin.alter_configs(f"topic:{name}", properties, timeout_s=CALL_S)
        now = self._admin.describe_configs(topics=[name], timeout_s=CALL_S)[f"topic:{name}"]
        return all(now.get(key) == value for key, value in properties.items())

    def delete(self, cells: Sequence[Cell], *, avoid: Collection[int], clock: Clock) -> None:
        """Deletes the topics of these cells by their ids, and returns once no broker that answers knows them.

        Asks again where no controller answers. NotReady, with what was seen last. `avoid`: brokers that a fault holds, which
        may know what was there before."""
        names = sorted({cell.topic_name for cell in cells} - self._gone.keys())
        ids: dict[str, UUID] = {}
        self._until_done(
            lambda: self._are_known(names, ids),
            f"the ids of the topics {', '.join(names)}",
            clock,
            "not every id is known",
        )
        self._until_done(
            lambda: self._are_deleted(ids, avoid), f"the deletion of {', '.join(names)}", clock, "a broker knows them"
        )
        self._gone |= ids
        self._appear([p for name in names for p in self._recorded_of(name)], there=False)

    def make(self, cells: Sequence[Cell], *, by_clients: bool, clock: Clock) -> None:
        """Makes topics again that were deleted, each with the settings of its next life, and returns once a running broker
        names a leader for each partition: replicas may be down. NotReady, with what was seen last. `by_clients`: brokers make
        them, because a client asks for them."""
        now = {c.topic_name: c for c in cells if c.topic_name in self._gone and c.life == self._life[c.topic_name] + 1}
        if not now:
            raise ClusterFailed(f"None of the topics of these {len(cells)} cells was deleted and can be made again.")
        specs = [spec for cell in now.values() for spec in self._specs(cell, late=True)]
        awaited = f"the topics {', '.join(sorted(now))}, made again"
        self._until_done(lambda: self._are_made(specs, by_clients), awaited, clock, "not every partition has a leader")
        for name, cell in now.items():
            del self._gone[name]
            self._life[name] = cell.life
        there = [self._plan.recorded[self._name(p)] for cell in now.values() for p in cell.partitions]
        self._appear(there, there=True)
        if new := [p for p in there if self._plan.partitions[p].late]:
            self._producers.begin(new)

    def _until_done(self, attempt: Callable[[], bool], awaited: str, clock: Clock, undone: str) -> None:
        """Attempts it again and again, whatever the cluster refuses, within the limit of topics."""
        seen = [undone]

        def done() -> bool:
            seen[0] = undone
            try:
                return attempt()
            except ClusterFailed as error:  # no controller, or one that was deposed meanwhile: it is asked again
                seen[0] = str(error)
                return False

        wait_until(
            done,
            awaited=awaited,
            timeout_s=self._plan.limits.topics_s,
            clock=clock,
            last_seen=lambda: seen[0],
            interval_s=ATTEMPT_S,
        )

    def _are_known(self, names: Collection[str], ids: dict[str, UUID]) -> bool:
        ids |= self._admin.topic_ids(names)
        return ids.keys() == set(names)

    def _are_deleted(self, ids: Mapping[str, UUID], avoid: Collection[int]) -> bool:
        self._admin.delete_topics(list(ids.values()), timeout_s=CALL_S)
        if self._come_back:
            now = self._admin.topic_ids(list(ids))
            return all(now.get(name) != topic_id for name, topic_id in ids.items())
        views = self._views(ids, avoid)
        return bool(views) and not any(views)

    def _are_made(self, specs: Sequence[TopicSpec], by_clients: bool) -> bool:
        names = [spec.name for spec in specs]
        there = self._admin.topic_ids(names)
        made = {name for name, topic_id in there.items() if topic_id != self._gone[name]}
        lacking = [spec for spec in specs if spec.name not in made]
        if lacking and by_clients:
            return False
        if lacking:
            self._admin.create_topics(lacking, timeout_s=CALL_S, whole=False)
        wanted = {(spec.name, number) for spec in specs for number in range(len(spec.assignment))}
        return any(all(key in view and view[key].leader >= 0 for key in wanted) for view in self._views(names))

    def _views(self, names: Collection[str], avoid: Collection[int] = ()) -> list[BrokerView]:
        """Returns what each broker that answers knows of these topics. One that knows none says nothing of them."""
        seen = (self._admin.view(node, sorted(names)) for node in self._plan.broker_ids if node not in avoid)
        return [view for view in seen if view is not None]

    def _recorded_of(self, topic: str) -> list[int]:
        """Returns the recorded ids of the partitions of the topic that has this name now."""
        life = self._life[topic]
        cells = [cell for cell in self._plan.cells if cell.topic_name == topic and cell.life == life]
        return [self._plan.recorded[self._name(p)] for cell in cells for p in cell.partitions]

    def _appear(self, partitions: Collection[int], *, there: bool) -> None:
        if there:
            self._absent.difference_update(partitions)
        else:
            self._absent.update(partitions)
        self._producers.appeared(partitions, there=there)

    def _name(self, partition: int) -> tuple[str, int]:
        planned = self._plan.partitions[partition]
        return planned.topic_name, planned.number

    def _specs(self, cell: Cell, *, late: bool) -> list[TopicSpec]:
        """Returns the topics of a cell, with the assignments of its late partitions or of the others."""
        assignments: dict[str, list[tuple[int, ...]]] = {}
        for partition in cell.partitions:
            planned = self._plan.partitions[partition]
            if planned.late == late:
                assignments.setdefault(planned.topic_name, []).append(planned.assignment)
        properties = cell.topic.kafka_properties()
        return [TopicSpec(name=n, assignment=tuple(a), properties=properties) for n, a in assignments.items()]
