"""How a cluster keeps its metadata of which only the version is reported."""

import pytest

from prozess.harness.config.client_settings import Translated
from prozess.validation.servers import variant_of


@pytest.mark.parametrize(
    ("version", "told", "mode"),
    [
        ("2.8.2", {}, "zookeeper"),
        ("3.2.3", {"variant.metadata_mode": "kraft-combined"}, "kraft-combined"),
        ("3.3.0", {}, "kraft-isolated"),
        ("3.9.2", {"variant.metadata_mode": "zookeeper"}, "zookeeper"),
    ],
)
def test_a_cluster_of_which_nobody_says_how_it_keeps_its_metadata_has_zookeeper_before_kraft_was_ready(
    version, told, mode
):
    assert variant_of(Translated(dict(told)), version).metadata_mode == mode
