"""What the nemesis really did, from the `faults` table: one value per fault, with when it held and whether it was seen to.

A fault that no VERIFIED row proves is not a fact: what is derived from it is unknown.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.schema import NONE, FaultPhase, Tristate

FOREVER = 2**62
"""A time after every time of a history (ns); -FOREVER is before every one."""
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class FaultNature:
    """What a kind of fault does to a node, as far as guarantees care. All false: it harms nothing that is judged here."""

    stops: bool = False
    """The process ends; page cache and disk stay, so nothing that was written is lost (SIGKILL destroys nothing)."""
    restarts: bool = False
    """And a successor runs before the fault is proven: from then on nobody is down."""
    freezes: bool = False
    """The process stands still and goes on later, believing what it believed."""
    cuts: bool = False
    """What one node sends to another does not arrive."""
    reconfigures: bool = False
    """A configuration is another one for a while; not one on which it depends what may be lost."""
    moves: bool = False
    """Leaders change although nothing is wrong with any node."""
    destroys: bool = False
    """The node's replicas lose their data, from offset 0 on."""
    loses_unflushed: bool = False
    """The node's replicas lose what was not synced to its disk: in topics with flush.messages=1 nothing that was
    acknowledged, in others anything, from offset 0 on."""
    shifts_clock: bool = False
    """The node's wall clock is off: what goes by it (retention, the age of producer ids and transactions) is early or
    late."""
    elects_unclean: bool = False
    """It asks the controller for an UNCLEAN election (KIP-460)."""


NATURES: Mapping[str, FaultNature] = {
    "kill": FaultNature(stops=True),
    "stop": FaultNature(stops=True),
    "pause": FaultNature(freezes=True),
    "partition": FaultNature(cuts=True),
    # What is lost or late may look like a cut to whoever waits for it.
    "loss": FaultNature(cuts=True),
    "latency": FaultNature(cuts=True),
    "late-connections": FaultNature(cuts=True),
    "bandwidth": FaultNature(cuts=True),
    "reset": FaultNature(cuts=True),
    "half-open": FaultNature(stops=True, cuts=True),
    "elect-preferred": FaultNature(moves=True),
    "elect-unclean": FaultNature(moves=True, elects_unclean=True),
    "reassign": FaultNature(moves=True),
    "configure": FaultNature(reconfigures=True),
    "move-controller": FaultNature(stops=True),
    "rolling-restart": FaultNature(stops=True, restarts=True),
    "upgrade": FaultNature(stops=True, restarts=True),
    "migrate": FaultNature(stops=True, restarts=True),
    "finalize-features": FaultNature(reconfigures=True),
    "restart-clients": FaultNature(stops=True),
    "rebalance-storm": FaultNature(stops=True),
    "duplicate-member": FaultNature(stops=True),
    "disk-full": FaultNature(stops=True),
    "clock": FaultNature(shifts_clock=True),
    # By less than retention sees: only CreateTime is another.
    "client-clock": FaultNature(),
    "disk-slow": FaultNature(freezes=True),
    "disk-hang": FaultNature(freezes=True),
    "disk-error": FaultNature(stops=True, loses_unflushed=True),
    "wipe": FaultNature(stops=True, destroys=True),
    "corrupt-file": FaultNature(stops=True, destroys=True),
    "power-loss": FaultNature(stops=True, loses_unflushed=True),
}
"""Every fault of the catalogue. A kind that is not here might do anything: what depends on it is unknown."""


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """One fault as it happened. Times in ns on the trial's clock."""

    number: int
    kind: str
    step: int
    nodes: tuple[int, ...]
    """Everything it touched, the other ends of cuts included."""
    hit: tuple[int, ...]
    begin_ns: int
    proven_ns: int
    """From here on it certainly held; FOREVER = never proven."""
    undone_ns: int | None
    end_ns: int
    """From here on it is certainly over; FOREVER = not seen to end."""
    effective: Tristate
    nature: FaultNature | None
    """None = a kind nobody described."""
    detail: str = ""
    made_ns: int | None = None
    """When the deed was over; None = it never was."""

    def may(self, what: str) -> Tristate:
        """Does it do `what` (a field of FaultNature) to its nodes? NO if its nature does not, or it did not work."""
        if self.nature is None:
            return Tristate.UNKNOWN
        return self.effective if getattr(self.nature, what) else Tristate.NO

    @property
    def leaves_down(self) -> Tristate:
        """Are its nodes down from `proven_ns` on, until it is undone?"""
        return Tristate.NO if self.nature is not None and self.nature.restarts else self.may("stops")

    def of_topic(self, *, flushed: bool) -> "FaultRecord":
        """What it was to a topic whose brokers sync every record before they acknowledge it, or to another one."""
        if self.nature is None or not self.nature.loses_unflushed or flushed:
            return self
        return replace(self, nature=replace(self.nature, destroys=True))


