"""Compose files: resolved by Compose's rules, within bounds; the brokers of them, and what is not understood of those."""

import json
import os
import shutil
import subprocess
import textwrap

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess.harness.config.known_properties import Setting
from prozess.harness.errors import BadInput
from prozess.validation.command import ValidationInput, translate
from prozess.validation.compose.brokers import read_compose
from prozess.validation.compose.resolution import docker_configuration, interpolated, resolve
from prozess.validation.formats.differing_brokers import weakest
from prozess.validation.formats.images import image_named

BROKER = """
  {name}:
    image: {image}
    volumes: ['{name}:/var/lib/kafka/data']
    environment:
      KAFKA_NODE_ID: {number}
      KAFKA_PROCESS_ROLES: {roles}
      KAFKA_CONTROLLER_QUORUM_VOTERS: 1@k1:9093,2@k2:9093
      KAFKA_LOG_DIRS: /var/lib/kafka/data
      KAFKA_MIN_INSYNC_REPLICAS: {least}
"""


def broker(name="k1", *, image="apache/kafka:4.1.0", roles="broker,controller", least=2, more=""):
    return BROKER.format(name=name, image=image, number=name[-1], roles=roles, least=least) + textwrap.indent(
        more, "    "
    )


def file(tmp_path, *services, name="cluster.yml", more=""):
    path = tmp_path / name
    path.write_text("services:" + "".join(services) + "\n" + textwrap.dedent(more))
    return path


def values(reading):
    return {name: setting.value for name, setting in reading.scopes["broker"].items()}


def doubts(reading):
    return {each.name: each.why for each in (*reading.unclear, *reading.no_version)}


# --- Which services are brokers, and what they are set to together. ---


def test_the_weakest_of_brokers_that_differ_decides_and_a_note_names_them(tmp_path):
    reading = read_compose(file(tmp_path, broker("k1"), broker("k2", least=1)))
    assert values(reading)["min.insync.replicas"] == "1"
    assert any("min.insync.replicas differs" in note and "k2" in note for note in reading.notes)
    assert not doubts(reading)
    assert reading.brokers == 2


def test_what_a_broker_leaves_at_kafkas_default_counts_as_the_default():
    k1, k2 = {"min.insync.replicas": Setting("2", "a:1")}, {"x.y": Setting("1", "a:2")}
    found = weakest({"k1": k1, "k2": k2}, "4.1.0")
    assert found.settings["min.insync.replicas"].value == "1"
    assert [name for name, _, _ in found.doubts] == ["x.y"]


@pytest.mark.parametrize("value", ["true", "false"])
def test_controllers_decide_elections_with_the_brokers(value):
    node = {"unclean.leader.election.enable": Setting("false", "a:1")}
    found = weakest({"k1": node}, "4.1.0", {"c1": {"unclean.leader.election.enable": Setting(value, "a:2")}})
    assert found.settings["unclean.leader.election.enable"].value == value


def test_a_controller_alone_is_no_broker(tmp_path):
    reading = read_compose(file(tmp_path, broker("c1", roles="controller", least=1), broker("k2", roles="broker")))
    assert (reading.brokers, values(reading)["min.insync.replicas"]) == (1, "2")


@pytest.mark.parametrize(
    "other",
    [
        "image: provectuslabs/kafka-ui:latest\nenvironment: {KAFKA_CLUSTERS_0_NAME: local}",
        "image: confluentinc/cp-kafka-connect:7.9.0\nenvironment: {CONNECT_GROUP_ID: g, KAFKA_LOG_DIRS: /x}",
        "image: my/app:1\nenvironment: {KAFKA_BOOTSTRAP: 'k1:9092', KAFKA_ACKS: 1}",
        "image: apache/kafka:4.1.0\ncommand: kafka-topics.sh --create\nenvironment: {KAFKA_BROKER_ID: ignored}",
    ],
)
def test_what_uses_brokers_is_none(tmp_path, other):
    first = f"\n  k0:\n{textwrap.indent(other, '    ')}"
    reading = read_compose(file(tmp_path, first, broker("k1")))
    assert (reading.brokers, doubts(reading)) == (1, {})
    assert any("passed over: k0" in note for note in reading.notes)
    with pytest.raises(BadInput, match="It has: k1"):
        read_compose(file(tmp_path, first, broker("k1")), "k0")


