"""Transactions that hang: what is asked of leaders and coordinators, byte by byte, and which of them are ended, and which are
never touched."""

import struct
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.app.run.hanging_transactions import LIMIT_S, NOT_EXCUSED, end_hanging, state_was_destroyed
from prozess.clusters.protocol.client import Cursor, compact_string
from prozess.clusters.protocol.requests import abort_marker_request
from prozess.harness.clock import NS_PER_S
from prozess.harness.errors import ClusterFailed, HistoryUnreadable
from prozess.harness.interfaces.cluster import CoordinatedTransaction, OpenTransaction
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.report.tables import hanging_lines, read_hanging
from prozess.harness.run_directory import RunDirectory, read_json, write_json
from tests.support.clock import FakeClock
from tests.unit.clusters.protocol.test_admin import METADATA, SILENT, administer, metadata

__all__ = ["administer"]  # the fixture

MARKERS, PRODUCERS, LIST = 27, 61, 66
HANGING = OpenTransaction(160, 2000, 3, 1005, 7)
T = ("t", 0)


# --- what is asked


def test_an_abort_marker_is_asked_for_with_the_epochs_that_the_leader_told():
    request = abort_marker_request(("t", 5), HANGING)
    one = struct.pack(">qhb", 2000, 3, 0) + b"\x02" + b"\x02t" + b"\x02\0\0\0\x05" + b"\0" + b"\0\0\0\x07" + b"\0"
    assert (request.api_key, request.version, request.body) == (27, 1, b"\x02" + one + b"\0")


def test_a_producer_that_was_never_given_a_marker_is_given_one_of_epoch_0():
    request = abort_marker_request(("t", 5), OpenTransaction(0, 1, 0, 0, -1))
    assert request.body.endswith(b"\0" + b"\0\0\0\0" + b"\0\0")


def marked(error: int) -> bytes:
    """WriteTxnMarkers v1 of t-0."""
    partition = struct.pack(">ih", 0, error) + b"\0"
    topic = b"\x02" + compact_string("t") + b"\x02" + partition + b"\0"
    return b"\x02" + struct.pack(">q", 2000) + topic + b"\0" + b"\0"


def test_the_answer_tells_the_error_of_each_partition():
    assert abort_marker_request(T, HANGING).decode(Cursor(marked(31))) == {T: 31}


def described(*starts: int) -> bytes:
    """DescribeProducers v0 of t-0, with the response header's tags in front."""
    producers = [struct.pack(">qiiqiq", 2000 + n, 3, 9, 1005, 7, start) + b"\0" for n, start in enumerate(starts)]
    partition = struct.pack(">ih", 0, 0) + b"\0" + bytes([len(starts) + 1]) + b"".join(producers) + b"\0"
    return b"\0" + bytes(4) + b"\x02" + compact_string("t") + b"\x02" + partition + b"\0\0"


def coordinated(*told: tuple[str, int, str]) -> bytes:
    """ListTransactions v0, with the response header's tags in front."""
    rows = [
        compact_string(name) + struct.pack(">q", number) + compact_string(state) + b"\0" for name, number, state in told
    ]
    return b"\0" + bytes(4) + b"\0\0" + b"\x01" + bytes([len(rows) + 1]) + b"".join(rows) + b"\0"


def test_open_transactions_are_asked_of_the_leader_alone(administer):
    follower = {METADATA: metadata(leader=2)}
    admin, servers = administer([follower, {METADATA: metadata(leader=2), PRODUCERS: described(160, -1)}])
    assert admin.open_transactions([T, ("absent", 0)]) == {T: (HANGING,)}
    assert PRODUCERS not in servers[1].requests


def test_a_partition_whose_leader_is_silent_is_not_told_of(administer):
    admin, _ = administer([{METADATA: metadata(leader=1)}])
    assert admin.open_transactions([T], timeout_s=0.3) == {}


def test_what_all_coordinators_know_is_put_together_and_is_nothing_if_one_is_silent_or_loading(administer):
    first, second = {LIST: coordinated(("a", 1, "Empty"))}, {LIST: coordinated(("b", 2, "Ongoing"))}
    admin, _ = administer([first, second])
    told = admin.coordinated_transactions()
    assert [(t.transactional_id, t.producer_id, t.over) for t in told] == [("a", 1, True), ("b", 2, False)]
    loading = {LIST: b"\0" + bytes(4) + b"\0\x0e" + b"\x01\x01\0"}
    for third in (SILENT, loading):
        admin, _ = administer([first, second, third])
        assert admin.coordinated_transactions(timeout_s=0.3) is None


