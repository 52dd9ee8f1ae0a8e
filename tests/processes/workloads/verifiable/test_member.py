"""Kafka's VerifiableConsumer as a member of a group: what is planned, and how it is started.

The tool itself needs Java and brokers (trial `groups-java`).
"""

from itertools import pairwise

import pytest

from prozess.harness.errors import BadInput
from prozess.harness.plan.cell_work import GroupWork
from prozess.harness.plan.plan import Plan
from prozess.harness.schema import Role, role_named
from prozess.workloads.record.identity import CopyRules
from prozess.workloads.settings import LaunchContext, ReaderOptions, Settings, launch_reader
from prozess.workloads.verifiable import settings
from tests.processes.workloads.verifiable.members import plan_of
from tests.support.tools import PRETENDED

PROTOCOLS = ["classic-eager", "classic-cooperative", "consumer"]


def test_members_of_both_clients_stand_side_by_side_and_each_cell_is_written_as_its_members_read():
    plan = plan_of(client=["librdkafka", "java"])
    members = {
        c.role: [m.cell for m in plan.clients if m.role == c.role]
        for c in plan.clients
        if isinstance(c.work, GroupWork)
    }
    assert members == {"member": [0, 0], "java-member": [1, 1]}
    assert role_named("java-member") is Role.MEMBER
    written = {c.role: c.partitions for c in plan.clients if c.role in ("producer", "text-producer")}
    assert written == {"producer": plan.cells[0].partitions, "text-producer": plan.cells[1].partitions}
    assert [cell.carriers[0] for cell in plan.cells] == ["value", "header"]


def test_readers_and_the_audit_find_the_identity_of_text_in_its_header():
    plan = plan_of(client=["librdkafka", "java"])
    for role in ("reader", "audit"):
        planned = next(c for c in plan.clients if c.role == role)
        context = LaunchContext(plan=plan, planned=planned, servers="h:1", limit_s=0, toolbox=PRETENDED)
        assert launch_reader(context).options == ReaderOptions(copies=CopyRules(by_header=plan.cells[1].partitions))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"commit": "sync-before"}, "commits in the ways sync-after and auto, not sync-before"),
        ({"commit": "auto-stored"}, "not auto-stored"),
        ({"processing_ms": 5}, "takes no processing_ms"),
        ({"failure_share": 0.1}, "never fails"),
        ({"subscription": "pattern"}, "not to a pattern"),
        ({"auto_offset_reset": "error"}, "ends where there is no position"),
    ],
)
def test_what_the_tool_cannot_do_is_left_out_with_the_reason(setting, words):
    plan = plan_of(client=["librdkafka", "java"], **setting)
    assert [cell.group.configuration.client for cell in plan.cells if cell.group] == ["librdkafka"]
    (left_out,) = plan.excluded
    assert words in left_out.reason


def test_a_java_member_cannot_be_told_to_stall():
    stall = {"name": "stall", "do": {"kind": "client", "do": "stall", "client": "member(*,0)", "seconds": 3}}
    assert plan_of(stall, client="librdkafka").steps
    with pytest.raises(BadInput, match="Java process that polls on its own"):
        plan_of(stall)


def launched(plan: Plan, instance: int = 0) -> Settings:
    planned = [c for c in plan.clients if c.role == "java-member"][instance]
    context = LaunchContext(plan=plan, planned=planned, servers="h:1", limit_s=0, toolbox=PRETENDED)
    return settings.launch_java_member(context)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_is_told_its_protocol_where_the_tool_takes_it_from(protocol):
    made = launched(plan_of(protocol=protocol, session_timeout_ms=7000, batch=30))
    words = made.options.tool.command
    told = dict(pairwise(words))
    assert "org.apache.kafka.tools.VerifiableConsumer" in words
    assert "--verbose" in words
    assert "--enable-autocommit" not in words
    assert told["--topic"] == "cell-000"
    (file,) = (text for name, text in made.options.tool.files.items() if name.startswith("consumer-"))
    assert "max.poll.records=30\n" in file
    if protocol == "consumer":
        assert told["--group-protocol"] == "consumer"
        assert not {"--session-timeout", "--assignment-strategy"} & set(words)
        assert "heartbeat.interval.ms" not in file, "it is the brokers' to set"
    else:
        assert told["--session-timeout"] == "7000"
        assert told["--assignment-strategy"].endswith("RangeAssignor" if protocol == "classic-eager" else "Assignor")
        assert "heartbeat.interval.ms=1750\n" in file


def test_static_members_keep_the_id_of_their_place_and_automatic_commits_their_interval():
    made = launched(plan_of(static_membership=True, commit="auto", auto_commit_interval_ms=700), instance=1)
    told = dict(pairwise(made.options.tool.command))
    assert told["--group-instance-id"] == "prozess-cell-000-1"
    assert "--enable-autocommit" in made.options.tool.command
    assert made.options.auto
    assert any("auto.commit.interval.ms=700\n" in text for text in made.options.tool.files.values())
