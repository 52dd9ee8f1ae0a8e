"""A cluster that wants clients to log in: every way in, who is not let in, and a whole run of which no secret is left."""

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from prozess.app.run.samplers import MetadataSamples
from prozess.clusters.existing.adoption import Kafka, describe_elsewhere, live_settings
from prozess.clusters.existing.attach import AttachCluster
from prozess.clusters.protocol.admin import Admin
from prozess.clusters.protocol.client import WireClient
from prozess.clusters.protocol.login import WireLogin
from prozess.clusters.protocol.requests import api_versions_request, metadata_request
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.config.configuration import Variant
from prozess.harness.config.existing_clusters import CLIENT_CONFIG, Login, read_login, split_server
from prozess.harness.errors import ClusterFailed
from prozess.harness.exit_codes import ExitCode
from prozess.harness.guarantees.evidence.ground_truth import sampled_elections
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import Recorder, read_rows
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import METADATA, RECORDER_CLIENT, MetadataKind
from prozess.validation.command import ValidationInput, translate
from prozess.validation.prediction import Prediction
from tests.support.servers.secured import MECHANISMS, NODES, Authority, SecuredCluster

pytestmark = pytest.mark.cluster
CLOCK = SystemClock()
WAYS = [("SASL", m) for m in MECHANISMS] + [("BARE", m) for m in MECHANISMS] + [("MUTUAL", "TLS")]
RUN_LIMIT_S = 300


