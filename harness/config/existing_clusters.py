"""A trial may use a cluster that exists already: `[ssh]` and `[attach]` say where it is and how clients log in to it."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from prozess.harness import inputs
from prozess.harness.config.configuration import WAIT_MAX_S, Limit
from prozess.harness.config.known_properties import properties_of, versions
from prozess.harness.errors import BadInput
from prozess.harness.values import Frozen

# Clusters that are there already, and stay: what a trial says of them. `[ssh]` and `[attach]` of a trial file.


PORT_MAX = 65_535
_SERVER = re.compile(r"\[?[^\s,]+?\]?:\d{1,5}")
Server = str
"""The address of a server as HOST:PORT."""
Text = Annotated[str, Field(min_length=1)]


def split_server(server: Server) -> tuple[str, int]:
    """Splits the address of a server into (host, port)."""
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


def _checked(server: Server) -> Server:
    if not _SERVER.fullmatch(server) or not 1 <= split_server(server)[1] <= PORT_MAX:
        raise ValueError(f"{server!r} is not HOST:PORT, with a port from 1 to {PORT_MAX}")
    return server


def refuse_bad_servers(servers: str, option: str) -> None:
    """Raises BadInput unless the servers are HOST:PORT, with commas between them. librdkafka takes port 99999 for 34463."""
    for server in servers.split(","):
        try:
            _checked(server.strip())
        except ValueError as error:
            raise BadInput(f"{option} {servers!r}: {error}.") from error


class SshNodeOptions(Frozen):
    """One machine of the ssh backend, which runs one server. A setting that is None is as `[ssh]` says."""

    id: Annotated[int, Field(ge=0)]
    """Kafka's node.id (broker.id)."""
    roles: tuple[Literal["broker", "controller"], ...] = ("broker",)
    """What the server is."""
    host: Text
    """The host on which sshd runs."""
    port: Annotated[int, Field(ge=1, le=PORT_MAX)] = 22
    """The port of sshd."""
    address: str | None = None
    """The address by which the other nodes know it, and at which it is cut off. None means `host`."""
    listener: Server | None = None
    """For a broker: the address where clients reach it without encryption (PLAINTEXT)."""
    observer: Server | None = None
    """For a broker: a listener for administration and audit. None means `listener`."""
    controller: Server | None = None
    """For a controller: its listener without encryption (PLAINTEXT). None means that brokers are asked which controller
    is active."""
    start: Text | None = None
    """The command that starts this server. Left out means that of `[ssh]`."""
    stop: Text | None = None
    """The command for its orderly shutdown. Left out means that of `[ssh]`."""
    pid_pattern: Text | None = None
    """The pattern that finds its process. Left out means that of `[ssh]`."""
    log: str | None = None
    """This server's log. Left out means that of `[ssh]`."""
    data_directory: str | None = None
    """This server's log.dirs. Left out means that of `[ssh]`."""

    _servers = field_validator("listener", "observer", "controller")(lambda s: None if s is None else _checked(s))

    @model_validator(mode="after")
    def _has_listener(self) -> "SshNodeOptions":
        if "broker" in self.roles and self.listener is None:
            raise ValueError("a broker needs `listener`, HOST:PORT")
        return self

    @property
    def name(self) -> str:
        """Returns the name of the node in faults."""
        return f"{'broker' if 'broker' in self.roles else 'controller'}-{self.id}"


