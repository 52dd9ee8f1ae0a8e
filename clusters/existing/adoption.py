"""This module says what prozess does with a cluster that was there before a run: it finds out what it is, and leaves it
as it was.

From its `setup` to a complete `teardown` a run is marked (`lasting.json`), with what must be known to leave everything as it
was found: another process, after a SIGKILL, goes on from there (`prozess heal`).
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitedTooLong
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined] # they are in its __init__
    AdminClient,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from prozess.clusters.machine.server_properties import shaping_settings
from prozess.clusters.protocol.admin import Admin
from prozess.harness.clock import Clock, SystemClock, wait_until
from prozess.harness.config.configuration import Variant
from prozess.harness.config.existing_clusters import CLIENT_CONFIG, Adoption, AttachOptions, Login, login_here
from prozess.harness.errors import BadInput, ClusterFailed, NotReady, ProzessError
from prozess.harness.machine_record import Made, begin, kept
from prozess.harness.plan.cell_work import CopierWork, GroupWork
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory, read_object, write_json

LASTING = ("ssh", "attach")
"""The backends whose clusters outlive a run."""
BROKER_IDS_END = 63
"""Broker ids must be below this: the judge keeps sets of brokers as masks of 63 bits."""
ASK_TIMEOUT_S = 10.0
DELETE_TIMEOUT_S = 30.0
GROUPS_TIMEOUT_S = 90.0
"""How long a group may keep members that were killed: longer than any session of a trial."""


class Marker:
    """The file `lasting.json` of a run: as long as it is there, the run has left something in the cluster.

    It is kept in this machine's record, where it counts, and in the run's directory (`prozess.harness.machine_record`)."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def set(self, found: Mapping[str, str]) -> None:
        """Writes what was found, before anything is done to the cluster. What was found first counts."""
        for path in kept(self._run.lasting):
            if not path.exists():
                write_json(path, dict(found))

    @property
    def found(self) -> dict[str, str] | None:
        """Returns what was given to `set`; None if the run has left nothing in the cluster."""
        path = kept(self._run.lasting)[0]
        return {k: str(v) for k, v in read_object(path).items()} if path.exists() else None

    def clear(self) -> None:
        """Removes the mark: everything is as it was."""
        for path in kept(self._run.lasting):
            path.unlink(missing_ok=True)


