"""The observer of groups looks up, over a link that no fault touches, what each group has committed in the end."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from prozess.harness.clock import NS_PER_S
from prozess.harness.plan.cell_work import GroupWork
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import NONE, OBSERVATIONS, ObservationKind
from prozess.workloads import messages
from prozess.workloads.client import Client
from prozess.workloads.librdkafka import logged_in
from prozess.workloads.log.reader import Offsets
from prozess.workloads.metrics import INTERVAL_PROPERTY
from prozess.workloads.record.members import in_order
from prozess.workloads.settings import FOR_A_BROKEN_CLUSTER, LaunchContext, Property, RoleOptions, Settings, options_of

POLL_S = 0.02
FOLLOW_S = 0.3
"""How long to wait between two looks at what is not committed yet."""
TRY_S = 5.0
STATISTICS_MS = 100
LOG_WINDOW_S = 1.0
"""How long to wait for statistics that were made after an answer."""


class CommittedObserver:
    """Looks up the committed offsets of groups (role `observer`). On `look` it asks until there is an answer for
    every group, or until the limit, and sends `looked`. On `follow` it asks until every group has committed to the end of
    the named partitions, until nothing has moved for a while, or until the limit, and sends `followed`; nothing of that is
    recorded."""

    def __init__(self, client: Client) -> None:
        self._client, self._stopped = client, False
        self._observations = RowWriter(client.rows, OBSERVATIONS, client.spec.client)
        self._counters = Counters()
        statistics: dict[str, Any] = {INTERVAL_PROPERTY: STATISTICS_MS, "stats_cb": self._counters.note}
        self._admin = AdminClient(logged_in({**client.spec.properties, **statistics}))
        options = options_of(client.spec, ObserverOptions)
        self._stable = options.stable
        self._groups: dict[str, dict[tuple[str, int], int]] = {}
        for group_id, topic, number, dense in options.committed:
            self._groups.setdefault(group_id, {})[topic, number] = dense

    def run(self) -> None:
        """Obeys commands until `stop`."""
        while not self._stopped:
            self._client.heartbeat(self._client.now_ns())
            for order in self._client.control.until(timeout_s=POLL_S):
                if isinstance(order.command, messages.LookCommand):
                    self._look(order.command.timeout_s)
                if isinstance(order.command, messages.FollowCommand):
                    self._follow(order.command)
                self._stopped = self._stopped or isinstance(order.command, messages.StopCommand)
                self._client.control.send(messages.DoneEvent(number=order.number))

    def issued(self) -> int:
        """Returns how many offsets were recorded."""
        return self._observations.count

    def close(self) -> None:
        """Writes the rows to their end."""
        self._observations.close()

    def _look(self, timeout_s: float) -> None:
        until_ns = self._client.now_ns() + int(timeout_s * 1e9)
        missing = {group_id: "was not asked for" for group_id in self._groups}
        self._who_answered()
        while missing and self._client.now_ns() < until_ns:
            for group_id in list(missing):
                self._client.heartbeat(self._client.now_ns())
                why = self._record(group_id)
                if why is None:
                    del missing[group_id]
                else:
                    missing[group_id] = why
        self._client.control.send(messages.LookedEvent(missing=missing))

    def _follow(self, follow: messages.FollowCommand) -> None:
        wanted = [dense for names in self._groups.values() for dense in names.values() if dense in follow.partitions]
        now_ns, offsets = self._client.now_ns, Offsets(self._client, wanted)
        until_ns, moved_ns = now_ns() + int(follow.timeout_s * NS_PER_S), now_ns()
        before: dict[int, int] = {}
        behind: dict[int, tuple[int, int]] = {}
        while not self._stopped and now_ns() < until_ns and now_ns() - moved_ns < follow.quiet_s * NS_PER_S:
            committed = {dense: offset for dense, offset in self._committed().items() if dense in wanted}
            ends = {dense: found.offset for dense, found in offsets.latest().items()}
            known = [d for d in wanted if d in committed and d in ends]
            behind = {d: (committed[d], ends[d]) for d in known if max(0, committed[d]) < ends[d]}
            if not behind and len(known) == len(wanted):
                break
            if committed != before:
                before, moved_ns = committed, now_ns()
            self._client.heartbeat(now_ns())
            for order in self._client.control.until(timeout_s=FOLLOW_S):
                self._stopped = self._stopped or isinstance(order.command, messages.StopCommand)
                self._client.control.send(messages.DoneEvent(number=order.number))
        self._client.control.send(messages.FollowedEvent(behind=behind))

    def _committed(self) -> dict[int, int]:
        """Returns the committed offsets of every group that is answered for now: dense id → offset, NONE = nothing is
        committed."""
        found: dict[int, int] = {}
        for group_id in self._groups:
            self._client.heartbeat(self._client.now_ns())
            answer = self._ask(group_id)
            if not isinstance(answer, str):
                found |= answer
        return found

    def _record(self, group_id: str) -> str | None:
        """Records one group's offsets. Returns the reason if they were not reported."""
        asked_ns, answer = self._client.now_ns(), self._ask(group_id)
        node = self._who_answered()
        if isinstance(answer, str):
            return answer
        for dense, offset in answer.items():
            values = {"time_ns": asked_ns, "value": offset, "partition": dense, "kind": int(ObservationKind.COMMITTED)}
            values["node"] = node
            self._observations.append(*in_order(OBSERVATIONS, values))
        return None

    def _who_answered(self) -> int:
        """Returns the one broker that was asked since the last call; NONE = not known."""
        now_ns = self._client.now_ns()
        until_ns = now_ns + int(LOG_WINDOW_S * 1e9)
        while self._counters.at_ns < now_ns:
            if self._client.now_ns() >= until_ns:
                return NONE
            self._client.heartbeat(self._client.now_ns())
            self._admin.poll(POLL_S)
        return self._counters.asked()

    def _ask(self, group_id: str) -> dict[int, int] | str:
        """Returns one group's committed offsets; of groups that commit in transactions, those that none may still
        change (KIP-447, require stable). Or why they were not reported."""
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


