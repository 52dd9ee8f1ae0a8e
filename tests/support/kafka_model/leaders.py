"""The part of the model of Kafka that knows who leads and who is in sync, and what brokers answer when they are asked."""

import random

from tests.support.cells.partitions import sample_row, state_row, watermark_row

MIN_INSYNC = 2
FIRST_EPOCH = 5


class Leaders:
    """Of one partition with replicas 1, 2 and 3. A broker's view may be old, but never goes back."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.leader, self.epoch, self.isr = 1, FIRST_EPOCH, {1, 2, 3}
        self.known = dict.fromkeys((1, 2, 3), FIRST_EPOCH)
        """The epoch that each broker has heard of."""
        self.metadata: list[dict[str, int]] = []
        self.observations: list[dict[str, int]] = []
        self._state(-1)

    def elect(self, time_ns: int) -> None:
        """Another of the ISR leads, in a new epoch; the old leader is out. The last one of an ISR stays, in a new epoch."""
        if len(self.isr) > 1:
            self.isr -= {self.leader}
            self.leader = self.rng.choice(sorted(self.isr))
        self.epoch += 1
        self._state(time_ns)

    def shrink(self, time_ns: int) -> None:
        """A follower is out."""
        followers = sorted(self.isr - {self.leader})
        if followers:
            self.isr -= {self.rng.choice(followers)}
            self._state(time_ns)

    def whole(self, time_ns: int) -> None:
        """Everybody is in."""
        self.isr = {1, 2, 3}
        self._state(time_ns)

    def ask(self, node: int, time_ns: int, watermark: int) -> None:
        """Its view of the partition, and the high watermark if it is the leader and knows it."""
        if node == self.leader or self.rng.random() < 0.5:
            self.known[node] = self.epoch
        self.metadata.append(sample_row(time_ns, node=node, epoch=self.known[node]))
        if node == self.leader:
            self.observations.append(watermark_row(time_ns, node=node, epoch=self.epoch, value=watermark))

    def _state(self, time_ns: int) -> None:
        self.metadata.append(state_row(time_ns, leader=self.leader, epoch=self.epoch, isr=self.isr))
