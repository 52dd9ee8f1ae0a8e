"""What the nemesis asks Kafka to change about itself: leaders, replicas, configurations. Over the observer's link.

Configurations go through librdkafka. Reassignments, which it does not know, are requests of ours, and so are elections: that
call of confluent_kafka 2.16.1 takes no timeout ("more argument specifiers than keyword list entries").
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from clusters.admin_connections import AdminConnections
from clusters.change_requests import (
    NO_REASSIGNMENT_IN_PROGRESS,
    NOT_CONTROLLER,
    Assignments,
    ListAnswer,
    PartitionAnswers,
    PartitionKey,
    Reassignment,
    alter_reassignments_request,
    elect_leaders_request,
    list_reassignments_request,
    update_feature_request,
)
from clusters.wire import Request
from harness.errors import ClusterFailed

T = TypeVar("T")
_OWN_SOURCE = {
    "topic": ConfigSource.DYNAMIC_TOPIC_CONFIG,
    "broker": ConfigSource.DYNAMIC_BROKER_CONFIG,
}
_ONE_BROKER_S = 5.0
"""How long a broker may take before the next one is asked: it waits for the controller itself."""


class AdminChanges(AdminConnections):
    """The part of `clusters.admin.Admin` that changes Kafka. Every call ends within its `timeout_s`, or a moment later."""

    def update_feature(self, feature: str, level: int, *, timeout_s: float) -> None:
        """Raise the finalized level (KIP-584). ClusterFailed, with the reason, if it is refused."""
        request = update_feature_request(feature, level, timeout_ms=int(timeout_s * 1000))
        self._ask_any(request, timeout_s, what=f"to finalize {feature} = {level}")

    # --- leaders ---

    def elect_leaders(
        self, partitions: Sequence[PartitionKey], *, unclean: bool, timeout_s: float
    ) -> Mapping[PartitionKey, str]:
        """Ask for an election of each (KIP-460): the preferred replica, or with `unclean` anybody. → those that Kafka did not
        elect, with why (ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, …). ClusterFailed if it refuses it all."""
        request = elect_leaders_request(partitions, unclean=unclean, timeout_ms=int(timeout_s * 1000))
        answer = self._ask_any(request, timeout_s, what="to elect leaders")
        return {key: refusal.text for key, refusal in answer.partitions.items() if refusal.error}

    # --- replicas ---

    def reassign(self, assignments: Assignments, *, timeout_s: float) -> None:
        """Begin to move replicas there (KIP-455); returns once that is accepted, which is not yet done. None gives up what
        is under way, if anything is. ClusterFailed, with the reason, if a partition is refused or nobody answers."""
        request = alter_reassignments_request(assignments, timeout_ms=int(timeout_s * 1000))
        answer: PartitionAnswers = self._ask_any(request, timeout_s, what="to reassign partitions")
        harmless = (0, NO_REASSIGNMENT_IN_PROGRESS)
        for (topic, number), refusal in answer.partitions.items():
            if refusal.error not in harmless:
                raise ClusterFailed(f"Kafka refuses to reassign {topic}-{number}: {refusal.text}.")

    def reassignments(self, *, timeout_s: float = 5.0) -> Mapping[PartitionKey, Reassignment]:
        """Every reassignment under way. ClusterFailed if nobody answers."""
        request = list_reassignments_request(timeout_ms=int(timeout_s * 1000))
        answer: ListAnswer = self._ask_any(request, timeout_s, what="for the reassignments under way")
        return answer.partitions

    def _ask_any(self, request: Request[T], timeout_s: float, *, what: str) -> T:
        """Of the brokers, first those that run, until one can tell. With ZooKeeper only the controller can: the others say
        so, of the whole or of each partition (ElectLeaders), and have done nothing."""
        deadline_ns, last = self._deadline_ns(timeout_s), "nobody answered"
        for broker in self._living_first():
            if (left_s := self._left_s(deadline_ns)) <= 0:
                break
            answer = self._ask(broker, request, self._deadline_ns(min(left_s, _ONE_BROKER_S)))
            if answer is None:
                continue
            whole = answer.whole  # type: ignore[attr-defined] # PartitionAnswers or ListAnswer
            refusals = [whole, *(answer.partitions.values() if isinstance(answer, PartitionAnswers) else ())]
            elsewhere = next((refusal for refusal in refusals if refusal.error == NOT_CONTROLLER), None)
            if whole.error == 0 and elsewhere is None:
                return answer
            last = f"broker {broker}: {(elsewhere or whole).text}"
        raise ClusterFailed(f"No broker can be asked {what}: {last}.")

    # --- configurations ---

    def own_configs(self, resource: str, *, timeout_s: float = 10.0) -> Mapping[str, str]:
        """What is set for exactly this resource ("topic:NAME", "broker:1"), not what it gets from elsewhere. ClusterFailed
        if refused, or if the broker does not answer."""
        asked = _resource(resource)
        try:
            (future,) = self._admin_client().describe_configs([asked], request_timeout=timeout_s).values()
            entries = future.result(timeout_s + 1)
        except (KafkaException, TimeoutError) as error:
            raise ClusterFailed(f"Kafka does not tell the configuration of {resource}: {_words(error)}.") from error
        own = _OWN_SOURCE[resource.partition(":")[0]].value
        return {key: entry.value for key, entry in entries.items() if entry.source == own and entry.value is not None}

    def alter_configs(self, resource: str, properties: Mapping[str, str | None], *, timeout_s: float = 10.0) -> None:
        """Set these, and nothing else, for this resource (KIP-339); None: as if it was never set. ClusterFailed if Kafka
        refuses."""
        changes = [
            ConfigEntry(
                key,
                "" if value is None else value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in properties.items()
        ]
        asked = _resource(resource, changes)
        try:
            (future,) = self._admin_client().incremental_alter_configs([asked], request_timeout=timeout_s).values()
            future.result(timeout_s + 1)
        except (KafkaException, TimeoutError) as error:
            raise ClusterFailed(f"Kafka refuses to change the configuration of {resource}: {_words(error)}.") from error


def _resource(text: str, changes: Sequence[ConfigEntry] = ()) -> ConfigResource:
    kind, _, name = text.partition(":")
    return ConfigResource(
        {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER}[kind],
        name,
        incremental_configs=list(changes) or None,
    )


def _words(error: Exception) -> str:
    if isinstance(error, KafkaException):
        reason = error.args[0]
        return f"{reason.name().lstrip('_')}: {reason.str().rstrip('.')}"
    return "no answer in time"