def fault_records(
    faults: Columns, dictionaries: Mapping[str, Sequence[str]], natures: Mapping[str, FaultNature] = NATURES
) -> tuple[FaultRecord, ...]:
    """Every fault of the table, in the order of its number. A few rows each: loops are fine."""
    return tuple(_record(rows, dictionaries, natures) for rows in _by_fault(faults))


def _by_fault(faults: Columns) -> Iterator[dict[str, np.ndarray]]:
    for number in np.unique(faults["fault"]):
        rows = np.flatnonzero(faults["fault"] == number)
        rows = rows[np.argsort(faults["time_ns"][rows], kind="stable")]
        yield {name: column[rows] for name, column in faults.items()}


def _record(
    rows: Columns, dictionaries: Mapping[str, Sequence[str]], natures: Mapping[str, FaultNature]
) -> FaultRecord:
    phase, time_ns, effect = rows["phase"], rows["time_ns"], rows["effect"]
    kind = text_of(dictionaries, "fault", int(rows["kind"][0]))
    verified, undone = phase == FaultPhase.VERIFIED, time_ns[phase == FaultPhase.UNDONE]
    healed = (phase == FaultPhase.UNDO_VERIFIED) & (effect == Tristate.YES)
    effective = _all_of(effect[verified])
    told = rows["detail"][verified | (phase == FaultPhase.FAILED)]
    details = (text_of(dictionaries, "detail", code) for code in np.unique(told).tolist())
    return FaultRecord(
        number=int(rows["fault"][0]),
        kind=kind,
        step=int(rows["step"][0]),
        nodes=tuple(n for n in np.unique([rows["node"], rows["peer"]]).tolist() if n != NONE),
        hit=tuple(n for n in np.unique(rows["node"]).tolist() if n != NONE),
        # Journaled before it is applied: a fault acts from there on at the earliest, and intervals only widen.
        begin_ns=int(time_ns.min()),
        proven_ns=int(time_ns[verified].max()) if effective is Tristate.YES else FOREVER,
        undone_ns=int(undone.max()) if len(undone) else None,
        end_ns=int(time_ns[healed].max()) if _healed(rows, healed) else FOREVER,
        effective=effective,
        nature=natures.get(kind),
        detail="; ".join(filter(None, details)),
        made_ns=int(time_ns[applied].max()) if (applied := phase == FaultPhase.APPLIED).any() else None,
    )


def _healed(rows: Columns, healed: np.ndarray) -> bool:
    """Every (node, peer) that was hit was also seen healed."""
    hit = np.isin(rows["phase"], (FaultPhase.JOURNALED, FaultPhase.APPLIED))
    pairs = set(zip(rows["node"][hit].tolist(), rows["peer"][hit].tolist(), strict=True))
    return bool(pairs) and pairs <= set(zip(rows["node"][healed].tolist(), rows["peer"][healed].tolist(), strict=True))


def _all_of(effects: np.ndarray) -> Tristate:
    if not len(effects):
        return Tristate.UNKNOWN
    if (effects == Tristate.NO).any():
        return Tristate.NO
    return Tristate.YES if (effects == Tristate.YES).all() else Tristate.UNKNOWN


def text_of(dictionaries: Mapping[str, Sequence[str]], name: str, code: int) -> str:
    """The text of a dictionary code; empty for NONE; the bare code if the dictionary does not know it."""
    texts = dictionaries.get(name, ())
    return "" if code == NONE else texts[code] if 0 <= code < len(texts) else f"{name} {code}"
