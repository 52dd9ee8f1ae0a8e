"""A program in any language is a recorded client if it prints the events of Kafka's verifiable clients as lines of JSON."""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.errors import BadInput
from prozess.harness.interfaces.application import ClientKind, RegisteredTopic
from prozess.harness.interfaces.witnesses import STALLED_NS
from prozess.harness.recording.rows import RowWriter
from prozess.harness.recording.verifiable_output import (
    SHOWN_BYTES,
    EventPartition,
    Parse,
    event_partition,
    event_partitions,
    parse_event,
    sequence_of,
)
from prozess.harness.schema import COMMITS, MISSING, NONE, READS, SENDS, Isolation, Outcome, ReadFlag, Role
from prozess.testing.recorded.client import (
    ClientLog,
    RecordedLife,
    identity_in,
    identity_of_command,
    now_ns,
    recording_of,
)
from prozess.testing.recorded.consumer_rows import GROUP, ConsumerSpans, is_incremental
from prozess.testing.recorded.topics import known_topic
from prozess.workloads.record.identity import HEADER_NAME, key_id
from prozess.workloads.record.members import ASSIGN, ASSIGNED, REVOKE, SYNC, AssignmentRows, ProcessedRows, in_order
from prozess.workloads.settings import offsets_are_reported
from prozess.workloads.verifiable.clients import NO_CODE, UNREPORTED_ERROR, ConfirmedNumbers, Tool, encoded

# Turns the output of a program in any language into rows of the history: the events of Kafka's verifiable clients.
#
# A record is known by its value, "prefix.n": the prefix is the client's id, n counts the sends from 0 and is never
# used again. A send's row is written when its outcome is reported. Its invocation is not before the line `producer_send`
# that announces it, or before the program's start where no such line comes. A line that is not understood becomes a
# doubt, which makes the test unknown.


_OF_BOTH = frozenset({"startup_complete", "shutdown_requested", "tool_data"})
TakeLine = Callable[[Tool, Mapping[str, Any]], bool]


class CommandLines:
    """Turns the lines of a program into rows, whatever its role. It is not safe to use from several threads."""

    def __init__(self, life: RecordedLife) -> None:
        self._life, self._topics = life, dict[str, RegisteredTopic]()
        self._doubted: set[str] = set()
        self._shut_down = False
        self._stopped_ns: int | None = None
        self._take: dict[str, TakeLine] = {}

    def heard(self, parse: Parse) -> Parse:
        """Returns `parse`, extended so that a line which is no event becomes a doubt."""

        def parsed(line: bytes) -> dict[str, Any] | None:
            event = parse(line)
            if event is None and line.strip():
                self._doubt(f"a line is no event: {line[:SHOWN_BYTES].decode('utf-8', 'replace')!r}")
            return event

        return parsed

    def take(self, tool: Tool, event: Mapping[str, Any]) -> None:
        """Writes the rows of an event."""
        name = event["name"]
        if name == "shutdown_complete":
            self._shut_down = True
        elif name in self._take:
            if not self._take[name](tool, event):
                self._doubt(f"an event {name} is not understood: {json.dumps(dict(event))[:SHOWN_BYTES]}")
        elif name not in _OF_BOTH:
            self._doubt(f"an event with the unknown name {name!r}")

    def note_stop(self, stopped_ns: int) -> None:
        """Records when the program was first asked to end, or ended by itself: until then it was expected to work."""
        if self._stopped_ns is None:
            self._stopped_ns = stopped_ns

    def note_end(self, *, killed: bool, code: int) -> None:
        """Notes a doubt if the program ended with this exit code in the middle of its work, and the test did not kill it."""
        if not killed and not self._shut_down:
            self._doubt(
                f"it ended (exit code {code}) without the line shutdown_complete: nobody knows what became of its last "
                "sends and commits"
            )

    def _doubt(self, what: str) -> None:
        """Notes a doubt, which makes the test unknown. One of each kind is enough."""
        kind = what.partition(":")[0]
        if kind not in self._doubted:
            self._doubted.add(kind)
            self._life.registry.note(self._life.client, "doubts", what)

    def _dense(self, tp: EventPartition | None, note: str) -> int | None:
        """Returns the partition's dense id; None if there is no such partition. `note`: wrote or read."""
        if tp is None:
            return None
        facts = self._topics.get(tp.topic)
        if facts is None:
            try:
                facts = known_topic(self._life.registry, tp.topic, self._life.reaching, ClientLog(self._life.run))
            except BadInput as error:
                self._doubt(f"a topic is not known: {error}")
                return None
            self._topics[tp.topic] = facts
            self._life.registry.note(self._life.client, "wrote" if note == "wrote" else "read", tp.topic)
        return facts.first + tp.partition if 0 <= tp.partition < len(facts.assignment) else None


