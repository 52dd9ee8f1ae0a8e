"""Kafka's share consumers inside a trial: what is planned and started, and what their events become."""

from pathlib import Path

import numpy as np
import pytest

from prozess.harness.errors import BadInput
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import read_rows
from prozess.harness.schema import MISSING, NONE, PROCESSED, READS, ReadFlag, Role, role_named
from prozess.workloads.settings import LaunchContext
from prozess.workloads.verifiable.clients import VerifiableShareConsumer
from prozess.workloads.verifiable.settings import launch_verifiable_share_consumer
from tests.processes.workloads.verifiable.test_broken_tools import HeardTool, QuietClient, unstarted
from tests.support.tools import PRETENDED

CLIENT = 5


def plan_of(version: str = "4.4.0") -> Plan:
    document = {
        "name": "test",
        "title": "test",
        "workload": "verifiable-share",
        "variant": {"kafka_version": version},
        "axes": {"producer.acks": ["1", "all"]},
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


def given(offset: int, value: object, partition: int = 0, **more: object) -> dict[str, object]:
    return {"name": "record_data", "topic": "cell", "partition": partition, "offset": offset, "value": value, **more}


def acknowledged(*offsets: object, success: bool = True) -> dict[str, object]:
    place = {"topic": "cell", "partition": 0, "count": len(offsets), "offsets": list(offsets)}
    return {"name": "offsets_acknowledged", "count": len(offsets), "partitions": [place], "success": success}


def recorded(path: Path, *events: dict[str, object]) -> tuple[np.ndarray, np.ndarray, str | None]:
    """Rows of `reads` and `processed`, and what was not understood."""
    work = unstarted(VerifiableShareConsumer)(QuietClient(path, group=0))
    for event in events:
        work._take(HeardTool(), event)
    work.close()
    rows = [read_rows(path, table, CLIENT)[0] for table in (READS, PROCESSED)]
    return rows[0], rows[1], work._not_understood


def test_two_members_share_the_partitions_of_each_cell():
    plan = plan_of()
    members = [c for c in plan.clients if c.role == "verifiable-share-consumer"]
    assert [(c.cell, c.instance) for c in members] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len({c.group_id for c in members}) == 2
    assert all(c.partitions == plan.cells[c.cell].partitions for c in members)
    assert role_named("verifiable-share-consumer") is Role.READER


def test_brokers_without_share_groups_are_refused():
    with pytest.raises(BadInput, match="KIP-932"):
        plan_of("4.1.2")


def test_the_tool_is_kafkas_own_whoever_produces():
    plan = plan_of()
    (planned, *_) = (c for c in plan.clients if c.role == "verifiable-share-consumer")
    made = launch_verifiable_share_consumer(
        LaunchContext(plan=plan, planned=planned, servers="h:1", limit_s=0, toolbox=PRETENDED)
    )
    command = made.options.tool.command
    assert "org.apache.kafka.tools.VerifiableShareConsumer" in command
    assert command[command.index("--acknowledgement-mode") + 1] == "sync"
    assert command[command.index("--group-id") + 1] == planned.group_id
    assert made.options.group == planned.cell


def test_every_read_is_a_span_of_its_own_and_an_acknowledgement_is_processing(tmp_path):
    reads, processed, why = recorded(
        tmp_path, given(7, "3.1"), given(5, "3.0"), acknowledged(5, 7), given(5, "3.0"), acknowledged(5)
    )
    assert why is None
    assert reads["log_offset"].tolist() == [7, 5, 5]
    assert reads["sequence"].tolist() == [1, 0, 0]
    assert len(set(reads["span"].tolist())) == 3, "no order of reading is to be judged"
    assert processed["log_offset"].tolist() == [5, 7, 5]
    assert (processed["done_ns"] == HeardTool.read_ns).all()


def test_what_was_refused_is_never_done_and_what_was_never_given_is_nothing(tmp_path):
    _, processed, why = recorded(tmp_path, given(7, "3.1"), acknowledged(7, 8, "x", success=False))
    assert why is None
    assert processed["log_offset"].tolist() == [7]
    assert processed["done_ns"].tolist() == [MISSING]


def test_foreign_values_are_corrupt_and_sentinels_are_not(tmp_path):
    reads, _, _ = recorded(tmp_path, given(1, "no identity"), given(2, None, key="sentinel"))
    assert reads["sender"].tolist() == [NONE, 0]
    assert reads["flags"].tolist() == [ReadFlag.CORRUPT, 0]


@pytest.mark.parametrize(
    "event",
    [given(1, "3.1", partition=9), given(NONE, "3.1"), {"name": "offsets_acknowledged", "partitions": [5]}],
)
def test_what_is_not_understood_is_remembered(tmp_path, event):
    assert "not understood" in (recorded(tmp_path, event)[2] or "")
