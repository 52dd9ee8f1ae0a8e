"""Defects of librdkafka that a release fixed and that touch what prozess checks: which versions have them. Pure.

From librdkafka's CHANGELOG up to 2.15.0. They are named to whoever runs an older version. None of them excuses anything by
itself: a verdict names a defect only where the history shows its signature (`prozess.harness.guarantees.table.rules`).
"""

from dataclasses import dataclass
from typing import Literal

from prozess.harness.config.configuration import GroupConfiguration, version_numbers

Touched = Literal["duplicates", "order", "commits", "positions", "sends", "standstill"]


@dataclass(frozen=True, slots=True)
class LibrdkafkaFix:
    """One defect that a release fixed."""

    id: str
    """Its issue, or the pull request that fixed it where there is no issue: "librdkafka#4844"."""
    fixed: str
    since: str
    """The first version that has it, as the CHANGELOG says; empty: it does not say."""
    touches: Touched
    """What goes wrong: records or positions twice, a partition with two owners, offsets that are committed, positions that
    are reset or resumed wrongly, sends that fail, or a client that gets no further."""
    what: str
    """What happens, as a clause without a full stop."""

    def is_in(self, version: str) -> bool:
        """Says whether a version has the defect. Where the CHANGELOG does not say since when, all older ones count."""
        numbers = version_numbers(version)
        return (not self.since or version_numbers(self.since) <= numbers) and numbers < version_numbers(self.fixed)


FIXES = (
    LibrdkafkaFix(
        "librdkafka#5488", "2.15.0", "2.12.0", "standstill",
        "with group.protocol=consumer, a member that exceeded max.poll.interval.ms may end by a fatal INVALID_REQUEST "
        "instead of joining again, and a heartbeat that is refused for good is repeated for ever",
    ),
    LibrdkafkaFix(
        "librdkafka#4844", "2.13.2", "2.2.0", "commits",
        "the batch API takes the end of a partition (enable.partition.eof), or an error, for a record: the position that is "
        "stored and committed by itself is one beyond what the application was given, and from it a member goes on after a "
        "cooperative rebalance",
    ),
    LibrdkafkaFix(
        "librdkafka#5199", "2.12.0", "2.4.0", "commits",
        "a commit that succeeded is answered with the error of an earlier one",
    ),
    LibrdkafkaFix(
        "librdkafka#5088", "2.10.1", "2.10.0", "standstill",
        "once no broker could be reached, the client asks its bootstrap brokers in a loop and never those that it learnt of",
    ),
    LibrdkafkaFix(
        "librdkafka#4059", "2.10.0", "1.6.0", "duplicates",
        "a commit during a cooperative rebalance may make the member lose its assignment, and records are processed again",
    ),
    LibrdkafkaFix(
        "librdkafka#4970", "2.10.0", "1.0.0", "standstill",
        "a request for metadata that waits for an unreachable broker keeps the client from learning of a new coordinator of "
        "its group or its transactions",
    ),
    LibrdkafkaFix(
        "librdkafka#4796", "2.8.0", "2.1.0", "standstill",
        "a partition is not moved to a leader without a leader epoch, as there is during an upgrade",
    ),
    LibrdkafkaFix(
        "librdkafka#4804", "2.8.0", "2.4.0", "standstill",
        "a partition is not moved to a leader with the same leader epoch",
    ),
    LibrdkafkaFix(
        "librdkafka#4783", "2.6.1", "1.6.0", "standstill",
        "the assignor cooperative-sticky may never end, for some orders of members and partitions",
    ),
    LibrdkafkaFix(
        "librdkafka#4616", "2.6.1", "", "standstill",
        "after an offset that is out of range on a follower, the reset asks that follower again and again",
    ),
    LibrdkafkaFix(
        "librdkafka#4736", "2.5.0", "2.2.0", "sends",
        "an idempotent producer cannot send a large batch again, because it does not make the same batch of it",
    ),
    LibrdkafkaFix(
        "librdkafka#4686", "2.4.0", "1.0.0", "duplicates",
        "a cooperative consumer may go on from an earlier position after its subscription changed, or after a resume without "
        "a pause",
    ),
    LibrdkafkaFix(
        "librdkafka#4687", "2.4.0", "2.1.0", "standstill",
        "a partition may be moved to an earlier leader by metadata that is out of date",
    ),
    LibrdkafkaFix(
        "librdkafka#4527", "2.4.0", "1.0.0", "standstill",
        "a cooperative consumer that is given an assignment while it closes may never end",
    ),
    LibrdkafkaFix(
        "librdkafka#4438", "2.3.0", "", "sends",
        "an idempotent producer may fail for good, by OUT_OF_ORDER_SEQUENCE_NUMBER, after a send whose outcome is not known",
    ),
    LibrdkafkaFix(
        "librdkafka#4442", "2.3.0", "", "commits",
        "a stored offset without a leader epoch is not committed",
    ),
    LibrdkafkaFix(
        "librdkafka#4434", "2.3.0", "", "commits",
        "a position behind the marker of a transaction is not stored, and so not committed, until a record follows",
    ),
    LibrdkafkaFix(
        "librdkafka#4447", "2.3.0", "", "positions",
        "an error that lasts, while an offset is validated after a change of the leader, resets the position by "
        "auto.offset.reset",
    ),
    LibrdkafkaFix(
        "librdkafka#4433", "2.3.0", "", "standstill",
        "a leader that changes while an offset is validated makes the consumer ask for the leader epoch for ever",
    ),
    LibrdkafkaFix(
        "librdkafka#4294", "2.2.0", "", "positions",
        "a connection with TLS that ends while an offset is validated resets the position by auto.offset.reset",
    ),
    LibrdkafkaFix(
        "librdkafka#4252", "2.2.0", "", "order",
        "the sticky assignor handles a partition wrongly that two members say they own",
    ),
    LibrdkafkaFix(
        "librdkafka#4261", "2.1.1", "2.1.0", "duplicates",
        "records are given again if they arrive while an offset is validated after a change of the leader",
    ),
    LibrdkafkaFix(
        "librdkafka#4208", "2.1.0", "", "positions",
        "the batch API skips records, and stores wrong offsets, where partitions are paused and resumed",
    ),
    LibrdkafkaFix(
        "librdkafka#4176", "2.1.0", "", "standstill",
        "polling any queue counts as polling for max.poll.interval.ms, so a member that stands still keeps its partitions",
    ),
)  # fmt: skip
"""Every such defect that a version from 2.0 on has, the last that was fixed first."""


