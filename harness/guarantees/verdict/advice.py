"""Finds the fewest settings that would have kept lost records, by judging the same witnesses again with these settings.

A setting that is so already is never tried, and one that changes nothing is never advised: flush.messages=1 keeps what was
not synced when power was lost, and nothing of a disk that is wiped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import FaultRecord, Timeline
from prozess.harness.guarantees.facts.truncation import cutoff
from prozess.harness.guarantees.facts.witnessed import OF_WITNESSES
from prozess.harness.guarantees.logic import FALSE
from prozess.harness.guarantees.table.rules import Rule
from prozess.harness.interfaces import NOT_IN_ORDER
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import MISSING, Tristate

ELR = "eligible.leader.replicas.version=1"
FLUSH = "flush.messages=1"
UNCLEAN = "unclean.leader.election.enable=false"
ACKS = "acks=all"
IN_ORDER = ("stop", "rolling-restart", "upgrade", "migrate", "move-controller")
"""Faults that end a broker by SIGTERM: it may be eligible when it is back. One that crashed may not. [KIP-966, unclean
shutdown: the broker epoch in the clean-shutdown file]"""
CHANGES_MAX = 5
"""At most one change of each kind is combined."""
_MASK_BITS = 63


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """The settings of the partitions that lost records, as far as a change of them may help."""

    replication_factor: int
    min_insync_replicas: int
    acks: str
    flushed: bool
    unclean: bool
    eligible: bool
    """Eligible leader replicas are on (KIP-966)."""
    brokers: int

    @staticmethod
    def of(cell: Cell, *, flushed: bool, eligible: bool, brokers: int) -> "PartitionSettings":
        """`flushed`: every record is synced before it is acknowledged, by the topic's setting or the brokers'."""
        return PartitionSettings(
            replication_factor=cell.topic.replication_factor,
            min_insync_replicas=cell.topic.min_insync_replicas,
            acks=cell.producer.acks,
            flushed=flushed,
            unclean=cell.topic.unclean_leader_election_enable,
            eligible=eligible,
            brokers=brokers,
        )


Concerned = Sequence[tuple[Envelope, np.ndarray]]
"""For each partition: its envelope, and the witnesses that the rule permitted."""


def what_would_have_kept(rule: Rule, setting: PartitionSettings, concerned: Concerned) -> str:
    """The change to report a rule for destroyed copies, as subject of "would have kept them"."""
    for change in _changes(setting):
        if all(_keeps(change, rule, setting, envelope, found).all() for envelope, found in concerned):
            return _change_text(change)
    return _beyond_settings(setting, concerned)


@dataclass(frozen=True, slots=True)
class _Change:
    """Changes of settings to try; None or False leaves a setting as it is."""

    flush: bool = False
    eligible: bool = False
    min_insync: int | None = None
    acks: bool = False
    unclean: bool = False


def _changes(setting: PartitionSettings) -> Iterator[_Change]:
    """Sets of changes that change something, the fewest first; last those with which a partition takes nothing while one of
    its brokers is down."""
    found = list(_combined(setting))
    tight = setting.replication_factor
    yield from sorted(found, key=lambda change: change.min_insync == tight)


def _combined(setting: PartitionSettings) -> Iterator[_Change]:
    single: list[_Change] = []
    if not setting.flushed:
        single.append(_Change(flush=True))
    if not setting.eligible and setting.replication_factor > 1:
        single.append(_Change(eligible=True))
    for wanted in range(setting.min_insync_replicas + 1, setting.replication_factor + 1):
        single.append(_Change(min_insync=wanted))
    if setting.acks != "all":
        single.append(_Change(acks=True))
    if setting.unclean:
        single.append(_Change(unclean=True))
    for size in range(1, CHANGES_MAX + 1):
        for chosen in combinations(single, size):
            of_all = setting.acks == "all" or any(
                c.acks for c in chosen
            )  # min.insync.replicas counts for acks=all alone
            if sum(c.min_insync is not None for c in chosen) <= int(of_all):
                yield _Change(
                    flush=any(c.flush for c in chosen),
                    eligible=any(c.eligible for c in chosen),
                    min_insync=next((c.min_insync for c in chosen if c.min_insync is not None), None),
                    acks=any(c.acks for c in chosen),
                    unclean=any(c.unclean for c in chosen),
                )


def _change_text(change: _Change) -> str:
    parts = [ACKS] if change.acks else []
    parts += [f"min.insync.replicas={change.min_insync}"] if change.min_insync is not None else []
    parts += [f"eligible leader replicas ({ELR}, from Kafka 4.0)"] if change.eligible else []
    parts += [FLUSH] if change.flush else []
    parts += [UNCLEAN] if change.unclean else []
    *most, last = parts
    return f"{', '.join(most)} and {last}, together," if most else last


def _keeps(
    change: _Change, rule: Rule, setting: PartitionSettings, envelope: Envelope, found: np.ndarray
) -> np.ndarray:
    """Returns bool[k]: with the change the record would not have been acknowledged at all, or an intact copy would have
    led."""
    wanted = setting.min_insync_replicas if change.min_insync is None else change.min_insync
    faults = tuple(_flushed(f) for f in envelope.faults) if change.flush else tuple(envelope.faults)
    timeline = envelope.timeline
    other = change.eligible or change.acks or change.min_insync is not None  # else those that were eligible still are
    if other and (change.eligible or setting.eligible) and (setting.acks == "all" or change.acks):
        timeline = _with_eligible(timeline, faults, min_insync=wanted)
    changed = replace(envelope, faults=faults, timeline=timeline)
    fact = OF_WITNESSES[rule.when[0]]
    destroyed = fact(changed, found) != FALSE
    # An election from outside takes them as well, wherever one is allowed: only where it is not does the above suffice.
    asked = any(f.may("elects_unclean") is not Tristate.NO for f in faults)
    allowed = asked or (setting.unclean and not change.unclean)
    cut = (cutoff(changed, found) != FALSE) if allowed else np.zeros(len(found), dtype=bool)
    stricter = change.min_insync is not None or change.acks
    refused = _refused(envelope, found, wanted) if stricter else np.zeros(len(found), dtype=bool)
    return np.asarray(refused | ~(destroyed | cut))


def _refused(envelope: Envelope, found: np.ndarray, min_insync: int) -> np.ndarray:
    """Returns bool[k]: while it was sent, and when it was answered, fewer replicas were in sync than that."""
    timeline = envelope.timeline
    known = (found["begin_ns"] != MISSING) & (found["end_ns"] != MISSING)
    times = np.stack([found["begin_ns"], found["end_ns"]])
    rows = np.where(known, timeline.index_at(times), -1)
    size = np.array([bin(mask).count("1") for mask in timeline.isr.tolist()], dtype=np.int64)  # as long as changes
    few = np.append(size, _MASK_BITS)[rows] < min_insync
    return np.asarray(known & few.all(axis=0))


def _flushed(fault: FaultRecord) -> FaultRecord:
    """Returns the fault as it is when every record is synced before its acknowledgement. A wiped disk stays wiped."""
    if fault.nature is None or not fault.nature.loses_unflushed:
        return fault
    return replace(fault, nature=replace(fault.nature, destroys=False))


def _with_eligible(timeline: Timeline, faults: Sequence[FaultRecord], *, min_insync: int) -> Timeline:
    """Returns the same, had the controller kept eligible replicas: who leaves the ISR while it falls below
    min.insync.replicas, until it is that large again, or until the replica's broker crashes. Loops run over changes and
    faults. [KIP-966]"""
    if not timeline.known:
        return timeline
    crashes = [
        f for f in faults if (f.kind not in IN_ORDER or NOT_IN_ORDER in f.detail) and f.may("stops") is not Tristate.NO
    ]
    times = np.unique(np.concatenate([timeline.time_ns, np.array([f.begin_ns for f in crashes], dtype=np.int64)]))
    rows = np.clip(timeline.index_at(times), 0, None)
    isr = timeline.isr[rows].tolist()
    held: list[int] = []
    eligible = 0
    for at, now_ns in enumerate(times.tolist()):
        whole = bin(isr[at]).count("1") >= min_insync
        eligible = 0 if whole else (eligible | (isr[at - 1] if at else 0)) & ~isr[at]
        for crash in crashes:
            if crash.begin_ns <= now_ns:
                # Down, or not in sync again since: it does not count when it is back.
                eligible &= ~sum(1 << node for node in crash.hit if _not_back(timeline, node, crash.begin_ns, now_ns))
        held.append(eligible)
    return replace(
        timeline,
        **{
            name: getattr(timeline, name)[rows]
            for name in ("leader", "leader_epoch", "isr", "last_known_elr", "replicas")
        },
        time_ns=times,
        elr=timeline.elr[rows] | np.array(held, dtype=np.int64),
    )


def _not_back(timeline: Timeline, node: int, since_ns: int, now_ns: int) -> bool:
    """Did it not come back into the ISR after that, out of which it had been?"""
    inside = (timeline.time_ns > since_ns) & (timeline.time_ns <= now_ns)
    member = (timeline.isr[inside] >> node & 1) == 1
    left = np.flatnonzero(~member)
    return not (len(left) and member[left[0] :].any())


def _beyond_settings(setting: PartitionSettings, concerned: Concerned) -> str:
    """Nothing of these is enough: only more copies are, on brokers that the faults left alone. KIP-966 says of
    acks=all that it withstands the loss of one disk less than min.insync.replicas."""
    hit = max((len(_destroyed(envelope)) for envelope, _ in concerned), default=0)
    if not hit or hit >= setting.brokers:
        return "a copy outside this cluster"
    factor = max(setting.replication_factor, min(hit + 2, setting.brokers))
    parts = [f"replication.factor={factor}"] if factor > setting.replication_factor else []
    parts += [f"min.insync.replicas={hit + 1}"] if hit + 1 > setting.min_insync_replicas else []
    parts += [ACKS] if setting.acks != "all" else []
    parts += [UNCLEAN] if setting.unclean else []
    parts += [f"eligible leader replicas ({ELR}, from Kafka 4.0)"] if not setting.eligible else []
    if not parts:
        return "a copy outside this cluster"
    *most, last = parts
    return f"{', '.join(most)} and {last}, together," if most else last


def _destroyed(envelope: Envelope) -> set[int]:
    return {node for f in envelope.faults if f.may("destroys") is not Tristate.NO for node in f.hit}


def _not_asking(setting: PartitionSettings, faults: Sequence[FaultRecord], change: str) -> str:
    """Returns the advice for a rule about unclean elections, where they are enabled, or somebody asked for one; empty:
    neither, so the last known leader came back with a destroyed copy."""
    asked = any(f.may("elects_unclean") is not Tristate.NO for f in faults)
    if not setting.unclean:
        return "not asking for an unclean election" if asked else ""
    return f"{change}, and not asking for an unclean election," if asked else change


def _of_internal_topics(faults: Sequence[FaultRecord]) -> str:
    """Returns the advice for a rule about what coordinators keep, which is certain only where one fault took it from
    every broker."""
    kinds = [f.nature for f in faults if f.nature is not None and f.effective is not Tristate.NO]
    if any(n.destroys and not n.loses_unflushed for n in kinds):
        return "a copy outside this cluster"
    if any(n.loses_unflushed for n in kinds):
        return "log.flush.interval.messages=1 on the brokers"
    return "not asking for an unclean election"


INTERNAL = (
    "transaction state lost",
    "transaction decision lost",
    "group state lost",
    "group lost by every broker",
    "share state lost",
)


def change_of(rule: Rule, setting: PartitionSettings, concerned: Concerned) -> str:
    """Returns what would have prevented what the rule permitted: of this case, where the rule's own words are for many."""
    faults = [f for envelope, _ in concerned for f in envelope.faults]
    if rule.when[0].startswith("wiped"):
        return what_would_have_kept(rule, setting, concerned)
    if rule.id.endswith("/unclean"):
        return _not_asking(setting, faults, rule.change) or what_would_have_kept(rule, setting, concerned)
    if set(rule.when) & set(INTERNAL):
        return _of_internal_topics(faults)
    return rule.change
