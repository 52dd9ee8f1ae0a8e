"""Where members begin and what they do with a record that fails: on real members and a mock Kafka; and the retries alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.schema import MISSING, NONE, ObservationKind
from prozess.workloads.group.retries import Retries, chosen_records, joined_records, next_offsets
from tests.processes.workloads.group.test_member import carry_out, group_plan, members, processed
from tests.support.log_workload import LIMIT_S, RESUME, bench, on_client

ASSIGNED, SOUGHT, RESET, PAUSED, RESUMED = 1, 2, 3, 4, 5
S = 1_000_000_000


def records(*of: tuple[int, int]) -> dict[str, np.ndarray]:
    """(partition, offset) of records of sender 1, whose sequence is 100 * partition + offset."""
    partition = np.array([p for p, _ in of], dtype=np.int32)
    offset = np.array([o for _, o in of], dtype=np.int64)
    return {
        "partition": partition,
        "log_offset": offset,
        "sequence": 100 * partition.astype(np.int64) + offset,
        "sender": np.ones(len(of), dtype=np.int32),
    }


def pairs(columns) -> list[tuple[int, int]]:
    return list(zip(columns["partition"].tolist(), columns["log_offset"].tolist(), strict=True))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=6), max_size=12),
    st.floats(0, 0.9),
)
def test_every_record_is_processed_once_and_in_the_order_of_its_partition(batches, share):
    """Batches as a consumer gives them: (partition, how many of it) several times over."""
    retries, now_ns = Retries(share=share, after_ms=1000), 0
    following, seen, given_ = {0: 0, 1: 0, 2: 0}, [], []

    def work(columns):
        taken, failed, paused = retries.take(columns, now_ns)
        assert set(paused) == set(failed["partition"].tolist()) <= retries.held.keys()
        seen.extend(pairs(taken))

    for batch in batches:
        now_ns += S // 3
        for columns in retries.due(now_ns).values():
            work(columns)
        of = []
        for partition, count in batch:
            of += [(partition, following[partition] + i) for i in range(count)]
            following[partition] += count
        given_ += of
        work(records(*of))
    while retries.held:
        now_ns += 2 * S
        for columns in retries.due(now_ns).values():
            work(columns)
    for partition in (0, 1, 2):
        assert [o for p, o in seen if p == partition] == [o for p, o in given_ if p == partition]


def test_nothing_is_tried_again_before_its_time_and_nothing_of_a_partition_that_was_taken_away():
    retries = Retries(share=0.999999, after_ms=1000)
    taken, failed, paused = retries.take(records((0, 0), (1, 0), (0, 1)), 0)
    assert (pairs(taken), pairs(failed), paused) == ([], [(0, 0), (1, 0)], [0, 1])
    assert retries.due(S - 1) == {}
    retries.forget([1])
    (columns,) = retries.due(S).values()
    assert pairs(columns) == [(0, 0), (0, 1)]


def test_a_share_of_none_holds_nothing_back_and_offsets_are_those_after_the_last():
    columns = records((0, 7), (1, 3), (0, 8))
    taken, failed, paused = Retries(share=0, after_ms=1).take(columns, 0)
    assert (pairs(taken), pairs(failed), paused) == (pairs(columns), [], [])
    assert next_offsets(columns) == {0: 9, 1: 4}
    assert next_offsets(chosen_records(columns, np.zeros(3, dtype=bool))) == {}
    assert pairs(joined_records(columns, records((2, 0)))) == [*pairs(columns), (2, 0)]


# --- with real members ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", ["sync-after", "auto-stored", "on-revoke"])
def test_a_record_that_fails_holds_up_its_partition_and_is_processed_later_in_order(tmp_path, commit):
    plan = group_plan(commit=commit, members=1, failure_share=0.3, retry_after_ms=50, auto_commit_interval_ms=200)
    with bench(plan, tmp_path) as b:
        carry_out(b)
        (member,) = members(b)
        rows, sent = processed(b, [member]), b.rows("sends", b.producer)
        done = rows[rows["done_ns"] != MISSING]
        assert len(done) == len(sent)
        for partition in (0, 1):
            assert (np.diff(done["log_offset"][done["partition"] == partition]) == 1).all()
        failed = rows[rows["done_ns"] == MISSING]
        assert len(failed)
        positions = b.rows("positions", member)
        pauses = positions[positions["event"] == PAUSED]
        assert sorted(zip(pauses["partition"], pauses["log_offset"], strict=True)) == sorted(
            zip(failed["partition"], failed["log_offset"], strict=True)
        )
        assert np.count_nonzero(positions["event"] == RESUMED) >= 1
        (observer,) = [c.client for c in b.plan.clients if c.role == "observer"]
        assert b.rows("observations", observer)["value"].sum() == len(sent)


@pytest.mark.parametrize("protocol", ["classic-eager", "classic-cooperative", "consumer"])
def test_who_is_told_that_there_is_no_position_goes_to_the_start_by_itself(tmp_path, protocol):
    with bench(group_plan(members=1, protocol=protocol, auto_offset_reset="error"), tmp_path) as b:
        carry_out(b)
        (member,) = members(b)
        assert len(processed(b, [member])) == len(b.rows("sends", b.producer))
        positions = b.rows("positions", member)
        assert set(positions["partition"][positions["event"] == SOUGHT].tolist()) == {0, 1}


@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_a_position_whose_records_were_deleted_is_reset_and_that_is_recorded(tmp_path, reset):
    with bench(group_plan(members=1, partitions=1, auto_offset_reset=reset), tmp_path) as b:
        (member,) = members(b)
        b.workload.command(RESUME)
        b.until(lambda: len(b.rows("commits", member)) > 0, "a commit")
        b.workload.command(on_client("stop", "member(0,0)"))
        before = b.total("ok")
        b.until(lambda: b.total("ok") >= before + 100, "records that nobody reads")
        b.kafka.delete_records(b.plan.cells[0].topic_name, 0, before=before + 50)
        b.workload.command(on_client("start", "member(0,0)"))
        (place,) = [node for node in b.workload.nodes() if node.client_role == "member"]
        b.until(lambda: len(b.rows("processed", place.client)) > 0, "the member to go on")
        first = int(b.rows("processed", place.client)["log_offset"][0])
        positions = b.rows("positions", place.client)
        told = positions[np.isin(positions["event"], (SOUGHT, RESET))]
        assert told["event"].tolist() == [SOUGHT if reset == "error" else RESET]
        assert told["log_offset"][0] == (NONE if reset == "error" else first)
        assert (first == before + 50) if reset != "latest" else (first >= before + 100)


def test_a_late_partition_is_written_only_when_it_begins_and_found_by_the_pattern(tmp_path):
    plan = group_plan(members=1, subscription="pattern", late_topic=2)
    late = set(plan.cells[0].late_partitions)
    assert late == {2, 3}
    with bench(plan, tmp_path) as b:
        (member,) = members(b)
        b.workload.command(RESUME)
        b.until(lambda: b.total("ok") >= 50, "acknowledgements")
        assert not late.intersection(b.rows("sends", b.producer)["partition"].tolist())
        b.kafka.create(f"{plan.cells[0].topic_name}-late", partitions=2)
        b.workload.begin(late)
        b.until(lambda: late <= set(b.rows("processed", member)["partition"].tolist()), "late partitions")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        b.workload.drain(timeout_s=LIMIT_S)
        # The new topic makes the group rebalance: what was given before that, and not committed yet, may be given again.
        given = processed(b, [member])
        assert len(np.unique(given[["partition", "log_offset"]])) == len(b.rows("sends", b.producer))
        begun = b.rows("observations", member)
        assert set(begun["partition"][begun["kind"] == ObservationKind.DRAIN_BEGUN].tolist()) == {0, 1, 2, 3}


def test_a_partition_that_was_paused_when_it_was_taken_away_is_read_when_it_is_given_again(tmp_path):
    """librdkafka keeps it paused otherwise, for as long as the consumer lives (librdkafka#1849)."""
    plan = group_plan(members=2, protocol="classic-eager", failure_share=0.3, retry_after_ms=600_000)
    with bench(plan, tmp_path) as b:
        first = members(b)[0]

        def rows(table, event):
            found = b.rows(table, first)
            return found[found["event"] == event]

        b.workload.command(RESUME)
        b.until(lambda: len(rows("positions", PAUSED)) > 0, "a pause")
        paused = int(rows("positions", PAUSED)["partition"][0])
        b.workload.command(on_client("stop", "member(0,1)"))  # both partitions are the first one's now

        def read_again():
            given = rows("assignments", ASSIGNED)
            reads, since_ns = b.rows("reads", first), given["started_ns"][given["partition"] == paused]
            return len(since_ns) > 1 and (reads["read_ns"][reads["partition"] == paused] > since_ns.max()).any()

        b.until(read_again, "records of the partition that had been paused")
