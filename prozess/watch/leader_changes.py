"""Decides when the log of a partition is read again from its start: a new leader may lack records that the previous one had.
Pure.

A leader counts only if it answers in the highest known epoch, in two consecutive samples. A broker that hung while the others
elected another one still answers in its old epoch, and records that it lacks are not lost.
"""

from dataclasses import dataclass

from prozess.harness.clock import NS_PER_S
from prozess.harness.schema import NONE

HOLD_S = 6.0
"""For how long the window is not judged while the log under a new leader is still to be read."""
TRIES_MAX = 3
"""After so many audits that ended early the watch says that it cannot compare the log."""


@dataclass(frozen=True, slots=True)
class AuditOrder:
    """A log that is to be read from `start` up to `end`, which its leader reported when it was asked at `asked_ns`."""

    node: int
    leader_epoch: int
    start: int
    end: int
    asked_ns: int


class LeaderChanges:
    """Follows the leader epochs of one partition, and orders an audit after each change, or where one is asked for."""

    def __init__(self) -> None:
        self.epoch = NONE
        """The highest leader epoch that anybody named."""
        self._audited = NONE
        self._answered: tuple[int, int] | None = None
        self._failures = 0
        self._doubted = False
        self.under_way: AuditOrder | None = None
        self.count = 0
        """How many audits were whole."""

    def named(self, leader_epoch: int) -> None:
        """Notes a leader epoch that a broker or a record names."""
        self.epoch = max(self.epoch, leader_epoch)

    def answered(self, answer: AuditOrder, now_ns: int) -> AuditOrder | None:
        """Records the answer about its log of a broker that takes itself for the leader. Returns the audit that is to begin
        now.
        """
        self.named(answer.leader_epoch)
        if answer.leader_epoch < self.epoch or answer.leader_epoch < 0:
            return None
        if self._audited == NONE:  # the topic is new
            self._audited = answer.leader_epoch
        if self.under_way is not None or (answer.leader_epoch <= self._audited and not self._doubted):
            return None
        if self._answered is None or self._answered[0] != answer.leader_epoch:
            self._answered = (answer.leader_epoch, now_ns)
            return None
        self.under_way = answer
        return answer

    def doubt(self, now_ns: int) -> None:
        """Orders an audit without a new leader: the reader did not get a record that it should have got."""
        if not self._doubted:
            self._doubted = True
            self._answered = self._answered or (self.epoch, now_ns)

    def ended(self, *, whole: bool) -> bool:
        """Notes that the audit is over. Returns whether it is time to say that the log cannot be compared."""
        assert self.under_way is not None
        order, self.under_way = self.under_way, None
        if whole:
            self._audited, self._failures = max(self._audited, order.leader_epoch), 0
            self._answered, self._doubted = None, False
            self.count += 1
            return False
        self._failures += 1
        return self._failures == TRIES_MAX

    @property
    def open(self) -> bool:
        """Returns whether another leader answers, and its log was not read yet."""
        return self._answered is not None

    def holds(self, now_ns: int) -> bool:
        """Returns whether the window must wait: the log under the new leader is compared first."""
        return self._answered is not None and now_ns - self._answered[1] < HOLD_S * NS_PER_S