def fixed_later(version: str) -> tuple[LibrdkafkaFix, ...]:
    """Returns the defects that this version of librdkafka has and that a later one fixed."""
    return tuple(fix for fix in FIXES if fix.is_in(version))


def later_fixes_note(version: str) -> str:
    """Returns these defects as a clause, with what they touch: "commits (librdkafka#4844), …". "" if there are none."""
    found: dict[str, list[str]] = {}
    for fix in fixed_later(version):
        found.setdefault(fix.touches, []).append(fix.id)
    return ", ".join(f"{touched} ({', '.join(ids)})" for touched, ids in sorted(found.items()))


ENDS = "enable.partition.eof"
"""The property that informs an application of the end of a partition."""
_TAKES_ENDS = next(fix for fix in FIXES if fix.id == "librdkafka#4844")


def takes_ends(group: GroupConfiguration) -> bool:
    """Does the batch API of the members' librdkafka take the end of a partition for a record? Then the position is one beyond
    it: it is stored, and a member goes on from there after a cooperative rebalance. The version that prozess runs with does
    not. [librdkafka#4844]"""
    version = group.client_version
    return group.client == "librdkafka" and version is not None and _TAKES_ENDS.is_in(str(version))


def stores_ends(group: GroupConfiguration) -> bool:
    """Does the library also commit by itself what it stored so?"""
    return takes_ends(group) and group.commit == "auto"


def wants_ends(group: GroupConfiguration) -> bool:
    """Does the trial itself ask for the ends of partitions? prozess does in any case, to know when all was read."""
    return group.properties.get(ENDS, "").lower() == "true"


def read_one_by_one(group: GroupConfiguration) -> bool:
    """Do members read one record at a time, so that ends which only prozess asks for do no harm?"""
    return takes_ends(group) and not wants_ends(group)