def test_two_clusters_in_one_file_are_told_apart_by_service(tmp_path):
    other = broker("k3", least=1).replace("1@k1:9093,2@k2:9093", "3@k3:9093")
    path = file(tmp_path, broker("k1"), other)
    assert "--service" in doubts(read_compose(path))["services k3"]
    assert doubts(read_compose(path, "k3")) == {}
    assert values(read_compose(path, "k3"))["min.insync.replicas"] == "1"


# --- What keeps a promise from being made. ---


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("volumes: ['k1:/var/lib/kafka/data']", "tmpfs: /var/lib/kafka", "volumes"),
        ("volumes: ['k1:/var/lib/kafka/data']", "volumes: ['k1:/elsewhere']", "volumes"),
        ("volumes: ['k1:/var/lib/kafka/data']", "volumes: [/var/lib/kafka/data]", "volumes"),
        ("volumes: ['k1:/var/lib/kafka/data']", "volumes: ['/dev/shm/k:/var/lib/kafka/data']", "volumes"),
        (
            "volumes: ['k1:/var/lib/kafka/data']",
            "volumes: [{type: tmpfs, target: /var/lib/kafka/data}]",
            "volumes",
        ),
        ("KAFKA_LOG_DIRS: /var/lib/kafka/data", "KAFKA_LOG_DIRS: /var/lib/kafka/data,/other", "volumes"),
        ("image:", "volumes_from: [k2]\n    image:", "volumes_from"),
        ("image:", "profiles: [debug]\n    image:", "profiles"),
        ("image:", "command: sh -c 'export KAFKA_ACKS=1; run'\n    image:", "command"),
        ("image:", "command: sleep infinity\n    image:", "command"),
        ("image:", "command: [/scripts/run.sh]\n    image:", "command"),
        ("image:", "command: [sh, -c, 'echo a=b | tee -a c; /etc/kafka/docker/run']\n    image:", "command"),
        ("image:", "command: [kafka-server-start.sh, server.properties]\n    image:", "command"),
        ("image:", "post_start: [{command: kafka-configs.sh --alter}]\n    image:", "post_start"),
        ("image:", "scale: 3\n    image:", "scale"),
        ("KAFKA_LOG_DIRS: /var/lib", "KAFKA_METADATA_LOG_DIR: /meta\n      KAFKA_LOG_DIRS: /var/lib", "volumes"),
        ("'k1:/var/lib/kafka/data'", "'k1:/var/lib/kafka/data', './c:/opt/kafka'", "volumes ./c"),
        ("'k1:/var/lib/kafka/data'", "'k1:/var/lib/kafka/data', './c:/mnt'", "volumes ./c"),
        ("'k1:/var/lib/kafka/data'", "'k1:/var/lib/kafka/data', 'c:/etc/kafka/docker'", "volumes c"),
        ("image:", "secrets: [{source: s, target: /x/server.properties}]\n    image:", "volumes secret s"),
        ("apache/kafka:4.1.0", "apache/kafka:4.1.0-rc1", "image"),
        ("apache/kafka:4.1.0", "apache/kafka:${TAG:-4.1.0}", "image"),
        ("apache/kafka:4.1.0", "redpandadata/redpanda:v24.1.1", "image"),
        ("'k1:/var/lib/kafka/data'", "'k1:/var/lib/kafka/data', './c:/etc/kafka'", "volumes ./c"),
        ("apache/kafka:4.1.0", "apache/kafka:latest", "image"),
        ("apache/kafka:4.1.0", "apache/kafka@sha256:00", "image"),
        ("apache/kafka:4.1.0", "mirror.example/kafka:4.1.0", "image"),
        ("image: apache/kafka:4.1.0", "build: .", "image"),
    ],
)
def test_what_may_lose_a_disk_or_set_a_property_unread_is_unclear(tmp_path, before, after, name):
    text = broker("k1")
    assert before in text
    found = doubts(read_compose(file(tmp_path, text.replace(before, after))))
    assert [each.replace(f"{tmp_path}/", "./") for each in found] == [f"k1.{name}"], found


