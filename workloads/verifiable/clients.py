"""Kafka's verifiable clients, and prozess's own that print the same, run as child processes. Their events become rows."""

import ctypes
import os
import select
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prozess.harness.clock import NS_PER_S, SystemClock
from prozess.harness.recording.rows import RowWriter
from prozess.harness.recording.verifiable_output import (
    EXPIRED,
    SHOWN_BYTES,
    EventLines,
    EventPartition,
    Parse,
    event_partition,
    event_partitions,
    expired_partition,
    foreign_identity,
    parse_event,
    sequence_of,
)
from prozess.harness.schema import (
    ASSIGNMENTS,
    COMMITS,
    MISSING,
    NONE,
    POSITIONS,
    PROCESSED,
    READS,
    SENDS,
    Outcome,
    ReadFlag,
)
from prozess.workloads import messages
from prozess.workloads.client import Client, FatalClient, NowNs
from prozess.workloads.metrics import JavaMetrics
from prozess.workloads.record.identity import SENTINEL_KEY, key_id
from prozess.workloads.record.members import ASSIGN, ASSIGNED, REVOKE, SYNC, in_order
from prozess.workloads.settings import options_of
from prozess.workloads.verifiable.settings import ConsumerToolOptions, ProducerToolOptions, ToolCommand, written

# A verifiable client as a child process: started, listened to, stopped. It dies with the process that started it.
#
# Its standard output is the events; its standard error goes to the log of the client process that runs it.


