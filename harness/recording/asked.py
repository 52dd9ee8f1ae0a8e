"""Records when a client was asked for what had happened: a row of `observations` for each stretch without a pause."""

import struct

from prozess.harness.clock import NS_PER_S
from prozess.harness.columns import offsets_in_row
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import NONE, OBSERVATIONS, Isolation, ObservationKind

PAUSE_NS = NS_PER_S
"""Two calls within this time belong to one stretch."""
_VALUE, _VALUE_AT = struct.Struct("@q"), offsets_in_row(OBSERVATIONS)["value"]


class AskedStretch:
    """The stretch in which a client is asked at present, and its row. It is not thread safe.

    Example: calls from 0 to 2 s, from 2.5 to 4 s, and from 9 s on are two stretches: 0 to 4 s, and the one since 9 s.
    """

    def __init__(self, kind: ObservationKind) -> None:
        self.row, self._kind = -1, kind
        self._begun_ns = self._until_ns = 0

    def begin(self, writer: RowWriter, now_ns: int, *, may_last: bool = False, within: bool = False) -> None:
        """Notes that a call begins. `may_last`: it may be under way when the client ends, and the row says that until `end`.
        `within`: another call is under way."""
        if self.row < 0 or (not within and now_ns - self._until_ns > PAUSE_NS):
            values = {"time_ns": now_ns, "value": 0, "kind": self._kind, "isolation": Isolation.NOT_A_READER}
            self.row = writer.append(*(int(values.get(column.name, NONE)) for column in OBSERVATIONS.columns))
            self._begun_ns = self._until_ns = now_ns
        if may_last:
            self._set(writer, NONE)

    def end(self, writer: RowWriter, now_ns: int) -> None:
        """Notes that the call is over."""
        self._until_ns = now_ns
        self._set(writer, now_ns - self._begun_ns)

    def _set(self, writer: RowWriter, value: int) -> None:
        row, start = writer.slot(self.row)
        _VALUE.pack_into(row, start + _VALUE_AT, value)
