"""What a cluster that somebody else started tells of itself: nobody asked for its version, so that none is assumed."""

from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from clusters.admin import Admin
from clusters.lasting import Kafka, settings_of
from harness.clock import Clock
from harness.configuration import Variant
from harness.errors import NotReady

METADATA_VERSION = "metadata.version"
_FIRST_LEVELS = (7, 8, 9, 12, 15, 20, 21, 22, 26, 28, 30, 31)
_RELEASES = ("3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1", "4.2", "4.3")
"""The first level of metadata.version in each release (`MetadataVersion` in server-common); the last is of none of these."""


def release_of(supported: Mapping[str, int]) -> str | None:
    """The release, "4.3", of brokers that support these levels; all its patches do. None: they do not tell, as with
    ZooKeeper, or it is newer than what is known here. What is finalized may be older than the brokers, and tells nothing."""
    index = bisect_right(_FIRST_LEVELS, supported.get(METADATA_VERSION, 0)) - 1
    return _RELEASES[index] if 0 <= index < len(_RELEASES) else None


def told_by(admin: Admin, brokers: Mapping[int, object], variant: Variant) -> dict[str, Any]:
    """Release, features and settings, as `Cluster.describe` has them; of several releases the oldest. `metadata_mode`: kraft
    or None, since which node is a controller is nothing that brokers tell."""
    release: str | None = None
    with suppress(NotReady):
        release = release_of(admin.supported_features(brokers=tuple(brokers)))
    features = dict(admin.features())
    return {
        "kafka_version": release,
        "metadata_mode": "kraft" if features.get(METADATA_VERSION) else None,
        "features": features,
        "settings": settings_of(admin, next(iter(brokers)), variant),
    }


@dataclass(frozen=True, slots=True)
class _There:
    """As much of a cluster as administration needs."""

    observer_servers: Mapping[int, tuple[str, int]]
    controller_servers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    nodes: tuple[()] = ()


def describe_elsewhere(bootstrap_servers: str, variant: Variant, clock: Clock) -> dict[str, Any]:
    """Of a cluster of which only its address is known. ClusterFailed or NotReady if it does not answer."""
    cluster_id, brokers = Kafka(bootstrap_servers, clock).describe()
    admin = Admin(_There(brokers), clock=clock)  # type: ignore[arg-type]
    try:
        return {"backend": "attach", "cluster_id": cluster_id, **told_by(admin, brokers, variant)}
    finally:
        admin.close()