class CommandProducer(CommandLines):
    """The rows of a program that produces."""

    def __init__(self, life: RecordedLife) -> None:
        super().__init__(life)
        self._sends = RowWriter(life.run.rows, SENDS, life.client)
        self._seen = ConfirmedNumbers()
        self._announced: dict[int, tuple[int, int]] = {}
        """The sends that were announced and have no outcome yet: n → when, at the earliest, and the size of the value."""
        self._sent_to: int | None = None
        """The partition (dense id) of the last acknowledgement."""
        self._offsets_reported = offsets_are_reported(life.registry.clients[life.client - 1].properties)
        self._take = {
            "producer_send": self._announce,
            "producer_send_success": lambda tool, event: self._sent(tool, event, Outcome.OK),
            "producer_send_error": lambda tool, event: self._sent(tool, event, Outcome.INFO),
            "tool_data": self._compare,
        }
        self._reported = self._announcements = 0
        self._given_ns = MISSING

    def _announce(self, tool: Tool, event: Mapping[str, Any]) -> bool:
        sequence = sequence_of(event.get("value"), prefix=self._life.client)
        if sequence is None or sequence in self._announced:
            return False
        self._announced[sequence] = tool.moment(event)[0], len(str(event["value"]))
        self._announcements += 1
        return True

    def _compare(self, tool: Tool, event: Mapping[str, Any]) -> bool:
        """Compares what the program counted with what it reported: a send without an end may still be under way."""
        sent = event.get("sent")
        if isinstance(sent, int) and sent > self._reported:
            self._doubt(f"it sent {sent:,} records, and reported {self._reported:,} how their sends ended")
        return True

    def note_end(self, *, killed: bool, code: int) -> None:
        """Notes doubts about sends of which the program did not say how they ended, and for how long it reported none."""
        super().note_end(killed=killed, code=code)
        if not killed and self._announced:
            self._doubt(f"it announced {len(self._announced):,} sends and did not say how they ended")
        self._write_open()
        each = self._announcements - len(self._announced) >= self._reported
        if self._given_ns == MISSING or self._stopped_ns is None or (self._announcements and each):
            return  # a program that announces each send shows when it has something to send, and `stuck` judges it
        if self._stopped_ns - self._given_ns >= STALLED_NS:
            silent_s = (self._stopped_ns - self._given_ns) // NS_PER_S
            self._life.registry.note(self._life.client, "silences", f"{silent_s}@{self._given_ns}")

    def _write_open(self) -> None:
        """Writes the rows of the sends that were announced, and of which the program did not say how they ended. The
        announcement names no partition: it is that of the last acknowledgement, since which there was none at all."""
        if self._sent_to is not None:
            for sequence, (announced_ns, size) in self._announced.items():
                info, where = int(Outcome.INFO), self._sent_to
                self._sends.append(announced_ns, MISSING, NONE, sequence, NONE, NONE, where, info, NO_CODE, size)

    def _sent(self, tool: Tool, event: Mapping[str, Any], outcome: Outcome) -> bool:
        ok, topic = outcome is Outcome.OK, event.get("topic")
        tp = event_partition(event)
        if tp is None and not ok and isinstance(topic, str):
            tp = EventPartition(topic, 0)  # an error claims nothing of any partition; one has to be written down
        sequence, dense = sequence_of(event.get("value"), prefix=self._life.client), self._dense(tp, "wrote")
        if sequence is None or tp is None or dense is None or not self._seen.add(sequence):
            return False
        key = event.get("key")
        # A send without an announcement may have begun at any time since the program started: `stuck` recognises it by that
        # time.
        begun_ns, _ = self._announced.pop(sequence, (self._life.started_ns, 0))
        self._sent_to = dense if ok else self._sent_to
        self._sends.append(
            begun_ns,
            tool.read_ns,
            tp.offset if ok and self._offsets_reported else NONE,
            sequence,
            NONE,
            key_id(encoded(key)),
            dense,
            int(outcome),
            NO_CODE if ok else UNREPORTED_ERROR,
            len(str(event["value"])),
        )
        self._reported, self._given_ns = self._reported + 1, tool.read_ns
        return True

    def close(self) -> None:
        """Writes the end of the rows."""
        self._sends.close()
        self._life.end(issued=NONE)  # what was sent and never reported left no line


