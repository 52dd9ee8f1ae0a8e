"""Clusters of a test process: started when a test first needs one like it, kept for those that can share it."""

from pathlib import Path

from harness.configuration import Variant
from harness.plan import Plan
from harness.progress import ProgressView
from harness.run_directory import RunDirectory
from harness.schedule import FaultAction, Step
from harness.testing.session import ClusterSession
from harness.testing.settings import TestSettings
from harness.trial import Limits

QUICK_SESSIONS = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
"""Laid under the properties of a test: a dead broker is noticed in seconds, and a group begins at once."""


class Clusters:
    """At most one at a time runs in a process: each is several hundred MB."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._session: ClusterSession | None = None
        self._key: tuple[object, ...] = ()
        self._count = 0

    def get(self, settings: TestSettings) -> ClusterSession:
        """One like this, running. ProzessError with the reason if it cannot be started here."""
        if self._session is not None and (self._key != settings.cluster or not self._session.alive):
            self.end()
        if self._session is None:
            self._session, self._key = self._start(settings), settings.cluster
        return self._session

    def end(self) -> None:
        """Take down what runs."""
        session, self._session = self._session, None
        if session is not None:
            session.end()

    def _start(self, settings: TestSettings) -> ClusterSession:
        from harness.conduct import prepare

        plan = cluster_plan(settings)
        self._count += 1
        run = RunDirectory(self._runs.resolve() / f"cluster-{self._count}")
        with ProgressView(quiet=True) as view:
            isolation = prepare(plan, settings.isolation, view)
        return ClusterSession(plan, run, isolation=isolation)


def cluster_plan(settings: TestSettings) -> Plan:
    """What a cluster is started from: no cells, and the faults it is to be prepared for."""
    variant = Variant.model_validate(
        {
            "metadata_mode": settings.variant,
            "kafka_version": settings.version,
            "brokers": settings.brokers,
            "properties": {**_quick(settings.variant), **dict(settings.properties)},
        }
    )
    steps = [
        Step(name=f"prepared for {fault}", do=FaultAction(kind="fault", fault=fault, targets=("brokers",)))
        for fault in settings.faults
    ]
    return Plan(
        origin="recorded",
        trial="cluster",
        title="A cluster for tests",
        scenarios=(),
        seed=0,
        backend=settings.backend,
        variant=variant,
        limits=Limits(),
        settle_s=0,
        cells=(),
        excluded=(),
        partitions=(),
        clients=(),
        steps=tuple(steps),
        controls=(),
        metrics="clock" in settings.faults,
    )


def _quick(metadata_mode: str) -> dict[str, str]:
    if metadata_mode == "zookeeper":
        return {k: v for k, v in QUICK_SESSIONS.items() if not k.startswith("broker.")} | {
            "zookeeper.session.timeout.ms": "6000"
        }
    return QUICK_SESSIONS
