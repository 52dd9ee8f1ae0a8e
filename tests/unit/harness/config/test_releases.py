"""The releases of Kafka that are known: in order, and which of them are next to one that is not there."""

import pytest

from prozess.harness.config.configuration import version_numbers
from prozess.harness.config.releases import NEWEST_PATCHES, RELEASES, nearest_releases


def test_releases_are_in_order_and_the_newest_patches_are_among_them():
    assert list(RELEASES) == sorted(set(RELEASES), key=version_numbers)
    assert set(NEWEST_PATCHES) <= set(RELEASES)
    assert len({version_numbers(release)[:2] for release in RELEASES}) == len(NEWEST_PATCHES)


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("3.9.7", "3.9.2 and 4.0.0"),
        ("2.7.1", "2.8.0"),
        ("99.0.0", NEWEST_PATCHES[-1]),
        ("3.10.0", "3.9.2 and 4.0.0"),
        ("4.0.0-rc1", "3.9.2 and 4.0.1"),
    ],
)
def test_the_nearest_releases_are_the_ones_before_and_after(version, nearest):
    assert nearest_releases(version) == nearest
