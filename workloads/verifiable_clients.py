"""Kafka's verifiable clients (and ours that speak like them) inside a trial: their events become rows of the history.

They say only what is over: no invocation, no headers, no clock of ours. So a send's row is written when its outcome is known,
and its invocation is bounded from below: by what may at most pass between send() and report, or the start of the tool.
They cannot be paused or told how much to send; a schedule that says so is obeyed by the other clients of the trial.
"""

from collections.abc import Mapping
from typing import Any

from harness.rows import RowWriter
from harness.schema import ASSIGNMENTS, COMMITS, NONE, POSITIONS, READS, SENDS, Outcome, ReadFlag
from harness.verifiable_events import (
    SHOWN_BYTES,
    Place,
    foreign_identity,
    parse_event,
    place_of,
    places_of,
    sequence_of,
)
from workloads.carrier import SENTINEL_KEY, key_id
from workloads.client import Client, FatalClient
from workloads.java_metrics import JavaMetrics
from workloads.verifiable_properties import written
from workloads.verifiable_tool import Tool

POLL_S = 0.05
STOP_LIMIT_NS = 2_000_000_000
"""How long a tool may take to end when its client is told to stop: less than the client itself has."""
NS_PER_S = 1_000_000_000
NO_CODE = 0
UNTOLD_ERROR = -1
"""`code` of an error: the tools give the name of a Java class, not a number of the protocol."""
ASSIGN, REVOKE = 1, 2
ASSIGNED = 1
"""`positions.event`"""
SYNC = 1


class ToolClient:
    """What they have in common: a tool that is run, listened to and ended by commands."""

    def __init__(self, client: Client) -> None:
        self._client, self._spec = client, client.spec
        self._dense = {(topic, number): dense for dense, topic, number in client.spec.partitions}
        self._tool: Tool | None = None
        self._stopped = False
        self._end_by_ns: int | None = None
        self.shutdown_complete = False
        self._not_understood: str | None = None
        kind = client.spec.options.get("metrics")
        self._metrics = JavaMetrics(kind, client.statistics, client.now_ns) if kind else None

    def run(self) -> None:
        """Until the tool has ended because it was told to. FatalClient if it ends by itself, whatever its exit code says: a
        verifiable consumer exits with 0 after a fatal error. FatalClient also if it said what could not be understood: then
        what was recorded is not all there was."""
        while not self._over():
            for command in self._client.control.commands():
                self._obey(command)
            self._client.heartbeat(self._client.now_ns())
            if self._tool is None:
                for command in self._client.control.until(timeout_s=POLL_S):
                    self._obey(command)
                continue
            for event in self._tool.events(wait_s=POLL_S):
                self._take(self._tool, event)
            self._look_after(self._tool)
            if self._metrics is not None and not self._tool.stopping:
                self._metrics.turn()
            self._between()
        if self._tool is not None and (why := self._tool.torn or self._not_understood):
            raise FatalClient(f"not all that the tool said is recorded: {why}")

    def not_understood(self, event: Mapping[str, Any]) -> None:
        """An event that is none of the tool's, or of another trial: remembered, and told in the end."""
        said = str(dict(event))[:SHOWN_BYTES]
        self._client.log(f"not understood: {said}")
        self._not_understood = self._not_understood or f"an event is not understood: {said}"

    def _begin(self) -> None:
        if self._tool is None:
            options = self._spec.options
            command = written(options["command"], options["files"], self._client.rows.parent / "tools")
            parse = parse_event if self._metrics is None else self._metrics.heard(parse_event)
            self._tool = Tool(command, now_ns=self._client.now_ns, parse=parse)
            # A kill hits the tool first: what it said is recorded.
            self._client.control.tell("child", session=self._tool.pid, speaks=True)

    def _between(self) -> None:
        """Between two looks at the tool."""

    def _end(self, *, limit_ns: int) -> None:
        self._stopped = True
        self._end_by_ns = self._client.now_ns() + limit_ns
        if self._metrics is not None:
            self._metrics.close()
        if self._tool is not None:
            self._tool.stop()

    def _over(self) -> bool:
        return self._stopped and (self._tool is None or self._tool.ended() is not None)

    def _look_after(self, tool: Tool) -> None:
        code = tool.ended()
        if code is not None and not self._stopped:
            if self._metrics is not None:
                self._metrics.absent()
            said = "said shutdown_complete" if self.shutdown_complete else "said nothing"
            raise FatalClient(f"the tool ended by itself with exit code {code} and {said}; its reason is in this log")
        if code is None and self._end_by_ns is not None and self._client.now_ns() >= self._end_by_ns:
            self._client.log("the tool did not end in time: killed")
            self._end_by_ns = None
            tool.kill()

    def _obey(self, command: dict[str, Any]) -> None:
        raise NotImplementedError

    def _take(self, tool: Tool, event: Mapping[str, Any]) -> None:
        raise NotImplementedError


