"""Errors that only a real broker makes, and who is informed of them; the others are provoked on librdkafka's mock cluster."""

import numpy as np
import pytest

from prozess.harness.config.configuration import AUTHORIZER_PROPERTIES, PROVOCATIONS
from prozess.harness.schema import Outcome
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]  # its cheaper neighbour is test_every_workload.py

TRIAL = f"""
name = "few-errors"
title = "Errors that only a real broker makes"
workload = "errors"
control = "required"
topics = {{ partitions = 1, placement = [[1, 2, 3]] }}
traffic = {{ rate_hz = 40 }}
variant.properties = {{ {", ".join(f'"{key}" = "{value}"' for key, value in AUTHORIZER_PROPERTIES.items())} }}

[base]
"producer.properties.batch.num.messages" = 1

[axes]
"provocation.error" = ["list-too-large", "invalid-record", "invalid-timestamp", "not-authorised"]
"producer.acks" = ["0", "all"]

[[controls]]
anomaly = "unreported"
cells = {{ "producer.acks" = "0" }}

[[steps]]
name = "errors"
after = {{ condition = "elapsed", seconds = 6 }}
"""


@pytest.fixture(scope="module")
def finished(run_trial, need):
    need("java")
    need("namespaces")
    done = run_trial(TRIAL, "--engine", "local", timeout_s=300)
    return done.verdict, done.history


def test_who_asks_for_a_reply_is_told_of_every_error_and_nobody_else_is(finished):
    verdict, _ = finished
    assert verdict.verdict is Verdict.HELD
    for cell in verdict.cells:
        unreported = cell.anomalies["unreported"]
        if cell.axes["producer.acks"] == "0":
            assert unreported.outcome is AnomalyOutcome.PERMITTED, cell.name
        else:
            assert (unreported.outcome, unreported.proven) == (AnomalyOutcome.HELD, True), cell.name
        assert cell.anomalies["unenforced"].outcome is AnomalyOutcome.HELD, cell.name


def test_each_error_came_about_and_good_records_lived(finished):
    _, history = finished
    sends = history.table("sends")
    for cell in history.plan.cells:
        mine = np.isin(sends["partition"], cell.partitions) & (sends["client"] != 0)
        good = np.count_nonzero(sends["outcome"][mine] == Outcome.OK)
        assert good > 0, cell.name
        if cell.producer.acks == "all":
            provocation = PROVOCATIONS[cell.work.configuration.error]
            bad = np.count_nonzero(sends["code"][mine] == provocation.code)
            assert bad > 0, cell.name
            # One of several records is bad. How many are sent while all are refused depends on how busy the machine is.
            assert bad < good or not provocation.of_record, cell.name
            assert set(sends["code"][mine].tolist()) == {0, provocation.code}, cell.name
