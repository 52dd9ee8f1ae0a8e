"""Tiered storage on real Kafka: what is read from the store, who waits for a lost object, and what Kafka refuses."""

from collections.abc import Callable, Iterator

import pytest

from prozess.clusters.install.kafka_jars import ensure_extra, ensure_jars, remote_store
from prozess.clusters.local.cluster import LocalCluster
from prozess.clusters.protocol.admin import Admin
from prozess.harness.clock import SystemClock
from prozess.harness.errors import BadInput
from prozess.harness.history.convert import History
from prozess.harness.interfaces import TopicSpec
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import RemoteState, Role
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]
READY_S = 60.0


@pytest.mark.parametrize("version", ["4.4.0", "3.9.2"])
def test_early_records_are_read_from_the_store_after_leaders_died_and_a_follower_began_anew(run_trial, need, version):
    need("java")
    done = run_trial("tiered", "--engine", "local", "--set", f'variant.kafka_version="{version}"', timeout_s=300)
    assert done.verdict.verdict is Verdict.HELD
    history = History.open(done.run)
    for cell in done.verdict.cells:
        (partition,) = history.plan.cells[cell.cell].partitions
        told = history.partition_history(partition)
        begins = min(copy.log_start for copy in told.copies.values())
        by_audit = told.client_role[told.reads["client"]] == Role.AUDIT
        assert int((by_audit & (told.reads["log_offset"] < begins)).sum()) > 1000
        assert (told.remote["state"] == RemoteState.COPIED).sum() > 10
        for anomaly in ("remote-gap", "remote-conflict"):
            assert (cell.anomalies[anomaly].outcome, cell.anomalies[anomaly].proven) == (AnomalyOutcome.HELD, True)


def test_a_lost_object_stalls_its_reader_and_all_of_it_is_there_in_the_end(run_trial, need):
    need("java")
    done = run_trial("tiered-faults", "--engine", "local", timeout_s=300)
    assert done.verdict.verdict is Verdict.HELD
    (cell,) = done.verdict.cells
    (witness,) = cell.anomalies["stalled"].witnesses
    assert cell.anomalies["stalled"].outcome is AnomalyOutcome.PERMITTED
    told = History.open(done.run).partition_history(0)
    assert witness.log_offset in told.remote["first_offset"]
    assert not (told.remote["damaged"] > 0).any()


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory, need: Callable[[str], None]) -> Iterator[Admin]:
    need("java")
    run = RunDirectory(tmp_path_factory.mktemp("run"))
    run.create()
    variant = {"brokers": 1, "metadata_mode": "kraft-combined", "tiered_storage": True}
    document = {"name": "t", "title": "t", "variant": variant, "base": {"topic.replication_factor": 1}}
    plan = make_plan(parse_trial(document, source="system"), seed=1)
    run.plan.write_text(plan.model_dump_json())
    ensure_jars(plan.variant.kafka_version)
    ensure_extra(remote_store(plan.variant.kafka_version))
    built = LocalCluster(plan, run, clock=SystemClock(), isolation="signals")
    try:
        built.setup()
        built.wait_ready(timeout_s=READY_S)
        yield Admin(built)
    finally:
        built.teardown()


@pytest.mark.parametrize(("policy", "refused"), [("compact", True), ("compact,delete", True), ("delete", False)])
def test_kafka_makes_no_compacted_topic_with_tiered_storage(admin, policy, refused):
    properties = {"remote.storage.enable": "true", "cleanup.policy": policy}
    topic = TopicSpec(f"t-{policy.replace(',', '-')}", ((1,),), properties)
    if refused:
        with pytest.raises(BadInput, match=r"[Rr]emote log storage only supports topics with cleanup\.policy=delete"):
            admin.create_topics([topic], timeout_s=20)
    else:
        admin.create_topics([topic], timeout_s=20)