class Kafka:
    """Administers somebody else's cluster by Kafka's protocol. `login`: None for PLAINTEXT."""

    def __init__(self, servers: str, clock: Clock, login: Login | None = None) -> None:
        self._servers, self._clock, self._login = servers, clock, login
        self._client: AdminClient | None = None
        self._notes: list[str] = []
        """What librdkafka complained of: a request that times out does not say why."""

    def _in_words(self, error: Exception) -> str:
        if self._client is not None:
            self._client.poll(0)
        text = "; ".join(dict.fromkeys([str(error), *self._notes[-2:]]))
        return (text if self._login is None else self._login.hide(text)).rstrip(".")

    def describe(self) -> tuple[str, dict[int, tuple[str, int]]]:
        """Asks for the cluster id, and for each broker's advertised host and port. ClusterFailed if it does not answer."""
        try:
            found = self._admin().describe_cluster(request_timeout=ASK_TIMEOUT_S).result(ASK_TIMEOUT_S + 1)
        except (KafkaException, TimeoutError) as error:
            words = self._in_words(error)
            raise ClusterFailed(
                f"Kafka at {self._servers} does not answer within {ASK_TIMEOUT_S:g} s: {words}. {what_to_do(words)}"
            ) from error
        return str(found.cluster_id), {
            int(node.id): (node.host, int(node.port)) for node in sorted(found.nodes, key=lambda node: int(node.id))
        }

    def topics(self) -> frozenset[str]:
        """Returns the names of all topics. ClusterFailed if Kafka does not list them."""
        try:
            return frozenset(self._admin().list_topics(timeout=ASK_TIMEOUT_S).topics)
        except KafkaException as error:
            raise ClusterFailed(
                f"Kafka at {self._servers} does not list its topics: {self._in_words(error)}."
            ) from error

    def remove(self, made: Made, admin: Admin) -> None:
        """Deletes what the run made, and nothing else: each topic by the id that it got, each group by its name.

        Returns once all of it is seen to be gone. ClusterFailed or NotReady if something is not. A topic without an id is one
        that the run was about to make when it was killed: its name has random letters of the run, and was free then."""
        known = dict(made.topics)
        if unseen := [name for name, topic_id in known.items() if topic_id is None]:
            found = admin.topic_ids(unseen)
            made.made(found)
            known |= found
            if without := self.topics().intersection(unseen).difference(found):
                names = ", ".join(sorted(without))
                raise ClusterFailed(f"Kafka says no id of {names}: delete them with kafka-topics.sh.")
        ours = {topic_id for topic_id in known.values() if topic_id is not None}

        def left() -> dict[str, UUID]:
            now = admin.topic_ids(list(known)) if ours else {}
            return {name: topic_id for name, topic_id in now.items() if topic_id in ours}

        if there := left():
            admin.delete_topics(list(there.values()), timeout_s=DELETE_TIMEOUT_S)
        wait_until(
            lambda: not left(),
            awaited=f"{len(there)} topics to be gone",
            timeout_s=DELETE_TIMEOUT_S,
            clock=self._clock,
            last_seen=lambda: f"{list(left())[:3]} are there",
            interval_s=0.2,
        )
        made.gone("topic", known)
        self._remove_groups(made)

    def groups(self) -> frozenset[str]:
        """Returns the names of all groups that clients have made. ClusterFailed if Kafka does not list them."""
        try:
            answer = self._admin().list_consumer_groups(request_timeout=ASK_TIMEOUT_S).result(ASK_TIMEOUT_S + 1)
        except (KafkaException, TimeoutError) as error:
            raise ClusterFailed(
                f"Kafka at {self._servers} does not list its groups: {self._in_words(error)}."
            ) from error
        if answer.errors:
            raise ClusterFailed(f"Kafka at {self._servers} does not list all of its groups: {answer.errors[0]}.")
        return frozenset(group.group_id for group in answer.valid)

    def _remove_groups(self, made: Made) -> None:
        """Deletes the groups of the run. One whose members were killed is only empty once their sessions are over."""
        why: dict[str, str] = {}

        def gone() -> bool:
            why.clear()
            for name in sorted(self.groups().intersection(made.groups)):
                (future,) = self._admin().delete_consumer_groups([name], request_timeout=ASK_TIMEOUT_S).values()
                try:
                    future.result(ASK_TIMEOUT_S + 1)
                except (KafkaException, TimeoutError) as error:
                    why[name] = self._in_words(error)
            return not why and not self.groups().intersection(made.groups)

        if made.groups:
            wait_until(
                gone,
                awaited="the groups of the run to be gone",
                timeout_s=GROUPS_TIMEOUT_S,
                clock=self._clock,
                last_seen=lambda: "; ".join(f"{name}: {text}" for name, text in why.items()) or "they are listed",
                interval_s=1.0,
            )
            made.gone("group", made.groups)

    def _admin(self) -> AdminClient:
        if self._client is None:
            own: dict[str, Any] = {"bootstrap.servers": self._servers, "log_level": 0, "client.id": "prozess-admin"}
            own |= {"error_cb": lambda error: self._notes.append(error.str())}
            try:
                self._client = AdminClient({**({} if self._login is None else self._login.properties), **own})
            except (KafkaException, ValueError) as error:
                raise refused_login(error, self._login) from None
        return self._client


_NOBODY_THERE = re.compile(
    r"refused|Failed to resolve|not known|No route to host|unreachable|No address associated", re.IGNORECASE
)
"""What librdkafka says where nobody listens: there is nobody to log in to."""


def what_to_do(words: str) -> str:
    """Returns the way out where a cluster does not answer. `words`: the error of librdkafka."""
    if _NOBODY_THERE.search(words):
        return "Nobody listens there: is it running, and is this the address that clients use?"
    return (
        "Does it want clients to log in? --client-config FILE says how (validate: or a librdkafka file, --producer or "
        "--consumer)."
    )


def login_for(attach: AttachOptions) -> Login | None:
    """Returns how to log in now to a cluster that a plan names.

    BadInput if the run logged in and nobody says how any more: its secrets are in none of its files."""
    login = login_here()
    if login is None and attach.withheld:
        raise BadInput(
            f"The run logged in with {', '.join(attach.withheld)}, which are written nowhere. Give --client-config FILE with "
            f"them again, or set {CLIENT_CONFIG}."
        )
    return login


def refuse_java(plan: Plan, login: Login | None) -> None:
    """Raises BadInput if a client of Kafka's Java library would have to log in: the settings are for librdkafka."""
    if login is None:
        return
    for cell in plan.cells:
        clients = {"producer": cell.producer.client}
        match cell.work:
            case GroupWork(configuration=group):
                clients["group"] = group.client
            case CopierWork(configuration=copier):
                clients["copier"] = copier.client
        java = [name for name, client in clients.items() if client == "java"]
        if java:
            raise BadInput(
                f'{cell.topic_name}: {java[0]}.client = "java" cannot log in as {login.source} says, which is for '
                f'librdkafka. Set {java[0]}.client = "librdkafka".'
            )


