"""A retry topic: real members on librdkafka's mock cluster, and the kernels on small cells."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.groups.processing import reprocessed, unprocessed
from prozess.checkers.registry import select
from prozess.harness.checking.kernels import check_cell, check_partition
from prozess.harness.errors import BadInput
from prozess.harness.history.convert import write_history
from prozess.harness.history.reader import History
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import GroupCase
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import write_json
from prozess.harness.schema import MISSING, NONE, ORIGIN_SEQUENCE_BITS, Outcome
from prozess.workloads.group.retries import Retries, fails_at_first
from tests.support.cells.groups import RETRY, REVOKE, A, B, Row, S, cases, cell, client, commit, event, span, step
from tests.support.cells.partitions import INFO, OK, PARTITION, PRODUCER, history
from tests.support.log_workload import LIMIT_S, RESUME, bench

HANDED = 1
"""Offset of the record whose processing fails."""


def plan_of(topics: Mapping[str, int] | None = None, **group: Any) -> Plan:
    base = {"topic.replication_factor": 1, "group.failure_share": 0.2, "group.retry_after_ms": 50}
    acks = group.pop("acks", "all")
    document = {
        "name": "test",
        "title": "test",
        "workload": "group",
        "topics": {"partitions": 2, **(topics or {})},
        "traffic": {"rate_hz": 200},
        "isolation_levels": [],
        "base": base | {f"group.{key}": value for key, value in group.items()},
        "axes": {"producer.acks": [acks]},
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


@pytest.mark.parametrize("on_failure", ["retry-topic", "retry-topic-unawaited"])
def test_what_fails_is_handed_on_and_processed_from_the_retry_topic_and_nothing_else_waits(tmp_path, on_failure):
    plan = plan_of(on_failure=on_failure)
    with bench(plan, tmp_path) as b:
        b.run.plan.write_text(plan.model_dump_json())
        write_json(b.run.clock, {"start_monotonic_ns": 0})
        b.workload.command(RESUME)
        b.until(lambda: b.total("ok") >= 200, "acknowledgements")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        b.workload.drain(timeout_s=LIMIT_S)
        assert b.workload.fence(timeout_s=LIMIT_S) == {}
        assert b.workload.audit(timeout_s=LIMIT_S).incomplete == {}
        members = [c.client for c in plan.clients if c.role == "member"]
        sent = b.rows("sends", b.producer)
        handed = np.concatenate([b.rows("sends", member) for member in members])
        steps = np.concatenate([b.rows("processed", member) for member in members])
        assert 0.1 < len(handed) / len(sent) < 0.3
        assert (handed["outcome"] == Outcome.OK).all()
        done = steps[steps["done_ns"] != MISSING]
        cell = plan.cells[0]
        assert np.count_nonzero(np.isin(done["partition"], cell.derived)) == len(handed)
        assert len(done) == len(sent)
        told = b.rows("observations", next(c.client for c in plan.clients if c.role == "observer"))
        assert set(told["partition"].tolist()) == set(cell.partitions)
    write_history(b.run)
    found = History.open(b.run)
    checkers = select(["phantom", "lost", "unprocessed", "reprocessed", "commit-ahead"])
    findings = check_cell(found.cell_history(0), checkers.cell)
    findings += [f for p in cell.partitions for f in check_partition(found.partition_history(p), checkers.kernels)]
    assert {(f.anomaly, f.result.count) for f in findings if f.result.count} == set()
    assert {f.anomaly: f.result.incomplete for f in findings if f.result.incomplete} == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"on_failure": "retry-topic", "failure_share": 0}, "set group.failure_share"),
        ({"on_failure": "retry-topic", "acks": "1"}, "may lose what is sent to the retry topic"),
        ({"on_failure": "retry-topic", "topics": {"late_partitions": 1}}, "cannot grow"),
    ],
)
def test_what_cannot_work_with_a_retry_topic_is_refused_with_the_reason(settings, words):
    with pytest.raises(BadInput, match=words):
        plan_of(**settings)


def columns_of(rows: Sequence[tuple[int, int]]) -> dict[str, np.ndarray]:
    """Of records: (partition, offset)."""
    partition, offset = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    return {"partition": partition, "log_offset": offset, "sequence": offset, "sender": np.full(len(rows), PRODUCER)}


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=6), st.integers(0, 3))
def test_what_is_held_back_comes_once_and_in_order_when_it_is_due_and_never_if_it_was_taken_away(batches, taken):
    retries, offsets = Retries(share=0.0, after_ms=1), {0: [], 1: [], 2: []}
    for now_ns, batch in enumerate(batches):
        rows = []
        for partition in batch:
            rows.append((partition, len(offsets[partition])))
            offsets[partition].append(len(offsets[partition]))
        new = {partition for partition in batch if offsets[partition][0] in [o for p, o in rows if p == partition]}
        assert set(retries.hold(columns_of(rows), now_ns)) == new, "a partition is paused once"
    retries.forget([taken])
    assert retries.due(999_999) == {}
    due = {partition: columns["log_offset"].tolist() for partition, columns in retries.due(2_000_000).items()}
    assert due == {partition: found for partition, found in offsets.items() if found and partition != taken}
    assert retries.due(2_000_000) == {}


@given(st.lists(st.integers(0, 10**6), max_size=50), st.floats(0, 0.99))
def test_who_is_unlucky_does_not_depend_on_who_asks_or_with_whom(sequences, share):
    every = fails_at_first(columns_of([(0, n) for n in sequences]), share)
    alone = [bool(fails_at_first(columns_of([(7, n)]), share)[0]) for n in sequences]
    assert every.tolist() == alone
    assert share or not any(alone)


# --- the kernels ----------------------------------------------------------------------------------------------------


def origin(sequence: int) -> int:
    return (PRODUCER << ORIGIN_SEQUENCE_BITS) | sequence


def retried(member: int, sequence: int, at_s: float, offset: int = 0) -> Row:
    """A record of the retry topic is processed: `member` and `sequence` say who sent it there."""
    return dict(step(A, offset, at_s, sequence=sequence)) | {"partition": RETRY, "sender": member}


def cell_of(
    *,
    sends: Sequence[tuple[int, int, Outcome]] = ((A, 0, OK),),
    log: Sequence[tuple[int, int, int]] = ((0, A, 0),),
    **tables: Sequence[Row],
) -> CellHistory:
    """Three records in the partition, all committed past, of which that at HANDED fails; `sends` to the retry partition:
    (member, sequence, outcome), at 2 s and a tenth later for each sequence; `log` of it: (offset, member, sequence), all
    made from the record at HANDED."""
    retry = history(
        [(*row[:3], NONE, {"invoked_ns": int((2 + row[1] / 10) * S)}) for row in sends],
        [(*row, {"origin": origin(HANDED)}) for row in log],
    )
    given = {"commits": [commit(A, 3, 3)]} | tables
    return cell(records=3, group={"on_failure": "retry-topic", "failure_share": 0.2}, retry=retry, **given)


OTHERS = [step(A, 0, 1), step(A, 2, 1.1)]
FAILED = step(A, HANDED, 1.5, done=False)


def test_what_the_retry_topic_has_is_not_unprocessed_in_its_own_partition_and_what_it_has_not_is():
    assert unprocessed(cell_of(processed=[*OTHERS, FAILED])).count == 0
    bad = unprocessed(cell_of(log=(), sends=[(A, 0, INFO)], processed=[*OTHERS, FAILED]))
    assert (bad.witnesses["partition"].tolist(), bad.witnesses["log_offset"].tolist()) == ([PARTITION], [HANDED])
    assert cases(bad) == [GroupCase.LEFT_BEHIND]


def test_only_what_was_tried_before_a_send_that_never_arrived_was_left_behind():
    never_tried = unprocessed(cell_of(log=(), sends=[(A, 0, INFO)], processed=OTHERS))
    tried_later = unprocessed(
        cell_of(log=(), sends=[(A, 0, INFO)], processed=[*OTHERS, step(A, HANDED, 2.5, done=False)])
    )
    by_another = unprocessed(
        cell_of(log=(), sends=[(A, 0, INFO)], processed=[*OTHERS, FAILED, step(B, HANDED, 1.9, done=False)])
    )
    acknowledged = unprocessed(cell_of(log=(), processed=[*OTHERS, FAILED]))
    for found in (never_tried, tried_later, by_another, acknowledged):
        assert cases(found) == [GroupCase.NO_CAUSE]


def test_what_the_retry_topic_has_and_was_committed_past_there_must_have_been_processed_there():
    there = commit(A, 1, 5, partition=RETRY)
    positions = [span(A, 0, 0), dict(span(A, 0, 0)) | {"partition": RETRY}]
    facts = {"commits": [commit(A, 3, 3), there], "positions": positions}
    bad = unprocessed(cell_of(processed=[*OTHERS, FAILED], **facts))
    assert bad.witnesses["partition"].tolist() == [RETRY]
    good = unprocessed(cell_of(processed=[*OTHERS, FAILED, retried(A, 0, 4)], **facts))
    assert (good.count, good.judged) == (0, 4)


def test_without_an_audit_of_the_retry_topic_nothing_can_be_concluded():
    whole = cell_of(processed=[*OTHERS, FAILED])
    blind = replace(whole.partitions[RETRY], audit_end={})
    found = unprocessed(replace(whole, partitions={**whole.partitions, RETRY: blind}))
    assert found.incomplete is not None


TWICE: dict[str, Any] = {"sends": [(A, 0, OK), (B, 0, OK)], "log": [(0, A, 0), (1, B, 0)]}


def test_a_record_that_was_handed_on_twice_is_processed_again_for_the_reason_it_was_tried_again():
    steps = [*OTHERS, FAILED, step(B, HANDED, 1.8, done=False), retried(A, 0, 4), retried(B, 0, 5, offset=1)]
    positions = [span(A, 0, 0), span(B, 1.7, 0)]
    crashed = [client(A, killed=True), client(B)]
    found = reprocessed(cell_of(processed=steps, positions=positions, clients=crashed, **TWICE))
    assert cases(found) == [GroupCase.CRASHED]
    assert (found.witnesses["partition"].tolist(), found.witnesses["log_offset"].tolist()) == ([RETRY], [1])
    released = reprocessed(cell_of(processed=steps, positions=positions, assignments=[event(A, REVOKE, 1.6)], **TWICE))
    assert cases(released) == [GroupCase.RELEASED]
    for_nothing = reprocessed(cell_of(processed=steps, positions=positions, **TWICE))
    assert cases(for_nothing) == [GroupCase.NO_CAUSE]
    committed = [commit(A, 3, 1.6)]
    covered = reprocessed(cell_of(processed=steps, positions=positions, clients=crashed, commits=committed, **TWICE))
    assert cases(covered) == [GroupCase.COVERED]


def test_one_that_was_sent_again_by_the_same_member_is_told_by_whether_the_first_was_acknowledged():
    steps = [*OTHERS, FAILED, retried(A, 0, 4), retried(A, 1, 5, offset=1)]
    log = [(0, A, 0), (1, A, 1)]
    again = reprocessed(cell_of(processed=steps, sends=[(A, 0, INFO), (A, 1, OK)], log=log))
    assert cases(again) == [GroupCase.SENT_AGAIN]
    no_reason = reprocessed(cell_of(processed=steps, sends=[(A, 0, OK), (A, 1, OK)], log=log))
    assert cases(no_reason) == [GroupCase.NO_CAUSE]


def test_a_record_that_was_processed_in_its_own_partition_and_from_the_retry_topic_is_processed_again():
    steps = [*OTHERS, FAILED, step(B, HANDED, 1.9), retried(A, 0, 4)]
    found = reprocessed(cell_of(processed=steps, positions=[span(A, 0, 0), span(B, 1.7, 0)]))
    assert found.count == 1
    once = reprocessed(cell_of(processed=[*OTHERS, FAILED, retried(A, 0, 4)]))
    assert once.count == 0