class CommandConsumer(CommandLines):
    """The rows of a program that consumes. A record counts as processed when its line `record_data` comes."""

    def __init__(self, life: RecordedLife) -> None:
        super().__init__(life)
        rows, client = life.run.rows, life.client
        properties = life.registry.clients[client - 1].properties
        self._member = "group.id" in properties
        self._reads, self._commits = RowWriter(rows, READS, client), RowWriter(rows, COMMITS, client)
        self._spans = ConsumerSpans(rows, client)
        self._assignments = AssignmentRows(rows, client, GROUP, now_ns, incremental=is_incremental(properties))
        self._processed = ProcessedRows(rows, client, GROUP)
        self._owned: set[int] = set()
        self._committed: dict[int, int] = {}
        """The offset that it has committed since it was given the partition last, by partition."""
        self._since_ns = now_ns()
        for how in ("subscribe", "processing") if self._member else ("assign",):
            life.registry.note(client, "how", how)
        self._take = {
            "record_data": self._read,
            "records_consumed": lambda tool, event: True,
            "offsets_committed": self._commit,
            "partitions_assigned": lambda tool, event: self._moved(tool, event, ASSIGN),
            "partitions_revoked": lambda tool, event: self._moved(tool, event, REVOKE),
        }

    def _read(self, tool: Tool, event: Mapping[str, Any]) -> bool:
        tp = event_partition(event)
        dense = self._room(tp)
        if tp is None or dense is None or tp.offset < 0:
            return False
        if self._member and dense not in self._owned:
            return False  # no line has assigned it: it is unknown whether it is read again from an earlier offset
        sender, sent_partition, sequence, flags = self._identity(tp, event)
        values: dict[str, int] = {
            "read_ns": tool.read_ns,
            "log_offset": tp.offset,
            "sequence": sequence,
            "key": key_id(encoded(event.get("key"))),
            "sender": sender,
            "partition": dense,
            "span": self._spans.given(dense, tp.offset),
            "sent_partition": sent_partition,
            "flags": flags,
        }
        self._reads.append(*in_order(READS, values))
        columns = {name: np.array([values[name]]) for name in ("log_offset", "sequence", "sender", "partition", "span")}
        self._processed.done(self._processed.begin(columns, started_ns=tool.since_ns), done_ns=tool.read_ns)
        if tp.offset < self._committed.get(dense, NONE):
            hazard = {"partition": dense, "offset": tp.offset, "what": "the program stated that it has processed it"}
            self._life.registry.note(self._life.client, "hazards", json.dumps(hazard))
        self._since_ns = tool.since_ns
        return True

    def _identity(self, tp: EventPartition, event: Mapping[str, Any]) -> tuple[int, int, int, int]:
        """Returns (sender, sent partition, sequence, ReadFlag bits), by the header that recorded clients write, in
        hexadecimal, or by the value of a program."""
        header = event.get(HEADER_NAME)
        if isinstance(header, str):
            try:
                return identity_in(bytes.fromhex(header), self._life.token)
            except ValueError:
                self._doubt(f"the header of a record is not in hexadecimal: {header[:SHOWN_BYTES]!r}")
        registry = self._life.registry
        if (found := identity_of_command(registry, event.get("value"))) is not None:
            return found[0], NONE, found[1], 0
        if any(tp.topic in client.wrote and not client.is_command for client in registry.clients):
            self._doubt(
                f"nobody knows whose records it was given: {tp.topic} was written by recorded clients, whose header "
                f'{HEADER_NAME!r} its lines record_data do not have ("{HEADER_NAME}", in hexadecimal)'
            )
        return NONE, NONE, NONE, int(ReadFlag.ANONYMOUS)

    def _commit(self, tool: Tool, event: Mapping[str, Any]) -> bool:
        ok, offsets = event.get("success") is True, event_partitions(event, "offsets")
        self._life.registry.note(self._life.client, "how", "commit")
        for tp in offsets:
            dense = self._room(tp)
            if dense is None:
                return False
            values = {
                "invoked_ns": self._since_ns,
                "completed_ns": tool.read_ns,
                "log_offset": tp.offset,
                # A program that commits before it has processed reports later what it was given: its position is not known
                # then.
                "position": reached if (reached := int(self._spans.next_offset[dense])) >= tp.offset else NONE,
                "partition": dense,
                "group": GROUP,
                "outcome": int(Outcome.OK if ok else Outcome.INFO),
                "code": NO_CODE if ok else UNREPORTED_ERROR,
                "mode": SYNC,
            }
            self._commits.append(*in_order(COMMITS, values))
            self._committed[dense] = max(tp.offset, self._committed.get(dense, NONE))
        return bool(offsets) or not ok

    def _moved(self, tool: Tool, event: Mapping[str, Any], kind: int) -> bool:
        """Records partitions as assigned or revoked. Lost ones are reported as revoked. A list without partitions is a
        row, too."""
        found = [self._room(tp) for tp in event_partitions(event, "partitions")]
        listed = event.get("partitions")
        if not isinstance(listed, list) or len(found) != len(listed) or None in found:
            return False
        known = [dense for dense in found if dense is not None]
        self._assignments.done(self._assignments.begin(kind, known, tool.since_ns), done_ns=tool.read_ns)
        for dense in known:
            self._committed.pop(dense, None)
            if kind == ASSIGN:
                self._owned.add(dense)
                self._spans.begin(dense, NONE, ASSIGNED)
            else:
                self._owned.discard(dense)
        return True

    def _room(self, tp: EventPartition | None) -> int | None:
        dense = self._dense(tp, "read")
        if dense is not None:
            self._spans.make_room(dense)
        return dense

    def close(self) -> None:
        """Writes the end of the rows."""
        for table in (self._reads, self._commits, self._spans, self._assignments, self._processed):
            table.close()
        self._life.end(issued=self._reads.count)


