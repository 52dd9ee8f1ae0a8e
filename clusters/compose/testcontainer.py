"""Kafka for suites that use testcontainers: one combined node in a container, which can be broken and comes back.

    with KafkaTrialContainer() as kafka:
        producer = Producer({"bootstrap.servers": kafka.get_bootstrap_server()})
        kafka.node.kill()
        kafka.node.start()      # with its data, at the same address

It works with Ryuk and without. Where Ryuk's image is not here it is not waited for: then the container goes at the end of
the interpreter, and one whose interpreter was killed goes when the next one starts.
"""

import atexit
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from prozess.clusters.compose.containers import ComposeNode, ContainerSetting
from prozess.clusters.compose.engine import PROBLEMS, EngineClient, find_image
from prozess.clusters.compose.file import DATA_IN_CONTAINER, environment_name
from prozess.clusters.impairers import Parts
from prozess.clusters.machine.server_properties import BROKER, CONTROLLER, DEDUPE_BUFFER_BYTES, HEAP, JVM_FLAGS
from prozess.clusters.machine.servers import first_port, free_ports, new_kafka_uuid
from prozess.clusters.protocol.readiness import Readiness
from prozess.harness.clock import Clock, SystemClock
from prozess.harness.config.configuration import NEWEST_VERSION
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.installation import of_an_extra
from prozess.harness.processes import ProcessIdentity, boot_id, identify, is_running

with of_an_extra("KafkaTrialContainer"):
    from docker.errors import ImageNotFound
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

OWNER_LABEL = "prozess.owner"
"""The label with "boot", "pid" and "start_time" of the interpreter whose container it is."""
READY_TIMEOUT_S = 120.0
_PORT = 9092
_OURS = frozenset(
    {
        "node.id",
        "process.roles",
        "listeners",
        "advertised.listeners",
        "controller.quorum.voters",
        "controller.listener.names",
        "log.dirs",
    }
)


class KafkaTrialContainer(DockerContainer):
    """A container with one node, broker and controller, at a port of 127.0.0.1 that it keeps over restarts."""

    def __init__(
        self,
        version: str = NEWEST_VERSION,
        *,
        image: str | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = " ".join(HEAP[BROKER]),
        clock: Clock | None = None,
        **options: Any,  # noqa: ANN401 - DockerContainer's own, of many types
    ) -> None:
        """`image`: any with apache/kafka's environment; None = the official one, or what `prozess images build` built.
        `properties`: of server.properties. BadInput if there is no image, or for a property that is set here."""
        if taken := sorted(_OURS & (properties or {}).keys()):
            raise BadInput(f"properties sets {taken[0]!r}, which KafkaTrialContainer sets itself. Remove it.")
        super().__init__(find_image("kafka", version, wanted=image), **options)
        self._clock = clock or SystemClock()
        (self._port,) = free_ports(["127.0.0.1"], 1, first=first_port())
        self.ports[str(_PORT)] = ("127.0.0.1", self._port)  # type: ignore[assignment] # docker's own form, with an address
        self.with_envs(**_environment(self._port, properties or {}, heap))
        self._node: ComposeNode | None = None

    @property
    def node(self) -> ComposeNode:
        """The node that you can kill, stop, pause, resume and start. ClusterFailed before `start`."""
        if self._node is None:
            raise ClusterFailed("The container has not been started. Call start(), or use it in a `with`.")
        return self._node

    def get_bootstrap_server(self) -> str:
        """Returns the bootstrap server for clients on this machine, the same after every restart."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> "KafkaTrialContainer":
        """Starts the container, and returns once Kafka takes a write. NotReady, or ClusterFailed with its last log lines."""
        remove_abandoned(self.get_docker_client().client)
        self.with_kwargs(**{**self._kwargs, "labels": {**self._kwargs.get("labels", {}), OWNER_LABEL: _owner()}})
        before = testcontainers_config.ryuk_disabled
        if not self._ryuk_is_here():
            testcontainers_config.ryuk_disabled = True
        try:
            super().start()
        finally:
            testcontainers_config.ryuk_disabled = before
        atexit.register(self._stop_quietly)
        try:
            self._node = self._make_node()
            self.wait_ready()
        except BaseException:
            self._stop_quietly()
            raise
        return self

    def wait_ready(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Returns once Kafka takes a write: call it after `node.start()`."""
        servers = {1: ("127.0.0.1", self._port)}
        Readiness(servers, timeout_s=timeout_s, clock=self._clock, check_alive=self._check_alive).wait({})

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Removes the container, whatever its state. Safe to repeat."""
        atexit.unregister(self._stop_quietly)
        if self._node is not None:
            with suppress(*PROBLEMS, ClusterFailed):
                self._node.resume()
            self._node.close()
            self._node = None
        super().stop(force=force, delete_volume=delete_volume)
        self._container = None

    def _stop_quietly(self) -> None:
        with suppress(*PROBLEMS):
            self.stop()

    def _make_node(self) -> ComposeNode:
        name = str(self.get_wrapped_container().name)
        return ComposeNode(
            ContainerSetting(
                "broker-1", 1, frozenset({BROKER, CONTROLLER}), Path(DATA_IN_CONTAINER), container=name, holder=name
            ),
            address=self._address,
            client=lambda: self.get_docker_client().client,
            parts=Parts(),
            clock=self._clock,
        )

    def _address(self) -> str:
        networks = self.get_docker_client().client.api.inspect_container(self.node.container_name)["NetworkSettings"]
        return next((str(network["IPAddress"]) for network in networks["Networks"].values()), "")

    def _check_alive(self) -> None:
        node = self.node
        if (code := node.died) is not None:
            raise ClusterFailed(f"Kafka ended by itself (exit {code}). Its last log lines: {node.log_tail()}")

    def _ryuk_is_here(self) -> bool:
        try:
            self.get_docker_client().client.api.inspect_image(testcontainers_config.ryuk_image)
        except ImageNotFound:
            return False
        return True


def remove_abandoned(client: EngineClient) -> list[str]:
    """Removes trial containers whose interpreter is gone, and returns their ids."""
    removed = []
    for container in client.api.containers(all=True, filters={"label": OWNER_LABEL}):
        if not _lives(container["Labels"][OWNER_LABEL]):
            with suppress(*PROBLEMS):  # another process may do the same
                client.api.remove_container(container["Id"], force=True, v=True)
                removed.append(str(container["Id"]))
    return removed


def _owner() -> str:
    own = identify(os.getpid())
    return json.dumps({"boot": boot_id(), "pid": os.getpid(), "start_time": own.start_time if own else 0})


def _lives(label: str) -> bool:
    """Is the interpreter that made it still there? A label that cannot be read is somebody else's: yes."""
    try:
        document = json.loads(label)
        owner = ProcessIdentity(int(document["pid"]), int(document["start_time"]))
        return str(document["boot"]) == boot_id() and is_running(owner)
    except (ValueError, KeyError, TypeError):
        return True


def _environment(port: int, properties: Mapping[str, str], heap: str) -> dict[str, str]:
    values = {
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # The log cleaner takes its buffer from the heap when the broker starts. The default, 128 MiB, is half of that heap,
        # and on a busy machine a broker ended with OutOfMemoryError.
        "log.cleaner.dedupe.buffer.size": str(DEDUPE_BUFFER_BYTES),
        **properties,
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://:{_PORT},CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": DATA_IN_CONTAINER,
    }
    return {
        "CLUSTER_ID": new_kafka_uuid(),
        "KAFKA_HEAP_OPTS": heap,
        "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(JVM_FLAGS),
        **{environment_name(key): value for key, value in values.items()},
    }
