"""A backend is a place where Kafka runs. This is what its entry in the registry says, and what is asked of it before a
cluster is there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prozess.harness.clock import Clock
from prozess.harness.interfaces.cluster import Cluster
from prozess.harness.plan.plan import Plan
from prozess.harness.run_directory import RunDirectory

Note = Callable[[str], None]
"""Is given a sentence for a person."""
CloseConsumer = Callable[..., None]
"""Closes a consumer of confluent-kafka (`prozess.workloads.librdkafka.close`)."""


class MakeCluster(Protocol):
    """Makes the cluster of a plan. Nothing starts before `Cluster.setup`, unless the cluster runs already and is only
    reached."""

    def __call__(self, plan: Plan, run: RunDirectory, *, clock: Clock, isolation: str | None = None) -> Cluster:
        """Returns the cluster. `isolation` says how nodes are kept apart; None means as well as the machine can."""
        ...


def _nothing(*_: object) -> None:
    """Has nothing to prepare or to refuse."""


def _signals(wanted: str, note: Note) -> str:
    """Has no namespaces of its own: its nodes are in networks of somebody else."""
    return "signals"


@dataclass(frozen=True, slots=True)
class Backend:
    """A place where Kafka runs: how its clusters are made, and what differs from the other backends."""

    make: MakeCluster
    servers_from: str
    """The origin of the servers' files, as `versions.json` has it."""
    prepare: Callable[[Plan, Note, CloseConsumer], None] = _nothing
    """Fetches and builds what a run needs, so that this is not taken for a slow cluster."""
    refuse: Callable[[Plan], None] = _nothing
    """Raises BadInput for a variant that the backend cannot make. It looks at the plan alone."""
    refuse_versions: Callable[[Plan, Note | None], None] = _nothing
    """Raises BadInput for versions of Kafka, and methods of them, that do not exist. It may ask the repository."""
    isolation: Callable[[str, Note], str] = _signals
    """Returns the isolation level for the wanted one ("auto" included), and notes what it costs."""
    tools: Callable[[], Mapping[str, str]] = dict
    """Returns the versions of programs that only this backend uses."""
    reaches: Callable[[Plan], Sequence[str]] = lambda _plan: ()
    """Returns what the backend touches beyond a cluster of its own, one clause each, for `prozess replay`."""
    lasts: bool = False
    """The cluster is there before the run and stays after it. What it can do is found out when the run begins."""
    from_cache: bool = False
    """The servers run from jars of prozess' own cache, which knows their checksums."""
    protocol_only: bool = False
    """Nothing but Kafka's protocol reaches the cluster: nobody knows its versions, its files and how it keeps metadata."""
    relayed: bool = False
    """The nodes are in a network of their own, which other processes of this machine reach over a relay."""
    stages: Mapping[str, str] | None = None
    """Names of the stages of a run that differ from those of a cluster that is made for the run."""