class SshOptions(Frozen):
    """Says how prozess reaches the nodes of an ssh cluster, and how it handles them. In commands {id}, {name} and
    {host} stand for those of the node."""

    nodes: Annotated[tuple[SshNodeOptions, ...], Field(min_length=1)]
    """The machines, each with one server."""
    user: str | None = None
    """The user to log in as; None means the user that runs prozess."""
    key_file: str | None = None
    """The private key file; None means the ssh agent's keys and those in ~/.ssh."""
    known_hosts: str = "~/.ssh/known_hosts"
    """The file that has every node's host key. An unknown host is refused, and its key is never learned."""
    sudo: str = "sudo -n"
    """The prefix of commands that need root or the server's user: signals, firewall rules, start and stop. "" means no
    prefix."""
    start: Text = "systemctl start kafka"
    """The command that starts the server. It must return once the server is forked, and what it leaves running must
    close its standard output."""
    stop: Text | None = None
    """The command for an orderly shutdown; None means SIGTERM to the server."""
    pid_pattern: Text = r"kafka\.Kafka "
    """The pattern for `pgrep --full`. It must match the server's command line, and no other process there."""
    log: str | None = None
    """The server's log; None means that it is not fetched."""
    data_directory: str | None = None
    """The server's log.dirs, which must be one directory. If it is None or not readable, replicas and controllers' logs
    cannot be read, and what they would report is unknown."""
    command_timeout_s: Limit = 30.0
    """How long a command may take on a machine."""
    clock_skew_max_ms: Annotated[float, Field(gt=0, le=WAIT_MAX_S * 1000)] = 100.0
    """How far a controller's clock may differ from this machine's. From beyond it prozess takes no times of events."""

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
        """Returns the ids of the brokers, in order."""
        return tuple(sorted(node.id for node in self.nodes if "broker" in node.roles))


class AttachOptions(Frozen):
    """A cluster of which nothing is known except where it answers."""

    bootstrap_servers: Annotated[tuple[Server, ...], Field(min_length=1)]
    """Where the cluster answers: HOST:PORT of some brokers."""
    client_properties: dict[str, str] = Field(default_factory=dict)
    """The properties with which the clients of a plan log in, as far as they may be written down."""
    withheld: tuple[str, ...] = ()
    """The names of the properties whose values are not in the plan. They come from the file that `--client-config`
    names."""
    others: Literal["unstated", "none"] = "unstated"
    """What others do to the cluster during a run.

    none: nobody destroys a replica there, and nobody asks for an unclean election, so a loss is not excused by events
    that nobody saw.
    """

    _servers = field_validator("bootstrap_servers")(lambda servers: tuple(_checked(server) for server in servers))


class Adoption(Frozen):
    """Says how a plan was fitted to a cluster that was there before it."""

    prefix: str = ""
    """How the names of everything begin that the run makes there: topics, groups, transactional.ids. Each run has its
    own."""
    broker_ids: tuple[int, ...] = ()
    """The real ids of the plan's brokers 1, 2, …"""


# Which client properties may be written down: by name. The value of any other is given by a file and is written
# nowhere.
#
# It is a list of what may be, not of what may not: a secret has no name that could be known beforehand (`ssl.key.pem`,
# `ssl.keystore.key`, `sasl.oauthbearer.config`, whatever an interceptor or a plugin of somebody's takes).


T = TypeVar("T")

_NAMES = """
    acks allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    auto.commit.enable auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
    batch.num.messages batch.size bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback
    buffer.memory check.crcs client.dns.lookup client.id client.rack
    compression.codec compression.gzip.level compression.level compression.lz4.level compression.type
    compression.zstd.level connections.max.idle.ms consume.callback.max.messages coordinator.query.interval.ms
    debug default.api.timeout.ms delivery.report.only.error delivery.timeout.ms
    enable.auto.commit enable.auto.offset.store enable.gapless.guarantee enable.idempotence enable.metrics.push
    enable.partition.eof enable.random.seed exclude.internal.topics
    fetch.error.backoff.ms fetch.max.bytes fetch.max.wait.ms fetch.message.max.bytes fetch.min.bytes
    fetch.queue.backoff.ms fetch.wait.max.ms
    group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms internal.leave.group.on.close internal.termination.signal isolation.level
    key.deserializer key.serializer linger.ms log.connection.close log.queue log.thread.name log_level
    max.block.ms max.in.flight max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records max.request.size message.copy.max.bytes message.max.bytes message.send.max.retries
    message.timeout.ms metadata.broker.list metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    metrics.num.samples metrics.recording.level metrics.sample.window.ms
    offset.store.method offset.store.sync.interval.ms
    partition.assignment.strategy partitioner partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys produce.offset.report
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages queuing.strategy
    receive.buffer.bytes receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms request.required.acks request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    send.buffer.bytes session.timeout.ms share.acknowledgement.mode share.acquire.mode socket.blocking.max.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.keepalive.enable
    socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    statistics.interval.ms sticky.partitioning.linger.ms test.mock.broker.rtt test.mock.num.brokers
    topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.deserializer value.serializer
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification sasl.mechanism sasl.mechanisms
    sasl.oauthbearer.method security.protocol ssl.endpoint.identification.algorithm
"""
MAY_BE_WRITTEN: frozenset[str] = frozenset(_NAMES.split())
"""The properties of librdkafka and of Kafka's Java clients that may be written down: those that shape a trial and, for
logging in, only which way it is done."""