def test_what_is_not_understood_of_a_service_stands_at_its_line(tmp_path):
    text = broker("k2").replace("volumes: ['k2:/var/lib/kafka/data']", "scale: 1")
    path = file(tmp_path, broker("k1"), text)
    (told,) = read_compose(path).unclear
    assert path.read_text().splitlines()[int(told.origin.rpartition(":")[2]) - 1].strip() == "k2:"


def test_a_named_volume_in_memory_ends_with_its_host(tmp_path):
    more = "volumes: {k1: {driver_opts: {type: tmpfs, device: tmpfs}}}\n"
    assert "k1.volumes" in doubts(read_compose(file(tmp_path, broker("k1"), more=more)))


def test_overrides_of_a_command_line_count_most_and_the_file_that_it_starts_with_is_not_known(tmp_path):
    more = "command: [kafka-server-start.sh, server.properties, --override, min.insync.replicas=1]\n"
    reading = read_compose(file(tmp_path, broker("k1", more=more)))
    assert values(reading)["min.insync.replicas"] == "1"
    assert "past the start of its image" in doubts(reading)["k1.command"]


@pytest.mark.parametrize(
    "command",
    [
        "/etc/kafka/docker/run",
        "[/__cacert_entrypoint.sh, /etc/kafka/docker/run]",
        "[sh, -c, 'sleep 5; exec /etc/kafka/docker/run']",
        "[bash, -ec, 'set -e\n\n /etc/kafka/docker/run']",
        "bash -c 'echo it begins && /etc/kafka/docker/run'",
    ],
)
def test_the_start_of_the_image_sets_nothing_else_however_it_is_called(tmp_path, command):
    assert doubts(read_compose(file(tmp_path, broker("k1", more=f"command: {command}\n")))) == {}


def test_a_broker_without_variables_whose_file_is_mounted_is_a_broker(tmp_path):
    (tmp_path / "conf").mkdir()
    properties = "process.roles=broker,controller\ncontroller.quorum.voters=1@k1:9093,2@k2:9093\n"
    properties += "unclean.leader.election.enable=true\nlog.dirs=/log\n"
    (tmp_path / "conf" / "server.properties").write_text(properties)
    mounted = "volumes: ['./conf:/mnt/shared/config', 'k2:/log']"
    reading = read_compose(file(tmp_path, broker("k1"), f"\n  k2:\n    image: apache/kafka:4.1.0\n    {mounted}\n"))
    assert (reading.brokers, values(reading)["unclean.leader.election.enable"]) == (2, "true")
    assert doubts(reading) == {}


@pytest.mark.parametrize(("second", "shares"), [("k1:/var", True), ("k2:/var", False)])
def test_logs_of_two_brokers_on_one_volume_are_no_two_copies(tmp_path, second, shares):
    found = doubts(read_compose(file(tmp_path, broker("k1"), broker("k2").replace("k2:/var", second))))
    assert ["all copies end with one volume" in why for why in found.values()] == [True] * shares


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        ("kafka-configs.sh --alter --entity-type brokers --entity-default --add-config a=b", True),
        ("sh -c 'kafka-features.sh --bootstrap-server k1:9092 upgrade --feature x=1'", True),
        ("kafka-configs.sh --describe --entity-type brokers", False),
        ("kafka-topics.sh --list", False),
    ],
)
def test_a_container_that_changes_settings_of_the_running_cluster_is_not_passed_over(tmp_path, command, changes):
    init = f'\n  init:\n    image: apache/kafka:4.1.0\n    command: "{command}"\n'
    found = doubts(read_compose(file(tmp_path, broker("k1"), init)))
    assert (["init.command"] if changes else []) == list(found)


