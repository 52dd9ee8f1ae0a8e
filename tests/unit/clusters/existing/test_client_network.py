"""The pure parts of the clients' network, and that it says why where it cannot be."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.existing import client_network
from prozess.clusters.existing.client_network import Broker
from prozess.harness.errors import HarnessFailed, MissingTool

HOSTS = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)
ADDRESSES = st.ip_addresses().map(str)


@given(HOSTS, ADDRESSES, st.integers(1, 65535))
def test_a_broker_goes_through_a_command_line_as_it_is(host, address, port):
    broker = Broker(host, address, port)
    assert Broker.parse(str(broker)) == broker


def test_names_are_in_the_clients_hosts_file_and_addresses_are_not():
    text = client_network._hosts_text(
        [
            Broker("kafka-1.example", "192.0.2.1", 9092),
            Broker("192.0.2.2", "192.0.2.2", 9092),
            Broker("::1", "::1", 9092),
        ]
    )
    assert text.splitlines() == ["127.0.0.1 localhost", "::1 localhost", "192.0.2.1 kafka-1.example"]


def test_a_broker_without_an_address_is_an_error_that_names_it():
    with pytest.raises(HarnessFailed, match=r"'nobody\.invalid', as a broker advertises itself, has no address"):
        Broker.at("nobody.invalid", 9092)


def test_where_namespaces_are_refused_the_reason_is_said_and_nothing_is_started(monkeypatch, tmp_path):
    client_network.why_no_client_network.cache_clear()
    refused = subprocess.CompletedProcess([], 1, "", "unshare: unshare failed: Operation not permitted\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    monkeypatch.setattr(client_network.shutil, "which", lambda *_, **__: "/bin/true")
    try:
        assert "Operation not permitted" in (client_network.why_no_client_network() or "")
        with pytest.raises(MissingTool, match=r"network of their own: namespaces are refused"):
            client_network.ClientNetwork([], hosts=tmp_path / "hosts", pids=tmp_path / "pids.jsonl")
        assert not (tmp_path / "pids.jsonl").exists()
    finally:
        client_network.why_no_client_network.cache_clear()