OF_LOGGING_IN = ("security.", "sasl.", "ssl.", "enable.sasl.", "enable.ssl.", "https.")
"""How the names of librdkafka's properties begin that say how a client logs in."""


def refuse_unwritable(names: Iterable[str], where: str) -> None:
    """Refuses properties of a trial that no file of a run may show. BadInput names them without their values. `where`
    ends before the name."""
    for name in names:
        if name not in MAY_BE_WRITTEN or name.startswith(OF_LOGGING_IN):
            raise BadInput(
                f"{where}{name} may not be set in a trial: it is not among the properties of Kafka's clients whose values "
                "may be written into the files of a run. How clients log in is stated by a file (--client-config, or the "
                "variable PROZESS_CLIENT_CONFIG). Remove it, or correct its name."
            )


def may_be_written(properties: Mapping[str, T]) -> dict[str, T]:
    """Returns those of the properties whose values may be written down."""
    return {name: value for name, value in properties.items() if name in MAY_BE_WRITTEN}


def withheld(properties: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the sorted names of the properties whose values may not be written down."""
    return tuple(sorted(name for name in properties if name not in MAY_BE_WRITTEN))


# How clients log in to somebody else's cluster: librdkafka's `security.*`, `sasl.*` and `ssl.*`, out of a file.
#
# The file is named by `--client-config`, or by PROZESS_CLIENT_CONFIG, which every process of a run inherits: each
# reads it itself when it connects, so that what is in it goes over no command line and into no file of a run. In its
# values `${env:NAME}` stands for a variable of the environment, as with Kafka's EnvVarConfigProvider (KIP-887).


CLIENT_CONFIG = "PROZESS_CLIENT_CONFIG"
"""The environment variable that holds the path of the file."""
_PLACEHOLDER = re.compile(r"\$\{env:([^}]+)\}")
_PATHS = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "https.ca.location")
_HIDDEN = "(not reported)"
_SHORT = 4
"""Values of this length or shorter are not hidden, because they occur in many texts that do not come from the login."""


@dataclass(frozen=True, slots=True)
class Login:
    """The properties that a client of librdkafka is given beside its own. Its text never shows a value."""

    properties: Mapping[str, str] = field(repr=False)
    source: str

    @property
    def writable(self) -> dict[str, str]:
        """Returns the properties whose values may be written down."""
        return may_be_written(self.properties)

    @property
    def withheld(self) -> tuple[str, ...]:
        """Returns the names of the properties whose values may not be written down."""
        return withheld(self.properties)

    def hide(self, text: str) -> str:
        """Removes every value that may not be written down from a text. Libraries put values into their errors."""
        values = {self.properties[name] for name in self.withheld}
        for value in sorted(values | {value.strip() for value in values}, key=len, reverse=True):
            if len(value) > _SHORT:
                text = text.replace(value, _HIDDEN)
        return text


def login_here() -> Login | None:
    """Returns the login from the file that the environment names, or None if it names none. BadInput, without any
    value, if the file cannot be read or has a property that librdkafka does not have."""
    named = os.environ.get(CLIENT_CONFIG)
    return read_login(Path(named)) if named else None


@contextmanager
def meanwhile(properties: Mapping[str, str] | None) -> Iterator[Login | None]:
    """Uses the login of the environment or, if there is none, these properties, in this process and those that it
    starts meanwhile. They are handed over by a file in memory."""
    if os.environ.get(CLIENT_CONFIG) or not properties:
        yield login_here()
        return
    import javaproperties

    with os.fdopen(os.memfd_create("prozess"), "w", encoding="utf-8") as file:
        file.write(javaproperties.dumps(dict(properties), timestamp=None))
        file.flush()
        os.environ[CLIENT_CONFIG] = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        try:
            yield login_here()
        finally:
            os.environ.pop(CLIENT_CONFIG, None)


def hidden(text: str) -> str:
    """Removes from a text every value of the environment's login that may not be written down."""
    try:
        login = login_here()
    except BadInput:
        return _HIDDEN  # what is to be hidden is not known any more
    return text if login is None else login.hide(text)


def use(file: Path | None) -> None:
    """Uses the file that `--client-config` names in this process and all that it starts. BadInput if it cannot be
    used."""
    if file is not None:
        os.environ[CLIENT_CONFIG] = str(file.absolute())
    login_here()


def only_if(somebody_elses: bool) -> None:
    """Forgets the login file for this process and all that it starts, unless the cluster needs it. A cluster of
    prozess's own takes no login."""
    if not somebody_elses:
        os.environ.pop(CLIENT_CONFIG, None)


def read_login(path: Path) -> Login:
    """Reads the part of a .properties file that says how to log in."""
    import javaproperties  # slow to import, for its XML: few trials log in

    try:
        text = inputs.read_text(path, encoding="utf-8-sig")
        inputs.refuse_endless_line(text, path)
        found = javaproperties.loads(text)
    except FileNotFoundError as error:
        raise BadInput(f"{str(path)!r} does not exist. Give --client-config, or {CLIENT_CONFIG}, a file.") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{str(path)!r} is not UTF-8 at byte {error.start}. Give a .properties file in UTF-8.") from None
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be read: {error.strerror}. Give a .properties file.") from error
    except javaproperties.InvalidUEscapeError:
        raise BadInput(
            f"{str(path)!r} has a \\u without four hexadecimal digits. Write the character itself."
        ) from None
    taken = {
        name: _filled(value.strip(), name, path) for name, value in found.items() if name.startswith(OF_LOGGING_IN)
    }
    if not taken:
        raise BadInput(
            f"{str(path)!r} says nothing of how to log in: it has no property that begins with security., sasl. or ssl."
        )
    _refuse_unknown(taken, path)
    return Login({name: _absolute(name, value) for name, value in taken.items()}, str(path))


def _filled(value: str, name: str, path: Path) -> str:
    for variable in _PLACEHOLDER.findall(value):
        if variable not in os.environ:
            raise BadInput(
                f"{path}: {name} asks for the variable {variable!r}, which is not set. Set it, or change that."
            )
    return _PLACEHOLDER.sub(lambda found: os.environ[found[1]], value)


def _refuse_unknown(taken: Mapping[str, str], path: Path) -> None:
    known = properties_of("consumer", "librdkafka", versions()[-1])
    unknown = sorted(name for name in taken if name not in known)
    if not unknown:
        return
    raise BadInput(
        f"{path}: {', '.join(unknown)}: librdkafka has no such property. It logs in by security.protocol, sasl.mechanism, "
        "sasl.username and sasl.password, and takes certificates as PEM (ssl.ca.location, ssl.certificate.location, "
        "ssl.key.location); sasl.jaas.config, trust stores and key stores of Java are not read."
    )


def _absolute(name: str, value: str) -> str:
    """Returns an absolute path, because processes of a run may work in another directory than the command that named
    the file."""
    return str(Path(value).absolute()) if name in _PATHS and value not in ("", "probe") else value