def test_a_marker_is_written_by_the_leader_and_a_refusal_is_told_by_name(administer):
    written = administer([{METADATA: metadata(leader=1), MARKERS: b"\0" + marked(0)}])[0]
    assert written.abort_transaction(T, HANGING) == ""
    refused = administer([{METADATA: metadata(leader=1), MARKERS: b"\0" + marked(31)}])[0]
    assert "broker 1 refused" in (why := refused.abort_transaction(T, HANGING))
    assert "CLUSTER_AUTHORIZATION_FAILED" in why
    silent = administer([{METADATA: metadata(leader=1)}])[0]
    assert "did not answer" in silent.abort_transaction(T, HANGING, timeout_s=0.3)
    nobody = administer([{METADATA: metadata(leader=-1)}])[0]
    assert "no broker says who leads" in nobody.abort_transaction(T, HANGING, timeout_s=0.3)


# --- what is ended


def trial(fault="power-loss", targets=("brokers",), **variant):
    return {
        "name": "hanging",
        "title": "",
        "variant": {"properties": variant},
        "steps": [
            {"name": "dark", "do": {"kind": "fault", "fault": fault, "targets": list(targets)}},
            {"name": "light", "do": {"kind": "heal"}},
        ],
        "workloads": [
            {
                "kind": "transactions",
                "topics": {"partitions": 1},
                "base": {"topic.replication_factor": 3, "transaction.transactional_ids": 1},
            }
        ],
    }


@dataclass
class Kafka:
    """Partitions with open transactions, and what coordinators say of them, look by look; the last is stated for good."""

    says: list[list[CoordinatedTransaction] | None]
    open: dict[tuple[str, int], list[OpenTransaction]]
    refuses: str = ""
    aborted: list[OpenTransaction] = field(default_factory=list)
    said: list[list[CoordinatedTransaction] | None] = field(default_factory=list)

    def open_transactions(self, partitions, **_):
        return {key: tuple(self.open.get(key, ())) for key in partitions}

    def coordinated_transactions(self, **_):
        self.said.append(self.says[min(len(self.said), len(self.says) - 1)])
        return self.said[-1]

    def abort_transaction(self, partition, transaction, **_):
        if not self.refuses:
            self.open[partition].remove(transaction)
            self.aborted.append(transaction)
        return self.refuses


class Bench:
    def __init__(self, path, *, made=None, hit=("broker-1", "broker-2", "broker-3"), settings=None):
        self.run, self.clock, self.told = RunDirectory(path), FakeClock(), []
        self.run.create()
        self.plan = make_plan(parse_trial(made or trial(), source="the test"), seed=1)
        write_json(self.run.resolved, [{"step_number": 0, "role": "brokers", "nodes": list(hit)}])
        write_json(self.run.cluster, {"settings": settings or {}})
        self.cluster = SimpleNamespace(
            nodes=[SimpleNamespace(name=f"broker-{n}", roles=frozenset({"broker"})) for n in (1, 2, 3)]
        )
        (self.id,) = {c.transactional_id for c in self.plan.clients if c.transactional_id}
        planned = self.plan.partitions[0]
        self.key = (planned.topic_name, planned.number)

    def end(self, kafka, unfenced=()):
        return end_hanging(
            self.plan, self.run, self.cluster, kafka, self.clock,
            unfenced=dict.fromkeys(unfenced, "why"), emit=lambda event, **more: self.told.append((event, more)),
        )  # fmt: skip

    def kafka(self, *states, producer=2000, **more):
        """One open transaction; its transactional.id, as the coordinators say, is in each of these states in turn."""
        says = [[CoordinatedTransaction(self.id, producer, state)] if state else None for state in states]
        return Kafka(says, {self.key: [HANGING]}, **more)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_a_transaction_that_no_coordinator_has_any_more_is_ended_and_noted(bench):
    kafka = bench.kafka("Empty", producer=4000)
    (found,) = bench.end(kafka)
    assert kafka.aborted == [HANGING]
    assert (found.partition, found.start_offset, found.producer_id, found.ended) == (0, 160, 2000, True)
    text = f"{bench.key[0]}-0: open since offset 160, of producer id 2000: ended by an abort marker"
    assert bench.told == [("hanging-transactions", {"found": [text]})]
    assert read_json(bench.run.hanging)[0]["producer_epoch"] == 3
    assert bench.clock.now_ns < 3 * NS_PER_S, "it takes a moment"


def test_a_producer_whose_transaction_is_over_for_its_coordinator_hangs_as_well(bench):
    kafka = bench.kafka("CompleteAbort")
    assert bench.end(kafka)[0].ended


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"])
def test_a_transaction_that_its_coordinator_has_is_never_touched(bench, state):
    kafka = bench.kafka(state)
    (found,) = bench.end(kafka)
    assert (kafka.aborted, found.ended) == ([], False)
    assert found.why_not == f"its coordinator knows it: {bench.id} is {state}"
    assert bench.clock.now_ns <= (LIMIT_S + 1) * NS_PER_S


