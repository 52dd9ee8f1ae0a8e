"""Offsets looked up for many partitions at once (ListOffsets, KIP-396), while the heart goes on beating."""

from collections.abc import Collection, Mapping
from concurrent.futures import wait
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # it is in its __init__

from harness.schema import NONE
from workloads.client import Client
from workloads.properties import FOR_A_BROKEN_CLUSTER

LOOK_UP_S = 5.0
_SLICE_S = 0.02


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An answer. `leader_epoch` NONE = not told."""

    offset: int
    leader_epoch: int


class Offsets:
    """Looks offsets up through a connection of its own."""

    def __init__(self, client: Client, partitions: Collection[int] | None = None) -> None:
        """`partitions`: dense ids; all of the client's unless given."""
        self._client = client
        servers = client.spec.properties["bootstrap.servers"]
        self._admin = AdminClient({**FOR_A_BROKEN_CLUSTER, "bootstrap.servers": servers})
        self._dense: Mapping[TopicPartition, int] = {
            TopicPartition(topic, number): dense
            for dense, topic, number in client.spec.partitions
            if partitions is None or dense in partitions
        }

    def earliest(self) -> dict[int, FoundOffset]:
        """Log start of every partition that was answered for within LOOK_UP_S, by dense id."""
        return self._look_up(OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def latest(self) -> dict[int, FoundOffset]:
        """The same, the high watermark: what `latest` is at read_uncommitted."""
        return self._look_up(OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def _look_up(self, spec: OffsetSpec) -> dict[int, FoundOffset]:
        answers = self._admin.list_offsets(
            dict.fromkeys(self._dense, spec),
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=LOOK_UP_S,
        )
        waiting = set(answers.values())
        until_ns = self._client.now_ns() + int((LOOK_UP_S + 1) * 1e9)
        while waiting and self._client.now_ns() < until_ns:
            waiting = wait(waiting, timeout=_SLICE_S).not_done
            self._client.heartbeat(self._client.now_ns())
        found: dict[int, FoundOffset] = {}
        for partition, future in answers.items():
            dense = self._dense[partition]
            try:
                answer = future.result(timeout=0)
            except (KafkaException, TimeoutError) as error:
                self._client.log(f"the offset of partition {dense} was not found: {error or 'no answer'}")
                continue
            epoch = NONE if answer.leader_epoch is None else answer.leader_epoch
            found[dense] = FoundOffset(offset=answer.offset, leader_epoch=epoch)
        return found
