"""Facts about groups and copiers: what they promise, and what their kernels found to explain a witness."""

from collections.abc import Mapping

import numpy as np

from harness.copy_cases import CopyCase
from harness.group_cases import GroupCase
from harness.guarantees.fact import Fact, possibly, yes_if
from harness.guarantees.logic import constant, truth
from harness.guarantees.reasons import coordinator_out


def of_case(meaning: str, *cases: GroupCase) -> Fact:
    """What the kernels of groups found to explain a witness."""
    wanted = [int(case) for case in cases]
    return Fact(
        meaning,
        of_witnesses=lambda _, witnesses: truth(np.isin(witnesses["case"], wanted)),
        could=lambda h: h.rebalanced,
    )


def of_copy(meaning: str, case: CopyCase) -> Fact:
    """What is wrong with a copy."""
    return Fact(
        meaning,
        of_witnesses=lambda _, witnesses: truth(witnesses["case"] == int(case)),
        could=lambda h: h.rebalanced,
    )


GROUP_FACTS: Mapping[str, Fact] = {
    "copies at most once": Fact(
        "the copiers commit before they produce, or promise no more", lambda c: yes_if(c.delivery == "at-most-once")
    ),
    "copies at least once": Fact(
        "the copiers commit after they have produced, or promise no more",
        lambda c: yes_if(c.delivery == "at-least-once"),
    ),
    "offsets outside the transaction": Fact(
        "the copiers commit their offsets after the transaction of the copies",
        lambda c: yes_if(c.delivery == "transaction-alone"),
    ),
    "no copy": of_copy("the record has no copy", CopyCase.MISSING),
    "a copy too many": of_copy("the record has a copy already", CopyCase.REPEATED),
    "a partition of the cell was elected unclean": Fact(
        "an unclean election of a partition of the cell, of either topic, whenever",
        of_witnesses=lambda envelope, witnesses: constant(int(envelope.cell_unclean), len(witnesses)),
        could=lambda h: possibly(h.cell_unclean),
    ),
    "commits first": Fact("the group commits before processing", lambda c: yes_if(c.commits_first)),
    "hands on": Fact("the group sends what failed to a retry topic", lambda c: yes_if(c.hands_on)),
    "hands on without waiting": Fact(
        "the group commits past what it sent to the retry topic without waiting for the acknowledgement",
        lambda c: yes_if(c.hands_on_unawaited),
    ),
    "left behind": of_case(
        "it was sent to the retry topic, and never acknowledged or seen there", GroupCase.LEFT_BEHIND
    ),
    "sent again": of_case(
        "it was sent to the retry topic again, since the first send was never acknowledged", GroupCase.SENT_AGAIN
    ),
    "resets to latest": Fact("auto.offset.reset=latest", lambda c: yes_if(c.resets_to_latest)),
    "member was gone": of_case(
        "the member that had the record died, gave the partition up or had lost it, in between",
        GroupCase.CRASHED,
        GroupCase.RELEASED,
        GroupCase.EVICTED,
    ),
    "commits of one alone": Fact(
        "of the two owners at most one had a commit accepted meanwhile",
        of_witnesses=lambda _, witnesses: truth(witnesses["case"] != GroupCase.BOTH_COMMITTED),
        could=lambda h: h.rebalanced,
    ),
    "coordinator out": Fact(
        "a broker was dead, frozen or cut off when the second owner began, or shortly before: the group's coordinator may "
        "have been deposed without knowing, and its members with it",
        of_witnesses=coordinator_out,
        could=lambda h: possibly(h.moved),
    ),
    "one instance id twice": of_case(
        "both owners have one group.instance.id, in the classic protocol", GroupCase.SAME_INSTANCE
    ),
    "position was sought": of_case("the member had sought to a position", GroupCase.SOUGHT),
    "position was reset": of_case("auto.offset.reset decided a position beyond it", GroupCase.RESET),
    "stands twice": of_case("the record stands in the log more than once", GroupCase.DUPLICATE),
    "within a session": of_case("the last owner died, and its session was not over", GroupCase.WITHIN_SESSION),
}
