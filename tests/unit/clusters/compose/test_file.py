"""Compose files and their networks, without an engine: who is where, what the image is reported, which subnets are free."""

import ipaddress
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.compose.engine import compose_directory
from prozess.clusters.compose.file import (
    NETWORKS,
    VARIANTS,
    ComposeSetting,
    connect_to_networks,
    environment,
    environment_name,
    in_order,
    persons_file,
    run_document,
    text_of,
)
from prozess.clusters.compose.network import SUBNETS, free_prefixes, subnets_of
from prozess.harness.config.configuration import Variant
from prozess.harness.errors import BadInput, ClusterFailed

PREFIXES = {"data": "10.214.7", "observer": "10.215.7"}

SETTING = ComposeSetting(
    images=dict.fromkeys(
        ["controller-3001", *(f"{kind}-{i}" for kind in ("broker", "zookeeper") for i in (1, 2, 3))], "kafka:x"
    ),
    cluster_id="5L6g3nShT-eMCtK--X86sw",
    agent=Path("/cache/jolokia.jar"),
)


def image_reads(name: str) -> str:
    """As the official image reads a variable: KafkaDockerWrapper.getConfigFromEnv of Kafka 3.7 and later."""
    key = name.removeprefix("KAFKA_").lower()
    return re.sub(r"_+", lambda run: {1: ".", 2: "_", 3: "-"}[len(run.group())], key)


@given(st.from_regex(r"[a-z]+([._-][a-z]+)*", fullmatch=True))
def test_the_image_reads_back_the_property_that_is_meant(key: str) -> None:
    assert image_reads(environment_name(key)) == key


def test_nodes_have_fixed_addresses_of_their_own_on_both_networks() -> None:
    nodes = connect_to_networks(Variant(controllers=3, brokers=9), Path("/run"), PREFIXES)
    assert len(nodes) == 12
    addresses = [address for node in nodes for address in (node.data_address, node.observer_address)]
    assert len(set(addresses)) == 24
    for node in nodes:
        assert ipaddress.ip_address(node.data_address) in ipaddress.ip_network("10.214.7.0/24")
        assert ipaddress.ip_address(node.observer_address) in ipaddress.ip_network("10.215.7.0/24")
    assert not {"10.214.7.1", "10.215.7.1"} & set(addresses), "the gateways' own"


def test_a_broker_is_told_its_listeners_rack_and_the_trials_properties() -> None:
    variant = Variant(racks=("a", "b"), properties={"broker.session.timeout.ms": "4000"})
    nodes = connect_to_networks(variant, Path("/run"), PREFIXES)
    told = environment(variant, nodes[2], nodes, SETTING)
    assert told["KAFKA_NODE_ID"] == "2"
    assert told["KAFKA_BROKER_RACK"] == "b"
    assert told["KAFKA_BROKER_SESSION_TIMEOUT_MS"] == "4000"
    assert told["KAFKA_ADVERTISED_LISTENERS"] == "DATA://10.214.7.12:9092,OBSERVER://10.215.7.12:9093"
    assert told["KAFKA_LOG_DIRS"] == "/var/lib/kafka/data"
    assert "host=10.215.7.12" in told["KAFKA_OPTS"]
    assert "KAFKA_ADVERTISED_LISTENERS" not in environment(variant, nodes[0], nodes, SETTING), "of a controller"


def test_a_node_is_a_server_in_the_network_of_a_container_that_outlives_it() -> None:
    variant = Variant(metadata_mode="kraft-combined")
    nodes = connect_to_networks(variant, Path("/run"), PREFIXES)
    document = run_document(variant, nodes, SETTING, run_label="/run", project="p", prefixes=PREFIXES)
    services = document["services"]
    assert set(services) == {f"broker-{i}{holder}" for i in (1, 2, 3) for holder in ("", "-network")}
    assert services["broker-1"]["network_mode"] == "service:broker-1-network"
    assert set(services["broker-1-network"]["networks"]) == set(NETWORKS)
    assert all(service["labels"]["prozess.run"] == "/run" for service in services.values())
    assert all(network["labels"]["prozess.run"] == "/run" for network in document["networks"].values())
    assert [name for name, service in services.items() if "prozess.node" in service["labels"]] == [
        n.name for n in nodes
    ]


def test_a_dollar_in_a_value_is_one_and_no_variable() -> None:
    assert text_of({"a": {"b": "$HOME"}, "c": []}) == 'a:\n  b: "$$HOME"\nc: []\n'
    assert text_of({"a": "${A:-1}"}, comment="one\n\ntwo", escape=False) == '# one\n#\n# two\na: "${A:-1}"\n'


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_the_files_for_a_person_are_those_that_the_generator_writes(name: str) -> None:
    written = (compose_directory() / f"{name}.yaml").read_text(encoding="utf-8")
    assert written == persons_file(VARIANTS[name], name=name), "run `python -m prozess.clusters.compose.file`"


@given(st.lists(st.integers(0, 255), max_size=60, unique=True), st.integers(0, 255))
def test_subnets_that_somebody_has_are_never_taken(numbers: list[int], first: int) -> None:
    taken = [f"10.{214 + n % 2}.{n}.0/24" for n in numbers]
    found = free_prefixes(taken, first=first, routes="")
    assert set(found) == set(SUBNETS)
    for prefix in found.values():
        assert not any(ipaddress.ip_network(f"{prefix}.0/24").overlaps(ipaddress.ip_network(t)) for t in taken)
    assert len({prefix.rpartition(".")[2] for prefix in found.values()}) == 1


def test_routes_of_this_host_are_taken_too_and_the_default_route_is_none() -> None:
    routes = (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n"
        "tun0\t0005D60A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"  # 10.214.5.0/24
    )
    assert free_prefixes([], first=5, routes=routes) == {"data": "10.214.6", "observer": "10.215.6"}


def test_no_free_subnet_is_an_error_with_the_way_out() -> None:
    with pytest.raises(ClusterFailed, match=r"10\.214\.0\.0/16.*prozess heal"):
        free_prefixes(["10.214.0.0/16"], first=0, routes="")


def test_the_subnets_of_the_engines_networks_are_read_and_others_left_out() -> None:
    networks = [
        {"IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}, {"Subnet": "fd00::/64"}]}},
        {"IPAM": {"Config": None}},
        {"IPAM": None},
    ]
    assert subnets_of(networks) == ["172.17.0.0/16"]


def test_containers_of_versions_of_which_no_image_was_tried_are_refused():
    with pytest.raises(BadInput, match=r"'3\.8\.1': in containers .* from 3\.9 on\. Use --backend local"):
        in_order(Variant(kafka_version="3.8.1"))
    in_order(Variant(versions={"broker-1": "3.9.0"}))
