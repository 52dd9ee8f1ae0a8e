"""What the nemesis records of its faults: rows of `faults`, one per node (and peer) and phase."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from harness.clock import Clock
from harness.impairments import CLIENTS
from harness.protocols import ALL_CLIENTS_NODE, Cluster, Effect, Undo
from harness.schema import NONE, FaultPhase, Tristate
from nemesis.journal import JournalEntry


class RecorderProtocol(Protocol):
    """What the nemesis needs of `harness.recorder.Recorder`."""

    def write(self, table: str, **columns: int) -> object:
        """One row; missing columns are unset."""
        ...

    def code(self, dictionary: str, text: str) -> int:
        """The dictionary code of a text."""
        ...


class FaultRows:
    """Of the faults of one run. A `row` is what all rows of one fault have: its number, its kind, its step."""

    def __init__(self, recorder: RecorderProtocol, cluster: Cluster, clock: Clock) -> None:
        self._recorder, self._cluster, self._clock = recorder, cluster, clock

    def row(self, number: int, fault: str, step_number: int) -> dict[str, int]:
        """Of a fault about to be made."""
        return {"fault": number, "kind": self._recorder.code("fault", fault), "step": step_number}

    def row_of(self, entry: JournalEntry) -> dict[str, int]:
        """Of the fault that an entry undoes."""
        return self.row(entry.number, entry.fault, entry.step_number)

    def write_undos(
        self, row: Mapping[str, int], undos: Sequence[Undo], phase: FaultPhase, *, detail: str = ""
    ) -> None:
        """One row for each place where something is to be undone."""
        for undo in undos:
            self.write(row, phase, node=undo.node, peer=undo.peer, detail=detail)

    def write_effect(self, row: Mapping[str, int], effect: Effect, phase: FaultPhase) -> None:
        """What was observed at one place."""
        self.write(row, phase, node=effect.node, peer=effect.peer, effect=effect.effect, detail=effect.detail)

    def write(
        self,
        row: Mapping[str, int],
        phase: FaultPhase,
        *,
        node: str | None = None,
        peer: str | None = None,
        effect: Tristate = Tristate.UNKNOWN,
        detail: str = "",
        time_ns: int | None = None,
    ) -> None:
        """One row of `faults`. Of a cut, `node` receives and `peer` sends."""
        ids = {CLIENTS: ALL_CLIENTS_NODE} | {n.name: n.node_id for n in self._cluster.nodes}
        self._recorder.write(
            "faults",
            **row,
            time_ns=self._clock.monotonic_ns() if time_ns is None else time_ns,
            phase=int(phase),
            node=NONE if node is None else ids.get(node, NONE),
            peer=NONE if peer is None else ids.get(peer, NONE),
            effect=int(effect),
            detail=self._recorder.code("detail", detail) if detail else NONE,
        )
