"""The observer of groups: looks up, over the link that no fault touches, what each group has committed in the end."""

from collections.abc import Sequence

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.rows import RowWriter
from harness.schema import NONE, OBSERVATIONS, ObservationKind
from workloads.client import Client
from workloads.offsets import Offsets
from workloads.producer import NS_PER_S

POLL_S = 0.02
FOLLOW_S = 0.3
"""Between two looks at what is still behind."""
TRY_S = 5.0


class CommittedObserver:
    """The role `observer`. On `look` it asks until each group was answered for, or the limit, and tells `looked`. On
    `follow` it looks until every group has committed to the end of those of its partitions that are named, nothing has
    moved for a while, or the limit, and tells `followed`; of that nothing is recorded."""

    def __init__(self, client: Client) -> None:
        self._client, self._stopped = client, False
        self._observations = RowWriter(client.rows, OBSERVATIONS, client.spec.client)
        self._admin = AdminClient(dict(client.spec.properties))
        self._stable = bool(client.spec.options["stable"])
        self._groups: dict[str, dict[tuple[str, int], int]] = {}
        for group_id, topic, number, dense in client.spec.options["committed"]:
            self._groups.setdefault(group_id, {})[topic, number] = dense

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopped:
            self._client.heartbeat(self._client.now_ns())
            for command in self._client.control.until(timeout_s=POLL_S):
                if command["do"] == "look":
                    self._look(command["timeout_s"])
                if command["do"] == "follow":
                    self._follow(command["partitions"], quiet_s=command["quiet_s"], timeout_s=command["timeout_s"])
                self._stopped = self._stopped or command["do"] == "stop"
                self._client.control.tell("done", number=command["number"])

    def issued(self) -> int:
        """Offsets told."""
        return self._observations.count

    def close(self) -> None:
        """Flush."""
        self._observations.close()

    def _look(self, timeout_s: float) -> None:
        until_ns = self._client.now_ns() + int(timeout_s * 1e9)
        missing = {group_id: "was not asked for" for group_id in self._groups}
        while missing and self._client.now_ns() < until_ns:
            for group_id in list(missing):
                self._client.heartbeat(self._client.now_ns())
                why = self._record(group_id)
                if why is None:
                    del missing[group_id]
                else:
                    missing[group_id] = why
        self._client.control.tell("looked", missing=list(missing.items()))

    def _follow(self, partitions: Sequence[int], *, quiet_s: float, timeout_s: float) -> None:
        wanted = [dense for names in self._groups.values() for dense in names.values() if dense in partitions]
        now_ns, offsets = self._client.now_ns, Offsets(self._client, wanted)
        until_ns, moved_ns = now_ns() + int(timeout_s * NS_PER_S), now_ns()
        before: dict[int, int] = {}
        while not self._stopped and now_ns() < until_ns and now_ns() - moved_ns < quiet_s * NS_PER_S:
            committed = {dense: offset for dense, offset in self._committed().items() if dense in wanted}
            ends = {dense: found.offset for dense, found in offsets.latest().items()}
            if all(d in ends and d in committed and max(0, committed[d]) >= ends[d] for d in wanted):
                break
            if committed != before:
                before, moved_ns = committed, now_ns()
            self._client.heartbeat(now_ns())
            for command in self._client.control.until(timeout_s=FOLLOW_S):
                self._stopped = self._stopped or command["do"] == "stop"
                self._client.control.tell("done", number=command["number"])
        self._client.control.tell("followed")

    def _committed(self) -> dict[int, int]:
        """Of every group that is answered for now: dense id → offset, NONE = nothing is committed."""
        found: dict[int, int] = {}
        for group_id in self._groups:
            self._client.heartbeat(self._client.now_ns())
            answer = self._ask(group_id)
            if not isinstance(answer, str):
                found |= answer
        return found

    def _record(self, group_id: str) -> str | None:
        """One group's offsets; the reason if they were not told."""
        asked_ns, answer = self._client.now_ns(), self._ask(group_id)
        if isinstance(answer, str):
            return answer
        for dense, offset in answer.items():
            values = {"time_ns": asked_ns, "value": offset, "partition": dense, "kind": int(ObservationKind.COMMITTED)}
            self._observations.append(*(int(values.get(column.name, NONE)) for column in OBSERVATIONS.columns))
        return None

    def _ask(self, group_id: str) -> dict[int, int] | str:
        """One group's offsets; of groups that commit in transactions, those that none may still change (KIP-447, require
        stable). Or why they were not told."""
        partitions = self._groups[group_id]
        wanted = ConsumerGroupTopicPartitions(group_id, [TopicPartition(*name) for name in partitions])
        asked = self._admin.list_consumer_group_offsets([wanted], require_stable=self._stable, request_timeout=TRY_S)
        try:
            answer = asked[group_id].result(timeout=TRY_S + 1)
        except (KafkaException, TimeoutError) as error:
            return str(error) or "no answer"
        found = {partitions[p.topic, p.partition]: p for p in answer.topic_partitions or ()}
        if failed := next((p.error for p in found.values() if p.error is not None), None):
            return str(failed)
        return {dense: max(NONE, partition.offset) for dense, partition in found.items()}
