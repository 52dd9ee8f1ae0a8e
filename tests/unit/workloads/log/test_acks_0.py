"""How long a producer with acks=0 stays connected after its last record."""

from concurrent.futures import Future

from confluent_kafka.admin import ListOffsetsResultInfo
from hypothesis import given
from hypothesis import strategies as st

from prozess.workloads.log.producer import HANDLED_LIMIT_NS, HANDLED_QUIET_NS, until_handled
from prozess.workloads.log.reader import OffsetRequest

SENT = {0: 50, 7: 30}


class Kafka:
    """A client with a clock of its own, and partitions that grow with each look at them."""

    def __init__(self, ends, step_ns):
        self._ends, self._step_ns, self.now, self.looks = ends, step_ns, 0, 0

    def now_ns(self):
        return self.now

    def heartbeat(self, now_ns):
        assert now_ns == self.now

    def ask_latest(self):
        ends = self._ends[min(self.looks, len(self._ends) - 1)]
        self.looks += 1
        futures = {}
        for dense, offset in ends.items():
            futures[dense] = Future()
            futures[dense].set_result(answer(offset))
        return OffsetRequest(self, futures)

    def run(self):
        for wait_s in until_handled(self, SENT, self):
            self.now += round(wait_s * 1e9) + self._step_ns
        return self.looks


def answer(offset):
    told = ListOffsetsResultInfo.__new__(ListOffsetsResultInfo)
    told.offset, told.timestamp, told.leader_epoch = offset, -1, 0
    return told


def test_it_looks_once_if_the_partitions_hold_everything():
    assert Kafka([{0: 50, 7: 30}], 0).run() == 1


def test_it_stays_as_long_as_the_partitions_grow():
    growing = [{0: number, 7: 30} for number in range(51)]
    kafka = Kafka(growing, 0)
    assert kafka.run() == 51


def test_it_goes_once_the_partitions_have_not_grown_for_a_while():
    kafka = Kafka([{0: 50, 7: 29}], 0)
    kafka.run()
    assert HANDLED_QUIET_NS <= kafka.now < HANDLED_QUIET_NS + 10**8


def test_a_partition_of_which_nobody_answers_is_not_taken_for_full():
    assert Kafka([{0: 50}], 0).run() > 1


@given(st.lists(st.integers(0, 60), min_size=1, max_size=400), st.integers(0, 10**9))
def test_it_ends_within_its_limit_and_never_before_all_is_there_or_quiet(ends, step_ns):
    kafka = Kafka([{0: end, 7: 30} for end in ends], step_ns)
    looks = kafka.run()
    assert kafka.now < HANDLED_LIMIT_NS + step_ns + 10**8
    seen = ends[min(looks, len(ends)) - 1]
    assert seen >= 50 or kafka.now >= min(HANDLED_QUIET_NS, HANDLED_LIMIT_NS)
