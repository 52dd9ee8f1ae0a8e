"""What each replica's own files hold, into the history: at a step of the schedule, and at the end.

At the end means after the cluster was taken down: nothing appends any more, every copy is compared at one moment, the
brokers compete for nothing, and a SIGKILL takes nothing away that was written (the page cache is the kernel's). The audit's
sentinels were acknowledged by a whole ISR before, so up to them every copy must be there, and the same.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness import catalogue
from harness.clock import Clock
from harness.plan import Plan
from harness.protocols import Cluster
from harness.recorder import Recorder
from harness.schema import NONE, ObservationKind


class Inspector:
    """Reads the brokers' data directories. `emit`: tells the outer process, `events.Events.emit`."""

    def __init__(
        self, plan: Plan, cluster: Cluster, recorder: Recorder, clock: Clock, emit: Callable[..., None]
    ) -> None:
        self._plan, self._cluster, self._recorder, self._clock, self._emit = plan, cluster, recorder, clock, emit

    def inspect(self, partitions: Sequence[int], *, step: int = NONE) -> None:
        """Every copy of these partitions, as rows of `replicas`, `snapshots` and `observations`. `step`: of the schedule;
        NONE = the end. A copy that cannot be read is left out, and an event says why."""
        problems: list[str] = []
        read_ns, count = self._clock.monotonic_ns(), 0
        ends: dict[str, list[int]] = {}
        for replica in catalogue.service("replicas")(
            self._directories(), [self._named(p) for p in partitions], on_problem=problems.append
        ):
            self._write_batches(replica, read_ns, step)
            self._write_facts(replica, read_ns, step)
            self._write_snapshots(replica, read_ns, step)
            count += len(replica.batches["base_offset"])
            ends.setdefault(f"broker-{replica.node}", []).append(replica.log_end)
        took_s = round((self._clock.monotonic_ns() - read_ns) / 1e9, 3)
        # Few partitions, as in a scenario's steps, are worth telling one by one.
        told: dict[str, Any] = {"log_ends": ends} if step != NONE else {}
        self._emit("inspected", step=step, batches=count, took_s=took_s, problems=problems, **told)

    def log_ends(self, partitions: Sequence[int]) -> Mapping[tuple[int, int], int]:
        """(node id, dense id) → behind the last batch of that copy, now."""
        log_end = catalogue.service("log-end")
        found = {}
        for node, directory in self._directories().items():
            for partition in partitions:
                _, topic, number = self._named(partition)
                end = log_end(directory, topic, number)
                if end is not None:
                    found[node, partition] = end
        return found

    def _directories(self) -> dict[int, Path]:
        return {node.node_id: node.data_directory for node in self._cluster.nodes if "broker" in node.roles}

    def _named(self, partition: int) -> tuple[int, str, int]:
        planned = self._plan.partitions[partition]
        return planned.partition, planned.topic_name, planned.number

    def _write_batches(self, replica: Any, read_ns: int, step: int) -> None:  # noqa: ANN401 - clusters.segments.Replica
        length = len(replica.batches["base_offset"])
        if length:
            same = {"read_ns": read_ns, "partition": replica.partition, "node": replica.node, "step": step}
            columns = {name: np.full(length, value, dtype=np.int64) for name, value in same.items()}
            self._recorder.extend("replicas", {**replica.batches, **columns})

    def _write_facts(self, replica: Any, read_ns: int, step: int) -> None:  # noqa: ANN401 - clusters.segments.Replica
        def note(kind: ObservationKind, value: int, leader_epoch: int = NONE) -> None:
            self._recorder.write(
                "observations",
                time_ns=read_ns,
                value=value,
                partition=replica.partition,
                kind=int(kind),
                node=replica.node,
                leader_epoch=leader_epoch,
                step=step,
            )

        note(ObservationKind.REPLICA_LOG_START, replica.log_start)
        note(ObservationKind.REPLICA_LOG_END, replica.log_end)
        if replica.high_watermark is not None:
            note(ObservationKind.REPLICA_HIGH_WATERMARK, replica.high_watermark)
        for epoch, start in replica.epoch_starts.items():
            note(ObservationKind.REPLICA_EPOCH_START, start, epoch)
        for snapshot in replica.snapshots:
            damaged = bool(snapshot.damage)
            kind = ObservationKind.REPLICA_SNAPSHOT_DAMAGED if damaged else ObservationKind.REPLICA_SNAPSHOT
            note(kind, snapshot.offset)

    def _write_snapshots(self, replica: Any, read_ns: int, step: int) -> None:  # noqa: ANN401 - clusters.segments.Replica
        for snapshot in replica.snapshots:
            entries, length = snapshot.entries, len(snapshot.entries)
            if length:
                same = {
                    "read_ns": read_ns,
                    "snapshot_offset": snapshot.offset,
                    "partition": replica.partition,
                    "node": replica.node,
                    "step": step,
                }
                columns = {name: np.full(length, value, dtype=np.int64) for name, value in same.items()}
                told = {name: entries[name].astype(np.int64) for name in entries.dtype.names}
                self._recorder.extend("snapshots", {**told, **columns})
