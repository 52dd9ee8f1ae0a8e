"""Run by test_links in the sandbox: two nodes and the clients, without Kafka; every part of links is made, seen and undone.
Prints one line of JSON per thing seen."""

import json
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

from prozess.clusters.links.latency import DelayConnections
from prozess.clusters.links.links import ClientCuts, LinkEnd, Links, connections
from prozess.clusters.links.support import harmers, impairers
from prozess.clusters.machine.node_network import DATA, RUN_STAGE_HOST, NamespaceOf, Network, address_of
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.config.impairments import Bandwidth, ClientCut, DelayOpen, Latency, Loss, ResetConnections, Vanish
from prozess.harness.errors import HarnessFailed
from prozess.harness.schema import Tristate

CLOCK = SystemClock()
PORT = 9092
HOSTS = {"one": 1, "two": 2}
WAIT_S = 20.0
LATE_AT_ONCE = DelayOpen(peer="clients", latency_ms=500, lasts_s=1.5)


class Server:
    """A node that echoes; what parts need of a node."""

    def __init__(self, name, seam):
        self.name, self.address = name, address_of(HOSTS[name], DATA)
        self._open = []
        self._listener = seam.call(lambda: socket.create_server((self.address, PORT)))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection):
        with suppress(OSError):
            while said := connection.recv(100):
                connection.sendall(said)

    def kill(self):
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def say(what, seen):
    print(json.dumps({"what": what, "seen": seen}), flush=True)  # noqa: T201 - for the test


def soon(part, node, impairment, wanted):
    """As `prozess.nemesis.faults.observe` looks: until it is so, or the limit is over."""
    last = ""

    def look():
        nonlocal last
        seen, last = part.impaired(node, impairment)
        return seen is wanted

    wait_until(look, awaited=f"{impairment} {wanted}", timeout_s=WAIT_S, clock=CLOCK, last_seen=lambda: last)
    return last


def made_seen_and_undone(parts, fresh_parts, node):
    for impairment in (
        Loss(share=0.3),
        Loss(share=0.05, source="two"),
        Loss(share=0.9, source="clients"),
        Bandwidth(bytes_per_s=20_000),
        Bandwidth(bytes_per_s=1_000_000, peer="clients"),
        Bandwidth(bytes_per_s=100_000, peer="clients", way="to-node"),
        Latency(peer="clients", latency_ms=100, jitter_ms=30),
        Latency(peer="clients", latency_ms=0, jitter_ms=30, back_ms=150),
        Latency(peer="clients", latency_ms=150, back_ms=0),
        Latency(peer="two", latency_ms=20, jitter_ms=50, back_ms=120),
        ClientCut(way="to-node"),
        ClientCut(way="from-node"),
    ):
        part = parts[impairment.kind]
        part.repair(node, impairment)
        assert part.impaired(node, impairment)[0] is Tristate.NO, impairment
        part.impair(node, impairment)
        part.impair(node, impairment)
        say(impairment.kind, soon(part, node, impairment, Tristate.YES))
        another = fresh_parts()[impairment.kind]
        another.repair(node, impairment)
        another.repair(node, impairment)
        soon(part, node, impairment, Tristate.NO)


def exchanged(client, timeout_s=5.0):
    """Does what is stated come back?"""
    client.settimeout(timeout_s)
    try:
        client.sendall(b"?")
        return bool(client.recv(1))
    except OSError:
        return False


def a_cut_holds_for_what_is_late(parts, node, connect):
    late, cut = Latency(peer="clients", latency_ms=20), [ClientCut(way="to-node"), ClientCut(way="from-node")]
    before = connect()
    parts["latency"].impair(node, late)
    say("the old connection goes on", exchanged(before))
    say("late", exchanged(connect()))
    for way in cut:
        parts["client-cut"].impair(node, way)
        say(f"late and cut {way.way}", exchanged(connect(), timeout_s=1.0))
        parts["client-cut"].repair(node, way)
    try:
        parts["latency"].impair(node, Latency(peer="clients", latency_ms=40))
    except HarnessFailed as error:
        say("another latency on the same link", str(error))
    parts["latency"].repair(node, late)
    say("on time again", exchanged(connect()))


def limits_of_two_links_are_two(part, node):
    everybody, one = Bandwidth(bytes_per_s=20_000), Bandwidth(bytes_per_s=400_000, peer="clients")
    part.impair(node, everybody)
    part.impair(node, one)
    soon(part, node, everybody, Tristate.YES)
    part.repair(node, everybody)
    say("the other limit stays", soon(part, node, one, Tristate.YES))
    part.repair(node, Bandwidth(bytes_per_s=1, peer="clients"))
    soon(part, node, one, Tristate.YES)
    part.repair(node, one)


