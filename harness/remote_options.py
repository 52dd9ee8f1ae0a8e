"""Clusters that are there already, and stay: what a trial says of them. `[ssh]` and `[attach]` of a trial file."""

import re
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from harness.configuration import Frozen

_SERVER = re.compile(r"\[?[^\s,]+?\]?:\d{1,5}")
Server = str
"""HOST:PORT."""
Text = Annotated[str, Field(min_length=1)]


def split_server(server: Server) -> tuple[str, int]:
    """(host, port)."""
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


def _checked(server: Server) -> Server:
    if not _SERVER.fullmatch(server):
        raise ValueError(f"{server!r} is not HOST:PORT")
    return server


class SshNodeOptions(Frozen):
    """One machine of the ssh backend, which runs one server. What is None is as `[ssh]` says."""

    id: Annotated[int, Field(ge=0)]
    """Kafka's node.id (broker.id)."""
    roles: tuple[Literal["broker", "controller"], ...] = ("broker",)
    host: Text
    """Where sshd is."""
    port: PositiveInt = 22
    address: str | None = None
    """By which the other nodes know it, and which is cut off; None = `host`."""
    listener: Server | None = None
    """Of a broker: where clients reach it, PLAINTEXT."""
    observer: Server | None = None
    """Of a broker: a listener for administration and audit; None = `listener`."""
    controller: Server | None = None
    """Of a controller: its listener, PLAINTEXT. None: who is the active controller is asked of the brokers."""
    start: Text | None = None
    stop: Text | None = None
    pid_pattern: Text | None = None
    log: str | None = None
    data_directory: str | None = None

    _servers = field_validator("listener", "observer", "controller")(lambda s: None if s is None else _checked(s))

    @model_validator(mode="after")
    def _has_listener(self) -> "SshNodeOptions":
        if "broker" in self.roles and self.listener is None:
            raise ValueError("a broker needs `listener`, HOST:PORT")
        return self

    @property
    def name(self) -> str:
        """As faults name it."""
        return f"{'broker' if 'broker' in self.roles else 'controller'}-{self.id}"


class SshOptions(Frozen):
    """How nodes are reached and handled. In commands {id}, {name} and {host} stand for the node's own."""

    nodes: Annotated[tuple[SshNodeOptions, ...], Field(min_length=1)]
    user: str | None = None
    """None = whoever runs prozess."""
    key_file: str | None = None
    """Private key; None: the ssh agent's, and those in ~/.ssh."""
    known_hosts: str = "~/.ssh/known_hosts"
    """Every node's host key must be there: a host that is not known is refused, never learned."""
    sudo: str = "sudo -n"
    """Before what needs root or the server's user: signals, rules of the firewall, start and stop. "" = nothing."""
    start: Text = "systemctl start kafka"
    """Returns once the server is forked; what it leaves running must let go of its standard output."""
    stop: Text | None = None
    """An orderly shutdown; None = SIGTERM to the server."""
    pid_pattern: Text = r"kafka\.Kafka "
    """Of `pgrep --full`: matches the server's command line, and no other process there."""
    log: str | None = None
    """The server's log; None = not fetched."""
    data_directory: str | None = None
    """Its log.dirs (one). None or not readable: what copies and controllers' logs would tell is unknown."""
    command_timeout_s: PositiveFloat = 30.0
    clock_skew_max_ms: PositiveFloat = 100.0
    """A controller whose clock is further off than this tells nothing of when things happened."""

    @model_validator(mode="after")
    def _ids_differ(self) -> "SshOptions":
        ids = [node.id for node in self.nodes]
        if len(set(ids)) < len(ids):
            raise ValueError("two nodes have the same id")
        if not any("broker" in node.roles for node in self.nodes):
            raise ValueError("no node is a broker")
        return self

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """In order."""
        return tuple(sorted(node.id for node in self.nodes if "broker" in node.roles))


class AttachOptions(Frozen):
    """A cluster of which nothing is known but where it answers."""

    bootstrap_servers: Annotated[tuple[Server, ...], Field(min_length=1)]
    """PLAINTEXT listeners."""

    _servers = field_validator("bootstrap_servers")(lambda servers: tuple(_checked(server) for server in servers))


class Adoption(Frozen):
    """How a plan was fitted to a cluster that was there before it."""

    prefix: str = ""
    """Of everything that it makes there: topics, groups, transactional.ids. By run."""
    broker_ids: tuple[int, ...] = ()
    """The real id of the plan's broker 1, 2, …"""
