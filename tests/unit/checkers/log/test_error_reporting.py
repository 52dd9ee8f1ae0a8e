"""Who learns what: bad histories and near-miss good ones."""

from dataclasses import replace

import numpy as np
import pytest

from prozess.checkers.log.records import collateral, is_bad, unenforced, unreported
from prozess.harness.config.configuration import PROVOCATIONS
from prozess.harness.interfaces.checking import CellHistory, PartitionHistory
from prozess.harness.plan.axes import expand
from prozess.harness.plan.cell_work import ErrorsWork, work_as
from prozess.harness.plan.plan import Cell
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import MISSING, NONE
from tests.support.cells.partitions import (
    CLIENTS,
    CRASHED,
    FAIL,
    INFO,
    OK,
    PARTITION,
    PRODUCER,
    PRODUCER_ACKS_0,
    history,
)

DUE_NS = 500_000
"""Of what was sent before, every living producer must have been reported."""
OPEN = {"completed_ns": MISSING}
TOO_LARGE, INVALID, DIFFERENT = 10, 87, -138


def lived(made: PartitionHistory) -> PartitionHistory:
    """The same, where every producer but CRASHED ended in order."""
    told = np.full(CLIENTS, DUE_NS, dtype=np.int64)
    told[CRASHED] = MISSING
    return replace(made, client_reported_until_ns=told)


def cell(error: str, **base: object) -> Cell:
    document = {
        "name": "test",
        "title": "test",
        "workload": "errors",
        "base": {"provocation.error": error, "provocation.every": 5, **base},
        "variant": {
            "properties": {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "allow.everyone.if.no.acl.found": True,
            }
        },
    }
    return make_plan(parse_trial(document, source="test"), seed=1).cells[0]


def of_cell(error: str, made: PartitionHistory) -> CellHistory:
    return CellHistory(cell=cell(error), partitions={PARTITION: made}, tables={}, clients=())


# --- unreported ------------------------------------------------------------------------------------------------------


def test_a_send_that_nobody_answered_and_that_is_not_there_is_unreported():
    found = unreported(lived(history([(PRODUCER, 0, OK, 0), (PRODUCER, 1, INFO, NONE, OPEN)], [(0, PRODUCER, 0)])))
    assert found.witnesses[["client", "sequence"]].tolist() == [(PRODUCER, 1)]
    assert (found.count, found.judged, found.incomplete) == (1, 1, None)


@pytest.mark.parametrize(
    "row",
    [
        (PRODUCER, 1, INFO, NONE, {"code": -192}),
        (PRODUCER, 1, FAIL, NONE, {"code": TOO_LARGE}),
        (PRODUCER, 1, INFO, NONE, OPEN | {"invoked_ns": DUE_NS}),
        (CRASHED, 1, INFO, NONE, OPEN),
        (PRODUCER, 1, INFO, NONE, OPEN | {"transaction": 1}),
    ],
    ids=["reported unknown", "reported failed", "not due yet", "its caller was dead", "its transaction says"],
)
def test_a_send_with_an_error_or_without_time_for_one_is_not_unreported(row):
    assert unreported(lived(history([(PRODUCER, 0, OK, 0), row], [(0, PRODUCER, 0)]))).count == 0


def test_what_is_in_the_log_need_not_be_told_of():
    found = unreported(lived(history([(PRODUCER, 0, INFO, NONE, OPEN)], [(0, PRODUCER, 0)])))
    assert (found.count, found.judged) == (0, 0)


def test_with_acks_0_a_success_that_is_not_there_is_unreported():
    sends = [(PRODUCER_ACKS_0, 0, OK, NONE), (PRODUCER_ACKS_0, 1, OK, NONE), (PRODUCER, 0, OK, 9)]
    found = unreported(lived(history(sends, [(0, PRODUCER_ACKS_0, 0)])))
    assert found.witnesses[["client", "sequence"]].tolist() == [(PRODUCER_ACKS_0, 1)]


def test_without_an_audit_no_send_is_unreported():
    found = unreported(lived(history([(PRODUCER, 1, INFO, NONE, OPEN)], sentinel=None)))
    assert found.count == 0
    assert found.incomplete is not None


def test_what_compaction_may_have_removed_is_left_open():
    log = [(5, PRODUCER, 7, {"key": 3})]
    sends = [(PRODUCER, 1, INFO, NONE, OPEN | {"key": 3}), (PRODUCER, 7, OK, 5, {"key": 3})]
    found = unreported(lived(history(sends, log, compacted=True)))
    assert found.count == 0
    assert "cleaning" in (found.incomplete or "")


