"""What the guarantee table is made of: effects, rules, guarantees; and how even committed data may be missing."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """What a rule makes of a witness."""

    PERMITTED = "permitted"
    NOT_APPLICABLE = "not applicable"
    DEFECT = "known defect"
    """Forbidden all the same: the documentation promises better. The defect is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the table."""

    id: str
    effect: Effect = Effect.PERMITTED
    when: tuple[str, ...]
    """Facts that must all hold."""
    label: str
    """The setting or event to blame, in two or three words: subject of "… lost 100 records"."""
    reason: str
    """Why, for a person."""
    change: str = ""
    """What would have prevented it."""
    found: tuple[str, str] | None = None
    did: tuple[str, str] | None = None
    """As of the guarantee, where the rule says more precisely what was found."""
    source: str
    defect: str = ""
    """Of a known defect: "KAFKA-nnnn, fixed in …"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """One anomaly: the promise that it does not happen, and its exceptions."""

    anomaly: str
    promise: str
    found: tuple[str, str]
    """What one witness, and what "{n}" witnesses are: "{n} acknowledged records are gone"."""
    did: tuple[str, str]
    """The same after a subject: "lost {n} acknowledged records"."""
    undone: str = "would have prevented it"
    """What the change of a rule would have done."""
    absence: bool = False
    """Its findings, not only their lack, need a complete audit: something is missing."""
    by_resending: bool = False
    """It comes of sending again: how many overlapped something that may have cost a reply is told."""
    nothing: str
    """What it means that nothing was judged."""
    nothing_is_unknown: bool = True
    """Was there nothing to judge: unknown; else the anomaly does not apply."""
    source: str
    """Of the promise."""
    rules: tuple[Rule, ...] = ()
    workloads: tuple[str, ...] = ()
    """The kinds of workload in whose cells it is judged; empty = all."""

    def applies(self, traits: Collection[str]) -> bool:
        """Is it judged in cells with these traits (`Cell.traits`)?"""
        return not self.workloads or not set(traits).isdisjoint(self.workloads)


_UNCLEAN = "an unclean election made a log without them the truth"
_UNCLEAN_CHANGE = "unclean.leader.election.enable=false"
_UNCLEAN_SOURCE = (
    "Kafka documentation, design, 'Unclean leader election: what if they all die?'; KIP-101 (logs are cut by epoch); seen: "
    "500 of 500, and 125 of 125 that the deposed leader, alive and not told, acknowledged and showed for 3.6 s more"
)
_WIPED = "every copy that could lead was destroyed"
_WIPED_CHANGE = "more copies in sync (min.insync.replicas), or flush.messages=1"
_WIPED_SOURCE = "KIP-966 (min ISR - 1 tolerance); ReplicationControlManager.handleBrokerShutdown; seen: 5000 of 5000"
HW_SOURCE = "Kafka documentation, design: 'Only committed messages are ever given out to the consumer'; KIP-392"


def hard(prefix: str, *, unclean: str, wiped: str) -> tuple[Rule, ...]:
    """The two ways in which even committed data may be missing. Destroyed copies first: when the last known leader returns
    with a destroyed one, that counts as an unclean election too."""
    return (
        Rule(
            id=f"{prefix}/wiped",
            when=(wiped,),
            label="destroyed copies",
            reason=_WIPED,
            change=_WIPED_CHANGE,
            source=_WIPED_SOURCE,
        ),
        Rule(
            id=f"{prefix}/unclean",
            when=(unclean,),
            label="unclean elections",
            reason=_UNCLEAN,
            change=_UNCLEAN_CHANGE,
            source=_UNCLEAN_SOURCE,
        ),
    )


def older_epoch_appended(prefix: str) -> Rule:
    """KAFKA-18991, of old brokers."""
    return Rule(
        id=f"{prefix}/KAFKA-18991",
        effect=Effect.DEFECT,
        when=("brokers to 3.9.0 or 4.0.0", "leader changed"),
        label="KAFKA-18991",
        reason="a follower may append records of an older leader epoch after the leader changed",
        source="KAFKA-18991, KAFKA-18723",
        defect="KAFKA-18991, fixed after 3.9.0 and 4.0.0",
    )