def with_login(attach: AttachOptions, login: Login | None) -> AttachOptions:
    """Adds to a plan's options how its clients log in, as far as a plan may contain it."""
    properties, names = ({}, ()) if login is None else (login.writable, login.withheld)
    return attach.model_copy(update={"client_properties": properties, "withheld": names})


def refused_login(error: Exception, login: Login | None) -> BadInput:
    """An error with librdkafka's words, without the values that may be in them."""
    text = str(error) if login is None else login.hide(str(error))
    where = "librdkafka" if login is None else f"{login.source}: librdkafka"
    return BadInput(f"{where} does not take the settings: {text.rstrip('.')}.")


def adopt_plan(plan: Plan, run: RunDirectory, *, clock: Clock) -> Plan:
    """Fits the plan to the cluster that it runs on, if that was there before; else returns it as it is.

    BadInput for options that lack, or another number of brokers. ClusterFailed if the cluster does not answer.
    """
    own_file = plan.backend == "compose" and plan.compose.file is not None
    if plan.backend not in LASTING and not own_file:
        return plan
    if own_file:
        from prozess.clusters.compose.user_cluster import OwnComposeCluster

        ids = OwnComposeCluster(plan, run, clock=clock).broker_ids
    elif plan.backend == "ssh":
        if plan.ssh is None:
            raise BadInput("backend = 'ssh' needs [ssh] in the trial: its nodes, and how they are handled.")
        ids = plan.ssh.broker_ids
    else:
        if plan.attach is None:
            raise BadInput("backend = 'attach' needs [attach] in the trial: bootstrap_servers.")
        login = login_for(plan.attach)
        refuse_java(plan, login)
        _, brokers = Kafka(",".join(plan.attach.bootstrap_servers), clock, login).describe()
        plan = plan.model_copy(update={"attach": with_login(plan.attach, login)})
        ids = tuple(sorted(brokers))
    if max(ids) >= BROKER_IDS_END:
        raise BadInput(
            f"The cluster has a broker with the id {max(ids)}; ids up to {BROKER_IDS_END - 1} can be judged."
        )
    prefix = "" if own_file else run_prefix(run.path.name, begin(run).mark)
    return adopt(plan, Adoption(prefix=prefix, broker_ids=ids))


def settings_of(admin: Admin, broker: int, variant: Variant) -> dict[str, str]:
    """Returns the settings that shape a trial: as that broker reports them, else as the trial has them."""
    described: Mapping[str, str | None] = {}
    with suppress(ClusterFailed, BadInput, NotReady):
        described = admin.describe_configs(brokers=[broker], timeout_s=ASK_TIMEOUT_S)[f"broker:{broker}"]
    values = {key: value for key in shaping_settings(variant) if (value := described.get(key)) is not None}
    return {**variant.properties, **values}


def call_each(problems: list[str], *deeds: Callable[[], object]) -> None:
    """Calls each, whatever one of them raises, and adds what they raised to `problems`."""
    for deed in deeds:
        try:
            deed()
        except Exception as error:  # noqa: BLE001 - the others are done all the same
            problems.append(str(error))


# What a cluster that somebody else started reports itself: nobody asked for its version, so that none is assumed.


METADATA_VERSION = "metadata.version"
_FIRST_LEVELS = (7, 8, 9, 12, 15, 20, 21, 22, 26, 28, 30, 31, 34)
_RELEASES = ("3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1", "4.2", "4.3", "4.4")
"""The releases by their first level of metadata.version (`MetadataVersion` in server-common); the last level is in none."""


def release_of_features(supported: Mapping[str, int]) -> str | None:
    """Returns the release, such as "4.3", of brokers that support these feature levels.

    None if they do not say, as with ZooKeeper, or if it is newer than what is known here. What is finalized may be older
    than the brokers, and says nothing."""
    index = bisect_right(_FIRST_LEVELS, supported.get(METADATA_VERSION, 0)) - 1
    return _RELEASES[index] if 0 <= index < len(_RELEASES) else None


def described_by(admin: Admin, brokers: Mapping[int, object], variant: Variant) -> dict[str, Any]:
    """The release, features and settings that brokers say, as `Cluster.describe` has them; of several releases the oldest.

    `metadata_mode`: kraft or None, since brokers do not say which node is a controller."""
    release: str | None = None
    with suppress(NotReady):
        release = release_of_features(admin.supported_features(brokers=tuple(brokers)))
    features = dict(admin.features())
    return {
        "kafka_version": release,
        "metadata_mode": "kraft" if features.get(METADATA_VERSION) else None,
        "features": features,
        "settings": settings_of(admin, next(iter(brokers)), variant),
    }


