"""Members of groups that are Java tools: their plan, and one whose tool never runs, for which a test speaks."""

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from confluent_kafka import TopicPartition

from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import read_rows
from prozess.harness.schema import TABLES
from prozess.workloads import messages
from prozess.workloads.log.producer import text_value
from prozess.workloads.verifiable.java_member import JavaMember
from tests.processes.workloads.verifiable.test_broken_tools import QuietClient

CLIENT = 5
MS = 1_000_000


def plan_of(*steps: dict[str, Any], version: str = "4.4.0", client: Any = "java", **group: Any) -> Plan:
    document = {
        "name": "test",
        "title": "test",
        "workload": "group",
        "variant": {"kafka_version": version},
        "topics": {"partitions": 2},
        "traffic": {"rate_hz": 100},
        "isolation_levels": ["read_committed"],
        "base": {"topic.replication_factor": 1} | {f"group.{key}": value for key, value in group.items()},
        "axes": {"group.client": client if isinstance(client, list) else [client]},
        "steps": list(steps),
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


class Heard:
    """A tool that says when each event was made."""

    def moment(self, event: dict[str, Any]) -> tuple[int, int]:
        return event["timestamp"] * MS, (event["timestamp"] + 1) * MS


class Admin:
    """What looks offsets up, with answers that come when the test says so."""

    def __init__(self) -> None:
        self.committed: list[Future[Any]] = []
        self.log_starts: list[Future[Any]] = []

    def list_consumer_group_offsets(self, asked: list[Any], **_: Any) -> dict[str, "Future[Any]"]:
        self.committed.append(Future())
        return {asked[0].group_id: self.committed[-1]}

    def list_offsets(self, asked: dict[Any, Any], **_: Any) -> dict[Any, "Future[Any]"]:
        self.log_starts.append(Future())
        return dict.fromkeys(asked, self.log_starts[-1])

    def answer(self, *offsets: int) -> None:
        """The newest question: what is committed of partition 0, 1, …; -1001 = nothing."""
        told = [TopicPartition("cell", number, offset) for number, offset in enumerate(offsets)]
        self.committed[-1].set_result(SimpleNamespace(topic_partitions=told))


class Ear:
    """A member whose tool never runs: it is fed by hand."""

    def __init__(self, path: Path, *, auto: bool = False, latest: bool = False) -> None:
        self.now_ms, self.path, self.admin = 0, path, Admin()
        self.client = QuietClient(path, group=0, auto=auto, eager=True, latest=latest, group_id="g")
        self.client.now_ns = lambda: self.now_ms * MS  # type: ignore[method-assign]
        self.told: list[messages.Event] = []
        self.client.control = SimpleNamespace(send=self.told.append)
        admin = self.admin
        fed = {"_begin": lambda self: None, "make_admin": staticmethod(lambda _: admin)}
        self.work = type("Fed", (JavaMember,), fed)(self.client)

    def hear(self, name: str, at_ms: int, **facts: Any) -> None:
        self.now_ms = max(self.now_ms, at_ms + 1)
        self.work._take(Heard(), {"timestamp": at_ms, "name": name} | facts)

    def assigned(self, at_ms: int, *numbers: int, name: str = "partitions_assigned") -> None:
        self.hear(name, at_ms, partitions=[{"topic": "cell", "partition": n} for n in numbers])

    def record(self, at_ms: int, offset: int, number: int = 0, value: object = None) -> None:
        told = text_value(9, offset, 1, size=60).decode() if value is None else value
        self.hear("record_data", at_ms, key="account-1", value=told, topic="cell", partition=number, offset=offset)

    def poll(self, at_ms: int, first: int, last: int) -> None:
        for offset in range(first, last + 1):
            self.record(at_ms, offset)
        part = {"topic": "cell", "partition": 0, "count": last - first + 1, "minOffset": first, "maxOffset": last}
        self.hear("records_consumed", at_ms, count=last - first + 1, partitions=[part])

    def committed(self, at_ms: int, offset: int, *, success: bool = True) -> None:
        place = {"topic": "cell", "partition": 0, "offset": offset}
        self.hear("offsets_committed", at_ms, offsets=[place], success=success)

    def turn(self, at_ms: int) -> None:
        self.now_ms = at_ms
        self.work._between()

    def rows(self, name: str) -> np.ndarray:
        return read_rows(self.path, TABLES[name], CLIENT)[0]


@pytest.fixture
def ear(tmp_path):
    return Ear(tmp_path)
