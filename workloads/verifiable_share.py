"""Kafka's VerifiableShareConsumer inside a trial: a member of a share group (KIP-932), whose events become rows.

A share group hands records of one partition to several members, in no order, and again to another one if they are not
acknowledged in time. So no order of reading is to be judged: every read is a span of its own, and nobody owns a partition.
"""

from collections.abc import Mapping
from typing import Any

from harness.rows import RowWriter
from harness.schema import MISSING, NONE, PROCESSED, READS, ReadFlag, Table
from harness.verifiable_events import foreign_identity, place_of
from workloads.carrier import SENTINEL_KEY, key_id
from workloads.client import Client
from workloads.verifiable_clients import STOP_LIMIT_NS, ToolClient, encoded
from workloads.verifiable_tool import Tool


class VerifiableShareConsumer(ToolClient):
    """The role `verifiable-share-consumer`. Options: `command`, `files`, `group` (number of its group). Starts its tool at
    once; `stop` ends it. `processed`: a row per acknowledgement, done when it was confirmed; never, if it was refused."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._reads = RowWriter(client.rows, READS, client.spec.client)
        self._processed = RowWriter(client.rows, PROCESSED, client.spec.client)
        self._group = int(client.spec.options["group"])
        self._given: dict[tuple[int, int], tuple[int, int, int]] = {}
        """(dense partition, offset) → (read_ns, sender, sequence), not acknowledged yet."""
        self._begin()

    def issued(self) -> int:
        """Records read."""
        return self._reads.count

    def close(self) -> None:
        """Flush."""
        self._reads.close()
        self._processed.close()

    def _obey(self, command: dict[str, Any]) -> None:
        if command["do"] == "stop":
            self._end(limit_ns=STOP_LIMIT_NS)
        self._client.control.tell("done", number=command["number"])

    def _take(self, tool: Tool, event: Mapping[str, Any]) -> None:
        match event["name"]:
            case "record_data":
                self._read(tool, event)
            case "offsets_acknowledged":
                self._acknowledged(tool, event)
            case "shutdown_complete":
                self.shutdown_complete = True

    def _read(self, tool: Tool, event: Mapping[str, Any]) -> None:
        place = place_of(event)
        dense = None if place is None else self._dense.get((place.topic, place.partition))
        if place is None or dense is None or place.offset == NONE:
            self.not_understood(event)
            return
        key = event.get("key")
        sender, sequence = foreign_identity(event.get("value"))
        if key == SENTINEL_KEY.decode():  # its value is no text
            sender, sequence = 0, 0
        self._given[dense, place.offset] = tool.read_ns, sender, sequence
        row = {
            "read_ns": tool.read_ns,
            "log_offset": place.offset,
            "sequence": sequence,
            "key": key_id(encoded(key)),
            "sender": sender,
            "partition": dense,
            "span": self._reads.count,
            "flags": int(ReadFlag.CORRUPT) if sender == NONE else 0,
        }
        self._reads.append(*_in_order(READS, row))

    def _acknowledged(self, tool: Tool, event: Mapping[str, Any]) -> None:
        """Of every partition the offsets, one by one."""
        success = event.get("success") is True
        if not success:
            self._client.log(f"acknowledgement: {event.get('error')}")
        listed = event.get("partitions")
        for entry in listed if isinstance(listed, list) else []:
            place = place_of(entry) if isinstance(entry, dict) else None
            dense = None if place is None else self._dense.get((place.topic, place.partition))
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
        self._processed.append(*_in_order(PROCESSED, row))


def _in_order(table: Table, values: Mapping[str, int]) -> list[int]:
    return [values.get(column.name, NONE) for column in table.columns]