@dataclass(frozen=True, slots=True)
class ReachedCluster:
    """A cluster of which only the brokers' addresses are known: as much as administration needs."""

    observer_servers: Mapping[int, tuple[str, int]]
    controller_servers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    zookeeper_servers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    metrics_servers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    nodes: tuple[()] = ()
    login: Login | None = None


def describe_elsewhere(
    bootstrap_servers: str, variant: Variant, clock: Clock, login: Login | None = None
) -> dict[str, Any]:
    """Describes a cluster of which only its address is known. ClusterFailed or NotReady if it does not answer."""
    cluster_id, brokers = Kafka(bootstrap_servers, clock, login).describe()
    admin = Admin(ReachedCluster(brokers, login=login), clock=clock)
    try:
        return {"backend": "attach", "cluster_id": cluster_id, **described_by(admin, brokers, variant)}
    finally:
        admin.close()


# What a running cluster is set to, for `prozess validate`: read by Kafka's own protocol; nothing there is changed.


SETTINGS_TIMEOUT_S = 10.0
_SET_BY_SOMEBODY = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "broker",
    ConfigSource.STATIC_BROKER_CONFIG: "broker",
}
"""The sources of settings that are not Kafka's own defaults."""


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The settings of a living cluster that somebody has set, without secrets."""

    brokers: Mapping[int, Mapping[str, str]]
    """Broker → what somebody has set it to."""
    releases: Mapping[int, str | None]
    """Broker → the release that it reports, such as "4.3"; None if it reports none."""
    topic: Mapping[str, str]
    """The settings of the topic, with the replication.factor of its first partition; empty if none was asked for."""
    notes: tuple[str, ...]


def live_settings(servers: str, topic: str | None, login: Login | None) -> LiveSettings:
    """Asks a living cluster for its settings.

    ClusterFailed if it does not answer; BadInput for a topic that it does not have or a property that librdkafka refuses."""
    connection = {} if login is None else login.properties
    why: list[str] = []
    try:
        own: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
        own |= {"error_cb": lambda error: why.append(error.str())}
        client = AdminClient({**connection, **own})
    except (KafkaException, ValueError) as error:
        raise refused_login(error, login) from None
    try:
        found = client.list_topics(timeout=SETTINGS_TIMEOUT_S)
    except KafkaException as error:
        client.poll(0)
        words = "; ".join(dict.fromkeys([error.args[0].str(), *why[-2:]]))
        raise ClusterFailed(
            f"Kafka at {servers} does not answer within {SETTINGS_TIMEOUT_S:g} s: "
            f"{words if login is None else login.hide(words)}. {what_to_do(words)}"
        ) from error
    if topic is not None and topic not in found.topics:
        raise BadInput(f"--cluster-topic {topic!r}: Kafka at {servers} has no such topic.")
    resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in sorted(found.brokers)]
    resources += [ConfigResource(ResourceType.TOPIC, topic)] if topic is not None else []
    settings = [dict(_set(scope, entries)) for scope, entries in _described(client, resources)]
    of_topic, notes = (settings[-1] if topic is not None else {}), []
    if topic is not None:
        copies = sorted({len(p.replicas) for p in found.topics[topic].partitions.values()})
        of_topic["replication.factor"] = str(copies[0])
        if len(copies) > 1:
            notes.append(
                f"partitions of {topic} have {' or '.join(map(str, copies))} copies: those with the fewest decide"
            )
    ids = sorted(found.brokers)
    return LiveSettings(
        brokers=dict(zip(ids, settings, strict=False)),
        releases=_releases(servers, ids, login),
        topic=of_topic,
        notes=tuple(notes),
    )


def _described(client: AdminClient, resources: list[ConfigResource]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    # One resource a call: librdkafka asks the broker itself, and takes no two of them at once.
    futures: Mapping[Any, Future[Mapping[str, Any]]] = {
        resource: client.describe_configs([resource], request_timeout=SETTINGS_TIMEOUT_S)[resource]
        for resource in resources
    }
    for resource in resources:
        try:
            entries = futures[resource].result(SETTINGS_TIMEOUT_S + 1)
        except (KafkaException, WaitedTooLong) as error:
            raise ClusterFailed(
                f"Kafka did not give the configuration of {resource.restype.name.lower()} {resource.name}: {error}."
            ) from error
        yield resource.restype.name.lower(), entries


def _set(scope: str, entries: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, entry in entries.items():
        source = ConfigSource(entry.source)
        if _SET_BY_SOMEBODY.get(source) == scope and not entry.is_sensitive and entry.value is not None:
            yield name, str(entry.value)


def _releases(servers: str, ids: Sequence[int], login: Login | None) -> Mapping[int, str | None]:
    found: dict[int, str | None] = dict.fromkeys(ids)
    with suppress(ProzessError):
        _, brokers = Kafka(servers, SystemClock(), login).describe()
        admin = Admin(ReachedCluster(brokers, login=login), clock=SystemClock())
        try:
            for broker in brokers:
                with suppress(NotReady):
                    found[broker] = release_of_features(admin.supported_features(brokers=(broker,)))
        finally:
            admin.close()
    return found


# A plan fitted to a cluster that is there already: its brokers' own ids, and names that are the run's alone. Pure.


def run_prefix(run_name: str, mark: str) -> str:
    """The prefix of everything that a run makes in somebody else's cluster. `mark`: letters that no other run has."""
    return f"prozess-{run_name}-{mark}-"


