"""Offsets looked up for many partitions at once (ListOffsets, KIP-396), while the heart goes on beating."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec  # type: ignore[attr-defined] # it is in its __init__

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
        return self._wait(self._ask(OffsetSpec.earliest()))  # type: ignore[no-untyped-call]

    def latest(self) -> dict[int, FoundOffset]:
        """The same, the high watermark: what `latest` is at read_uncommitted."""
        return self._wait(self.ask_latest())

    def ask_latest(self) -> "Asked":
        """The same, not waited for."""
        return self._ask(OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def _ask(self, spec: OffsetSpec) -> "Asked":
        answers = self._admin.list_offsets(
            dict.fromkeys(self._dense, spec),
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=LOOK_UP_S,
        )
        return Asked(self._client, {self._dense[partition]: future for partition, future in answers.items()})

    def _wait(self, asked: "Asked") -> dict[int, FoundOffset]:
        while not asked.answered:
            wait(asked.futures.values(), timeout=_SLICE_S)
            self._client.heartbeat(self._client.now_ns())
        return asked.found()


class Asked:
    """What was asked for. `futures`: by dense id."""

    def __init__(self, client: Client, futures: Mapping[int, "Future[ListOffsetsResultInfo]"]) -> None:
        self.futures = futures
        self._client = client
        self._until_ns = client.now_ns() + int((LOOK_UP_S + 1) * 1e9)

    @property
    def answered(self) -> bool:
        """Was everything answered, or has its time passed?"""
        return all(future.done() for future in self.futures.values()) or self._client.now_ns() >= self._until_ns

    def found(self) -> dict[int, FoundOffset]:
        """By dense id; what was not found is logged."""
        found: dict[int, FoundOffset] = {}
        for dense, future in self.futures.items():
            try:
                answer = future.result(timeout=0)
            except (KafkaException, TimeoutError) as error:
                self._client.log(f"the offset of partition {dense} was not found: {error or 'no answer'}")
                continue
            epoch = NONE if answer.leader_epoch is None else answer.leader_epoch
            found[dense] = FoundOffset(offset=answer.offset, leader_epoch=epoch)
        return found
