"""Writes what the message proxy reports into the table `messages` of the history."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from prozess.harness.config.impairments import CLIENTS
from prozess.harness.config.messages.match import rules_of
from prozess.harness.interfaces import ALL_CLIENTS_NODE, AdminProtocol, Targets
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import NONE


class MessageRows:
    """Writes a row for each message, and for each partition that it was meant for. It is called in the proxy's own thread."""

    def __init__(
        self, plan: Plan, cluster: Targets, admin: AdminProtocol, recorder: Recorder, problem: Callable[[str], None]
    ) -> None:
        """`problem` takes what could not be written."""
        self._recorder, self._admin, self._problem = recorder, admin, problem
        self._nodes = {CLIENTS: ALL_CLIENTS_NODE} | {node.name: node.node_id for node in cluster.nodes}
        self._steps = {name: number for number, step in enumerate(plan.steps) for name in rules_of(step.name)}
        self._clients = {client.name: client.client for client in plan.clients}
        self._dense = {key: dense for dense, key in plan.names.partitions.items()}
        self._topics: dict[UUID, str] = {}

    def __call__(self, entry: Mapping[str, Any]) -> None:
        """Writes one entry of the proxy's journal."""
        try:
            self._write(entry)
        except Exception as error:  # noqa: BLE001 - the thread that hears the proxy must go on
            self._problem(f"{type(error).__name__}: {error}")

    def _write(self, entry: Mapping[str, Any]) -> None:
        row = {
            "time_ns": entry["t"],
            "step": self._steps.get(entry["rule"], NONE),
            "opener": self._nodes.get(entry["opener"], NONE),
            "server": self._nodes.get(entry["server"], NONE),
            "sender": self._clients.get(entry["client"], NONE),
            "api": entry["api"],
            "version": entry["version"],
            "answer": int(entry["answer"]),
            "did": self._recorder.code("did", entry["did"]),
        }
        top = max(entry["errors"], default=NONE)
        for topic, topic_id, number, producer_id, epoch, sequence, error in entry["partitions"] or [[None] * 7]:
            self._recorder.write(
                "messages",
                **row,
                error=_or_none(top if error is None else error),
                partition=self._partition(topic, topic_id, number),
                producer_id=_or_none(entry["producer_id"] if producer_id is None else producer_id),
                producer_epoch=_or_none(entry["producer_epoch"] if epoch is None else epoch),
                first_sequence=_or_none(sequence),
            )

    def _partition(self, topic: str | None, topic_id: str | None, number: int | None) -> int:
        if topic is None and topic_id is not None:
            topic = self._named(UUID(topic_id))
        return NONE if topic is None or number is None else self._dense.get((topic, number), NONE)

    def _named(self, topic_id: UUID) -> str | None:
        if topic_id not in self._topics:
            names = sorted({topic for topic, _ in self._dense})
            self._topics = {found: name for name, found in self._admin.topic_ids(names).items()}
            self._topics.setdefault(topic_id, "")
        return self._topics[topic_id] or None


def _or_none(value: int | None) -> int:
    return NONE if value is None else value
