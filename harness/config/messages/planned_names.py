"""Looks up what a match names by its index in the plan: partitions, groups, transactional ids, and the ids of topics."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from prozess.harness.config.messages import names
from prozess.harness.config.messages.facts import WantedMessage
from prozess.harness.config.messages.match import (
    AnswerWithError,
    HoldMessage,
    MessageAction,
    MessageMatch,
    rules_of,
)
from prozess.harness.values import Frozen


@dataclass(frozen=True, slots=True)
class PlannedNames:
    """The names that a plan gives to what is numbered in a trial."""

    partitions: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """The dense id of a partition → (topic, number)."""
    groups: Mapping[int, str] = field(default_factory=dict)
    """A cell → the group.id of its group."""
    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    """A cell → the first of its transactional.ids."""

    def of(self, match: MessageMatch) -> MessageMatch:
        """Returns the match with Kafka's names in place of the plan's numbers. KeyError if the plan has none."""
        changed: dict[str, object] = {}
        if match.partition is not None:
            topic, number = self.partitions[match.partition]
            changed |= {"partition": None, "topic": topic, "number": number}
        if isinstance(match.group, int):
            changed["group"] = self.groups[match.group]
        if isinstance(match.transactional_id, int):
            changed["transactional_id"] = self.transactional_ids[match.transactional_id]
        return match.model_copy(update=changed)

    def meant(self, match: MessageMatch, ids_of: Callable[[Collection[str]], Mapping[str, UUID]]) -> "MeantMessages":
        """Returns the match in Kafka's own names. `ids_of` asks the brokers for the ids of topics. KeyError as for `of`."""
        named = self.of(match)
        found = ids_of([named.topic]).get(named.topic) if named.topic is not None else None
        return MeantMessages(match=named, topic_id=str(found) if found is not None else None)

    def missing(self, match: MessageMatch) -> str | None:
        """Returns what the plan does not have of what the match names, as words; None if it has all."""
        if match.partition is not None and match.partition not in self.partitions:
            return f"partition = {match.partition}: the plan has partitions 0…{len(self.partitions) - 1}"
        if isinstance(match.group, int) and match.group not in self.groups:
            return f"group = {match.group}: cell {match.group} has no group; cells with one: {sorted(self.groups) or 'none'}"
        if isinstance(match.transactional_id, int) and match.transactional_id not in self.transactional_ids:
            return (
                f"transactional_id = {match.transactional_id}: cell {match.transactional_id} has no transactional producers; "
                f"cells with some: {sorted(self.transactional_ids) or 'none'}"
            )
        return None


class MeantMessages(Frozen):
    """A match in Kafka's own names, with the id of its topic (KIP-516): newer requests name topics by id alone."""

    match: MessageMatch
    topic_id: str | None = None

    @property
    def wanted(self) -> WantedMessage:
        """Returns what a proxy compares with."""
        match = self.match
        assert match.partition is None, "the plan's numbers are looked up before"
        assert not isinstance(match.group, int), "the plan's numbers are looked up before"
        assert not isinstance(match.transactional_id, int), "the plan's numbers are looked up before"
        keys = names.api_keys()
        return WantedMessage(
            apis=frozenset(keys[name] for name in match.api),
            answer=match.direction == "answer",
            client=match.client,
            topic=match.topic,
            topic_id=UUID(self.topic_id) if self.topic_id is not None else None,
            number=match.number,
            group=match.group,
            transactional_id=match.transactional_id,
            producer_epoch=match.producer_epoch,
            first_sequence=match.first_sequence,
            commit=match.commit,
            error=names.error_codes()[match.error] if match.error is not None else None,
            nth=match.nth,
            every=match.every,
            until=match.until,
            after=rules_of(match.after) if match.after is not None else None,
            released=match.released,
        )


def action_for_proxy(action: MessageAction) -> dict[str, object]:
    """Returns an action as the proxy is informed of it: with numbers of errors, and without what ends a wait."""
    fields: dict[str, object] = action.model_dump(
        mode="json", exclude={"until"} if isinstance(action, HoldMessage) else None
    )
    if isinstance(action, AnswerWithError):
        fields["code"] = names.error_codes()[action.error]
    return fields