def test_topics_that_a_container_makes_are_unclear_unless_a_file_says_what_they_have(tmp_path):
    init = "\n  init:\n    image: apache/kafka:4.1.0\n    command: kafka-topics.sh --create --replication-factor 1\n"
    path = file(tmp_path, broker("k1"), broker("k2"), init)
    producer, topic = tmp_path / "producer.properties", tmp_path / "topic.properties"
    producer.write_text("acks=all\n")
    topic.write_text("replication.factor=2\n")
    alone = translate(ValidationInput(producer=producer, compose=path))
    assert [each.name for reading in alone.readings for each in reading.unclear] == ["init.command"]
    both = translate(ValidationInput(producer=producer, compose=path, topic=topic))
    assert [each.name for reading in both.readings for each in reading.unclear] == []


@pytest.mark.parametrize(("volumes", "keeps"), [("[a:/data, b:/datalog]", True), ("[a:/data]", False), ("[]", False)])
def test_what_zookeeper_keeps_must_last_too(tmp_path, volumes, keeps):
    server = broker("k1").replace("KAFKA_PROCESS_ROLES: broker,controller", "KAFKA_ZOOKEEPER_CONNECT: zk:2181")
    zookeeper = f"\n  zk:\n    image: zookeeper:3.8\n    volumes: {volumes}\n"
    assert ("zk.volumes" not in doubts(read_compose(file(tmp_path, server, zookeeper)))) == keeps


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("COMPOSE_FILE=compose.yml:other.yml\n", "COMPOSE_FILE"),
        ("COMPOSE_PATH_SEPARATOR=;\nCOMPOSE_FILE=./compose.yml;other.yml\n", "COMPOSE_FILE"),
        ("COMPOSE_ENV_FILES=.env,other.env\n", "COMPOSE_ENV_FILES"),
        ("COMPOSE_FILE=compose.yml:compose.override.yml\nCOMPOSE_PROJECT_NAME=x\n", None),
    ],
)
def test_other_files_that_the_env_file_names_are_named(tmp_path, text, named):
    (tmp_path / ".env").write_text(text)
    assert list(doubts(read_compose(file(tmp_path, broker("k1"), name="compose.yml")))) == (
        [] if named is None else [named]
    )


SIBLING = "services:\n  {name}:\n    environment: {{KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE: 'true'}}\n"


@pytest.mark.parametrize(
    ("name", "service", "named"),
    [
        ("compose.prod.yml", "k1", True),
        ("docker-compose.staging.yaml", "k1", True),
        ("compose-prod.yml", "k1", True),
        ("compose.prod.yml", "grafana", False),  # a file for something else
        ("compose.override.yml", "k1", False),  # Compose lays it over by itself
        ("notes.yml", "k1", False),
    ],
)
def test_a_compose_file_beside_it_with_the_same_service_is_named(tmp_path, name, service, named):
    (tmp_path / name).write_text(SIBLING.format(name=service))
    assert list(doubts(read_compose(file(tmp_path, broker("k1"), name="compose.yml")))) == ([name] if named else [])


def test_a_compose_file_beside_it_that_is_included_is_read_and_one_that_is_broken_is_named(tmp_path):
    (tmp_path / "compose.prod.yml").write_text(SIBLING.format(name="k2"))
    path = file(tmp_path, broker("k1"), name="compose.yml")
    path.write_text("include: [compose.prod.yml]\n" + path.read_text())
    assert "compose.prod.yml" not in doubts(read_compose(path))
    (tmp_path / "compose.test.yml").write_text("services: [\n")
    assert "compose.test.yml" in doubts(read_compose(path))


READ_ONLY = "{type: volume, source: k1, target: /var/lib/kafka/data, read_only: true}"


@pytest.mark.parametrize("written", ["'k1:/var/lib/kafka/data:ro'", READ_ONLY])
def test_a_volume_that_cannot_be_written_keeps_no_log(tmp_path, written):
    text = broker("k1").replace("'k1:/var/lib/kafka/data'", written)
    assert "are read-only where the broker writes" in str(doubts(read_compose(file(tmp_path, text))))


def test_bitnamis_variables_in_apaches_image_are_named_and_the_others_are_read(tmp_path):
    own = "KAFKA_CFG_UNCLEAN_LEADER_ELECTION_ENABLE: 'true'\n      KAFKA_MIN_INSYNC"
    parts = translate(ValidationInput(compose=file(tmp_path, broker("k1").replace("KAFKA_MIN_INSYNC", own))))
    assert [each.name for each in parts.unclear] == ["KAFKA_CFG_UNCLEAN_LEADER_ELECTION_ENABLE"]
    assert parts.base["topic.min_insync_replicas"] == 2