# A program in any language as a recorded client of a test: it prints its operations in lines of JSON, as Kafka's verifiable
# clients do. This process runs the program, and writes the rows as the lines come.
#
# The program is given its prefix alone: the client's id, in place of `{prefix}` among its words, and in its
# environment. SIGTERM ends it in order. SIGUSR1 kills it: the program first, and this process once everything that the
# program had printed is recorded.


PREFIX_VARIABLE = "PROZESS_PREFIX"
PREFIX = "{prefix}"
LOOK_S = 0.05
END_LIMIT_NS = 20_000_000_000
"""How long a program may take to end in order: less than the test waits for this process
(`prozess.testing.application.END_S`)."""
NOT_STARTED = 127
"""The exit code of a program that could not be started, as in shells."""
_SIGNAL_BASE = 128
"""What shells add to the number of a signal that ended a program."""


class _Asked:
    """The signals that this process received."""

    def __init__(self) -> None:
        self.to_end = self.to_die = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "to_end", True))
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "to_die", True))


def record_command(kind: ClientKind, properties: Mapping[str, Any], words: Sequence[str]) -> int:
    """Runs the program until it has ended, and returns this process's exit code. `properties`: the configuration that the
    test states, and the addresses of the brokers."""
    asked = _Asked()
    life = RecordedLife(recording_of(None), kind, properties, isolation=_isolation(kind, properties))
    life.registry.note(life.client, "how", "command")
    os.environ[PREFIX_VARIABLE] = str(life.client)
    if kind == "consumer":
        life.becomes(Role.MEMBER if "group.id" in properties else Role.READER)
    lines = CommandProducer(life) if kind == "producer" else CommandConsumer(life)
    command = [word.replace(PREFIX, str(life.client)) for word in words]
    try:
        tool = Tool(command, now_ns=now_ns, parse=lines.heard(_shown))
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
        lines.note_end(killed=False, code=NOT_STARTED)
        lines.close()
        return NOT_STARTED
    code = _listen(tool, lines, asked)
    lines.note_stop(now_ns())
    lines.note_end(killed=asked.to_die, code=code)
    lines.close()
    if asked.to_die:
        os.kill(os.getpid(), signal.SIGKILL)  # by the same signal: the caller must see how it died
    return code if code >= 0 else _SIGNAL_BASE - code


def _listen(tool: Tool, lines: CommandProducer | CommandConsumer, asked: _Asked) -> int:
    """Reads the program's output until it has ended, and returns its exit code."""
    end_by_ns = None
    while (code := tool.ended()) is None:
        for event in tool.events(wait_s=LOOK_S):
            lines.take(tool, event)
        sys.stdout.buffer.flush()
        if asked.to_die or asked.to_end:
            lines.note_stop(now_ns())
        if asked.to_die or (end_by_ns is not None and now_ns() >= end_by_ns):
            tool.kill()
        elif asked.to_end and end_by_ns is None:
            end_by_ns = now_ns() + END_LIMIT_NS
            tool.stop()
    return code


def _shown(line: bytes) -> dict[str, Any] | None:
    """Parses a line, after writing it through unchanged: the test's folder keeps the program's output."""
    if line:
        sys.stdout.buffer.write(line + b"\n")
    return parse_event(line)


def _isolation(kind: ClientKind, properties: Mapping[str, Any]) -> Isolation:
    if kind == "producer":
        return Isolation.NOT_A_READER
    committed = properties.get("isolation.level") == "read_committed"
    return Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
