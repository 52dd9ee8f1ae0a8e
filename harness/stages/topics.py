"""The topics of a trial while it runs: created at first, grown by steps, and cut short by deleted records."""

from collections.abc import Collection, Sequence
from typing import Protocol

from harness.errors import ClusterFailed
from harness.plan import Cell, Plan
from harness.protocols import AdminProtocol, TopicSpec, Workload
from harness.schema import ObservationKind


class RecorderProtocol(Protocol):
    """What this needs of the recorder."""

    def write(self, table: str, **columns: int) -> None:
        """One row; missing columns are unset."""
        ...


class Topics:
    """Knows which planned partitions are there. One thread uses it."""

    def __init__(self, plan: Plan, admin: AdminProtocol, workload: Workload, recorder: RecorderProtocol) -> None:
        self._plan, self._admin, self._workload, self._recorder = plan, admin, workload, recorder
        self._absent = {p.partition for p in plan.partitions if p.late}

    def absent(self) -> Collection[int]:
        """Dense ids of the planned partitions that do not exist yet."""
        return self._absent

    def create(self) -> None:
        """Every partition that is not late; and what groups need of their coordinators."""
        specs = [spec for cell in self._plan.cells for spec in self._specs(cell, late=False)]
        timeout_s = self._plan.limits.topics_s
        self._admin.create_topics(specs, timeout_s=timeout_s)
        groups = {client.group_id for client in self._plan.clients if client.group_id is not None}
        self._admin.await_coordinators(groups, timeout_s=timeout_s)

    def add_partitions(self, cells: Sequence[Cell]) -> None:
        """The late partitions and topics of these cells; once all brokers know them, producers write to them too.
        ClusterFailed if there is none left to add."""
        new = sorted(p for cell in cells for p in cell.late_partitions if p in self._absent)
        if not new:
            raise ClusterFailed(
                f"{len(cells)} cells have no late partition that is not there yet. Give `topics.late_partitions` or "
                "`topics.late_topic_partitions`, and add them once."
            )
        first = {spec.name: len(spec.assignment) for cell in cells for spec in self._specs(cell, late=False)}
        specs = [spec for cell in cells for spec in self._specs(cell, late=True)]
        grown = {spec.name: (first[spec.name], spec.assignment) for spec in specs if spec.name in first}
        timeout_s = self._plan.limits.topics_s
        self._admin.add_partitions(grown, timeout_s=timeout_s)
        self._admin.create_topics([spec for spec in specs if spec.name not in first], timeout_s=timeout_s)
        self._absent.difference_update(new)
        self._workload.command("begin", partitions=new)

    def delete_records(self, cells: Sequence[Cell], *, keep: int, step: int, now_ns: int) -> None:
        """All but the last `keep` records of every partition of these cells; where their logs begin now is recorded."""
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
        """Topics with the assignments of those partitions of the cell that are late, or that are not."""
        assignments: dict[str, list[tuple[int, ...]]] = {}
        for partition in cell.partitions:
            planned = self._plan.partitions[partition]
            if planned.late == late:
                assignments.setdefault(planned.topic_name, []).append(planned.assignment)
        properties = cell.topic.kafka_properties()
        return [TopicSpec(name=n, assignment=tuple(a), properties=properties) for n, a in assignments.items()]