def test_a_file_that_apaches_image_takes_is_read_below_the_variables(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "server.properties").write_text("min.insync.replicas=1\nunclean.leader.election.enable=true\n")
    text = broker("k1").replace("'k1:/var", "'./conf:/mnt/shared/config', 'k1:/var")
    reading = read_compose(file(tmp_path, text))
    assert values(reading)["unclean.leader.election.enable"] == "true"
    assert values(reading)["min.insync.replicas"] == "2"
    assert reading.scopes["broker"]["unclean.leader.election.enable"].origin.endswith("conf/server.properties:2")
    assert not doubts(reading)


# --- Images. ---


@pytest.mark.parametrize(
    ("name", "version", "runs_broker"),
    [
        ("apache/kafka:3.9.0", "3.9.0", True),
        ("docker.io/apache/kafka-native:4.0.1-rc2", None, True),
        ("apache/kafka:${TAG:-4.0.1}", None, True),
        ("confluentinc/cp-kafka:7.9.3", "3.9.0", True),
        ("registry:5000/mirror/cp-server:8.0.0-1-ubi9", "4.0.0", True),
        ("confluentinc/cp-kafka:12.1.0", None, True),
        ("bitnami/kafka:3.4", "3.4.0", True),
        ("bitnamilegacy/kafka:3.9.1-debian-12-r0", "3.9.1", True),
        ("quay.io/strimzi/kafka:0.45.0-kafka-3.9.0", "3.9.0", True),
        ("apache/kafka", None, True),
        ("apache/kafka:trunk", None, True),
        ("me/kafka:3.9.0", None, None),
        ("", None, None),
        ("provectuslabs/kafka-ui:v0.7.2", None, False),
        ("confluentinc/cp-kafka-connect:7.9.0", None, False),
        ("quay.io/debezium/connect:3.0", None, False),
    ],
)
def test_an_image_tells_its_version_or_does_not(name, version, runs_broker):
    found = image_named(name)
    assert (found.version, found.runs_broker) == (version, runs_broker)
    assert found.version is not None or found.why


def test_the_oldest_of_different_versions_decides(tmp_path):
    reading = read_compose(file(tmp_path, broker("k1"), broker("k2", image="confluentinc/cp-kafka:7.5.1")))
    assert reading.kafka_version == "3.5.0"
    assert any("different versions" in note for note in reading.notes)


# --- What a file brings in. ---


def test_files_of_variables_lie_below_the_environment_and_know_their_lines(tmp_path):
    (tmp_path / "a.env").write_text("KAFKA_MIN_INSYNC_REPLICAS=1\nKAFKA_UNCLEAN_LEADER_ELECTION_ENABLE=true\n")
    reading = read_compose(file(tmp_path, broker("k1", more="env_file: [a.env, {path: b.env, required: false}]\n")))
    assert values(reading)["min.insync.replicas"] == "2"
    assert reading.scopes["broker"]["unclean.leader.election.enable"].origin.partition(",")[0].endswith("a.env:2")
    assert not doubts(reading)


