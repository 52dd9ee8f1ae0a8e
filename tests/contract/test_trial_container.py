"""KafkaTrialContainer on the real engine: it can be broken, comes back at its address, and leaves nothing, without Ryuk."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from prozess.clusters.compose.engine import connect
from prozess.clusters.compose.testcontainer import OWNER_LABEL, KafkaTrialContainer, remove_abandoned
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.interfaces import NodeState
from prozess.harness.report.words import kafka_description
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import AnomalyOutcome, Verdict
from prozess.testing.recorded.consumer import RecordedConsumer
from prozess.testing.recorded.producer import RecordedProducer
from prozess.testing.recording import Recording
from prozess.validation.command import ValidationInput, translate
from tests.contract.test_local_cluster import with_checkout, write_and_read
from tests.support.servers.clusters import ensure_images

pytestmark = [pytest.mark.cluster, pytest.mark.docker]
END_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def engine(need: Callable[[str], None]) -> None:
    need("docker")
    ensure_images("4.4.0")


@pytest.fixture(scope="module")
def kafka(engine: None) -> Iterator[KafkaTrialContainer]:
    with KafkaTrialContainer(properties={"num.partitions": "2"}) as container:
        yield container
    assert trial_containers() == []


def trial_containers() -> list[str]:
    with closing(connect()) as client:
        return [c["Id"] for c in client.api.containers(all=True, filters={"label": OWNER_LABEL})]


def test_clients_reach_it_and_what_they_wrote_survives_a_kill(kafka: KafkaTrialContainer) -> None:
    server = kafka.get_bootstrap_server()
    assert write_and_read(server, 50) == 50
    kafka.node.kill()
    assert kafka.node.state() is NodeState.STOPPED
    kafka.node.start()
    kafka.wait_ready()
    assert kafka.get_bootstrap_server() == server
    assert write_and_read(server, 50) == 50


def test_validate_reads_what_somebody_has_set_on_a_running_cluster(kafka: KafkaTrialContainer, tmp_path: Path) -> None:
    server = kafka.get_bootstrap_server()
    config = {"unclean.leader.election.enable": "true", "retention.ms": "3600000"}
    admin = AdminClient({"bootstrap.servers": server})
    admin.create_topics([NewTopic("set", 2, 1, config=config)])["set"].result(30)
    (tmp_path / "producer.properties").write_text("acks=all\n")
    given = ValidationInput(producer=tmp_path / "producer.properties", cluster=server, cluster_topic="set")
    parts = translate(given)
    assert parts.version == "4.4.0", "of the release that the broker says"
    base = parts.servers.base
    assert base["topic.unclean_leader_election_enable"] is True
    assert base["topic.properties.retention.ms"] == "3600000"
    assert base["topic.replication_factor"] == 1
    assert base["variant.metadata_mode"] == "kraft-combined"
    assert parts.servers.notes[0] == f"1 brokers at {server}, Kafka 4.4: trials run 4.4.0"
    with pytest.raises(BadInput, match="has no such topic"):
        translate(replace(given, cluster_topic="nowhere"))


def test_recorded_clients_of_a_test_are_judged_there_too(kafka: KafkaTrialContainer, tmp_path: Path) -> None:
    recording = Recording(RunDirectory(tmp_path / "recording"), test="t", command="pytest t")
    server = {"bootstrap.servers": kafka.get_bootstrap_server()}
    admin = AdminClient(server)
    admin.create_topics([NewTopic("judged", 2, 1)])["judged"].result(30)
    producer = recording.client_class(RecordedProducer)({**server, "enable.idempotence": True})
    consumer = recording.client_class(RecordedConsumer)({**server, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["judged"])
    for number in range(50):
        producer.produce("judged", str(number))
    kafka.node.kill()
    kafka.node.start()
    kafka.wait_ready()
    assert producer.flush(60) == 0
    given = 0
    while given < 50:
        message = consumer.poll(60)
        # Once this was None on a busy machine, and nothing stated why.
        assert message is not None, (consumer.assignment(), vars(admin.describe_consumer_groups(["g"])["g"].result(30)))
        given += message.error() is None
    consumer.close()
    judged = recording.conclude()
    assert judged.verdict is not None
    assert judged.verdict.verdict is Verdict.HELD, judged.verdict.unknown_reasons
    assert kafka_description(judged.run, recording.plan()) == "4.4, kraft", (
        "as the cluster informed it: nobody asked for a version"
    )
    unclean = judged.verdict.cells[0].anomalies["unclean"]
    assert unclean.outcome is AnomalyOutcome.NOT_JUDGED, "nobody can look into its nodes"
    assert "unclean" in judged.verdict.not_judged


def test_it_can_be_paused_and_go_on(kafka: KafkaTrialContainer) -> None:
    kafka.node.pause()
    assert kafka.node.state() is NodeState.PAUSED
    kafka.node.resume()
    kafka.wait_ready()


def test_a_property_that_it_sets_itself_is_refused() -> None:
    with pytest.raises(BadInput, match=r"'listeners'.*Remove it"):
        KafkaTrialContainer(properties={"listeners": "X://:1"})


def test_before_its_start_there_is_nothing_to_break() -> None:
    with pytest.raises(ClusterFailed, match="has not been started"):
        _ = KafkaTrialContainer().node


def test_one_that_dies_at_once_is_an_error_with_its_last_words(kafka: KafkaTrialContainer) -> None:
    broken = KafkaTrialContainer(properties={"num.network.threads": "many"})
    with pytest.raises(ClusterFailed, match=r"ended by itself \(exit 1\)(.|\n)*num\.network\.threads"), broken:
        pytest.fail("it is not ready")
    assert len(trial_containers()) == 1, "the other one"


_CALLER = """
import sys
from prozess.clusters.compose.testcontainer import KafkaTrialContainer
kafka = KafkaTrialContainer().start()
print("up", flush=True)
sys.stdin.read()
"""


# A SIGKILL is the cheaper neighbour of an orderly end: it leaves more, and each other test here ends in order, too.
@pytest.mark.parametrize("end", [pytest.param("orderly", marks=pytest.mark.long), "sigkill"])
def test_one_whose_interpreter_is_gone_is_gone_too(kafka: KafkaTrialContainer, end: str) -> None:
    caller = subprocess.Popen(
        [sys.executable, "-c", _CALLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=with_checkout()
    )
    assert caller.stdout is not None
    assert caller.stdin is not None
    try:
        assert caller.stdout.readline() == "up\n"
        assert len(trial_containers()) == 2
        if end == "sigkill":
            os.kill(caller.pid, signal.SIGKILL)
        caller.stdin.close()
        caller.wait(END_S)
        with closing(connect()) as client:
            assert len(remove_abandoned(client)) == (1 if end == "sigkill" else 0)
    finally:
        caller.kill()
        caller.wait(END_S)
        caller.stdout.close()
    assert len(trial_containers()) == 1, "the one that is in use is left alone"
