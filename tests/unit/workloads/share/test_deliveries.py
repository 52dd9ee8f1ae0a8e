"""The rows of a share group's member: written before, and completed by what it acknowledged and was answered."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.config.configuration import ShareConfiguration
from prozess.harness.recording.rows import read_rows
from prozess.harness.schema import DELIVERIES, MISSING, NONE, READS, Outcome
from prozess.workloads.record.identity import encoder
from prozess.workloads.share.deliveries import ACCEPT, RELEASE, DeliveryRows, Given
from prozess.workloads.share.member import commits_of, group_settings

CLIENT, GROUP, SENDER = 7, 3, 5
VALUE = encoder(sender=SENDER, value_bytes=100)


def records(*offsets, count=1):
    made = Given()
    for offset in offsets:
        made.add(0, offset, count, None, VALUE(0, offset))
    return made


def rows(tmp_path, table=DELIVERIES):
    return read_rows(tmp_path, table, CLIENT)[0]


def test_a_delivery_is_completed_by_its_acknowledgement_and_by_the_answer(tmp_path):
    written = DeliveryRows(tmp_path, CLIENT, GROUP)
    written.given(records(4, 5), absent_ns=10, acquired_ns=20)
    written.acknowledged([(0, 4), (0, 5)], [ACCEPT, RELEASE], 30)
    written.answered([(0, 4)], 0, 40)
    written.answered([(0, 5)], 121, 50)
    written.close()
    found = rows(tmp_path)
    assert found["acknowledgement"].tolist() == [ACCEPT, RELEASE]
    assert found["outcome"].tolist() == [Outcome.OK, Outcome.INFO]
    assert found["code"].tolist() == [0, 121]
    assert found["answered_ns"].tolist() == [40, 50]
    assert set(found["group"].tolist()) == {GROUP}
    reads = rows(tmp_path, READS)
    assert (reads["sender"].tolist(), reads["log_offset"].tolist()) == ([SENDER] * 2, [4, 5])


def test_a_record_that_comes_again_has_a_row_of_its_own_and_answers_are_the_newest_ones(tmp_path):
    written = DeliveryRows(tmp_path, CLIENT, GROUP)
    written.given(records(4), absent_ns=10, acquired_ns=20)
    written.given(records(4, count=2), absent_ns=60, acquired_ns=70)
    written.renewed({(0, 4): 75, (0, 9): 76})
    written.acknowledged([(0, 4)], [ACCEPT], 80)
    written.answered([(0, 4), (0, 9)], 0, 90)
    written.answered([(0, 4)], 0, 95)  # nothing is open any more
    written.close()
    found = rows(tmp_path)
    assert found["delivery_count"].tolist() == [1, 2]
    assert found["acknowledged_ns"].tolist() == [MISSING, 80]
    assert found["answered_ns"].tolist() == [MISSING, 90]
    assert found["renewed_ns"].tolist() == [MISSING, 75]
    assert found["acknowledgement"].tolist() == [NONE, ACCEPT]


class Batches:
    """What Kafka's client holds of a poll: an acknowledgement is of the first batch that has the record, and a commit takes
    what is acknowledged out of its batch. [ShareFetch, ShareInFlightBatch, 4.4.0]"""

    def __init__(self, batches):
        self.held = [dict.fromkeys(batch, False) for batch in batches]

    def acknowledge(self, record):
        next(batch for batch in self.held if record in batch)[record] = True

    def commit(self):
        self.held = [{record: done for record, done in batch.items() if not done} for batch in self.held]


@given(st.lists(st.sets(st.tuples(st.just(0), st.integers(0, 5))), max_size=4))
def test_every_copy_of_a_record_that_one_poll_gives_is_acknowledged(batches):
    copies = Counter(record for batch in batches for record in batch)
    client = Batches(batches)
    for part in commits_of(dict.fromkeys(copies, ACCEPT), copies):
        for record in part:
            client.acknowledge(record)
        client.commit()
    assert not any(client.held)


def test_acknowledging_each_record_of_a_poll_as_often_as_it_came_leaves_a_copy_without_a_commit_between():
    client = Batches([{(0, 4)}, {(0, 4), (0, 5)}])
    for record in [(0, 4), (0, 4), (0, 5)]:
        client.acknowledge(record)
    client.commit()
    assert client.held == [{}, {(0, 4): False}]
    assert list(commits_of({(0, 4): ACCEPT, (0, 5): RELEASE}, {(0, 4): 2, (0, 5): 1})) == [
        {(0, 4): ACCEPT, (0, 5): RELEASE},
        {(0, 4): ACCEPT},
    ]


@given(st.integers(2, 10), st.sampled_from(["4.2.2", "4.3.1", "4.4.0"]))
def test_a_group_has_a_limit_of_its_own_from_4_3_on(limit, version):
    settings = group_settings(ShareConfiguration(delivery_count_limit=limit), version)
    assert settings.get("share.delivery.count.limit") == (None if version < "4.3" else str(limit))
    assert settings["share.auto.offset.reset"] == "earliest"