_CLOCK = SystemClock()
CHUNK_BYTES = 1 << 18
NS_PER_MS = 1_000_000
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Has the kernel kill this process when the thread that forked it ends. Called between fork and exec."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Tool:
    """A verifiable client as a child process. `since_ns`: the last events were printed after
    it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        now_ns: NowNs,
        wall_ns: NowNs = _CLOCK.wall_ns,
        parse: Parse = parse_event,
    ) -> None:
        """`parse`: says what a line of its output means. The process has a session of its own: faults hit it with its
        client."""
        self._now_ns, self._wall_ns, self._lines = now_ns, wall_ns, EventLines(parse)
        self.started_ns = self.since_ns = self.read_ns = now_ns()
        self._ahead_ns = wall_ns() - self.read_ns
        """How far the wall clock was ahead of the trial's clock when the last events were read."""
        # The only thread here is ours, so running Python between fork and exec is safe.
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
            start_new_session=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._open = True
        self.stopping = False

    @property
    def torn(self) -> str | None:
        """Returns what of its output began as an event and cannot be read; None = nothing."""
        count = self._lines.torn
        return f"{count} lines of its output are torn, the first {self._lines.first_torn!r}" if count else None

    def events(self, *, wait_s: float) -> Iterator[dict[str, Any]]:
        """Yields what the tool has printed, once it has printed something, or nothing after `wait_s`. `read_ns` is when it
        was read."""
        if not self._open:
            select.select([], [], [], wait_s)  # its output ended; the process may take a moment longer
            return
        readable, _, _ = select.select([self._output], [], [], wait_s)
        before_ns = self._now_ns()
        chunk = os.read(self._output, CHUNK_BYTES) if readable else b""
        if readable and not chunk:
            self._open = False
        self.read_ns = self._now_ns()
        self._ahead_ns = self._wall_ns() - self.read_ns
        yield from self._lines.feed(chunk)
        if not self._open:
            yield from self._lines.end()
        if len(chunk) < CHUNK_BYTES:  # the pipe was emptied: what comes next is printed after this moment
            self.since_ns = before_ns

    def moment(self, event: Mapping[str, Any]) -> tuple[int, int]:
        """Returns when one of the last events was made, as (not before, not after). Taken from its own `timestamp`, whole
        milliseconds of this host's wall clock, as far as it agrees with what is certain: it was printed after
        `since_ns`, and read at `read_ns`. Therefore a clock that is set meanwhile makes it wrong by no more than lies
        between these two."""
        value = event.get("timestamp")
        if not isinstance(value, int) or isinstance(value, bool):
            return self.since_ns, self.read_ns
        low = value * NS_PER_MS - self._ahead_ns
        return tuple(min(max(at, self.since_ns), self.read_ns) for at in (low, low + NS_PER_MS))  # type: ignore[return-value]

    def stop(self) -> None:
        """Sends SIGTERM: both tools then flush and say `shutdown_complete`. Safe to call again, and on one that has
        ended."""
        self.stopping = True
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL, and waits for its end."""
        self._process.kill()
        self._process.wait()

    def ended(self) -> int | None:
        """Returns its exit code once it has ended and all that it printed was read; negative = the signal; None = not yet."""
        return None if self._open else self._process.poll()


# Kafka's verifiable clients (and ours that speak like them) inside a trial: their events become rows of the history.
#
# They say only what is over: no invocation, no headers, no clock of ours. Therefore a send's row is written when its outcome
# is known, and its invocation is bounded from below: by what may at most pass between send() and report, or the start
# of the tool. They cannot be paused, and nobody can set how much they send; a schedule that asks for it is obeyed
# by the other clients of the trial.


POLL_S = 0.05
STOP_LIMIT_NS = 2_000_000_000
"""How long a tool may take to end when its client is asked to stop: less than the client itself has."""
NO_CODE = 0
UNREPORTED_ERROR = -1
"""The `code` of an error: the tools give the name of a Java class, not a number of the protocol."""


class ToolClient(ABC):
    """The base of clients that run a tool: the tool is started, listened to, and ended by commands."""

    def __init__(self, client: Client, command: ToolCommand) -> None:
        self._client, self._spec, self._command = client, client.spec, command
        self._dense = {(topic, number): dense for dense, topic, number in client.spec.partitions}
        self._tool: Tool | None = None
        self._stopped = False
        self._end_by_ns: int | None = None
        self.shutdown_complete = False
        self._not_understood: str | None = None
        self._metrics = JavaMetrics(command.metrics, client.statistics, client.now_ns) if command.metrics else None

    def run(self) -> None:
        """Runs the tool until it has ended because it was asked to. FatalClient if it ends by itself, whatever its exit
        code says: a verifiable consumer exits with 0 after a fatal error. FatalClient also if it printed what could
        not be understood: then what was recorded is not all there was."""
        while not self._over():
            for order in self._client.control.commands():
                self._obey(order)
            self._client.heartbeat(self._client.now_ns())
            if self._tool is None:
                for order in self._client.control.until(timeout_s=POLL_S):
                    self._obey(order)
                continue
            for event in self._tool.events(wait_s=POLL_S):
                self._take(self._tool, event)
            self._look_after(self._tool)
            if self._metrics is not None and not self._tool.stopping:
                self._metrics.turn()
        if self._tool is not None and (why := self._tool.torn or self._not_understood):
            raise FatalClient(f"the tool printed more than could be recorded: {why}")

    def not_understood(self, event: Mapping[str, Any]) -> None:
        """Remembers an event that is none of the tool's, or of another trial; it is reported in the end."""
        text = str(dict(event))[:SHOWN_BYTES]
        self._client.log(f"not understood: {text}")
        self._not_understood = self._not_understood or f"an event is not understood: {text}"

    def _begin(self) -> None:
        if self._tool is None:
            command = written(self._command.command, self._command.files, self._client.rows.parent / "tools")
            parse = parse_event if self._metrics is None else self._metrics.heard(parse_event)
            self._tool = Tool(command, now_ns=self._client.now_ns, parse=parse)
            # A kill hits the tool first: what it has printed is recorded.
            self._client.control.send(messages.ChildEvent(session=self._tool.pid, speaks=True))

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
            ending = "stated shutdown_complete" if self.shutdown_complete else "stated nothing"
            raise FatalClient(f"the tool ended by itself with exit code {code} and {ending}; the reason is in this log")
        if code is None and self._end_by_ns is not None and self._client.now_ns() >= self._end_by_ns:
            self._client.log("the tool did not end in time: killed")
            self._end_by_ns = None
            tool.kill()

    @abstractmethod
    def _obey(self, order: messages.Order) -> None:
        """Carries out a command of the run stage."""

    @abstractmethod
    def _take(self, tool: Tool, event: Mapping[str, Any]) -> None:
        """Writes the rows of an event that the tool has printed."""


