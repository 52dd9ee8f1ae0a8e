"""What a group member commits: in the way, and at the moment, that its configuration says."""

from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from prozess.workloads.client import Client
from prozess.workloads.log.reader import ReadRows
from prozess.workloads.record.members import ASYNC, SYNC, CommitRows, by_partition

_UNANSWERED = KafkaError(KafkaError._TIMED_OUT)


class MemberCommits:
    """The commits of one member. `on_error` is called with the error of a refused synchronous commit."""

    def __init__(
        self, client: Client, reads: ReadRows, *, how: str, group: int, on_error: Callable[[KafkaError], None]
    ) -> None:
        spec = client.spec
        self._client, self._reads, self._on_error = client, reads, on_error
        self._how = how
        self._names = {dense: (topic, number) for dense, topic, number in spec.partitions}
        self._dense = {name: dense for dense, name in self._names.items()}
        self._uncommitted: dict[int, int] = {}
        """The next offset by partition, of records that are processed and not yet committed by us."""
        self.rows = CommitRows(client.rows, spec.client, group, client.now_ns)
        self.owing: dict[int, int] = {}
        """The next offset by partition, of processed records whose commit was refused. It is tried again while the
        partition is owned."""

    def delivered(self, consumer: Consumer, offsets: Mapping[int, int], *, asked_ns: int) -> None:
        """Commits, or lets librdkafka commit, what was given and is not processed yet. `asked_ns`: before the records
        were asked for."""
        if self._how == "sync-before":
            self.now(consumer, offsets)
        if self._how in ("auto", "auto-stored"):
            self.rows.may_commit(offsets, since_ns=asked_ns)

    def processed_up_to(self, consumer: Consumer, offsets: Mapping[int, int]) -> None:
        """Commits what was processed, now or later, as the configuration says."""
        match self._how:
            case "sync-after":
                self.with_owing(consumer, offsets)
            case "async-after":
                self._soon(consumer, offsets)
            case "auto-stored":
                self._store(consumer, offsets)
            case "on-revoke":
                self._uncommitted |= offsets

    def now(self, consumer: Consumer, offsets: Mapping[int, int]) -> bool:
        """Commits synchronously. Returns whether all of it was accepted; librdkafka gives up waiting for a coordinator
        after the session timeout. Was all of it accepted?"""
        if not offsets:
            return True
        positions = self._reads.next_offset
        rows = self.rows.begin(offsets, positions, mode=SYNC)
        errors: dict[int, KafkaError | None] = {}
        try:
            answers = consumer.commit(offsets=self.named(offsets), asynchronous=False) or []
            errors = {dense: answer.error for dense, answer in by_partition(answers, self._dense).items()}
        except KafkaException as error:
            errors = dict.fromkeys(offsets, error.args[0])
            self._on_error(error.args[0])
        self.rows.complete(rows, offsets, positions, errors)
        return all(errors.get(dense, _UNANSWERED) is None for dense in offsets)

    def with_owing(self, consumer: Consumer, offsets: Mapping[int, int]) -> None:
        """Commits these offsets and those that are owed. A rebalance also refuses commits of members that keep their
        partitions."""
        self.owing |= offsets
        if self.now(consumer, self.owing):
            self.owing = {}
            return
        # A partition that the topic has no more, because it was made again with fewer, makes the whole call fail. What was
        # processed now is committed by itself, and does not stay owing because of it.
        if offsets and offsets.keys() < self.owing.keys() and self.now(consumer, offsets):
            self.owing = {dense: offset for dense, offset in self.owing.items() if dense not in offsets}

    def revoked(self, consumer: Consumer, partitions: Sequence[int]) -> None:
        """Commits what was processed of these partitions and not committed yet, before they are given up."""
        processed = self._uncommitted if self._how == "on-revoke" else self.owing
        self.now(consumer, {dense: processed[dense] for dense in partitions if dense in processed})

    def forget(self, partitions: Sequence[int]) -> None:
        """Forgets partitions that were taken away."""
        for dense in partitions:
            self._uncommitted.pop(dense, None)
            self.owing.pop(dense, None)

    def answered(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """Takes the result of asynchronous and automatic commits. librdkafka calls it."""
        for dense, partition in by_partition(partitions or (), self._dense).items():
            if partition.offset >= 0:
                self._answer_one(dense, partition.offset, error or partition.error)

    def named(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        """Returns these offsets under the names of Kafka's topics and partitions."""
        return [TopicPartition(*self._names[dense], offset) for dense, offset in offsets.items()]

    def _soon(self, consumer: Consumer, offsets: Mapping[int, int]) -> None:
        self.rows.begin(offsets, self._reads.next_offset, mode=ASYNC)
        try:
            consumer.commit(offsets=self.named(offsets), asynchronous=True)
        except KafkaException as error:
            for dense, offset in offsets.items():
                self._answer_one(dense, offset, error.args[0])

    def _store(self, consumer: Consumer, offsets: Mapping[int, int]) -> None:
        try:
            consumer.store_offsets(offsets=self.named(offsets))
        except KafkaException as error:  # a partition was lost meanwhile: then nothing of it is stored
            self._client.log(f"storing offsets failed: {error.args[0].str()}")

    def _answer_one(self, dense: int, offset: int, error: KafkaError | None) -> None:
        position, auto = int(self._reads.next_offset[dense]), self._how in ("auto", "auto-stored")
        self.rows.answered(dense, offset, error, position=position, auto=auto, within_call=True)

    def settle(self) -> None:
        """Completes the automatic commits that were answered within a call of the consumer's that has returned."""
        self.rows.settle(self._reads.next_offset)
