"""What happened to the partitions of a cell at all, or could happen under given faults: what facts about witnesses rest on
where there is no witness."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.plan.plan import Cell, Plan
from prozess.harness.schema import Tristate


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Describes what happened to a cell's partitions at all, or could happen under given faults. It distinguishes "permitted,
    not seen" from "held"."""

    moved: Tristate
    """The leader of one of the partitions changed or died."""
    unclean: Tristate
    """A leader from outside ISR and ELR was elected."""
    destroyed: Tristate
    """Copies were destroyed."""
    deleted: Tristate = Tristate.NO
    """Retention moved the log start past some record."""
    audited_slowly: Tristate = Tristate.NO
    """The audit took as long as tombstones are kept (delete.retention.ms)."""
    long_away: Tristate = Tristate.NO
    """A broker led that had been away as long as tombstones are kept."""
    rebalanced: Tristate = Tristate.NO
    """Members of groups died, or partitions changed hands."""
    forgotten: Tristate = Tristate.NO
    """A send outlived the broker's memory of its producer."""
    offsets_expired: Tristate = Tristate.NO
    """It took as long as the offsets of a group without members are kept (offsets.retention.minutes)."""
    read_uncommitted: Tristate = Tristate.NO
    """Consumers read them at read_uncommitted."""
    read_uncommitted_inside: Tristate = Tristate.NO
    """Transactions read them at read_uncommitted."""
    cell_unclean: Tristate = Tristate.NO
    """`unclean`, of any partition of the cell."""
    faulted: Tristate = Tristate.NO
    """There was a fault, of any kind."""
    store_harmed: Tristate = Tristate.NO
    """Brokers could not read, or not write, what is in the remote store."""
    asked: Tristate = Tristate.NO
    """Somebody asked for an unclean election."""
    several_releases: Tristate = Tristate.NO
    """Brokers of several releases ran side by side."""
    topic_deleted: Tristate = Tristate.NO
    """A topic of its name was deleted, or made again, as the controllers' log says."""
    partitions_added: Tristate = Tristate.NO
    """A step of the trial added partitions to the topic."""


def could_happen(
    natures: Mapping[str, FaultNature | None], *, unclean_enabled: bool, flushed: bool = False
) -> Happened:
    """Returns what faults of these kinds could cause; None = a kind that nobody described, so anything. `flushed`: every
    record is synced before it is acknowledged."""
    if not natures:
        return Happened(moved=Tristate.NO, unclean=Tristate.NO, destroyed=Tristate.NO)
    known = [n for n in natures.values() if n is not None]
    anything = len(known) < len(natures)
    destroyed = anything or any(n.destroys or (n.loses_unflushed and not flushed) for n in known)
    out = destroyed or any(n.stops or n.freezes or n.cuts for n in known)
    asked = anything or any(n.elects_unclean for n in known)
    unclean = asked or (out and unclean_enabled)
    return Happened(
        moved=Tristate.UNKNOWN if out or unclean or any(n.moves for n in known) else Tristate.NO,
        unclean=Tristate.UNKNOWN if unclean else Tristate.NO,
        cell_unclean=Tristate.UNKNOWN if unclean else Tristate.NO,
        rebalanced=Tristate.UNKNOWN if out else Tristate.NO,
        destroyed=Tristate.UNKNOWN if destroyed else Tristate.NO,
        faulted=Tristate.UNKNOWN,
        store_harmed=Tristate.UNKNOWN if anything or any(n.harms_store for n in known) else Tristate.NO,
        asked=Tristate.UNKNOWN if asked else Tristate.NO,
    )


def with_plan(happened: Happened, plan: Plan, cell: Cell) -> Happened:
    """Adds to `happened` what the plan says of the cell: whether some client reads it at read_uncommitted, and whether a step
    adds partitions."""
    return replace(
        happened,
        partitions_added=yes_if(bool(cell.late_partitions) and not cell.life),
        read_uncommitted=_read_uncommitted(plan, cell, ("reader", "transactor")),
        read_uncommitted_inside=_read_uncommitted(plan, cell, ("transactor",)),
    )


def _read_uncommitted(plan: Plan, cell: Cell, roles: Sequence[str]) -> Tristate:
    """Is there a consumer among clients of these roles that asks for no more?"""
    mine = frozenset(cell.partitions)
    asking = (c for c in plan.clients if c.isolation_level == "read_uncommitted" and c.role in roles)
    return Tristate.YES if any(not mine.isdisjoint(c.partitions) for c in asking) else Tristate.NO


def yes_if(condition: bool) -> Tristate:
    return Tristate.YES if condition else Tristate.NO


def possibly(*causes: Tristate) -> Tristate:
    """Could a fact with these causes hold? NO if none of them happened, else UNKNOWN."""
    return Tristate.NO if all(c is Tristate.NO for c in causes) else Tristate.UNKNOWN
