"""This module puts clients into a network of their own, in which prozess holds the brokers' addresses.

python -m prozess.clusters.existing.client_network DESCRIPTOR HOSTS_FILE HOST=ADDRESS:PORT …     in fresh user, network and
mount namespaces

A client that learns from Kafka where its brokers are goes there, whatever it was given to bootstrap on. Therefore that a
proxy stands between them all the same, the addresses themselves are taken: this process puts them on the loopback of an empty
network, listens there, and hands the listening sockets out; who accepts on them is outside, and can go on to the real
brokers. Clients enter with `enter_command`. TLS, SASL, librdkafka and Java see nothing of it, and no root is needed where
user namespaces are."""

import ipaddress
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prozess.clusters.machine.processes import recording_command
from prozess.harness import installation
from prozess.harness.errors import HarnessFailed, MissingTool

START_TIMEOUT_S = 20.0
_BACKLOG = 128
_READY = b"ready"
_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Broker:
    """An address of a broker that the clients' network takes. `address`: what `host` resolves to outside."""

    host: str
    address: str
    port: int

    @classmethod
    def at(cls, host: str, port: int) -> "Broker":
        """Returns the broker that advertises this host and port. HarnessFailed if the host has no address."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise HarnessFailed(f"{host!r}, as a broker advertises itself, has no address here: {error}.") from error
        return cls(host, str(found[0][4][0]), port)

    @classmethod
    def parse(cls, text: str) -> "Broker":
        """Reads the text that `str` gives."""
        host, _, rest = text.partition("=")
        address, _, port = rest.rpartition(":")
        return cls(host, address, int(port))

    def __str__(self) -> str:
        return f"{self.host}={self.address}:{self.port}"


def _unshare() -> list[str]:
    return ["unshare", *([] if os.geteuid() == 0 else ["-U", "-r"]), "-n", "-m"]


@cache
def why_no_client_network() -> str | None:
    """Returns why clients cannot be given a network of their own here; None if they can. Tried for real, once."""
    for tool in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(tool, path=_PATH) is None:
            return f"`{tool}` is not installed (util-linux, iproute2)"
    done = subprocess.run(
        [*_unshare(), "sh", "-c", "ip link set lo up && ip address add 203.0.113.1/32 dev lo"],
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
        env={**os.environ, "PATH": _PATH},
    )
    return None if done.returncode == 0 else f"namespaces are refused: {done.stderr.strip()[-200:]}"


class ClientNetwork:
    """The network of the clients. `listeners`: the listening socket for each broker, in the order given, owned by the
    caller."""

    def __init__(self, brokers: Sequence[Broker], *, hosts: Path, pids: Path) -> None:
        if (why := why_no_client_network()) is not None:
            raise MissingTool(f"Clients cannot be given a network of their own: {why}.")
        hosts.write_text(_hosts_text(brokers), encoding="utf-8")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        inner = [
            sys.executable,
            "-P",
            "-m",
            "prozess.clusters.existing.client_network",
            str(theirs.fileno()),
            str(hosts),
            *map(str, brokers),
        ]
        here = str(installation.SEARCH_PATH)
        with theirs:
            self._process = subprocess.Popen(
                recording_command([*_unshare(), *inner], name="client-network", into=pids),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={
                    **os.environ,
                    "PATH": _PATH,
                    "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]),
                },
                start_new_session=True,
            )
        self._pipe = ours
        ours.settimeout(START_TIMEOUT_S)
        try:
            refusal, descriptors, _, _ = socket.recv_fds(ours, len(_READY), len(brokers))
        except OSError:
            refusal, descriptors = b"", []
        self.listeners = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if refusal != _READY or len(descriptors) != len(brokers):
            self.close()
            raise HarnessFailed("The clients' network could not be made; the run stage's log says why.")

    @property
    def enter_command(self) -> list[str]:
        """The words before a command that is to run in the clients' network."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(self._process.pid), *user, "--net", "--mount", f"--wd={Path.cwd()}"]

    def close(self) -> None:
        """Closes the sockets; the network is gone once its last client is. Safe to repeat."""
        self._pipe.close()
        for listener in self.listeners:
            listener.close()
        try:
            self._process.wait(timeout=START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _hosts_text(brokers: Sequence[Broker]) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    named = {broker.host: broker.address for broker in brokers if not _is_address(broker.host)}
    return "".join(f"{line}\n" for line in [*lines, *(f"{address} {host}" for host, address in named.items())])


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _listen(broker: Broker) -> socket.socket:
    family = socket.AF_INET6 if ":" in broker.address else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((broker.address, broker.port))
    found.listen(_BACKLOG)
    return found


def main() -> None:
    """Runs inside: it takes the addresses, hands the sockets out, and stays until the pipe ends."""
    pipe = socket.socket(fileno=int(sys.argv[1]))
    brokers = [Broker.parse(text) for text in sys.argv[3:]]
    subprocess.run(["mount", "--bind", sys.argv[2], "/etc/hosts"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in {broker.address for broker in brokers if not ipaddress.ip_address(broker.address).is_loopback}:
        subprocess.run(["ip", "address", "add", f"{address}/{128 if ':' in address else 32}", "dev", "lo"], check=True)
    listeners = [_listen(broker) for broker in brokers]
    socket.send_fds(pipe, [_READY], [listener.fileno() for listener in listeners])
    for listener in listeners:
        listener.close()  # the other side's alone: when that is gone, callers are refused
    pipe.recv(1)


if __name__ == "__main__":
    main()
