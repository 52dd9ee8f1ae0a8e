"""A group of Java members on a mock cluster: followed to its end, paused, killed.

In place of the tool, which needs Java and brokers (trial `groups-java`), is our own program that speaks as it does.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prozess.harness.interfaces import NodeState
from prozess.harness.plan.plan import Plan
from prozess.harness.schema import NONE, ObservationKind, Role
from prozess.workloads.record.members import ASSIGN, CLOSE
from prozess.workloads.verifiable import settings
from tests.processes.workloads.verifiable.members import plan_of
from tests.processes.workloads.verifiable.test_clients import tools_of
from tests.support import log_workload
from tests.support.log_workload import LIMIT_S, RESUME, ClientBench, alive, bench
from tests.support.tools import PRETENDED


@pytest.fixture
def speaks_as_java(monkeypatch):
    """In place of Java our own verifiable consumer, which takes the same options."""
    ours = [sys.executable, "-P", "-m", "prozess.workloads.verifiable.tools", "consumer"]
    monkeypatch.setattr(settings, "java_command", lambda *_, **__: (ours, {}))
    monkeypatch.setattr(log_workload, "TOOLBOX", PRETENDED)


def small(**group: Any) -> Plan:
    plan = plan_of(**group)
    return plan.model_copy(update={"metrics": False})


def members(b: ClientBench) -> list[int]:
    return [client.client for client in b.plan.clients if client.role == "java-member"]


def owned(b: ClientBench, client: int) -> set[int]:
    """The partitions that it was assigned and that were not revoked since."""
    mine: set[int] = set()
    for row in b.rows("assignments", client):
        if row["event"] == ASSIGN:
            mine.add(int(row["partition"]))
        else:
            mine.discard(int(row["partition"]))
    return mine - {NONE}


@pytest.mark.usefixtures("speaks_as_java")
@pytest.mark.parametrize("commit", ["sync-after", "auto"])
def test_a_group_processes_every_record_is_followed_to_the_end_and_leaves(tmp_path, commit):
    plan = small(commit=commit, auto_commit_interval_ms=200)
    with bench(plan, tmp_path) as b:
        # Not before: a commit that a rebalance refuses is not tried again until there are further records.
        b.until(lambda: all(owned(b, client) for client in members(b)), "each member to own a partition")
        b.workload.command(RESUME)
        b.until(lambda: b.total("ok") >= 50, "acknowledgements")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        b.workload.drain(timeout_s=LIMIT_S)
        assert b.workload.fence(timeout_s=LIMIT_S) == {}
        assert b.workload.dead_clients() == {}
        (producer,) = [c.client for c in plan.clients if c.role == "text-producer"]
        sent, both = b.rows("sends", producer), members(b)
        done = np.concatenate([b.rows("processed", client) for client in both])
        expected = {(producer, int(row["sequence"]), int(row["partition"])) for row in sent}
        assert set(map(tuple, done[["sender", "sequence", "partition"]].tolist())) == expected
        (reader,) = [c.client for c in plan.clients if c.role == "reader"]
        b.until(lambda: len(b.rows("reads", reader)) >= len(sent), "the reader")
        assert set(b.rows("reads", reader)["sent_partition"].tolist()) == {0, 1}, "identity by the header"
        (observer,) = [c.client for c in plan.clients if c.role == "observer"]
        told = b.rows("observations", observer)
        ends = {p: int((sent["partition"] == p).sum()) for p in (0, 1)}
        assert dict(zip(told["partition"].tolist(), told["value"].tolist(), strict=True)) == ends
        for client in both:
            rows, (facts,) = b.rows("assignments", client), b.rows("clients", client)
            assert CLOSE in rows["event"]
            seen = b.rows("observations", client)
            polled = seen[seen["kind"] == ObservationKind.POLLED]
            assert polled["value"][-1] == NONE, "its last poll found nothing more, and was under way when it ended"
            assert polled["time_ns"][-1] >= rows["started_ns"].min()
            assert (rows["done_ns"] >= rows["started_ns"]).all()
            assert (facts["role"], facts["exit_code"], facts["complete"]) == (Role.MEMBER, 0, 1)


@pytest.mark.usefixtures("speaks_as_java")
def test_pause_stops_the_tool_too_and_a_kill_records_what_it_had_said(tmp_path):
    with bench(small(members=1), tmp_path) as b:
        (client,) = members(b)
        (node,) = [n for n in b.workload.nodes() if n.client_role == "java-member"]
        b.until(node.at_work, "an assignment")
        b.workload.command(RESUME)
        b.until(lambda: len(b.rows("processed", client)) > 10, "records")
        # It commits after it has processed: on a busy machine more than ten records before its first commit is written.
        b.until(lambda: len(b.rows("commits", client)) > 0, "a commit")
        pid = b.pid(client)
        (tool,) = tools_of(pid)
        node.pause()
        assert node.state() is NodeState.PAUSED
        assert all(_state(p) == "T" for p in (pid, tool))
        node.kill()  # as it stands: what is in the pipe is heard all the same
        b.until(lambda: not alive(tool), "the tool to be gone")
        assert not alive(pid)
        assert b.workload.dead_clients() == {}
        (facts,) = b.rows("clients", client)
        assert (facts["complete"], facts["exit_code"]) == (1, 3)
        offset = b.rows("processed", client)["log_offset"]
        committed = b.rows("commits", client)
        assert committed["log_offset"].max() <= offset.max() + 1
        node.start()
        assert node.client is not None
        assert node.client != client
        b.until(node.at_work, "its successor to be assigned")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


@pytest.mark.usefixtures("speaks_as_java")
def test_a_tool_that_ends_by_itself_is_a_dead_member(tmp_path):
    with bench(small(members=1), tmp_path) as b:
        (client,) = members(b)
        name = next(c.name for c in b.plan.clients if c.client == client)
        (node,) = [n for n in b.workload.nodes() if n.client_role == "java-member"]
        b.until(node.at_work, "an assignment")
        (tool,) = tools_of(b.pid(client))
        os.kill(tool, signal.SIGTERM)
        assert "the tool ended by itself" in b.until_dead(name)
