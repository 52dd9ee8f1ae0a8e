"""Creates the topics of a trial, adds partitions to them, and deletes records from them, when the schedule says so."""

from collections.abc import Collection, Sequence
from typing import Protocol

from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import AdminProtocol, TopicSpec
from prozess.harness.plan.plan import Cell, Plan
from prozess.harness.schema import ObservationKind


class TopicRecorder(Protocol):
    """The part of the recorder that topics need."""

    def write(self, table: str, **columns: int) -> None:
        """Writes one row. Columns that are not given are unset."""
        ...


class Producers(Protocol):
    """The part of the workload that topics need."""

    def begin(self, partitions: Collection[int]) -> None:
        """Has producers write to these late partitions from now on."""
        ...


class TrialTopics:
    """The topics of one trial, and which of its planned partitions exist. One thread uses it."""

    def __init__(self, plan: Plan, admin: AdminProtocol, producers: Producers, recorder: TopicRecorder) -> None:
        self._plan, self._admin, self._producers, self._recorder = plan, admin, producers, recorder
        self._absent = {p.partition for p in plan.partitions if p.late}

    def absent(self) -> Collection[int]:
        """Returns the dense ids of the planned partitions that do not exist yet."""
        return self._absent

    def create(self) -> None:
        """Creates every partition that is not late, and waits for the coordinators of the groups."""
        specs = [spec for cell in self._plan.cells for spec in self._specs(cell, late=False)]
        timeout_s = self._plan.limits.topics_s
        self._admin.create_topics(specs, timeout_s=timeout_s)
        groups = {client.group_id for client in self._plan.clients if client.group_id is not None}
        self._admin.await_coordinators(groups, timeout_s=timeout_s)

    def add_partitions(self, cells: Sequence[Cell]) -> None:
        """Creates the late partitions and topics of these cells. Producers write to them once all brokers know them.

        ClusterFailed if there is none left to add.
        """
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

    def delete_records(self, cells: Sequence[Cell], *, keep: int, step: int, now_ns: int) -> None:
        """Deletes all but the last `keep` records of every partition of these cells, and records where their logs begin
        now."""
        dense = {self._name(p): p for cell in cells for p in cell.partitions if p not in self._absent}
        starts = self._admin.delete_records(list(dense), keep=keep, timeout_s=self._plan.limits.topics_s)
        for name, start in starts.items():
            self._recorder.write(
                "observations",
                time_ns=now_ns,
                value=start,
                partition=dense[name],
                kind=int(ObservationKind.LOG_START),
                step=step,
            )

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
