"""The clients of a watch, against librdkafka's mock cluster: what they send, read, and say of it."""

import pytest

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.schema import NONE, Outcome
from prozess.workloads.canary import VALUE_BYTES, Canary
from tests.support.mock_kafka import PRODUCE_API, mock_kafka

TOPIC, PARTITIONS = "prozess-watch-test", (0, 1)
NOT_ENOUGH_REPLICAS, TOPIC_AUTHORIZATION_FAILED = 19, 29
LIMIT_S = 30


class Taken:
    """Takes down what a canary says."""

    def __init__(self):
        self.sent, self.ended, self.given, self.lost, self.replaced = {}, {}, {n: [] for n in PARTITIONS}, [], []

    def invoked(self, partition, *, client, sequence, invoked_ns, size):
        assert size == VALUE_BYTES
        assert sequence not in self.sent
        self.sent[sequence] = (partition, client)

    def completed(self, partition, sequence, *, completed_ns, log_offset, outcome, error, code):
        assert self.sent[sequence][0] == partition
        assert sequence not in self.ended
        self.ended[sequence] = (outcome, log_offset, code)

    def read(self, partition, columns):
        assert set(columns["partition"].tolist()) == {partition}
        rows = zip(*(columns[name].tolist() for name in ("log_offset", "sequence", "span", "flags")), strict=True)
        self.given[partition] += rows

    def position_lost(self, partition, error):
        self.lost.append(partition)

    def producer_replaced(self, reason):
        self.replaced.append(reason)


@pytest.fixture
def kafka():
    with mock_kafka() as made:
        made.create(TOPIC, partitions=len(PARTITIONS))
        yield made


@pytest.fixture
def taken():
    return Taken()


@pytest.fixture
def canary(kafka, taken):
    made = Canary(kafka.bootstrap_servers, TOPIC, PARTITIONS, rate_hz=20, log=taken, clock=SystemClock())
    yield made
    made.close()


def turned_until(canary, holds, *, awaited):
    def turn():
        canary.turn(0.02)
        return holds()

    wait_until(turn, awaited=awaited, timeout_s=LIMIT_S, clock=SystemClock(), interval_s=0)


def test_every_partition_is_written_and_read_in_order_and_every_send_is_noted_before_it_ends(canary, taken):
    def acknowledged():
        return [ended for ended in taken.ended.values() if ended[0] is Outcome.OK]

    # A record may be read before its report is: then the machine stood still in between.
    turned_until(
        canary,
        lambda: all(len(rows) > 5 for rows in taken.given.values()) and len(acknowledged()) > 5,
        awaited="records and their acknowledgements",
    )
    for partition, rows in taken.given.items():
        assert [offset for offset, _, _, _ in rows] == list(range(len(rows)))
        sequences = [sequence for _, sequence, _, _ in rows]
        assert sequences == sorted(sequences)
        assert all(taken.sent[sequence] == (partition, 1) for sequence in sequences)
    assert all(offset >= 0 for _, offset, _ in acknowledged())


def test_what_a_broker_refuses_for_a_while_is_sent_again_and_is_there_once(kafka, canary, taken):
    kafka.refuse(PRODUCE_API, [NOT_ENOUGH_REPLICAS] * 3)
    turned_until(canary, lambda: len(taken.given[0]) > 8, awaited="records")
    sequences = [sequence for _, sequence, _, _ in taken.given[0]]
    assert len(sequences) == len(set(sequences))


def test_a_refusal_that_a_retry_may_have_preceded_is_in_doubt(kafka, canary, taken):
    turned_until(canary, lambda: taken.given[0], awaited="a record")
    kafka.refuse(PRODUCE_API, [TOPIC_AUTHORIZATION_FAILED])
    doubtful = (Outcome.INFO, NONE, TOPIC_AUTHORIZATION_FAILED)
    turned_until(canary, lambda: doubtful in taken.ended.values(), awaited="a refusal in doubt")


def test_a_reader_whose_position_is_gone_says_so_and_goes_on_where_it_is_sent(kafka, canary, taken):
    turned_until(canary, lambda: len(taken.given[0]) > 3, awaited="records")
    read = len(taken.given[0])
    canary.seek(0, 1_000_000)
    turned_until(canary, lambda: 0 in taken.lost, awaited="the lost position")
    canary.seek(0, 0)
    turned_until(canary, lambda: len(taken.given[0]) > read, awaited="records again")
    offset, _, span, _ = taken.given[0][read]
    assert (offset, span) == (0, 2)


def test_the_end_waits_for_the_last_acknowledgement_and_the_last_record(kafka, canary, taken):
    kafka.slow(300)
    turned_until(canary, lambda: len(taken.sent) > 4, awaited="sends")
    canary.finish(lambda: sum(map(len, taken.given.values())) == len(taken.sent))
    assert taken.ended.keys() == taken.sent.keys()
    assert sum(map(len, taken.given.values())) == len(taken.sent)


def test_a_producer_that_died_is_replaced_by_one_with_the_next_id_and_sequences_go_on(canary, taken):
    turned_until(canary, lambda: taken.given[0], awaited="a record")
    canary._producer.purge()
    canary._dead = "it was killed by the test"  # librdkafka's own test_fatal_error is not in the binding
    before = max(taken.sent)
    turned_until(canary, lambda: {client for _, client in taken.sent.values()} == {1, 2}, awaited="the new producer")
    assert taken.replaced == ["it was killed by the test"]
    assert min(sequence for sequence, (_, client) in taken.sent.items() if client == 2) > before
    turned_until(canary, lambda: any(taken.sent[row[1]][1] == 2 for row in taken.given[0]), awaited="its records")
