"""server.properties and placement of the local backend, ZooKeeper's and those of a migration too: what needs no cluster."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.machine.node_network import DATA, OBSERVER, address_of
from prozess.clusters.machine.server_properties import (
    OURS,
    Placement,
    properties_text,
    server_properties,
    shaping_settings,
    zookeeper_properties,
)
from prozess.clusters.machine.servers import PORTS, SHARED_PORTS, put_into_namespaces
from prozess.clusters.machine.tiered import check_topics, make_store, store_beside, store_properties
from prozess.harness.config.configuration import Variant
from prozess.harness.errors import BadInput
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial


def placed(variant: Variant, **options: Any) -> dict[str, Placement]:
    options = {"shared_host": False, "relay_ports": {}, **options}
    return {node.name: node for node in put_into_namespaces(variant, Path("/run-directory/nodes"), **options)}


def properties_of(variant: Variant, name: str, **options: Any) -> dict[str, str]:
    nodes = placed(variant, **options)
    return server_properties(variant, nodes[name], tuple(nodes.values()))


# --- placement and properties ---------------------------------------------------------------------------------------


def test_isolated_controllers_are_numbered_from_3001_and_start_first() -> None:
    names = list(placed(Variant(brokers=2, controllers=3)))
    assert names == ["controller-3001", "controller-3002", "controller-3003", "broker-1", "broker-2"]


def test_a_combined_node_is_a_broker_with_both_roles() -> None:
    nodes = placed(Variant(metadata_mode="kraft-combined", brokers=3))
    assert list(nodes) == ["broker-1", "broker-2", "broker-3"]
    assert all(node.roles == {"broker", "controller"} for node in nodes.values())


@given(brokers=st.integers(1, 9), controllers=st.integers(1, 5), combined=st.booleans())
def test_no_two_nodes_share_an_address(brokers: int, controllers: int, combined: bool) -> None:
    mode = "kraft-combined" if combined else "kraft-isolated"
    nodes = placed(Variant(metadata_mode=mode, brokers=brokers, controllers=controllers)).values()
    addresses = [node.data_address for node in nodes] + [node.observer_address for node in nodes]
    assert len(set(addresses)) == 2 * len(nodes)
    assert len(set(PORTS)) == len(PORTS)


def test_a_broker_is_observed_on_a_link_of_its_own() -> None:
    found = properties_of(Variant(), "broker-2")
    assert found["listeners"] == "DATA://10.213.77.2:9092,OBSERVER://10.213.78.2:9093"
    assert found["advertised.listeners"] == found["listeners"]
    assert found["inter.broker.listener.name"] == "DATA"
    assert found["controller.quorum.voters"] == "3001@10.213.77.11:9095"
    assert found["process.roles"] == "broker"


def test_a_controller_is_observed_on_a_link_of_its_own_too() -> None:
    found = properties_of(Variant(), "controller-3001")
    assert found["listeners"] == "CONTROLLER://10.213.77.11:9095,CONTROLLEROBSERVER://10.213.78.11:9096"
    assert found["controller.listener.names"].split(",")[0] == "CONTROLLER"
    assert "advertised.listeners" not in found
    assert "inter.broker.listener.name" not in found


def test_a_combined_node_listens_as_both() -> None:
    found = properties_of(Variant(metadata_mode="kraft-combined"), "broker-1")
    assert [part.partition(":")[0] for part in found["listeners"].split(",")] == [
        "DATA",
        "OBSERVER",
        "CONTROLLER",
        "CONTROLLEROBSERVER",
    ]
    assert "CONTROLLER" not in found["advertised.listeners"]
    assert len(found["controller.quorum.voters"].split(",")) == 3


def test_with_zookeeper_brokers_know_the_ensemble_and_have_no_controllers_listeners() -> None:
    variant = Variant(metadata_mode="zookeeper", kafka_version="3.9.2", zookeepers=3)
    assert list(placed(variant))[:4] == ["zookeeper-1", "zookeeper-2", "zookeeper-3", "broker-1"]
    found = properties_of(variant, "broker-2")
    assert found["zookeeper.connect"] == "10.213.77.21:9092,10.213.77.22:9092,10.213.77.23:9092"
    assert (found["broker.id"], "node.id" in found, "process.roles" in found) == ("2", False, False)
    assert found["listener.security.protocol.map"] == "DATA:PLAINTEXT,OBSERVER:PLAINTEXT"
    assert shaping_settings(variant)["zookeeper.session.timeout.ms"] == "18000"
    assert "broker.session.timeout.ms" not in shaping_settings(variant)


@pytest.mark.parametrize("zookeepers", [1, 3])
def test_zookeeper_servers_know_their_peers_and_listen_for_the_observer_too(zookeepers: int) -> None:
    nodes = placed(Variant(metadata_mode="zookeeper", kafka_version="3.9.2", zookeepers=zookeepers))
    found = zookeeper_properties(nodes["zookeeper-1"], tuple(nodes.values()), own_network=True)
    peers = {key: value for key, value in found.items() if key.startswith("server.")}
    assert len(peers) == (zookeepers if zookeepers > 1 else 0), "one alone is no ensemble"
    assert all(value.count(":") == 2 for value in peers.values())
    assert (found["clientPort"], found["clientPortAddress"]) == ("9092", "0.0.0.0")
    shared = zookeeper_properties(nodes["zookeeper-1"], tuple(nodes.values()), own_network=False)
    assert shared["clientPortAddress"] == nodes["zookeeper-1"].data_address


@given(
    brokers=st.integers(1, 9),
    keepers=st.integers(1, 5),
    mode=st.sampled_from(["zookeeper", "kraft-combined", "kraft-isolated"]),
)
def test_every_server_has_the_name_and_id_that_the_variant_gives_it(brokers: int, keepers: int, mode: Any) -> None:
    variant = Variant(
        metadata_mode=mode, kafka_version="3.9.2", brokers=brokers, controllers=keepers, zookeepers=keepers
    )
    nodes = placed(variant)
    assert {node.node_id: node.name for node in nodes.values()} == variant.server_names()
    assert len({node.data_address for node in nodes.values()}) == len(nodes)


def test_who_keeps_the_metadata_depends_on_the_mode() -> None:
    assert Variant(controllers=3).metadata_keepers == (3001, 3002, 3003)
    assert Variant(metadata_mode="kraft-combined").metadata_keepers == (1, 2, 3)
    assert Variant(metadata_mode="zookeeper").metadata_keepers == (1, 2, 3, 4001), "any broker may be the controller"


def test_a_mixed_cluster_can_rely_on_its_oldest_version_alone() -> None:
    variant = Variant(versions={"broker-2": "3.9.2"})
    assert variant.kafka_versions == ("3.9.2", "4.4.0")
    assert (variant.oldest_version, variant.version_of("broker-2"), variant.version_of("broker-1")) == (
        "3.9.2",
        "3.9.2",
        "4.4.0",
    )
    assert not any(key.startswith("share.") for key in properties_of(variant, "broker-1"))
    assert Variant(kafka_version="3.10.0", versions={"broker-1": "3.9.2"}).oldest_version == "3.9.2"


def test_a_relayed_broker_advertises_the_relay_to_callers_outside() -> None:
    found = properties_of(Variant(), "broker-1", relay_ports={1: 29092})
    assert "CLIENT://10.213.77.1:9094" in found["listeners"]
    assert "CLIENT://127.0.0.1:29092" in found["advertised.listeners"]
    names = {pair.partition(":")[0] for pair in found["listener.security.protocol.map"].split(",")}
    assert "CLIENT" in names
    assert "CLIENT" not in properties_of(Variant(), "broker-1")["listener.security.protocol.map"]


def test_the_variants_properties_are_laid_over_the_defaults() -> None:
    variant = Variant(properties={"num.io.threads": "7", "broker.session.timeout.ms": "4000"})
    for name in ("broker-1", "controller-3001"):
        found = properties_of(variant, name)
        assert (found["num.io.threads"], found["broker.session.timeout.ms"]) == ("7", "4000")


def test_brokers_whose_request_handlers_wait_for_one_another_have_as_many_as_by_kafkas_default() -> None:
    threads = {
        version: properties_of(Variant(metadata_mode="zookeeper", kafka_version=version), "broker-1")["num.io.threads"]
        for version in ("2.8.2", "3.0.0", "3.5.2", "3.6.0", "3.9.2")
    }
    assert threads == {"2.8.2": "2", "3.0.0": "8", "3.5.2": "8", "3.6.0": "2", "3.9.2": "2"}


def test_brokers_with_zookeeper_speak_as_the_oldest_of_them_does() -> None:
    variant = Variant(metadata_mode="zookeeper", kafka_version="3.9.2", versions={"broker-2": "2.8.1"})
    spoken = [properties_of(variant, f"broker-{n}")["inter.broker.protocol.version"] for n in (1, 2, 3)]
    assert spoken == ["2.8"] * 3
    chosen = variant.model_copy(update={"properties": {"inter.broker.protocol.version": "2.7"}})
    assert properties_of(chosen, "broker-1")["inter.broker.protocol.version"] == "2.7"
    assert "inter.broker.protocol.version" not in properties_of(Variant(), "broker-1")


@pytest.mark.parametrize("key", sorted(OURS))
def test_what_the_backend_sets_itself_cannot_be_overridden(key: str) -> None:
    with pytest.raises(BadInput, match=f"'{key}'.*Remove it"):
        placed(Variant(properties={key: "x"}))


@pytest.mark.parametrize(
    ("variant", "way_out"),
    [
        (Variant(metadata_mode="zookeeper"), "3.9.2"),
        (Variant(metadata_mode="zookeeper", kafka_version="3.9.2", versions={"broker-1": "4.4.0"}), "3.9.2"),
        (Variant(metadata_mode="zookeeper", kafka_version="3.9.2", features={"transaction.version": 2}), "Remove it"),
        (Variant(versions={"broker-4": "3.9.2"}), "broker-1, broker-2, broker-3, controller-3001"),
        (Variant(versions={"broker-1": "5.0.0"}, kafka_version="3.9.2"), "follow one another"),
        (Variant(versions={"broker-1": "3.9.2"}, features={"metadata.version": 25}), "Remove it"),
        (Variant(kafka_version="2.8.2"), 'metadata_mode = "zookeeper"'),
        (Variant(kafka_version="3.2.3"), "KIP-833.*4.4.0"),
        (Variant(kafka_version="2.7.2", metadata_mode="zookeeper"), "from 2.8 on"),
        (Variant(versions={"broker-2": "3.2.3"}), "variant.versions of broker-2 = '3.2.3' has KRaft only as a preview"),
        (
            Variant(metadata_mode="zookeeper", kafka_version="3.9.2", versions={"broker-3": "4.0.0"}),
            "of broker-3 = '4.0.0' has no ZooKeeper mode",
        ),
        (Variant(metadata_mode="zookeeper", kafka_version="3.5.2", migration_controllers=1), "KIP-866, 3.6.*3.9.2"),
        (Variant(kafka_version="3.7.2", features={"metadata.version": 19}), "3.8 .KIP-1022"),
        (Variant(versions={"broker-1": "4.4"}), "has the form 4.4.0"),
        (Variant(kafka_version="latest"), "4.4.0"),
    ],
)
def test_a_variant_that_is_not_run_here_is_refused_with_a_way_out(variant: Variant, way_out: str) -> None:
    with pytest.raises(BadInput, match=way_out):
        placed(variant)


@pytest.mark.parametrize(
    ("brokers", "replicas", "min_isr"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2"), (5, "3", "2")]
)
def test_internal_topics_fit_the_number_of_brokers(brokers: int, replicas: str, min_isr: str) -> None:
    found = properties_of(Variant(brokers=brokers), "broker-1")
    assert found["offsets.topic.replication.factor"] == replicas
    assert found["transaction.state.log.replication.factor"] == replicas
    assert found["transaction.state.log.min.isr"] == min_isr


def test_only_version_4_has_share_groups_settings() -> None:
    assert "share.coordinator.state.topic.min.isr" in properties_of(Variant(), "broker-1")
    assert "share.coordinator.state.topic.min.isr" not in properties_of(Variant(kafka_version="3.9.2"), "broker-1")


def test_racks_are_dealt_in_turn() -> None:
    variant = Variant(racks=("a", "b"))
    assert [properties_of(variant, f"broker-{i}")["broker.rack"] for i in (1, 2, 3)] == ["a", "b", "a"]
    assert "broker.rack" not in properties_of(variant, "controller-3001")


def test_the_report_is_told_kafkas_default_where_nobody_set_one() -> None:
    told = shaping_settings(Variant(properties={"replica.lag.time.max.ms": "10000", "num.io.threads": "3"}))
    assert told["broker.session.timeout.ms"] == "9000"
    assert told["replica.lag.time.max.ms"] == "10000"
    assert told["num.io.threads"] == "3"


def test_a_value_cannot_add_a_line_to_a_properties_file() -> None:
    text = properties_text({"a": "1\nlisteners=X\\", "b": "2"})
    assert text.splitlines() == ["a=1\\nlisteners=X\\\\", "b=2"]


def test_nodes_that_share_the_host_differ_by_loopback_address() -> None:
    nodes = placed(Variant(), shared_host=True).values()
    assert {node.data_address for node in nodes} == {"127.0.0.11", "127.0.0.1", "127.0.0.2", "127.0.0.3"}
    assert all(node.data_port in SHARED_PORTS for node in nodes)


def test_the_observers_link_is_another_network() -> None:
    assert address_of(7, DATA).rpartition(".")[0] != address_of(7, OBSERVER).rpartition(".")[0]


# --- from ZooKeeper to KRaft


MIGRATING = Variant(metadata_mode="zookeeper", kafka_version="3.9.2", migration_controllers=3)


def at_stage(name: str, stage: Any) -> dict[str, str]:
    nodes = placed(MIGRATING)
    return server_properties(MIGRATING, nodes[name], list(nodes.values()), stage=stage)


def test_controllers_of_a_migration_are_there_beside_zookeeper_and_brokers_do_not_know_them_yet() -> None:
    assert {name.partition("-")[0] for name in placed(MIGRATING)} == {"zookeeper", "controller", "broker"}
    told = properties_of(MIGRATING, "broker-1")
    assert "zookeeper.connect" in told
    assert not [key for key in told if key.startswith(("controller.", "process."))]


def test_controllers_of_a_migration_are_refused_where_there_is_no_zookeeper() -> None:
    with pytest.raises(BadInput, match="begins with ZooKeeper"):
        placed(Variant(migration_controllers=1))


def test_on_the_way_both_are_known_and_a_broker_is_still_one_of_zookeeper() -> None:
    for name in ("broker-1", "controller-3001"):
        told = at_stage(name, "migrating")
        assert told["zookeeper.metadata.migration.enable"] == "true"
        assert told["controller.quorum.voters"].count("@") == 3
        assert "CONTROLLER:PLAINTEXT" in told["listener.security.protocol.map"]
    assert at_stage("broker-1", "migrating")["broker.id"] == "1"
    assert "process.roles" not in at_stage("broker-1", "migrating")
    assert at_stage("controller-3001", "migrating")["process.roles"] == "controller"
    assert at_stage("controller-3001", "migrating")["inter.broker.listener.name"] == "DATA", (
        "it reports brokers who leads"
    )


def test_at_the_end_nobody_knows_zookeeper() -> None:
    for name, role in (("broker-1", "broker"), ("controller-3001", "controller")):
        told = at_stage(name, "kraft")
        assert told["process.roles"] == role
        assert not [
            key for key in told if key in ("zookeeper.connect", "broker.id", "zookeeper.metadata.migration.enable")
        ]


# --- tiered storage -------------------------------------------------------------------------------------------------


def test_only_brokers_are_given_the_remote_store_and_all_servers_know_of_it() -> None:
    variant = Variant(tiered_storage=True)
    broker, controller = properties_of(variant, "broker-2"), properties_of(variant, "controller-3001")
    assert broker["remote.log.storage.system.enable"] == controller["remote.log.storage.system.enable"] == "true"
    told = store_properties(store_beside(Path("/run-directory/nodes/broker-2/data")), Path("/cache/plugin.jar"))
    assert told["rsm.config.dir"] == "/run-directory/nodes/remote-store"
    assert told["remote.log.storage.manager.class.path"] == "/cache/plugin.jar"
    assert not told.keys() & (broker.keys() | controller.keys())
    assert not [name for name in properties_of(Variant(), "broker-2") if name.startswith(("remote.", "rsm.", "rlmm."))]


def test_a_trial_may_set_how_often_segments_are_copied_and_not_where_to() -> None:
    interval = {"remote.log.manager.task.interval.ms": "100"}
    assert properties_of(Variant(tiered_storage=True, properties=interval), "broker-1")[next(iter(interval))] == "100"
    with pytest.raises(BadInput, match=r"sets 'rsm\.config\.dir', which prozess sets"):
        properties_of(Variant(tiered_storage=True, properties={"rsm.config.dir": "/tmp"}), "broker-1")


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        (
            Variant(tiered_storage=True, kafka_version="4.2.2"),
            r"4\.2\.2 has no remote store .* 4\.2\.1, 4\.3\.1, 4\.4\.0",
        ),
        (Variant(tiered_storage=True, kafka_version="3.8.1"), r"3\.8\.1 has no remote store"),
        (Variant(tiered_storage=True, versions={"broker-1": "4.2.2"}), r"4\.2\.2 has no remote store"),
        (Variant(tiered_storage=True, metadata_mode="zookeeper", kafka_version="3.9.2"), "needs KRaft here"),
    ],
)
def test_a_cluster_that_cannot_have_tiered_storage_is_refused_by_name(variant: Variant, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        placed(variant)
    placed(variant.model_copy(update={"tiered_storage": False}))


def test_a_store_is_made_anew_and_stands_beside_the_nodes(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (store / "an object").touch()
    assert store_beside(tmp_path / "broker-1" / "data") == store
    assert not any(path.name == "an object" for path in make_store(tmp_path).iterdir())


TIERED = {"topic.properties": {"remote.storage.enable": "true"}}


@pytest.mark.parametrize(
    ("base", "tiered", "words"),
    [
        (TIERED, False, r"the brokers have no remote store\. Set variant\.tiered_storage"),
        (TIERED | {"topic.cleanup_policy": "compact"}, True, "no compacted topics with tiered storage"),
        (TIERED, True, None),
        ({"topic.cleanup_policy": "compact"}, True, None),
    ],
)
def test_a_topic_that_kafka_does_not_make_is_refused(base: dict[str, Any], tiered: bool, words: str | None) -> None:
    flat = {f"topic.properties.{k}": v for k, v in base.get("topic.properties", {}).items()}
    flat |= {name: value for name, value in base.items() if name != "topic.properties"}
    document = {"name": "t", "title": "t", "variant": {"tiered_storage": tiered}, "base": flat}
    made = make_plan(parse_trial(document, source="test"), seed=1)
    assert all(("tiered" in cell.traits) == bool("topic.properties" in base) for cell in made.cells)
    if words is None:
        check_topics(made)
    else:
        with pytest.raises(BadInput, match=words):
            check_topics(made)