@pytest.fixture(scope="module")
def secured(need, tmp_path_factory):
    need("java")
    with SecuredCluster(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


def ask(secured, listener, login, **more):
    """What each broker answers over our own connections."""
    servers = dict(zip(NODES, map(split_server, secured.servers(listener).split(",")), strict=True))
    wire = WireClient(lambda: servers, name="broker", clock=CLOCK, login=WireLogin(login, CLOCK))
    try:
        return [wire.ask(node, api_versions_request(), metadata_request([]), timeout_s=20) for node in NODES]
    finally:
        wire.close()


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_both_clients_get_in_by_every_way_there_is(secured, listener, mechanism):
    login = read_login(secured.file(mechanism, listener=listener))
    for answers in ask(secured, listener, login):
        assert answers is not None
        assert answers[1].brokers == frozenset(NODES)
    _, brokers = Kafka(secured.servers(listener), CLOCK, login).describe()
    assert sorted(brokers) == [*NODES]


def test_what_three_brokers_are_set_to_is_told_and_which_release_they_are(secured):
    login = read_login(secured.file("SCRAM-SHA-512"))
    told = live_settings(secured.servers("SASL"), None, login)
    assert told.releases == dict.fromkeys(NODES, "4.4")
    assert {settings["broker.session.timeout.ms"] for settings in told.brokers.values()} == {"4000"}
    assert describe_elsewhere(secured.servers("SASL"), Variant(), CLOCK, login)["kafka_version"] == "4.4"


def test_what_one_broker_of_three_allows_by_itself_decides_and_is_named(secured, monkeypatch, tmp_path):
    """Seen: set dynamically on the active controller's broker, it lost 50 records that acks=all had acknowledged."""
    login, servers, odd = read_login(secured.file("SCRAM-SHA-512")), secured.servers("SASL"), max(NODES)
    monkeypatch.setenv(CLIENT_CONFIG, str(secured.file("SCRAM-SHA-512")))
    admin = AdminClient({**login.properties, "bootstrap.servers": servers})
    name = "unclean.leader.election.enable"

    def set_on_one(value: str, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, str(odd), incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)

    def is_told(value: str | None) -> bool:
        return live_settings(servers, None, login).brokers[odd].get(name) == value

    (tmp_path / "producer.properties").write_text("acks=all\n")
    given = ValidationInput(producer=tmp_path / "producer.properties", cluster=servers)
    set_on_one("true", AlterConfigOpType.SET)
    try:
        wait_until(lambda: is_told("true"), timeout_s=30, clock=CLOCK, awaited="the broker reports its setting")
        prediction = Prediction(translate(given))
    finally:
        set_on_one("", AlterConfigOpType.DELETE)
        wait_until(lambda: is_told(None), timeout_s=30, clock=CLOCK, awaited="the broker reports its default")
    assert "lost/unclean" in {weakness.rule.id for weakness in prediction.weaknesses}
    assert any(f"{name} differs between brokers" in note and str(odd) in note for note in prediction.parts.notes)
    assert "lost/unclean" not in {weakness.rule.id for weakness in Prediction(translate(given)).weaknesses}


@pytest.mark.parametrize("mechanism", [m for m in MECHANISMS if m != "OAUTHBEARER"])
def test_who_does_not_know_the_password_is_refused_and_told_so(secured, mechanism):
    wrong = Login({**secured.login(mechanism), "sasl.password": "not-" + secured.password}, "f")
    with pytest.raises(ClusterFailed, match="refuses the login") as refused:
        ask(secured, "SASL", wrong)
    assert secured.password not in str(refused.value)


def test_a_token_that_has_expired_is_refused(secured):
    properties = secured.login("OAUTHBEARER")
    old = {**properties, "sasl.oauthbearer.config": "principal=alice lifeSeconds=-900"}
    with pytest.raises(ClusterFailed, match="OAUTHBEARER"):
        ask(secured, "SASL", Login(old, "f"))


def test_a_broker_that_another_authority_vouches_for_is_not_trusted(secured, tmp_path):
    other = Authority(tmp_path, "other")
    login = Login({**secured.login("PLAIN"), "ssl.ca.location": str(other.path)}, "f")
    with pytest.raises(ClusterFailed, match="certificate is not trusted"):
        ask(secured, "SASL", login)


def test_who_has_no_certificate_is_not_let_in(secured):
    login = {k: v for k, v in secured.login("", listener="MUTUAL").items() if "key" not in k and "certificate" not in k}
    with pytest.raises(ClusterFailed, match="TLS fails"):
        ask(secured, "MUTUAL", Login(login, "f"))


def test_who_speaks_no_tls_where_a_broker_does_is_told_that_it_answers_something_else(secured):
    with pytest.raises(ClusterFailed, match="sent an answer that is not Kafka's"):
        ask(secured, "SASL", Login({**secured.login("PLAIN"), "security.protocol": "PLAINTEXT"}, "f"))


class Watched(threading.Thread):
    """Looks at the command lines of every process while a run goes on."""

    def __init__(self, secrets: list[str]) -> None:
        super().__init__(daemon=True)
        self._secrets, self.over, self.seen, self.looks = secrets, threading.Event(), set(), 0

    def run(self) -> None:
        while not self.over.wait(0.5):
            self.looks += 1
            for process in psutil.process_iter(["cmdline"]):
                line = " ".join(process.info["cmdline"] or ())
                self.seen |= {line for secret in self._secrets if secret in line}


@pytest.fixture(scope="module")
def recorded(secured, tmp_path_factory):
    """A run on it: (its directory, what it printed, secrets seen in command lines, the file it logged in by)."""
    folder = tmp_path_factory.mktemp("attached")
    servers = json.dumps(secured.servers("SASL").split(","))
    (folder / "t.toml").write_text(
        'name = "t"\ntitle = "t"\nbackend = "attach"\nworkload = "group"\n'
        f"attach = {{ bootstrap_servers = {servers} }}\n"
        "topics = { partitions = 2, placement = [[1, 2, 3], [2, 3, 1]] }\n"
        'base = { "topic.replication_factor" = 3, "topic.min_insync_replicas" = 2 }\n'
        '[[steps]]\nname = "steady"\nafter = { condition = "acked", count = 100 }\ntimeout_s = 90\n'
    )
    login = secured.file("SCRAM-SHA-256")
    watched = Watched([secured.password, secured.key_password])
    watched.start()
    done = prozess("run", folder / "t.toml", "--engine", "local", "--runs", folder / "runs", "--client-config", login)
    watched.over.set()
    watched.join(10)
    assert watched.looks > 5
    found = list((folder / "runs").iterdir())
    assert len(found) == 1, done.stdout + done.stderr
    return found[0], done, watched.seen, login


def prozess(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    surroundings = {k: v for k, v in os.environ.items() if k != CLIENT_CONFIG} | environment
    return subprocess.run(
        [sys.executable, "-m", "prozess", *map(str, arguments)],
        capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False, env=surroundings,
    )  # fmt: skip


def everything(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())


def test_a_run_logs_in_and_its_history_is_whole(recorded):
    path, done, _, _ = recorded
    verdict = json.loads((path / "verdict.json").read_text())
    assert done.returncode in (ExitCode.HELD, ExitCode.UNKNOWN), done.stdout + done.stderr
    lost = verdict["cells"][0]["anomalies"]["lost"]
    assert (lost["outcome"], lost["count"]) == ("held", 0), lost
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    assert next(e for e in events if e["event"] == "audited")["incomplete"] == 0


def test_no_secret_is_left_in_any_byte_of_it_nor_was_on_the_console_or_a_command_line(secured, recorded):
    path, done, seen, _ = recorded
    written = everything(path) + done.stdout.encode() + done.stderr.encode()
    for secret in (secured.password, secured.key_password):
        assert secret.encode() not in written
    assert not seen
    told = json.loads((path / "plan.json").read_text())["attach"]
    assert told["client_properties"] == {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}
    assert told["withheld"] == ["sasl.password", "sasl.username", "ssl.ca.location"]


def test_it_is_its_owners_alone(recorded):
    path = recorded[0]
    assert not [f for f in (path, *path.rglob("*")) if stat.S_IMODE(f.stat().st_mode) & 0o077]


def test_it_is_checked_again_without_secrets_and_run_again_or_healed_only_with_them(recorded):
    path, done, _, login = recorded
    assert prozess("check", path, "--engine", "local", "--quiet").returncode == done.returncode
    refused = prozess("replay", path, "--engine", "local", "--runs", path.parent.parent / "again")
    assert refused.returncode == ExitCode.BAD_INPUT
    assert "which are written nowhere. Give --client-config FILE" in refused.stderr
    assert prozess("heal", path, **{CLIENT_CONFIG: str(login)}).returncode == ExitCode.HELD


def test_a_leader_that_was_elected_from_outside_is_proven_by_samples_of_the_brokers_metadata(
    secured, tmp_path, monkeypatch
):
    """Two copies; one goes, the other alone is in sync and goes too; the first is back, and is made the leader by force."""
    login = read_login(secured.file("PLAIN"))
    monkeypatch.setenv(CLIENT_CONFIG, login.source)
    admin = AdminClient({**login.properties, "bootstrap.servers": secured.servers("SASL")})
    document = {
        "name": "t", "title": "t", "backend": "attach", "attach": {"bootstrap_servers": secured.servers("SASL").split(",")},
        "topics": {"partitions": 1, "placement": [[1, 2]]}, "base": {"topic.replication_factor": 2},
    }  # fmt: skip
    plan, run = make_plan(parse_trial(document, source="t"), seed=1), RunDirectory(tmp_path / "run")
    run.create()
    topic = plan.partitions[0].topic_name
    admin.create_topics([NewTopic(topic, num_partitions=1, replica_assignment=[[1, 2]])])[topic].result(30)
    cluster = AttachCluster(plan, run, clock=CLOCK)
    seen = Admin(cluster, clock=CLOCK)

    def state(node: int):
        found = seen.described(node, [topic], timeout_s=3)
        return (found or {}).get((topic, 0))

    def until(node: int, holds) -> None:
        wait_until(
            lambda: (found := state(node)) is not None and holds(found),
            awaited=f"that of {topic}",
            timeout_s=60,
            clock=CLOCK,
            last_seen=lambda: str(state(node)),
        )

    try:
        until(3, lambda s: s.leader == 1 and set(s.isr) == {1, 2})
        with Recorder(run) as recorder, MetadataSamples(plan, cluster, recorder, CLOCK):
            secured.kill(2)
            until(3, lambda s: s.isr == (1,))
            secured.kill(1)
            secured.start(2)
            secured.await_started(2)
            until(3, lambda s: s.leader == -1)
            until(2, lambda s: s.leader == -1)
            wait_until(
                lambda: leaderless(run),
                awaited="a sample without a leader",
                timeout_s=30,
                clock=CLOCK,
                last_seen=lambda: "none",
            )
            seen.elect_leaders([(topic, 0)], unclean=True, timeout_s=30)
            until(3, lambda s: s.leader == 2)
            wait_until(
                lambda: sampled_elections(rows_of(run)),
                awaited="a sample of the new leader",
                timeout_s=30,
                clock=CLOCK,
                last_seen=lambda: str(rows_of(run)),
            )
        (election,) = sampled_elections(rows_of(run))[0]
        assert election.leader == 2
        assert "the controllers' log was not read" in str(election)
        told = rows_of(run)
        assert (told["kind"] == MetadataKind.CONTROLLER).any()
    finally:
        seen.close()
        cluster.teardown()
        secured.start(1)
        secured.await_started(1)


def rows_of(run):
    found, _ = read_rows(run.rows, METADATA, RECORDER_CLIENT)
    return {name: np.asarray(found[name]) for name in found.dtype.names}


def leaderless(run) -> bool:
    rows = rows_of(run)
    return bool(((rows["leader"] == -1) & (rows["kind"] == MetadataKind.PARTITION)).any())
