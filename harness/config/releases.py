"""The releases of Kafka that prozess knows, and what each of them can be: a cluster with ZooKeeper, with KRaft, or both."""

from itertools import chain

from prozess.harness.config.configuration import version_numbers

_PATCHES = {
    **{"2.8": 2, "3.0": 2, "3.1": 2, "3.2": 3, "3.3": 2, "3.4": 1, "3.5": 2, "3.6": 2, "3.7": 2, "3.8": 1, "3.9": 2},
    **{"4.0": 2, "4.1": 2, "4.2": 2, "4.3": 1, "4.4": 0},
}
"""Minor release → its newest patch release, in Maven Central's list of kafka_2.13."""
RELEASES = tuple(chain.from_iterable([f"{minor}.{n}" for n in range(last + 1)] for minor, last in _PATCHES.items()))
"""Every release that brokers can be of, the oldest first."""
NEWEST_PATCHES = tuple(f"{minor}.{last}" for minor, last in _PATCHES.items())
"""The newest patch release of each minor one, the oldest first."""


READY_KRAFT = (3, 3)
"""The first line whose KRaft is ready for production (KIP-833)."""


def nearest_releases(version: str) -> str:
    """Returns the known releases around a version, as words: the newest older one, and the oldest newer one."""
    numbers = version_numbers(version)
    older = [release for release in RELEASES if version_numbers(release) < numbers]
    newer = [release for release in RELEASES if version_numbers(release) > numbers]
    return " and ".join((*older[-1:], *newer[:1]))