def encoded(key: object) -> bytes | None:
    """Returns the bytes of an event's key in the log. JSON can say what UTF-8 cannot."""
    return key.encode("utf-8", "surrogatepass") if isinstance(key, str) else None


class ConfirmedNumbers:
    """Remembers which of the numbers 0, 1, 2, … have come, nearly in order. What is complete from 0 on is one number,
    however long it gets."""

    def __init__(self) -> None:
        self._below = 0
        self._beyond: set[int] = set()

    def __len__(self) -> int:
        """Returns how many are remembered one by one."""
        return len(self._beyond)

    def add(self, number: int) -> bool:
        """Adds a number, and says whether it is new."""
        if number < self._below or number in self._beyond:
            return False
        self._beyond.add(number)
        while self._below in self._beyond:
            self._beyond.remove(self._below)
            self._below += 1
        return True


class VerifiableProducer(ToolClient):
    """Runs a verifiable producer (role `verifiable-producer`). Starts its tool when first resumed; `finish` and `stop`
    end it."""

    def __init__(self, client: Client) -> None:
        options = options_of(client.spec, ProducerToolOptions)
        super().__init__(client, options.tool)
        self._sends = RowWriter(client.rows, SENDS, client.spec.client)
        self._seen = ConfirmedNumbers()
        limit_ms = options.report_limit_ms
        self._limit_ns = None if limit_ms is None else limit_ms * 1_000_000
        self._begun_ns: dict[int, int] = {}
        """Sequence → the earliest time at which its send began, for a program that prints a line before it sends."""

    def issued(self) -> int:
        """Returns NONE, not known: what was sent and never reported left no event."""
        return NONE

    def close(self) -> None:
        """Writes `sends` to its end."""
        self._sends.close()

    def _obey(self, order: messages.Order) -> None:
        match order.command:
            case messages.ResumeCommand():
                self._begin()
            case messages.FinishCommand(timeout_s=timeout_s):
                self._end(limit_ns=int(timeout_s * NS_PER_S))
            case messages.StopCommand():
                self._end(limit_ns=STOP_LIMIT_NS)
            case other:
                self._client.log(f"a verifiable producer cannot {other.do}: it goes on")
        self._client.control.send(messages.DoneEvent(number=order.number))

    def _take(self, tool: Tool, event: Mapping[str, Any]) -> None:
        match event["name"]:
            case "producer_send":
                if (sequence := sequence_of(event.get("value"), prefix=self._spec.client)) is None:
                    self.not_understood(event)
                else:
                    self._begun_ns.setdefault(sequence, tool.since_ns)
            case "producer_send_success":
                self._sent(tool, event, Outcome.OK)
            case "producer_send_error":
                self._client.log(f"{event.get('value')}: {event.get('exception')}: {event.get('message')}")
                self._sent(tool, event, Outcome.INFO)
            case "shutdown_complete":
                self.shutdown_complete = True

    def _sent(self, tool: Tool, event: Mapping[str, Any], outcome: Outcome) -> None:
        sequence = sequence_of(event.get("value"), prefix=self._spec.client)
        expired = None if outcome is Outcome.OK else expired_partition(event)
        tp = event_partition(event) or expired or self._first_partition(event)
        dense = self._dense.get((tp.topic, tp.partition))
        if sequence is None or dense is None or not self._seen.add(sequence):
            self.not_understood(event)
            return
        ok = outcome is Outcome.OK
        key = event.get("key")
        earliest_ns = tool.started_ns if self._limit_ns is None else tool.read_ns - self._limit_ns
        self._sends.append(
            self._begun_ns.pop(sequence, max(tool.started_ns, earliest_ns)),
            tool.read_ns,
            tp.offset if ok else NONE,
            sequence,
            NONE,
            key_id(encoded(key)),
            dense,
            int(outcome),
            NO_CODE if ok else UNREPORTED_ERROR if expired is None else EXPIRED,
            len(str(event["value"])),
        )

    def _first_partition(self, event: Mapping[str, Any]) -> EventPartition:
        """Returns some partition for an error that names none. Its outcome is INFO, which claims nothing of any."""
        topic = event.get("topic")
        numbers = [number for name, number in self._dense if name == topic]
        return EventPartition(str(topic), min(numbers, default=NONE))