@pytest.mark.parametrize(
    "says",
    [None, [], [CoordinatedTransaction("another", 1, "Empty")]],
    ids=["one is silent", "they know nothing", "another's only"],
)
def test_coordinators_that_do_not_tell_what_was_fenced_a_moment_ago_do_not_tell_all(bench, says):
    kafka = Kafka([says], {bench.key: [HANGING]})
    (found,) = bench.end(kafka)
    assert kafka.aborted == []
    assert "not every broker stated which transactions it coordinates" in found.why_not


def test_where_no_id_could_be_fenced_nothing_proves_that_the_coordinators_tell_all(bench):
    kafka = bench.kafka("Empty", producer=4000)
    assert not bench.end(kafka, unfenced=[bench.id])[0].ended


def test_what_hangs_in_one_look_only_is_not_ended(bench):
    kafka = bench.kafka("Empty", "Ongoing")
    bench.end(kafka)
    assert kafka.aborted == []


def test_what_was_told_late_is_ended_all_the_same(bench):
    kafka = bench.kafka(None, "PrepareAbort", "Empty")
    assert bench.end(kafka)[0].ended


def test_a_leader_that_refuses_is_named_and_nothing_is_said_to_be_ended(bench):
    (found,) = bench.end(bench.kafka("Empty", refuses="broker 1 refused"))
    assert (found.ended, found.why_not) == (False, "broker 1 refused")


def test_a_broker_that_answers_nonsense_ends_nothing_and_stops_nothing(bench):
    kafka = bench.kafka("Empty")

    def nonsense(**_):
        raise ClusterFailed("broker 1 does not speak Kafka's protocol")

    kafka.coordinated_transactions = nonsense
    (found,) = bench.end(kafka)
    assert (found.ended, found.why_not) == (False, "broker 1 does not speak Kafka's protocol")


def test_where_nothing_is_open_nothing_is_asked_of_coordinators_and_nothing_waited_for(bench):
    kafka = Kafka([None], {})
    assert (list(bench.end(kafka)), kafka.said, bench.told, bench.clock.now_ns) == ([], [], [], 0)
    assert read_json(bench.run.hanging) == []


@given(st.lists(st.sampled_from([None, "Empty", "CompleteAbort", "Ongoing", "PrepareAbort"]), min_size=1, max_size=8))
def test_whatever_is_said_it_is_ended_only_after_two_looks_in_a_row_in_which_nobody_had_it(tmp_path_factory, states):
    bench = Bench(tmp_path_factory.mktemp("run"))
    kafka = bench.kafka(*states)
    bench.end(kafka)
    free = [bool(said) and said[0].over for said in kafka.said]
    assert bool(kafka.aborted) == any(free[n] and free[n + 1] for n in range(len(free) - 1))


# --- what is left to be seen


@pytest.mark.parametrize(
    "case",
    [
        {"hit": ("broker-1", "broker-2")},
        {"made": trial("kill")},
        {"settings": {"log.flush.interval.messages": "1"}},
    ],
    ids=["two of three", "nothing is lost by a kill", "every record was synced"],
)
def test_a_transaction_that_hangs_without_excuse_is_left_for_stalled_to_show(tmp_path, case):
    bench = Bench(tmp_path, **case)
    kafka = bench.kafka("Empty")
    (found,) = bench.end(kafka)
    assert (kafka.aborted, found.ended, found.why_not) == ([], False, NOT_EXCUSED)
    assert bench.clock.now_ns < 3 * NS_PER_S, "nobody waits for what will not come"


def test_only_what_took_everything_from_every_broker_excuses(tmp_path):
    bench = Bench(tmp_path / "power")
    assert state_was_destroyed(bench.plan, bench.run, bench.cluster)
    bench = Bench(tmp_path / "wipe", made=trial("wipe"), settings={"log.flush.interval.messages": "1"})
    assert state_was_destroyed(bench.plan, bench.run, bench.cluster)
    write_json(bench.run.resolved, [])
    assert not state_was_destroyed(bench.plan, bench.run, bench.cluster), "it was planned and never struck"


# --- what is reported


def test_the_report_says_which_transaction_was_ended_and_of_nothing_says_nothing(bench):
    assert hanging_lines(read_hanging(bench.run)) == [], "nobody looked"
    bench.end(bench.kafka("Empty"))
    lines = hanging_lines(read_hanging(bench.run))
    assert lines[1] == "## Hanging transactions"
    assert lines[-1] == f"- {bench.key[0]}-0: open since offset 160, of producer id 2000: ended by an abort marker"
    write_json(bench.run.hanging, [{"partition": "x"}])
    with pytest.raises(HistoryUnreadable, match="does not hold a list of transactions"):
        read_hanging(bench.run)