def test_extends_include_and_the_override_file_are_followed(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.yml").write_text("services:" + broker("k9", least=1) + broker("k2"))
    (tmp_path / "sub" / "k9.env").write_text("KAFKA_LOG_FLUSH_INTERVAL_MESSAGES=5\n")
    base = (tmp_path / "sub" / "base.yml").read_text().replace("image:", "env_file: k9.env\n    image:", 1)
    (tmp_path / "sub" / "base.yml").write_text(base)
    (tmp_path / "docker-compose.override.yml").write_text(
        "services: {k1: {environment: {KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE: 'true'}}}"
    )
    own = "\n  k1:\n    extends: {file: sub/base.yml, service: k9}\n    environment: [KAFKA_NODE_ID=1]\n"
    path = file(tmp_path, own, name="docker-compose.yml", more="include: [sub/base.yml]\n")
    found = resolve(path)
    assert set(found.services) == {"k1", "k9", "k2"}
    k1 = {name: each.value for name, each in found.services["k1"]["environment"].items()}
    assert k1["KAFKA_NODE_ID"] == "1"
    assert (k1["KAFKA_LOG_FLUSH_INTERVAL_MESSAGES"], k1["KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE"]) == ("5", "true")
    assert not found.unclear


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("env_file: {directory}/../outside.env", "outside of"),
        ("env_file: ../outside.env", "outside of"),
        ("env_file: link.env", "outside of"),
        ("env_file: missing.env", "not there"),
        ("env_file: pipe", "no plain file"),
        ("env_file: large.env", "no plain file"),
        ("env_file: /dev/zero", "outside of"),
        ("extends: {{file: https://example.com/a.yml, service: k1}}", "not on this machine"),
        ("extends: {{file: cluster.yml, service: k1}}", "cannot be read"),
        ("extends: {{file: '${{WHICH}}.yml', service: k1}}", "no file sets"),
    ],
)
def test_a_file_is_read_only_where_the_compose_file_lies(tmp_path, more, why):
    directory = tmp_path / "project"
    directory.mkdir()
    (tmp_path / "outside.env").write_text("KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE=true\n")
    (directory / "link.env").symlink_to(tmp_path / "outside.env")
    (directory / "large.env").write_text("A=1\n" * 400_000)
    os.mkfifo(directory / "pipe")
    reading = read_compose(file(directory, broker("k1", more=more.format(directory=directory) + "\n")))
    (told,) = reading.unclear
    assert why in told.why
    assert "unclean.leader.election.enable" not in values(reading)


def test_a_variable_that_no_file_sets_stays_a_placeholder_whatever_this_process_has(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAST", "2")
    path = file(tmp_path, broker("k1", least="${LEAST:-2}"))
    assert values(read_compose(path))["min.insync.replicas"] == "${LEAST:-2}"
    (tmp_path / ".env").write_text("LEAST=1\n")
    assert values(read_compose(path))["min.insync.replicas"] == "1"


def test_variables_are_put_in_as_compose_does():
    variables = {"A": "1", "E": ""}
    text = "$A ${A} ${A:-2} ${E:-2} ${E-2} ${A:+3} ${B:-4} ${E:-${A}} $$A ${A:?no} $ ${"
    assert interpolated(text, variables) == "1 1 1 2  3 ${B:-4} 1 $A 1 $ ${"


# --- Docker Compose's own resolution is the same. ---

PARTS = st.fixed_dictionaries({"A": st.sampled_from(["", "1", "two words"]), "B": st.sampled_from(["3", "'quoted'"])})
TEXTS = st.sampled_from(["$A", "${A:-x}", "${B}", "${A:+y}", "plain", "$$A", "${A-}z", "1", "true"])


@pytest.fixture
def compose(need):
    """Compose resolves files without an engine; there are commands `docker` that do not have it."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode
    ):
        need("docker")


@pytest.mark.usefixtures("compose")
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PARTS, st.lists(TEXTS, min_size=4, max_size=4), st.booleans())
def test_docker_compose_resolves_files_as_this_reader_does(tmp_path_factory, variables, texts, as_list):
    directory = tmp_path_factory.mktemp("project")
    (directory / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    (directory / "x.env").write_text("KAFKA_X=1\nKAFKA_Y=2\n")
    own = {f"KAFKA_{name}": text for name, text in zip("XPQR", texts, strict=True)}
    base = {"image": "apache/kafka:$B", "environment": {"KAFKA_Z": "9"}, "env_file": "x.env"}
    document = {
        "services": {
            "base": base,
            "k1": {"extends": "base", "environment": [f"{k}={v}" for k, v in own.items()] if as_list else own},
        }
    }
    path = directory / "compose.yml"
    path.write_text(yaml.safe_dump(document))
    ours = resolve(path).services
    docker = docker_configuration(path)
    assert docker is not None
    for name in ("base", "k1"):
        told = {key: str(value).replace("$$", "$") for key, value in docker["services"][name]["environment"].items()}
        assert {key: each.value for key, each in ours[name]["environment"].items()} == told, json.dumps(document)
        assert ours[name]["image"] == docker["services"][name]["image"]