def prefix_of(plan: Plan) -> str:
    """Returns the prefix of a plan that was adopted. BadInput if it is none that prozess gives."""
    prefix = plan.adopted.prefix if plan.adopted is not None else ""
    if not prefix.startswith("prozess-") or not prefix.endswith("-"):
        raise BadInput(
            f"The plan says that what its run makes there begins with {prefix!r}, and prozess gives no such names. "
            "Run the trial."
        )
    return prefix


def begin_making(plan: Plan, run: RunDirectory, kafka: Kafka) -> Made:
    """Writes down which topics and groups a run is about to make in somebody else's cluster, and returns that record.

    BadInput if one of the names is taken: nothing there is ours yet."""
    prefix = prefix_of(plan)
    topics = dict.fromkeys([f"{prefix}ready", *(p.topic_name for p in plan.partitions)])
    groups = dict.fromkeys(client.group_id for client in plan.clients if client.group_id is not None)
    foreign = [name for name in (*topics, *groups) if not name.startswith(prefix)]
    taken = [*kafka.topics().intersection(topics), *(kafka.groups().intersection(groups) if groups else ())]
    if foreign or taken:
        raise BadInput(
            f"{(foreign or taken)[0]!r} is a name that {'this run may not use' if foreign else 'the cluster has already'}, "
            "and a run touches nothing that it did not make. Run the trial again."
        )
    made = Made(run)
    made.begin("topic", topics)
    made.begin("group", groups)
    return made


def made_in(plan: Plan, run: RunDirectory) -> Made | None:
    """Returns the record of what the run makes in a cluster that stays; None where the cluster goes with the run."""
    return Made(run) if plan.backend in LASTING else None


def adopt(plan: Plan, adoption: Adoption) -> Plan:
    """Gives the plan the cluster's names and ids; one that was adopted before (a `plan.json`) is adopted anew.

    BadInput if the cluster has another number of brokers than the plan places its copies on.
    """
    if len(adoption.broker_ids) != plan.variant.brokers:
        raise BadInput(
            f"variant.brokers = {plan.variant.brokers}, but the cluster has {len(adoption.broker_ids)} brokers "
            f"({', '.join(map(str, adoption.broker_ids))}). Set variant.brokers to that number."
        )
    former = plan.adopted or Adoption(broker_ids=tuple(range(1, plan.variant.brokers + 1)))
    ids = dict(zip(former.broker_ids, adoption.broker_ids, strict=True))
    name = _renamer(former.prefix, adoption.prefix)
    cells = tuple(
        cell.model_copy(
            update={"topic_name": name(cell.topic_name), "derived_topic_name": _maybe(name, cell.derived_topic_name)}
        )
        for cell in plan.cells
    )
    partitions = tuple(
        p.model_copy(update={"topic_name": name(p.topic_name), "assignment": tuple(ids[i] for i in p.assignment)})
        for p in plan.partitions
    )
    clients = tuple(
        c.model_copy(
            update={"group_id": _maybe(name, c.group_id), "transactional_id": _maybe(name, c.transactional_id)}
        )
        for c in plan.clients
    )
    return plan.model_copy(update={"cells": cells, "partitions": partitions, "clients": clients, "adopted": adoption})


def _renamer(former: str, new: str) -> Callable[[str], str]:
    return lambda text: new + text.removeprefix(former)


def _maybe(name: Callable[[str], str], text: str | None) -> str | None:
    return None if text is None else name(text)