class VerifiableConsumer(ToolClient):
    """Runs a verifiable consumer, which is a member of a group (role `verifiable-consumer`). Options: `command`,
    `files`, `group` (number of its group). Starts its tool at once; `stop` ends it."""

    def __init__(self, client: Client) -> None:
        options = options_of(client.spec, ConsumerToolOptions)
        super().__init__(client, options.tool)
        directory, number = client.rows, client.spec.client
        self._reads = RowWriter(directory, READS, number)
        self._positions = RowWriter(directory, POSITIONS, number)
        self._assignments = RowWriter(directory, ASSIGNMENTS, number)
        self._commits = RowWriter(directory, COMMITS, number)
        self._group, self._yours = options.group, options.yours
        self._spans = 0
        self._span: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._polled_since_ns = client.now_ns()
        self._begin()

    def issued(self) -> int:
        """Returns how many records were read."""
        return self._reads.count

    def close(self) -> None:
        """Writes the rows to their end."""
        for writer in (self._reads, self._positions, self._assignments, self._commits):
            writer.close()

    def _obey(self, order: messages.Order) -> None:
        if isinstance(order.command, messages.StopCommand):
            self._end(limit_ns=STOP_LIMIT_NS)
        self._client.control.send(messages.DoneEvent(number=order.number))

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
        tp = event_partition(event)
        dense = None if tp is None else self._dense.get((tp.topic, tp.partition))
        if tp is None or dense is None or tp.offset == NONE:
            self.not_understood(event)
            return
        sender, sequence = foreign_identity(event.get("value"))
        key = event.get("key")
        if key == SENTINEL_KEY.decode():  # its value is no text
            sender, sequence = 0, 0
        row = {
            "read_ns": tool.read_ns,
            "log_offset": tp.offset,
            "sequence": sequence,
            "key": key_id(encoded(key)),
            "sender": sender,
            "partition": dense,
            "span": self._span.get(dense, 0),
            "flags": int(ReadFlag.CORRUPT) if sender == NONE else 0,
        }
        self._reads.append(*in_order(READS, row))
        self._next[dense] = tp.offset + 1

    def _committed(self, tool: Tool, event: Mapping[str, Any]) -> None:
        success = event.get("success") is True
        if not success:
            self._client.log(f"commit: {event.get('error')}")
        for tp in event_partitions(event, "offsets"):
            dense = self._dense.get((tp.topic, tp.partition))
            if dense is None or tp.offset == NONE:
                self.not_understood(event)
                continue
            self._commits.append(
                tool.started_ns if self._yours else self._polled_since_ns,
                tool.read_ns,
                tp.offset,
                NONE if self._yours else self._next.get(dense, NONE),
                dense,
                self._group,
                int(Outcome.OK if success else Outcome.INFO),
                NO_CODE if success else UNREPORTED_ERROR,
                NONE if self._yours else SYNC,
            )

    def _assigned(self, tool: Tool, event: Mapping[str, Any]) -> None:
        """Records an assignment or a revocation. Lost partitions are reported as revoked: the tool does not distinguish
        them. An empty list is a row too."""
        kind = ASSIGN if event["name"] == "partitions_assigned" else REVOKE
        partitions = [self._dense.get((p.topic, p.partition)) for p in event_partitions(event, "partitions")]
        known = [dense for dense in partitions if dense is not None]
        if len(known) < len(partitions) or not isinstance(event.get("partitions"), list):
            self.not_understood(event)
        for dense in known or [NONE]:
            self._assignments.append(tool.since_ns, tool.read_ns, dense, self._group, kind, 0)
        if kind == ASSIGN and known:
            self._spans += 1
            for dense in known:
                self._span[dense] = self._spans
                self._positions.append(tool.read_ns, NONE, dense, ASSIGNED, self._spans)


