"""The clients of a watch, against librdkafka's mock cluster: what they send, read, and say of it."""

import pytest

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.schema import NONE, Outcome
from prozess.workloads import canary as canary_module
from prozess.workloads.canary import VALUE_BYTES, Canary
from tests.support.mock_kafka import PRODUCE_API, end_by_fatal_error, mock_kafka

TOPIC, PARTITIONS = "prozess-watch-test", (0, 1)
NOT_ENOUGH_REPLICAS, TOPIC_AUTHORIZATION_FAILED, OUT_OF_ORDER_SEQUENCE_NUMBER = 19, 29, 45
FENCED_INSTANCE_ID = 82
LIMIT_S = 30


class Taken:
    """Takes down what a canary says."""

    def __init__(self):
        self.sent, self.ended, self.given, self.lost = {}, {}, {n: [] for n in PARTITIONS}, []
        self.replaced, self.commits, self.audits, self.complaints = [], [], [], []

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

    def client_replaced(self, client, reason):
        self.replaced.append((client, reason))

    def committed(self, took_ns, error, code):
        self.commits.append((took_ns, error, code))

    def audited(self, partition, columns, *, whole):
        self.audits.append((partition, columns["log_offset"].tolist(), columns["sequence"].tolist(), whole))

    def complained(self, error):
        self.complaints.append(error)


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
    made.close(timeout_s=5)


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


def test_a_canary_that_sends_no_more_takes_the_last_acknowledgement_and_the_last_record(kafka, canary, taken):
    kafka.slow(300)
    turned_until(canary, lambda: len(taken.sent) > 4, awaited="sends")
    canary.sending = False
    sent = len(taken.sent)
    turned_until(
        canary, lambda: len(taken.ended) == sum(map(len, taken.given.values())) == sent, awaited="the last records"
    )
    assert len(taken.sent) == sent


def test_a_producer_that_ends_by_a_fatal_error_is_reported_and_a_new_one_goes_on(kafka, canary, taken):
    """As after an unclean election: the new leader lacks what the producer's sequence continues."""
    turned_until(canary, lambda: taken.given[0], awaited="a record")
    kafka.refuse(PRODUCE_API, [OUT_OF_ORDER_SEQUENCE_NUMBER])
    turned_until(canary, lambda: taken.replaced, awaited="a new producer")
    before = max(taken.sent)
    ((client, reason),) = taken.replaced
    assert client == "producer"
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in reason
    assert all(sequence in taken.ended for sequence, (_, sender) in taken.sent.items() if sender == 1)
    turned_until(canary, lambda: taken.sent[max(taken.sent)][1] == 2, awaited="its sends")
    assert min(sequence for sequence, (_, client) in taken.sent.items() if client == 2) > before - 5
    turned_until(canary, lambda: any(taken.sent[row[1]][1] == 2 for row in taken.given[0]), awaited="its records")
    assert {outcome for outcome, _, _ in taken.ended.values()} <= set(Outcome)


def test_a_producer_that_ends_again_and_again_is_replaced_more_and_more_rarely(kafka, canary, taken):
    turned_until(canary, lambda: taken.given[0], awaited="a record")
    kafka.refuse(PRODUCE_API, [OUT_OF_ORDER_SEQUENCE_NUMBER] * 200)
    began_ns = SystemClock().monotonic_ns()
    turned_until(canary, lambda: SystemClock().monotonic_ns() - began_ns > 2e9, awaited="two seconds")
    assert 1 <= len(taken.replaced) <= 2
    failed = [ended for ended in taken.ended.values() if ended[0] is Outcome.FAIL]
    assert failed  # what is due meanwhile is noted, so that the silence is an outage
    kafka.accept(PRODUCE_API)


def test_a_partition_is_read_again_up_to_the_offset_that_was_asked_for(canary, taken):
    turned_until(canary, lambda: len(taken.given[0]) > 8, awaited="records")
    canary.audit(0, 2, 7)
    turned_until(canary, lambda: taken.audits, awaited="the audit")
    ((partition, offsets, sequences, whole),) = taken.audits
    assert (partition, whole, offsets[0]) == (0, True, 2)
    assert offsets[-1] >= 6
    assert list(zip(offsets, sequences, strict=True))[:5] == [row[:2] for row in taken.given[0][2:7]]
    canary.audit(1, 5, 5)
    assert taken.audits[1] == (1, [], [], True)


def test_commits_are_timed(canary, taken, monkeypatch):
    monkeypatch.setattr(canary_module, "COMMIT_EVERY_S", 0.2)
    turned_until(canary, lambda: len(taken.commits) > 1, awaited="commits")
    assert all(took_ns > 0 and (error, code) == ("", 0) for took_ns, error, code in taken.commits)


def test_a_reader_that_ends_is_reported_and_a_new_one_goes_on_behind_what_was_read(canary, taken):
    turned_until(canary, lambda: len(taken.given[0]) > 3, awaited="records")
    end_by_fatal_error(canary._consumer, FENCED_INSTANCE_ID, "another member has this instance")
    read = len(taken.given[0])
    turned_until(canary, lambda: taken.replaced and len(taken.given[0]) > read + 3, awaited="records again")
    ((client, reason),) = taken.replaced
    assert client == "reader"
    assert "another member has this instance" in reason
    assert [offset for offset, _, _, _ in taken.given[0]] == list(range(len(taken.given[0])))