# --- unenforced and collateral --------------------------------------------------------------------------------------

SENDS = [
    (PRODUCER, 3, OK, 0),
    (PRODUCER, 4, FAIL, NONE, {"code": TOO_LARGE}),
    (PRODUCER, 5, OK, 1),
    (PRODUCER, 9, INFO, NONE, {"code": TOO_LARGE}),
]
LOG = [(0, PRODUCER, 3), (1, PRODUCER, 5)]


def test_bad_records_that_were_refused_are_judged_and_harm_nobody():
    made = of_cell("too-large-for-broker", lived(history(SENDS, LOG)))
    assert (unenforced(made).count, unenforced(made).judged) == (0, 2)
    assert (collateral(made).count, collateral(made).judged) == (0, 2)


def test_a_bad_record_that_is_in_the_log_was_not_refused():
    made = of_cell("too-large-for-broker", history([*SENDS, (PRODUCER, 14, OK, 2)], [*LOG, (2, PRODUCER, 14)]))
    assert unenforced(made).witnesses["sequence"].tolist() == [14]


@pytest.mark.parametrize("code", [TOO_LARGE, INVALID, DIFFERENT])
def test_a_good_record_told_the_error_of_its_batch_is_collateral(code):
    made = of_cell("too-large-for-broker", history([*SENDS, (PRODUCER, 13, INFO, NONE, {"code": code})], LOG))
    assert collateral(made).witnesses["sequence"].tolist() == [13]
    assert collateral(made).count == 1


def test_another_error_of_a_good_record_is_no_collateral():
    made = of_cell("too-large-for-broker", history([*SENDS, (PRODUCER, 13, INFO, NONE, {"code": -192})], LOG))
    assert collateral(made).count == 0


def test_an_error_that_nobody_provoked_leaves_nothing_judged():
    made = of_cell("invalid-timestamp", history([(PRODUCER, 3, OK, 0)], [(0, PRODUCER, 3)]))
    assert unenforced(made).judged == 0
    assert collateral(made).judged == 0


def test_with_acks_0_a_bad_record_that_is_not_there_was_refused():
    sends = [(PRODUCER_ACKS_0, 3, OK, NONE), (PRODUCER_ACKS_0, 4, OK, NONE)]
    made = of_cell("invalid-record", history(sends, [(0, PRODUCER_ACKS_0, 3)]))
    assert (unenforced(made).count, unenforced(made).judged) == (0, 1)


def test_an_error_that_is_a_state_is_known_by_its_code_alone():
    sends = [(PRODUCER, 3, FAIL, NONE, {"code": -184}), (PRODUCER, 4, OK, 0)]
    made = of_cell("full-queue", history(sends, [(0, PRODUCER, 4)]))
    assert (unenforced(made).count, unenforced(made).judged) == (0, 1)
    assert (collateral(made).count, collateral(made).judged) == (0, 0)


# --- what is planned ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", list(PROVOCATIONS))
def test_every_error_can_be_planned_and_implies_the_limit_it_breaks(error):
    made = cell(error)
    assert work_as(ErrorsWork, made.work).configuration.error == error
    for key, value in PROVOCATIONS[error].implied.items():
        scope, _, name = key.partition(".")
        configuration = made.work.configuration if scope == "provocation" else getattr(made, scope)
        told = configuration.properties.get(name.removeprefix("properties."), getattr(configuration, name, None))
        assert str(told) == str(value), key


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ({"provocation.error": "timeout", "producer.acks": "0"}, "nothing would time out"),
        ({"provocation.error": "too-large-for-broker", "producer.compression_type": "lz4"}, "makes records too small"),
        ({"provocation.error": "full-queue", "producer.client": "java"}, "librdkafka clients only"),
        ({"provocation.error": "not-authorised"}, "needs variant.properties.authorizer.class.name"),
    ],
)
def test_what_could_not_be_provoked_is_left_out_with_the_reason(base, words):
    document = {"name": "test", "title": "test", "workload": "errors", "base": base}
    document["axes"] = {"provocation.every": [2, 3]}
    document["exclude"] = [{"when": {"provocation.every": "3"}, "reason": "only so that one is left out"}]
    trial = parse_trial(document, source="test")
    with pytest.raises(Exception, match=words):
        expand(trial, trial.workloads[0])


def test_one_of_n_is_bad_and_it_is_the_last():
    assert np.flatnonzero(is_bad(np.arange(12), every=4)).tolist() == [3, 7, 11]
