"""What clusters have in common that were there before a run and stay after it: found as they are, left as they were.

From its `setup` to a complete `teardown` a run is marked (`lasting.json`), with what must be known to leave everything as it
was found: another process, after a SIGKILL, goes on from there (`prozess heal`).
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from clusters.properties import shaping_settings
from clusters.ready import READY_TOPIC
from harness.adoption import adopt, run_prefix
from harness.clock import Clock, wait_until
from harness.configuration import Variant
from harness.errors import BadInput, ClusterFailed, NotReady
from harness.plan import Plan
from harness.remote_options import Adoption
from harness.run_directory import RunDirectory, read_json, write_json

LASTING = ("ssh", "attach")
"""Backends whose clusters outlive a run."""
BROKER_IDS_END = 63
"""Sets of brokers are masks of 63 bits where they are judged."""
ASK_TIMEOUT_S = 10.0
DELETE_TIMEOUT_S = 30.0


class Marker:
    """`lasting.json` of a run."""

    def __init__(self, run: RunDirectory) -> None:
        self._path: Path = run.lasting

    def set(self, found: Mapping[str, str]) -> None:
        """Before anything is done there. What was found first is what counts."""
        if not self._path.exists():
            write_json(self._path, dict(found))

    @property
    def found(self) -> dict[str, str] | None:
        """As given to `set`; None = the run has nothing there."""
        return {k: str(v) for k, v in read_json(self._path).items()} if self._path.exists() else None

    def clear(self) -> None:
        """Everything is as it was."""
        self._path.unlink(missing_ok=True)


class Kafka:
    """Administration of a cluster that is not ours, by its own protocol. `servers`: PLAINTEXT."""

    def __init__(self, servers: str, clock: Clock) -> None:
        self._servers, self._clock = servers, clock
        self._client: Any = None

    def describe(self) -> tuple[str, dict[int, tuple[str, int]]]:
        """(cluster id, broker id → advertised host and port). ClusterFailed if it does not answer."""
        try:
            found = self._admin().describe_cluster(request_timeout=ASK_TIMEOUT_S).result(ASK_TIMEOUT_S + 1)
        except (KafkaException, TimeoutError) as error:
            raise ClusterFailed(
                f"Kafka at {self._servers} does not answer within {ASK_TIMEOUT_S:g} s: {error}."
            ) from error
        return str(found.cluster_id), {
            int(node.id): (node.host, int(node.port)) for node in sorted(found.nodes, key=lambda node: int(node.id))
        }

    def delete_topics(self, prefix: str) -> list[str]:
        """Every topic whose name begins so, and the one of the readiness check; returns once they are gone."""
        names = self._ours(prefix)
        if not names:
            return []
        for name, future in self._admin().delete_topics(names, operation_timeout=DELETE_TIMEOUT_S).items():
            try:
                future.result(DELETE_TIMEOUT_S + 1)
            except (KafkaException, TimeoutError) as error:
                if getattr(error.args[0], "code", lambda: None)() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise ClusterFailed(f"Topic {name!r} could not be deleted: {error}.") from error
        wait_until(
            lambda: not self._ours(prefix),
            awaited=f"{len(names)} topics to be gone",
            timeout_s=DELETE_TIMEOUT_S,
            clock=self._clock,
            last_seen=lambda: f"{self._ours(prefix)[:3]} are there",
            interval_s=0.2,
        )
        return names

    def _ours(self, prefix: str) -> list[str]:
        try:
            topics = self._admin().list_topics(timeout=ASK_TIMEOUT_S).topics
        except KafkaException as error:
            raise ClusterFailed(f"Kafka at {self._servers} does not list its topics: {error}.") from error
        return sorted(name for name in topics if name.startswith(prefix) or name == READY_TOPIC)

    def _admin(self) -> Any:  # noqa: ANN401 - AdminClient
        if self._client is None:
            self._client = AdminClient(
                {"bootstrap.servers": self._servers, "log_level": 0, "client.id": "prozess-admin"}
            )
        return self._client


def adopt_plan(plan: Plan, run: RunDirectory, *, clock: Clock) -> Plan:
    """The plan fitted to the cluster it is to run on, if that was there before; else as it is.

    BadInput for options that lack, or another number of brokers. ClusterFailed if the cluster does not answer.
    """
    if plan.backend not in LASTING:
        return plan
    if plan.backend == "ssh":
        if plan.ssh is None:
            raise BadInput("backend = 'ssh' needs [ssh] in the trial: its nodes, and how they are handled.")
        ids = plan.ssh.broker_ids
    else:
        if plan.attach is None:
            raise BadInput("backend = 'attach' needs [attach] in the trial: bootstrap_servers.")
        _, brokers = Kafka(",".join(plan.attach.bootstrap_servers), clock).describe()
        ids = tuple(sorted(brokers))
    if max(ids) >= BROKER_IDS_END:
        raise BadInput(
            f"The cluster has a broker with the id {max(ids)}; ids up to {BROKER_IDS_END - 1} can be judged."
        )
    return adopt(plan, Adoption(prefix=run_prefix(run.path.name), broker_ids=ids))


def settings_of(admin: Any, broker: int, variant: Variant) -> dict[str, str]:  # noqa: ANN401 - clusters.admin.Admin
    """What shapes a trial, as that broker says it, and what it does not tell as the trial does."""
    described: Mapping[str, str | None] = {}
    with suppress(ClusterFailed, BadInput, NotReady):
        described = admin.describe_configs(brokers=[broker], timeout_s=ASK_TIMEOUT_S)[f"broker:{broker}"]
    told = {key: value for key in shaping_settings(variant) if (value := described.get(key)) is not None}
    return {**variant.properties, **told}


def each(problems: list[str], *deeds: Callable[[], object]) -> None:
    """Do each, whatever one of them raises; what they raised is added to `problems`."""
    for deed in deeds:
        try:
            deed()
        except Exception as error:  # noqa: BLE001 - the others are done all the same
            problems.append(str(error))
