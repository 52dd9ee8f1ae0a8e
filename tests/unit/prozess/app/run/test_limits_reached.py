"""What a stage of the run awaited for longer than its limit is noted, and stated."""

import pytest

from prozess.app.run.limits_reached import StageLimits, of_audit, of_fencing, of_open_transactions
from prozess.harness.interfaces import AuditResult
from prozess.harness.interfaces.cluster import HangingTransaction
from prozess.harness.run_directory import RunDirectory, read_json
from prozess.harness.schema import Isolation


@pytest.fixture
def noted(tmp_path):
    run, events = RunDirectory(tmp_path), []
    return run, StageLimits(run, lambda event, **details: events.append((event, details))), events


def test_a_stage_that_awaited_nothing_in_vain_leaves_no_file(noted):
    run, limits, events = noted
    limits.note("the audit", 90, [])
    assert (run.limits.exists(), events) == (False, [])


def test_each_limit_is_noted_once_with_the_first_that_was_awaited_and_how_many_more(noted):
    run, limits, events = noted
    for _ in range(2):
        limits.note("the drain", 75.0, ["member-1 did not leave.", "member-2 did not leave"])
    limits.note("the end of the clients", None, ["reader-1 had to be killed"])
    first = "the drain is incomplete after 75 s: member-1 did not leave, and 1 more"
    second = "the end of the clients is incomplete: reader-1 had to be killed"
    assert read_json(run.limits) == [first, second]
    assert events == [("limit-reached", {"text": first}), ("limit-reached", {"text": second})]


def test_of_an_audit_each_reading_counts_that_did_not_come_to_its_end():
    level = int(Isolation.READ_COMMITTED)
    result = AuditResult({(0, level): 7}, {(2, level): "not read within the limit", (1, level): "the topic is gone"})
    assert of_audit(result) == ["partition 1: the topic is gone", "partition 2: not read within the limit"]
    assert of_audit(result, topics_may_go=True) == ["partition 2: not read within the limit"]


def test_only_transactions_that_nobody_ended_count():
    open_one = HangingTransaction(
        partition=0, topic="t", number=0, start_offset=5, producer_id=1, producer_epoch=0, coordinator_epoch=0,
        ended=False, why_not="its coordinator knows it",
    )  # fmt: skip
    ended = open_one.model_copy(update={"ended": True, "why_not": ""})
    assert of_open_transactions([ended]) == []
    assert of_open_transactions([ended, open_one]) == [open_one.text]
    assert of_fencing({"copier-1": "timed out"}) == [
        "transactional.id copier-1 could not be initialised once more (timed out)"
    ]