# Kafka's VerifiableShareConsumer inside a trial: a member of a share group (KIP-932), whose events become rows.
#
# A share group hands records of one partition to several members, in no order, and again to another one if they are
# not acknowledged in time. Therefore no order of reading is to be judged: every read is a span of its own, and nobody owns a
# partition.


class VerifiableShareConsumer(ToolClient):
    """Runs Kafka's VerifiableShareConsumer (role `verifiable-share-consumer`). Options: `command`, `files`, `group`
    (number of its group). Starts its tool at once; `stop` ends it. `processed`: a row per acknowledgement, done
    when it was confirmed; never, if it was refused."""

    def __init__(self, client: Client) -> None:
        options = options_of(client.spec, ConsumerToolOptions)
        super().__init__(client, options.tool)
        self._reads = RowWriter(client.rows, READS, client.spec.client)
        self._processed = RowWriter(client.rows, PROCESSED, client.spec.client)
        self._group = options.group
        self._given: dict[tuple[int, int], tuple[int, int, int]] = {}
        """The records that are not acknowledged yet: (dense partition, offset) → (read_ns, sender, sequence)."""
        self._begin()

    def issued(self) -> int:
        """Returns how many records were read."""
        return self._reads.count

    def close(self) -> None:
        """Writes the rows to their end."""
        self._reads.close()
        self._processed.close()

    def _obey(self, order: messages.Order) -> None:
        if isinstance(order.command, messages.StopCommand):
            self._end(limit_ns=STOP_LIMIT_NS)
        self._client.control.send(messages.DoneEvent(number=order.number))

    def _take(self, tool: Tool, event: Mapping[str, Any]) -> None:
        match event["name"]:
            case "record_data":
                self._read(tool, event)
            case "offsets_acknowledged":
                self._acknowledged(tool, event)
            case "shutdown_complete":
                self.shutdown_complete = True

    def _read(self, tool: Tool, event: Mapping[str, Any]) -> None:
        tp = event_partition(event)
        dense = None if tp is None else self._dense.get((tp.topic, tp.partition))
        if tp is None or dense is None or tp.offset == NONE:
            self.not_understood(event)
            return
        key = event.get("key")
        sender, sequence = foreign_identity(event.get("value"))
        if key == SENTINEL_KEY.decode():  # its value is no text
            sender, sequence = 0, 0
        self._given[dense, tp.offset] = tool.read_ns, sender, sequence
        row = {
            "read_ns": tool.read_ns,
            "log_offset": tp.offset,
            "sequence": sequence,
            "key": key_id(encoded(key)),
            "sender": sender,
            "partition": dense,
            "span": self._reads.count,
            "flags": int(ReadFlag.CORRUPT) if sender == NONE else 0,
        }
        self._reads.append(*in_order(READS, row))

    def _acknowledged(self, tool: Tool, event: Mapping[str, Any]) -> None:
        """Completes what was acknowledged: of every partition the offsets, one by one."""
        success = event.get("success") is True
        if not success:
            self._client.log(f"acknowledgement: {event.get('error')}")
        listed = event.get("partitions")
        for entry in listed if isinstance(listed, list) else []:
            tp = event_partition(entry) if isinstance(entry, dict) else None
            dense = None if tp is None else self._dense.get((tp.topic, tp.partition))
            offsets = entry.get("offsets") if dense is not None else None
            if dense is None or not isinstance(offsets, list):
                self.not_understood(event)
                continue
            for offset in offsets:
                # What was given more than once before is acknowledged once; what was never given is nothing of ours.
                if isinstance(offset, int) and (given := self._given.pop((dense, offset), None)) is not None:
                    self._done(dense, offset, given, done_ns=tool.read_ns if success else MISSING)

    def _done(self, dense: int, offset: int, given: tuple[int, int, int], *, done_ns: int) -> None:
        read_ns, sender, sequence = given
        row = {
            "started_ns": read_ns,
            "done_ns": done_ns,
            "log_offset": offset,
            "sequence": sequence,
            "sender": sender,
            "partition": dense,
            "group": self._group,
        }
        self._processed.append(*in_order(PROCESSED, row))