def what_clients_send_is_narrow_by_itself(part, links, node, other):
    """Each way by its own rate, and each node by its own; what is not meant stays quick."""

    def quick(source, receiver):
        return links.transfer(source, receiver, 60_000, connect_s=WAIT_S, limit_s=WAIT_S) < 0.3

    towards = Bandwidth(bytes_per_s=50_000, peer="clients", way="to-node")
    part.impair(node, towards)
    say("one way alone", [quick("clients", node.name), quick(node.name, "clients"), quick("clients", other.name)])
    part.impair(other, towards)
    part.repair(node, towards)
    say("the other node's limit stays", [quick("clients", node.name), quick("clients", other.name)])
    back = Bandwidth(bytes_per_s=50_000, peer="clients")
    part.impair(node, back)
    say("the other way alone", [quick("clients", node.name), quick(node.name, "clients")])
    part.repair(node, back)
    part.repair(other, towards)
    say("both are wide", [quick("clients", name) for name in (node.name, other.name)])


def open_connections_are_late_and_new_ones_are_not(harms, node, connect):
    mine, over = [connect()], threading.Event()

    def talking():
        """As a client does: another connection whenever one is gone."""
        while not over.wait(0.05):
            if not exchanged(mine[-1]):
                mine.append(connect())

    client = threading.Thread(target=talking, daemon=True)
    client.start()
    try:
        say("open connections are late", harms["delay-open"].harm(node, LATE_AT_ONCE))
    finally:
        over.set()
        client.join(WAIT_S)
    say("nothing of it is left", exchanged(connect()))


def connections_end(harms, node, connect, ends):
    for _ in range(2):
        mine = [connect() for _ in range(3)]
        assert all(map(exchanged, mine))
        say("reset", harms["reset-connections"].harm(node, ResetConnections(peer="clients")))
        say("a reset connection goes on", any(map(exchanged, mine)))
    try:
        harms["reset-connections"].harm(node, ResetConnections(peer="two"))
    except HarnessFailed as error:
        say("nothing to reset", str(error))
    mine = [connect() for _ in range(3)]
    assert all(map(exchanged, mine))
    return mine


def main(logs):
    network = Network(HOSTS)
    network.setup()
    clients = LinkEnd("clients", address_of(RUN_STAGE_HOST, DATA), NamespaceOf(network, None))
    seams = {name: NamespaceOf(network, name) for name in HOSTS}
    ends = [clients, *(LinkEnd(n, address_of(h, DATA), seams[n], (PORT,)) for n, h in HOSTS.items())]
    links = Links(lambda: ends, clock=CLOCK)

    def fresh_delays():
        return DelayConnections(links, logs=logs, clock=CLOCK)

    def fresh_parts():
        return impairers(links, fresh_delays()) | {"client-cut": ClientCuts(network, links)}

    parts = fresh_parts()
    harms = harmers(links, parts["latency"], CLOCK)
    nodes = {name: Server(name, seam) for name, seam in seams.items()}
    node = nodes["one"]
    connect = partial(socket.create_connection, (node.address, PORT), 5.0)
    try:
        open_connections_are_late_and_new_ones_are_not(harms, node, connect)
        made_seen_and_undone(parts, fresh_parts, node)
        limits_of_two_links_are_two(parts["bandwidth"], node)
        what_clients_send_is_narrow_by_itself(parts["bandwidth"], links, node, nodes["two"])
        a_cut_holds_for_what_is_late(parts, node, connect)
        mine = connections_end(harms, node, connect, links)
        for way in ("to-node", "from-node"):
            parts["client-cut"].impair(node, ClientCut(way=way))
        say("vanished", harms["vanish"].harm(node, Vanish()))
        for way in ("to-node", "from-node"):
            parts["client-cut"].repair(node, ClientCut(way=way))
        say("half-open", len(connections(links["clients"], links["one"])))
        say("what is sent into nothing is answered", any(map(exchanged, mine)))
        rules = [end.network.run_as_root(["iptables-save"]).stdout for end in ends]
        say("rules left", [line for text in rules for line in text.splitlines() if line.startswith("-A")])
        say("queues left", [t for e in ends for t in [e.network.run_as_root(["tc", "qdisc"]).stdout] if "htb" in t])
        parts["latency"].close()
    finally:
        network.teardown()
    say("processes left", sum(entry.name.isdigit() for entry in Path("/proc").iterdir()) - 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
