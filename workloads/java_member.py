"""Kafka's VerifiableConsumer as a member of a consumer group: what it says becomes what our own members record.

The tool has no processing of its own: printing a record is its effect, and it commits after it (`--enable-autocommit`: with a
later poll). So a record counts as processed when it was printed. It tells the moment of each event itself, in milliseconds of
this host's clock (`Tool.moment`): what begins is taken for as early, and what ends for as late, as that allows, so that no
two members ever seem to overlap that did not.
"""

from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import AdminClient

from harness.rows import RowWriter
from harness.schema import COMMITS, MISSING, NONE, PROCESSED, READS, ObservationKind, Outcome, ReadFlag, Table
from harness.verifiable_events import place_of, places_of
from workloads.carrier import SENTINEL_KEY, key_id
from workloads.client import Client
from workloads.java_positions import JavaPositions
from workloads.member_rows import ASSIGN, CLOSE, REVOKE, SYNC, AssignmentRows
from workloads.producer import NS_PER_S
from workloads.text_producer import text_identity
from workloads.verifiable_clients import NO_CODE, UNTOLD_ERROR, ToolClient, encoded
from workloads.verifiable_tool import Tool

STOP_LIMIT_NS = 15 * NS_PER_S
"""Its shutdown hook commits and leaves the group, which may wait for brokers."""
REPORT_NS = 100_000_000


class JavaMember(ToolClient):
    """The role `java-member`. Commands: drain, stop. Options: see `workloads.java_member_properties.launch_java_member`."""

    make_admin = AdminClient
    """What looks offsets up."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        options, rows, number = client.spec.options, client.rows, client.spec.client
        self._group, self._auto = int(options["group"]), bool(options["auto"])
        self._reads, self._processed = RowWriter(rows, READS, number), RowWriter(rows, PROCESSED, number)
        self._commits = CommitRows(RowWriter(rows, COMMITS, number), self._group)
        self._assignments = AssignmentRows(
            rows, number, self._group, client.now_ns, incremental=not bool(options["eager"])
        )
        self._owned: set[int] = set()
        self._draining, self._report_ns = False, 0
        self._begin()
        # After the tool was forked: what looks offsets up has threads.
        self._positions = JavaPositions(
            client, str(options["group_id"]), latest=bool(options["latest"]), make_admin=self.make_admin
        )

    def run(self) -> None:
        """Until `stop` and the end of the tool, which leaves the group. See `ToolClient.run`."""
        super().run()
        self._assignments.done(self._closing)

    def issued(self) -> int:
        """Records read."""
        return self._reads.count

    def close(self) -> None:
        """Flush every table."""
        for table in (self._reads, self._processed, self._commits, self._assignments, self._positions):
            table.close()

    # --- commands ---------------------------------------------------------------------------------------------------

    def _obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "drain":
                self._draining = True
                for dense in self._dense.values():
                    self._positions.observed(
                        ObservationKind.DRAIN_BEGUN, dense, int(command["quiet_s"] * 1000), self._client.now_ns()
                    )
            case "stop" if not self._stopped:
                self._closing = self._assignments.begin(CLOSE, sorted(self._owned), self._client.now_ns())
                self._end(limit_ns=STOP_LIMIT_NS)
            case "stop":
                pass
            case other:
                self._client.log(f"a Java member cannot {other}: it goes on")
        self._client.control.tell("done", number=command["number"])

    def _between(self) -> None:
        self._positions.turn()
        now_ns = self._client.now_ns()
        if self._draining and not self._stopped and now_ns >= self._report_ns:
            self._report_ns = now_ns + REPORT_NS
            # Where the end is it does not know; that is what the observer follows.
            at = [[dense, self._positions.next.get(dense, NONE), 1] for dense in sorted(self._owned)]
            self._client.control.tell("draining", at=at, processed=self._processed.count)

    # --- events -----------------------------------------------------------------------------------------------------

    def _take(self, tool: Tool, event: Mapping[str, Any]) -> None:
        match event["name"]:
            case "record_data":
                self._given(tool, event)
            case "records_consumed":
                self._polled(tool, event)
            case "offsets_committed":
                self._committed(tool, event)
            case "partitions_assigned" | "partitions_revoked":
                self._rebalanced(tool, event)
            case "shutdown_complete":
                self.shutdown_complete = True

    def _given(self, tool: Tool, event: Mapping[str, Any]) -> None:
        """A record was read, and processed."""
        place = place_of(event)
        dense = None if place is None else self._dense.get((place.topic, place.partition))
        if place is None or dense is None or place.offset == NONE:
            self.not_understood(event)
            return
        low_ns, high_ns = tool.moment(event)
        key = event.get("key")
        # A sentinel's value is no text.
        sentinel = key == SENTINEL_KEY.decode()
        sender, sequence = (0, 0) if sentinel else text_identity(event.get("value"))
        self._positions.given(dense, place.offset, low_ns)
        same = {
            "log_offset": place.offset,
            "sequence": sequence,
            "sender": sender,
            "partition": dense,
            "span": self._positions.span.get(dense, NONE),
        }
        read = {
            "read_ns": high_ns,
            "key": key_id(encoded(key)),
            "flags": int(ReadFlag.CORRUPT) if sender == NONE else 0,
        }
        self._reads.append(*in_order(READS, same | read))
        done = {"started_ns": low_ns, "done_ns": low_ns, "group": self._group}
        self._processed.append(*in_order(PROCESSED, same | done))

    def _polled(self, tool: Tool, event: Mapping[str, Any]) -> None:
        """What a poll gave was printed, all of it; and is committed now, unless that is Kafka's own affair."""
        invoked_ns, _ = tool.moment(event)
        listed = event.get("partitions")
        for entry in listed if isinstance(listed, list) else [None]:
            last = entry.get("maxOffset") if isinstance(entry, dict) else None
            place = place_of({**entry, "offset": last}) if isinstance(entry, dict) else None
            dense = None if place is None else self._dense.get((place.topic, place.partition))
            if place is None or dense is None or self._positions.next.get(dense) != place.offset + 1:
                self.not_understood(event)
                continue
            if not self._auto:
                self._commits.begin(dense, place.offset + 1, invoked_ns)

    def _committed(self, tool: Tool, event: Mapping[str, Any]) -> None:
        success = event.get("success") is True
        if not success:
            self._client.log(f"commit: {event.get('error')}")
        invoked_ns, done_ns = tool.moment(event)
        for place in places_of(event, "offsets"):
            dense = self._dense.get((place.topic, place.partition))
            if dense is None or place.offset == NONE:
                self.not_understood(event)
                continue
            position = self._positions.next.get(dense, NONE)
            self._commits.answered(dense, place.offset, invoked_ns, done_ns, position=position, success=success)

    def _rebalanced(self, tool: Tool, event: Mapping[str, Any]) -> None:
        """Lost partitions are told as revoked: the tool does not tell them apart. An empty list is a row too."""
        low_ns, high_ns = tool.moment(event)
        found = [self._dense.get((p.topic, p.partition)) for p in places_of(event, "partitions")]
        known = sorted(dense for dense in found if dense is not None)
        if len(known) < len(found) or not isinstance(event.get("partitions"), list):
            self.not_understood(event)
        given = event["name"] == "partitions_assigned"
        begun = self._assignments.begin(ASSIGN if given else REVOKE, known, low_ns)
        self._assignments.done(begun, done_ns=high_ns)
        if given:
            self._owned |= set(known)
            self._positions.assigned(known, low_ns)
        else:
            self._owned -= set(known)
            self._positions.forget(known)


