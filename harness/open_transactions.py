"""Transactions as leaders of partitions and as coordinators see them (KIP-664). Values only."""

from dataclasses import dataclass

from harness.configuration import Frozen


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in one partition, as its leader says."""

    start_offset: int
    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int
    """Of its producer's last batch; wall clock."""
    coordinator_epoch: int
    """Of the coordinator that wrote the producer's last marker; -1 = none yet."""


@dataclass(frozen=True, slots=True)
class CoordinatedTransaction:
    """What a coordinator knows of one transactional.id."""

    transactional_id: str
    producer_id: int
    state: str
    """Of Kafka's TransactionState: "Empty", "Ongoing", "PrepareAbort", …"""

    @property
    def over(self) -> bool:
        """Nothing of it is open in any partition, as far as the coordinator knows: what it had decided is written."""
        return self.state in ("Empty", "CompleteCommit", "CompleteAbort")


class HangingTransaction(Frozen):
    """One that was found, as `hanging.json` of a run has it."""

    partition: int
    """Dense id, of the plan."""
    topic: str
    number: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    ended: bool
    """An abort marker was written for it."""
    why_not: str = ""

    @property
    def text(self) -> str:
        """For a person."""
        what = f"{self.topic}-{self.number}: open since offset {self.start_offset}, of producer id {self.producer_id}"
        return f"{what}: " + ("ended by an abort marker" if self.ended else self.why_not)