def encoded(key: object) -> bytes | None:
    """A key of an event as it stands in the log. JSON can say what UTF-8 cannot."""
    return key.encode("utf-8", "surrogatepass") if isinstance(key, str) else None


class Seen:
    """Which of the numbers 0, 1, 2, … have come, nearly in order: what is complete from 0 on is one number, however long it
    gets."""

    def __init__(self) -> None:
        self._below = 0
        self._beyond: set[int] = set()

    def __len__(self) -> int:
        """How many are remembered one by one."""
        return len(self._beyond)

    def add(self, number: int) -> bool:
        """Is it new?"""
        if number < self._below or number in self._beyond:
            return False
        self._beyond.add(number)
        while self._below in self._beyond:
            self._beyond.remove(self._below)
            self._below += 1
        return True


class VerifiableProducer(ToolClient):
    """The role `verifiable-producer`. Options: `command`, `files`, `report_limit_ms` (the most that passes between
    send() and report). Starts its tool when first resumed; `finish` and `stop` end it."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._sends = RowWriter(client.rows, SENDS, client.spec.client)
        self._seen = Seen()
        self._limit_ns = int(client.spec.options["report_limit_ms"]) * 1_000_000

    def issued(self) -> int:
        """Not known: what was sent and never reported left no event."""
        return NONE

    def close(self) -> None:
        """Flush `sends`."""
        self._sends.close()

    def _obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "resume":
                self._begin()
            case "finish":
                self._end(limit_ns=int(command["timeout_s"] * NS_PER_S))
            case "stop":
                self._end(limit_ns=STOP_LIMIT_NS)
            case other:
                self._client.log(f"a verifiable producer cannot {other}: it goes on")
        self._client.control.tell("done", number=command["number"])

    def _take(self, tool: Tool, event: Mapping[str, Any]) -> None:
        match event["name"]:
            case "producer_send_success":
                self._sent(tool, event, Outcome.OK)
            case "producer_send_error":
                self._client.log(f"{event.get('value')}: {event.get('exception')}: {event.get('message')}")
                self._sent(tool, event, Outcome.INFO)
            case "shutdown_complete":
                self.shutdown_complete = True

    def _sent(self, tool: Tool, event: Mapping[str, Any], outcome: Outcome) -> None:
        sequence = sequence_of(event.get("value"), prefix=self._spec.client)
        place = place_of(event) or self._first_place(event)
        dense = self._dense.get((place.topic, place.partition))
        if sequence is None or dense is None or not self._seen.add(sequence):
            self.not_understood(event)
            return
        ok = outcome is Outcome.OK
        key = event.get("key")
        self._sends.append(
            max(tool.started_ns, tool.read_ns - self._limit_ns),
            tool.read_ns,
            place.offset if ok else NONE,
            sequence,
            NONE,
            key_id(encoded(key)),
            dense,
            int(outcome),
            NO_CODE if ok else UNTOLD_ERROR,
            len(str(event["value"])),
        )

    def _first_place(self, event: Mapping[str, Any]) -> Place:
        """An error names no partition. Its outcome is INFO, which claims nothing of any; one has to be written down."""
        topic = event.get("topic")
        numbers = [number for name, number in self._dense if name == topic]
        return Place(str(topic), min(numbers, default=NONE))


class VerifiableConsumer(ToolClient):
    """The role `verifiable-consumer`: a group member. Options: `command`, `files`, `group` (number of its group).
    Starts its tool at once; `stop` ends it."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        directory, number = client.rows, client.spec.client
        self._reads = RowWriter(directory, READS, number)
        self._positions = RowWriter(directory, POSITIONS, number)
        self._assignments = RowWriter(directory, ASSIGNMENTS, number)
        self._commits = RowWriter(directory, COMMITS, number)
        self._group = int(client.spec.options["group"])
        self._spans = 0
        self._span: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._polled_since_ns = client.now_ns()
        self._begin()

    def issued(self) -> int:
        """Records read."""
        return self._reads.count

    def close(self) -> None:
        """Flush."""
        for writer in (self._reads, self._positions, self._assignments, self._commits):
            writer.close()

    def _obey(self, command: dict[str, Any]) -> None:
        if command["do"] == "stop":
            self._end(limit_ns=STOP_LIMIT_NS)
        self._client.control.tell("done", number=command["number"])

    def _take(self, tool: Tool, event: Mapping[str, Any]) -> None:
        match event["name"]:
            case "record_data":
                self._read(tool, event)
            case "records_consumed":  # the commit of a poll is invoked after it
                self._polled_since_ns = tool.since_ns
            case "offsets_committed":
                self._committed(tool, event)
            case "partitions_assigned" | "partitions_revoked":
                self._assigned(tool, event)
            case "shutdown_complete":
                self.shutdown_complete = True

    def _read(self, tool: Tool, event: Mapping[str, Any]) -> None:
        place = place_of(event)
        dense = None if place is None else self._dense.get((place.topic, place.partition))
        if place is None or dense is None:
            self.not_understood(event)
            return
        sender, sequence = foreign_identity(event.get("value"))
        key = event.get("key")
        if key == SENTINEL_KEY.decode():  # its value is no text
            sender, sequence = 0, 0
        self._reads.append(
            *self._in_order(
                read_ns=tool.read_ns,
                log_offset=place.offset,
                sequence=sequence,
                key=key_id(encoded(key)),
                sender=sender,
                partition=dense,
                span=self._span.get(dense, 0),
                flags=int(ReadFlag.CORRUPT) if sender == NONE else 0,
            )
        )
        self._next[dense] = place.offset + 1

    def _in_order(self, **values: int) -> list[int]:
        return [int(values.get(column.name, NONE)) for column in READS.columns]

    def _committed(self, tool: Tool, event: Mapping[str, Any]) -> None:
        success = event.get("success") is True
        if not success:
            self._client.log(f"commit: {event.get('error')}")
        for place in places_of(event, "offsets"):
            dense = self._dense.get((place.topic, place.partition))
            if dense is not None:
                self._commits.append(
                    self._polled_since_ns,
                    tool.read_ns,
                    place.offset,
                    self._next.get(dense, NONE),
                    dense,
                    self._group,
                    int(Outcome.OK if success else Outcome.INFO),
                    NO_CODE if success else UNTOLD_ERROR,
                    SYNC,
                )

    def _assigned(self, tool: Tool, event: Mapping[str, Any]) -> None:
        """Lost partitions are told as revoked: the tool does not tell them apart. An empty list is a row too."""
        kind = ASSIGN if event["name"] == "partitions_assigned" else REVOKE
        places = [self._dense.get((p.topic, p.partition)) for p in places_of(event, "partitions")]
        known = [dense for dense in places if dense is not None]
        for dense in known or [NONE]:
            self._assignments.append(tool.since_ns, tool.read_ns, dense, self._group, kind, 0)
        if kind == ASSIGN and known:
            self._spans += 1
            for dense in known:
                self._span[dense] = self._spans
                self._positions.append(tool.read_ns, NONE, dense, ASSIGNED, self._spans)
