"""What faults need of containers, without an engine: which rule goes where, and what is never done to the host."""

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prozess.clusters.compose.cluster import ContainerCuts, HostNetwork, Now, served_ports
from prozess.clusters.compose.file import connect_to_networks
from prozess.clusters.compose.network import WAY_VARIABLE, ExecNetwork, by_exec
from prozess.harness.config.configuration import Variant
from prozess.harness.errors import HarnessFailed
from prozess.harness.schema import Tristate


class Told:
    """A node's network that writes down what it was reported."""

    def __init__(self) -> None:
        self.rules: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda address: self.rules.append((name, address))


def test_what_clients_send_is_dropped_at_the_node_and_what_it_sends_them_as_it_leaves() -> None:
    networks: dict[str, Any] = {"broker-1": Told(), "broker-2": Told()}
    addresses = {"broker-1": "10.0.0.11", "broker-2": "10.0.0.12"}
    cuts = ContainerCuts(networks, lambda: addresses, lambda: "10.0.0.1")
    cuts.block("broker-1", "10.0.0.1")
    cuts.block(None, "10.0.0.12")
    cuts.unblock("broker-1", "10.0.0.1")
    cuts.unblock(None, "10.0.0.12")
    assert networks["broker-1"].rules == [("drop_from", "10.0.0.1"), ("accept_from", "10.0.0.1")]
    assert networks["broker-2"].rules == [("drop_to", "10.0.0.1"), ("accept_to", "10.0.0.1")]
    with pytest.raises(HarnessFailed, match=r"No node has the address 10\.0\.0\.13"):
        cuts.block(None, "10.0.0.13")


def test_no_rule_is_ever_made_in_the_network_of_the_host() -> None:
    host = HostNetwork()
    for refused in (["iptables", "-A", "OUTPUT"], ["tc", "qdisc", "add"], ["ip", "rule", "add"]):
        with pytest.raises(HarnessFailed, match="prozess runs no"):
            host.run_as_root(refused)
    with host.call(lambda: socket.create_server(("127.0.0.1", 0))) as here:
        assert here.getsockname()[0] == "127.0.0.1"


def test_servers_are_those_of_the_moment() -> None:
    found: dict[int, tuple[str, int]] = {}
    now = Now(lambda: found)
    assert not now
    found[1] = ("10.0.0.11", 9097)
    assert (now[1], list(now), now.get(2)) == (("10.0.0.11", 9097), [1], None)


def test_ports_are_those_of_the_network_that_faults_touch() -> None:
    prefixes = {"data": "10.214.7", "observer": "10.215.7"}
    variants = (Variant(), Variant(metadata_mode="zookeeper", kafka_version="3.9.2"))
    ports = {n.name: served_ports(n) for v in variants for n in connect_to_networks(v, Path("/run"), prefixes)}
    assert ports["controller-3001"] == (9095,)
    assert ports["zookeeper-1"] == (9092, 9095)
    assert ports["broker-1"] == (9092,)


def test_an_engine_that_fails_is_no_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("gone")

    broken = ExecNetwork("broker-1", "holder", lambda: SimpleNamespace(api=SimpleNamespace(exec_create=refuse)))
    assert broken.hears(broken, address="10.0.0.11", source_address="10.0.0.12") is Tristate.UNKNOWN
    monkeypatch.setenv(WAY_VARIABLE, "exec")
    assert by_exec()
