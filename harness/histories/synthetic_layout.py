"""Which record of a generated history stands where, by formula: whose it is, in which transaction, and when it was sent."""

from dataclasses import dataclass

import numpy as np

BATCH = 16
STEP_NS = 1_000
"""Between two records of a partition."""
ABORTED_EVERY = 16
COMMIT_AFTER_NS = 21_000_000
"""A transaction's commit is invoked so long after its last record was sent."""
TRANSACTION_NS = 23_000_000
"""From the begin of a transaction to that of the next of the same producer, where each has few records."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Of one partition, `rank` of `partitions` in its cell: producers take turns by the batch, in every partition at the same
    positions. A transaction is a batch in each of them."""

    rank: int
    partitions: int
    producers: int

    @property
    def batch(self) -> int:
        """So many positions that follow one another are one producer's, and of one transaction."""
        return BATCH

    @property
    def step_ns(self) -> int:
        """Between two positions, on the average."""
        return STEP_NS

    @property
    def per_turn(self) -> int:
        """Transactions of each producer in a turn of all of them."""
        return 1

    @property
    def period(self) -> int:
        """In so many positions every producer has as many as every other."""
        return BATCH * self.producers

    def sent_ns(self, position: np.ndarray) -> np.ndarray:
        """When the record at each position was sent."""
        return np.asarray(position * STEP_NS)

    def turn(self, position: np.ndarray) -> np.ndarray:
        """How often every producer had had its turn before."""
        return np.asarray(position // BATCH // self.producers)

    def producer(self, position: np.ndarray) -> np.ndarray:
        """Number of the producer."""
        return np.asarray(position // BATCH % self.producers)

    def sequence(self, position: np.ndarray) -> np.ndarray:
        """Of the record among its producer's, over all partitions."""
        return np.asarray((self.turn(position) * BATCH + position % BATCH) * self.partitions + self.rank)

    def transaction(self, position: np.ndarray) -> np.ndarray:
        """Number of the transaction among its producer's."""
        return self.turn(position)

    def positions_of(self, producer: int, first: int, last: int) -> np.ndarray:
        """Positions of the records number first … last - 1 that a producer sent to this partition."""
        own = np.arange(first, last)
        return (own // BATCH * self.producers + producer) * BATCH + own % BATCH

    def begun_ns(self, producer: int, number: np.ndarray) -> np.ndarray:
        """When a producer began its transactions of these numbers."""
        return np.asarray((number * self.producers + producer) * BATCH * STEP_NS)


@dataclass(frozen=True, slots=True)
class Spread(Layout):
    """Transactions of `records` records, each in another partition, `producers` of them at a time, and other partitions
    together each time: position i of all partitions holds the records of partitions / records transactions, shared out to
    partitions that are turned by one from position to position."""

    records: int

    @property
    def batch(self) -> int:
        """As `Layout`."""
        return 1

    @property
    def step_ns(self) -> int:
        """As `Layout`."""
        return self.per_turn * TRANSACTION_NS

    @property
    def per_turn(self) -> int:
        """As `Layout`: a turn is one position of all partitions."""
        return self.partitions // self.records // self.producers

    @property
    def period(self) -> int:
        """As `Layout`."""
        return self.partitions

    def _slot(self, position: np.ndarray) -> np.ndarray:
        """Which of the transactions that share this position."""
        return np.asarray((position + self.rank) % self.partitions // self.records)

    def sent_ns(self, position: np.ndarray) -> np.ndarray:
        """As `Layout`."""
        return np.asarray(self.transaction(position) * TRANSACTION_NS)

    def turn(self, position: np.ndarray) -> np.ndarray:
        """As `Layout`."""
        return position

    def producer(self, position: np.ndarray) -> np.ndarray:
        """As `Layout`."""
        return self._slot(position) % self.producers

    def sequence(self, position: np.ndarray) -> np.ndarray:
        """As `Layout`."""
        within = (position + self.rank) % self.partitions % self.records
        return np.asarray(self.transaction(position) * self.records + within)

    def transaction(self, position: np.ndarray) -> np.ndarray:
        """As `Layout`."""
        return np.asarray(position * self.per_turn + self._slot(position) // self.producers)

    def positions_of(self, producer: int, first: int, last: int) -> np.ndarray:
        """As `Layout`."""
        mine = np.flatnonzero(self.producer(np.arange(self.period)) == producer)
        own = np.arange(first, last)
        return np.asarray(own // len(mine) * self.period + mine[own % len(mine)])

    def begun_ns(self, producer: int, number: np.ndarray) -> np.ndarray:
        """As `Layout`: all of them begin at the same times."""
        return np.asarray(number * TRANSACTION_NS)
