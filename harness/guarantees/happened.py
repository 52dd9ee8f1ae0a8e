"""What happened to a cell's partitions at all, or could: it tells "permitted, not seen" from "held", and predicts before
anything ran."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.guarantees.cutoffs import elected_unclean
from harness.guarantees.envelope import Envelope
from harness.guarantees.faults import FaultNature
from harness.guarantees.logic import either
from harness.guarantees.retention import audit_beyond_retention, away_beyond_retention
from harness.plan import Cell, Plan
from harness.schema import Tristate


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """What happened to a cell's partitions at all, or could under given faults."""

    moved: Tristate
    """The leader of one of them changed or died."""
    unclean: Tristate
    """A leader from outside ISR and ELR was elected."""
    destroyed: Tristate
    """Copies were destroyed."""
    deleted: Tristate = Tristate.NO
    """The log start passed some record."""
    audited_slowly: Tristate = Tristate.NO
    """The audit took as long as tombstones are kept (delete.retention.ms)."""
    long_away: Tristate = Tristate.NO
    """A broker led that had been away as long as tombstones are kept."""
    rebalanced: Tristate = Tristate.NO
    """Members of groups died, or partitions changed hands."""
    forgotten: Tristate = Tristate.NO
    """A send outlived the broker's memory of its producer."""
    read_uncommitted: Tristate = Tristate.NO
    """Consumers read them at read_uncommitted."""
    read_uncommitted_inside: Tristate = Tristate.NO
    """Transactions read them at read_uncommitted."""
    cell_unclean: Tristate = Tristate.NO
    """`unclean`, of any partition of the cell."""
    faulted: Tristate = Tristate.NO
    """There was a fault, of any kind."""


def could_happen(
    natures: Mapping[str, FaultNature | None], *, unclean_enabled: bool, flushed: bool = False
) -> Happened:
    """What faults of these kinds could bring about; None = a kind nobody described: anything. `flushed`: every record is
    synced before it is acknowledged."""
    if not natures:
        return Happened(moved=Tristate.NO, unclean=Tristate.NO, destroyed=Tristate.NO)
    known = [n for n in natures.values() if n is not None]
    anything = len(known) < len(natures)
    destroyed = anything or any(n.destroys or (n.loses_unflushed and not flushed) for n in known)
    out = destroyed or any(n.stops or n.freezes or n.cuts for n in known)
    unclean = anything or any(n.elects_unclean for n in known) or (out and unclean_enabled)
    return Happened(
        moved=Tristate.UNKNOWN if out or unclean or any(n.moves for n in known) else Tristate.NO,
        unclean=Tristate.UNKNOWN if unclean else Tristate.NO,
        cell_unclean=Tristate.UNKNOWN if unclean else Tristate.NO,
        rebalanced=Tristate.UNKNOWN if out else Tristate.NO,
        destroyed=Tristate.UNKNOWN if destroyed else Tristate.NO,
        faulted=Tristate.UNKNOWN,
    )


def what_happened(envelope: Envelope, *, sends_lived_ns: int) -> Happened:
    """What did happen to one partition. `sends_lived_ns`: no send could take longer (delivery.timeout.ms)."""
    timeline, faults = envelope.timeline, envelope.faults
    destroyed = either(*(np.int8(f.may("destroys")) for f in faults))
    died = any(
        f.may("stops") is Tristate.YES and int(timeline.leader_at(np.array([f.begin_ns - 1]))[0]) in f.hit
        for f in faults
    )
    moved = Tristate.YES if timeline.elections or died else Tristate.NO
    expiry_ns = envelope.producer_expiry_ns
    forgotten = Tristate.UNKNOWN if expiry_ns is None else _yes_if(sends_lived_ns >= expiry_ns)
    return Happened(
        moved=moved if timeline.known else Tristate.UNKNOWN,
        unclean=elected_unclean(envelope),
        cell_unclean=envelope.cell_unclean,
        destroyed=Tristate(int(destroyed)),
        deleted=_yes_if(bool(len(envelope.log_starts[1])) and int(envelope.log_starts[1].max()) > 0),
        forgotten=forgotten,
        rebalanced=Tristate.UNKNOWN,  # joining is a rebalance
        audited_slowly=audit_beyond_retention(envelope),
        long_away=away_beyond_retention(envelope),
        faulted=Tristate.YES if faults else Tristate.NO,
    )


def _yes_if(condition: bool) -> Tristate:
    return Tristate.YES if condition else Tristate.NO


def with_readers(happened: Happened, plan: Plan, cell: Cell) -> Happened:
    """The same, knowing who of the plan's clients reads the cell at read_uncommitted."""
    return replace(
        happened,
        read_uncommitted=_read_uncommitted(plan, cell, ("reader", "transactor")),
        read_uncommitted_inside=_read_uncommitted(plan, cell, ("transactor",)),
    )


def _read_uncommitted(plan: Plan, cell: Cell, roles: Sequence[str]) -> Tristate:
    """Is there a consumer among clients of these roles that asks for no more?"""
    readers = [c for c in plan.clients if c.role in roles and set(c.partitions) & set(cell.partitions)]
    return Tristate.YES if any(c.isolation_level == "read_uncommitted" for c in readers) else Tristate.NO
