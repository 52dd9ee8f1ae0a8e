"""Kafka servers in a person's own Compose file: known by what the trial says, by labels, by the environment of images."""

import json
from pathlib import Path
from typing import Any

import pytest

from prozess.clusters.compose.user_cluster import OwnServer, own_servers
from prozess.harness.config.configuration import ComposeService, Variant
from prozess.harness.errors import BadInput
from prozess.harness.plan.trial_files import load_trial

COMBINED = Variant(metadata_mode="kraft-combined", brokers=1)
OFFICIAL = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:19092,CONTROLLER://:9093,HOST://:9092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:19092,HOST://localhost:29092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
}


def found(services: dict[str, Any], variant: Variant = COMBINED, **named: ComposeService) -> tuple[OwnServer, ...]:
    return own_servers({"services": services}, named, variant, source="file.yaml")


def test_the_environment_of_the_official_image_says_everything() -> None:
    (server,) = found({"kafka": {"environment": OFFICIAL}, "schema-registry": {"environment": {"X": "1"}}})
    assert server == OwnServer(
        service="kafka",
        node_id=1,
        roles=frozenset({"broker", "controller"}),
        clients=("127.0.0.1", 29092),
        observer=("127.0.0.1", 29092),
        controllers=("", 9093),
        data="/var/lib/kafka/data",
    )
    assert server.name == "broker-1"


def test_bitnamis_spelling_is_known_too() -> None:
    environment = {name.replace("KAFKA_", "KAFKA_CFG_"): value for name, value in OFFICIAL.items()}
    assert found({"kafka": {"environment": environment}}) == found({"kafka": {"environment": OFFICIAL}})


def test_labels_have_precedence_over_the_environment_and_the_trial_over_both() -> None:
    labels = {"prozess.node-id": "1", "prozess.clients": "10.0.0.7:9092", "prozess.observer": "10.0.1.7:9092"}
    service = {"labels": labels, "environment": OFFICIAL | {"KAFKA_NODE_ID": "7"}}
    (server,) = found({"kafka": service})
    assert (server.node_id, server.clients, server.observer) == (1, ("10.0.0.7", 9092), ("10.0.1.7", 9092))
    (server,) = found({"kafka": service}, kafka=ComposeService(clients="127.0.0.1:1", data="/data"))
    assert (server.clients, server.observer, server.data) == (("127.0.0.1", 1), ("10.0.1.7", 9092), "/data")


def test_brokers_may_be_numbered_from_0() -> None:
    services = {
        f"k{number}": {"environment": OFFICIAL | {"KAFKA_NODE_ID": str(number), "KAFKA_ADVERTISED_LISTENERS": listener}}
        for number in range(3)
        for listener in [f"HOST://localhost:{29092 + number}"]
    }
    servers = found(services, Variant(metadata_mode="kraft-combined", brokers=3))
    assert [server.name for server in servers] == ["broker-0", "broker-1", "broker-2"]


def test_isolated_controllers_come_first_and_have_no_clients() -> None:
    services = {
        "b": {"environment": OFFICIAL | {"KAFKA_PROCESS_ROLES": "broker"}},
        "c": {"environment": OFFICIAL | {"KAFKA_NODE_ID": "3001", "KAFKA_PROCESS_ROLES": "controller"}},
    }
    controller, broker = found(services, Variant(metadata_mode="kraft-isolated", brokers=1))
    assert (controller.name, controller.clients, controller.controllers) == ("controller-3001", None, ("", 9093))
    assert (broker.name, broker.clients, broker.controllers) == ("broker-1", ("127.0.0.1", 29092), None)


@pytest.mark.parametrize(
    ("services", "variant", "named", "said"),
    [
        ({"web": {}}, COMBINED, {}, r"no service that runs Kafka.*prozess\.node-id"),
        ({"web": {}}, COMBINED, {"kafka": ComposeService(node_id=1)}, r"'kafka', which file\.yaml has not.*web"),
        ({"k": {"environment": OFFICIAL | {"KAFKA_NODE_ID": "one"}}}, COMBINED, {}, r"'one', which is no number"),
        ({"k": {"environment": OFFICIAL}}, Variant(brokers=3), {}, r"has the brokers \[1\].*variant\.brokers to 1"),
        ({"k": {"environment": OFFICIAL}}, Variant(brokers=1), {}, r"is kraft-combined.*--variant kraft-combined"),
        ({"a": {"environment": OFFICIAL}, "b": {"environment": OFFICIAL}}, COMBINED, {}, r"the same node id"),
        ({"k": {"environment": {"KAFKA_NODE_ID": "1"}}}, COMBINED, {}, r"where clients.*prozess\.clients"),
        ({"k": {"environment": OFFICIAL | {"KAFKA_PROCESS_ROLES": "boss"}}}, COMBINED, {}, r"roles boss; known"),
        (
            {"k": {"environment": OFFICIAL, "labels": {"prozess.clients": "9092"}}},
            COMBINED,
            {},
            r"'9092' is not HOST:PORT",
        ),
    ],
)
def test_what_a_file_leaves_open_is_refused_with_the_way_out(
    services: dict[str, Any], variant: Variant, named: dict[str, ComposeService], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        found(services, variant, **named)


def test_a_file_is_relative_to_the_trial_and_on_the_command_line_to_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = tmp_path / "trials" / "mine.toml"
    trial.parent.mkdir()
    trial.write_text('name = "mine"\ntitle = "Mine"\nworkload = "log"\n[compose]\nfile = "my.yaml"\n', encoding="utf-8")
    assert load_trial(str(trial)).compose.file == str(tmp_path / "trials" / "my.yaml")
    monkeypatch.chdir(tmp_path)
    assert load_trial(str(trial), {"compose.file": "here.yaml"}).compose.file == str(tmp_path / "here.yaml")
    assert json.loads(load_trial(str(trial)).model_dump_json())["compose"]["services"] == {}
