"""Plans topics that are deleted and made again: each topic of a name is a cell of its own, with partitions of its own.

A topic is its id (KIP-516). Clients know its name alone, and write down the id of the first partition that has a name. Which
of the topics a row is about is found out when the history is made (`prozess.harness.history.topic_lives`).
"""

from collections.abc import Iterable, Sequence

from prozess.harness.config.configuration import TopicConfiguration, Variant
from prozess.harness.errors import BadInput
from prozess.harness.plan.axes import with_topic
from prozess.harness.plan.plan import Cell, Plan, PlannedClient, PlannedPartition
from prozess.harness.plan.schedule import AlterTopics, DeleteTopics, MakeTopics, Step, selects
from prozess.harness.plan.validity import Combination
from prozess.harness.plan.workloads.registry import KINDS

NextTopic = tuple[TopicConfiguration, int]
"""A topic that a step makes again: its configuration, and how many partitions it has."""


def topics_made_again(
    steps: Sequence[Step], combination: Combination, *, partitions: int, variant: Variant
) -> list[NextTopic]:
    """Returns the topics that steps make in the place of the first one of a cell, in order. `partitions`: how many the
    first one has. BadInput if one is made that was not deleted, or deleted that is not there."""
    found: list[NextTopic] = []
    there = True
    for step in steps:
        if not isinstance(step.do, DeleteTopics | MakeTopics) or not selects(step.do.cells, combination.axes):
            continue
        if isinstance(step.do, DeleteTopics) is not there:
            wanted = "make_topics" if isinstance(step.do, DeleteTopics) else "delete_topics"
            raise BadInput(
                f"Step {step.name!r}: a topic is deleted and made again in turn, and there is no {wanted} before it that "
                "selects the same cells. Add one, or select other cells."
            )
        there = not there
        if isinstance(step.do, MakeTopics):
            settings = step.do.settings if step.do.by == "administrator" else _of_brokers(step, combination, variant)
            combination = with_topic(combination, settings, variant)
            partitions = combination.topic.partitions or partitions
            found.append((combination.topic, partitions))
    return found


_OF_NEW_TOPICS = {
    "topic.partitions": ("num.partitions", "1"),
    "topic.replication_factor": ("default.replication.factor", "1"),
    "topic.min_insync_replicas": ("min.insync.replicas", "1"),
}
"""Setting of a topic → the brokers' property that decides it where a client's question makes the topic, and its default.
[Kafka documentation, broker configuration]"""


def _of_brokers(step: Step, combination: Combination, variant: Variant) -> dict[str, int]:
    """Returns the settings of a topic that brokers make because a client asks for it. BadInput if they would not make it, or
    nobody would know where its replicas are."""
    assert isinstance(step.do, MakeTopics)
    if variant.properties.get("auto.create.topics.enable") != "true":
        raise BadInput(
            f'Step {step.name!r}: by = "clients" needs brokers that make topics: set "auto.create.topics.enable" = true in '
            "[variant.properties]."
        )
    given = {key: int(variant.properties.get(name, default)) for key, (name, default) in _OF_NEW_TOPICS.items()}
    if given["topic.replication_factor"] != variant.brokers:
        raise BadInput(
            f'Step {step.name!r}: by = "clients": controllers choose {given["topic.replication_factor"]} brokers out of '
            f'{variant.brokers}, and no verdict knows which. Set "default.replication.factor" = {variant.brokers} in '
            "[variant.properties]."
        )
    if step.do.settings or combination.topic.properties or combination.topic.unclean_leader_election_enable:
        raise BadInput(
            f'Step {step.name!r}: by = "clients": such a topic has no settings of its own. Remove those of the step, and '
            "topic.properties and topic.unclean_leader_election_enable of its cells."
        )
    return given


def check_lives(plan: Plan) -> None:
    """Raises BadInput if topics are deleted of which a life cannot be judged by itself."""
    for step in plan.steps:
        if not isinstance(step.do, DeleteTopics | MakeTopics):
            continue
        cells = plan.cells_matching(step.do.cells)
        if not cells:
            raise BadInput(f"Step {step.name!r}: no cell matches {step.do.cells}. Use values of `axes`.")
        if plan.attach is not None or plan.ssh is not None:
            raise BadInput(
                f"Step {step.name!r}: which topic of a name a record went to is found in the controllers' log, which nobody "
                f'reads on the backend {plan.backend}. Use backend = "local" or "compose", or remove the step.'
            )
        for cell in cells:
            if not KINDS[cell.workload].topics_may_end:
                ending = ", ".join(name for name, kind in KINDS.items() if kind.topics_may_end)
                raise BadInput(
                    f"Step {step.name!r}: the topic of a {cell.workload} cell cannot be deleted. Kinds of workload of which "
                    f"it can: {ending}."
                )
            if cell.derived or any(plan.partitions[p].late and not cell.life for p in cell.partitions):
                raise BadInput(
                    f"Step {step.name!r}: cell {cell.name} has a second topic, or late partitions, and cannot be made again. "
                    "Remove topics.late_partitions and topics.late_topic_partitions, or select other cells."
                )


def check_altered(plan: Plan) -> None:
    """Raises BadInput if a step alters topics so that the plan no longer says by which rules they are judged."""
    for step in plan.steps:
        if not isinstance(step.do, AlterTopics):
            continue
        policy = step.do.properties.get("cleanup.policy")
        for cell in plan.cells_matching(step.do.cells):
            stated = cell.topic.kafka_properties()
            if policy is not None and ("compact" in policy) != ("compact" in stated["cleanup.policy"]):
                raise BadInput(
                    f"Step {step.name!r}: cell {cell.name} has cleanup.policy = {stated['cleanup.policy']}, and would have "
                    f"{policy}: a topic is judged as compacted or not, all the time. Add or take away delete only."
                )
            limits = [name for name in step.do.properties if name.startswith("retention.")]
            if limits and not any(stated.get(name, "-1") != "-1" for name in ("retention.ms", "retention.bytes")):
                raise BadInput(
                    f"Step {step.name!r}: cell {cell.name} states no retention, and losses would count as if there was none. "
                    f"Set topic.properties.{limits[0]} in [base] or [axes], too."
                )


def with_later_topics(
    clients: Iterable[PlannedClient], cells: Sequence[Cell], partitions: Sequence[PlannedPartition]
) -> list[PlannedClient]:
    """Returns the clients of a workload's first topics, with the partitions of all topics that have the same names."""
    later: dict[str, list[int]] = {}
    for cell in cells:
        if cell.life:
            later.setdefault(cell.topic_name, []).extend(cell.partitions)
    if not later:
        return list(clients)

    def grown(client: PlannedClient) -> PlannedClient:
        names = dict.fromkeys(partitions[p].topic_name for p in client.partitions)
        more = [p for name in names for p in later.get(name, ())]
        return client.model_copy(update={"partitions": (*client.partitions, *more)}) if more else client

    return [grown(client) for client in clients]