class CommitRows:
    """Rows of `commits`: one per partition, when the tool is about to commit; completed when it says how that went."""

    def __init__(self, writer: RowWriter, group: int) -> None:
        self._writer, self._group = writer, group
        self._open: dict[tuple[int, int], tuple[int, int]] = {}
        """(partition, offset) → (row, invoked)."""

    def begin(self, dense: int, offset: int, invoked_ns: int) -> None:
        """All that was printed, and nothing beyond it."""
        row = self._writer.append(*self._row(dense, offset, invoked_ns, None, position=offset, success=False))
        self._open[dense, offset] = row, invoked_ns

    def answered(self, dense: int, offset: int, invoked_ns: int, done_ns: int, *, position: int, success: bool) -> None:
        """Every refusal is INFO: the client sends a commit again by itself, and what is refused may be the second copy."""
        row, begun_ns = self._open.pop((dense, offset), (None, invoked_ns))
        values = self._row(dense, offset, begun_ns, done_ns, position=position, success=success)
        if row is None:
            self._writer.append(*values)
        else:
            self._writer.rewrite(row, *values)

    def close(self) -> None:
        """Flush."""
        self._writer.close()

    def _row(
        self, dense: int, offset: int, invoked_ns: int, done_ns: int | None, *, position: int, success: bool
    ) -> list[int]:
        answered = {} if done_ns is None else {"completed_ns": done_ns, "code": NO_CODE if success else UNTOLD_ERROR}
        row = {
            "invoked_ns": invoked_ns,
            "completed_ns": MISSING,
            "log_offset": offset,
            "position": position,
            "partition": dense,
            "group": self._group,
            "outcome": int(Outcome.OK if success else Outcome.INFO),
            "code": NO_CODE,
            "mode": SYNC,
        }
        return in_order(COMMITS, row | answered)


def in_order(table: Table, values: Mapping[str, int]) -> list[int]:
    """A row; NONE where nothing is said."""
    return [int(values.get(column.name, NONE)) for column in table.columns]