class ObserverOptions(RoleOptions):
    """Describes what an observer looks up."""

    committed: tuple[tuple[str, str, int, int], ...]
    """(group.id, topic, number, dense id) of every partition of every group."""
    stable: bool
    """Whether it waits for open transactions (require_stable)."""


def launch_observer(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `observer`."""
    wanted = set(context.planned.partitions)
    groups = {c.group_id: c for c in context.plan.clients if c.group_id and wanted.intersection(c.partitions)}
    partitions = context.plan.partitions
    nameless, written = (
        context.plan.nameless,
        context.plan.written,
    )  # what copiers derive they do not consume; what a group hands on it does
    asked_for = [
        (group_id, partitions[p].topic_name, partitions[p].number, p)
        for group_id, member in groups.items()
        for p in member.partitions
        if p not in nameless and (p in written or isinstance(member.work, GroupWork))
    ]
    properties: dict[str, Property] = {
        **FOR_A_BROKEN_CLUSTER,
        "bootstrap.servers": context.servers,
        "client.id": context.planned.name,
    }
    in_transactions = any(c.transactional_id is not None for c in context.plan.clients if c.group_id in groups)
    return Settings(properties, ObserverOptions(committed=tuple(asked_for), stable=in_transactions))


# Names who answered a look-up of committed offsets: the group's coordinator, as librdkafka says of its own connections.
#
# librdkafka does not report with an answer who gave it. Its statistics say, of the connection to the coordinator, whose
# it is and since when it has been up: an answer that came while one connection was up is that broker's. Where it
# changed before they came, or no statistics are asked for, nobody is reported. [librdkafka STATISTICS.md, brokers:
# nodename, state, stateage]


COORDINATOR = "GroupCoordinator"
"""librdkafka's name for its connection to the group's coordinator."""


class Answerers:
    """Finds out which broker answered a consumer's look-ups of committed offsets: fills in `observations.node` once
    later statistics have come."""

    def __init__(self, rows: RowWriter) -> None:
        self._rows = rows
        self._open: list[tuple[int, int, int]] = []

    def asked(self, row: int, *, asked_ns: int, answered_ns: int) -> None:
        """Notes that row `row` of `observations` is an answer that came in this time (raw CLOCK_MONOTONIC)."""
        self._open.append((row, asked_ns, answered_ns))

    def note(self, report: Mapping[str, Any]) -> None:
        """Takes one report of librdkafka's statistics."""
        at_ns = int(report.get("ts", 0)) * 1000
        node, since_ns = coordinator_of(report)
        due = [(row, asked_ns) for row, asked_ns, answered_ns in self._open if answered_ns <= at_ns]
        self._open = self._open[len(due) :]  # they were answered in the order in which they were asked
        its = [row for row, asked_ns in due if asked_ns >= since_ns]
        if node != NONE and its:
            self._rows.complete(np.array(its), {"node": node})


def coordinator_of(report: Mapping[str, Any]) -> tuple[int, int]:
    """Returns (node id, since when the connection to it has been up, raw CLOCK_MONOTONIC ns) of the group's
    coordinator; NONE = the client has no connection to one, or does not know whose it is."""
    brokers = report.get("brokers", {})
    named = brokers.get(COORDINATOR, {})
    if named.get("state") != "UP" or not named.get("nodename"):
        return NONE, 0
    nodes = {
        b["nodeid"] for b in brokers.values() if b.get("nodename") == named["nodename"] and b.get("nodeid", NONE) >= 0
    }
    since_ns = (int(report.get("ts", 0)) - int(named.get("stateage", 0))) * 1000
    return (int(nodes.pop()), since_ns) if len(nodes) == 1 else (NONE, 0)


class Counters:
    """Finds out which broker an administrator asked, by how many requests each broker was sent. The administrator
    makes one look-up at a time. Its statistics count fetches of offsets among all requests, and list them under no
    kind of their own. [librdkafka rdkafka.c, rd_kafka_stats_emit_broker_reqs; seen with 2.16.0]"""

    def __init__(self) -> None:
        self.at_ns = 0
        """When the last report was made (raw CLOCK_MONOTONIC)."""
        self._sent: dict[int, int] = {}
        self._before: dict[int, int] = {}

    def note(self, text: str) -> None:
        """Takes one report of librdkafka's statistics."""
        report = json.loads(text)
        self.at_ns = int(report.get("ts", 0)) * 1000
        brokers = (b for b in report.get("brokers", {}).values() if b.get("nodeid", NONE) >= 0)
        self._sent = {int(b["nodeid"]): int(b.get("tx", 0)) - sum(b.get("req", {}).values()) for b in brokers}

    def asked(self) -> int:
        """Returns the broker that was sent requests since the last call; NONE = none, or several."""
        grown = [node for node, count in self._sent.items() if count > self._before.get(node, 0)]
        self._before = self._sent
        return grown[0] if len(grown) == 1 else NONE
