"""The observer of groups: looks up, over the link that no fault touches, what each group has committed in the end."""

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.rows import RowWriter
from harness.schema import NONE, OBSERVATIONS, ObservationKind
from workloads.client import Client

POLL_S = 0.02
TRY_S = 5.0


class CommittedObserver:
    """The role `observer`: on `look` it asks until each group was answered for, or the limit; tells `looked`."""

    def __init__(self, client: Client) -> None:
        self._client, self._stopped = client, False
        self._observations = RowWriter(client.rows, OBSERVATIONS, client.spec.client)
        self._admin = AdminClient(dict(client.spec.properties))
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
                why = self._ask(group_id)
                if why is None:
                    del missing[group_id]
                else:
                    missing[group_id] = why
        self._client.control.tell("looked", missing=list(missing.items()))

    def _ask(self, group_id: str) -> str | None:
        """Record one group's offsets; the reason if it was not told."""
        partitions, asked_ns = self._groups[group_id], self._client.now_ns()
        wanted = ConsumerGroupTopicPartitions(group_id, [TopicPartition(*name) for name in partitions])
        asked = self._admin.list_consumer_group_offsets([wanted], request_timeout=TRY_S)
        try:
            answer = asked[group_id].result(timeout=TRY_S + 1)
        except (KafkaException, TimeoutError) as error:
            return str(error) or "no answer"
        found = {partitions[p.topic, p.partition]: p for p in answer.topic_partitions or ()}
        if failed := next((p.error for p in found.values() if p.error is not None), None):
            return str(failed)
        for dense, partition in found.items():
            values = {
                "time_ns": asked_ns,
                "value": max(NONE, partition.offset),
                "partition": dense,
                "kind": int(ObservationKind.COMMITTED),
            }
            self._observations.append(*(int(values.get(column.name, NONE)) for column in OBSERVATIONS.columns))
        return None
