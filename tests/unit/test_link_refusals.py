"""Faults of links are refused when a trial is planned, with the reason, where they cannot be made."""

import pytest

from clusters.link_bandwidth import _bytes_per_s
from clusters.link_support import refusals
from harness.capabilities import Capability
from harness.errors import UnsupportedFault
from harness.planning import make_plan
from harness.run_directory import RunDirectory
from harness.stages.run import check_capabilities
from harness.trial import parse_trial


def plan_with(fault, **parameters):
    do = {"kind": "fault", "fault": fault, "targets": ["leader(0)"], "parameters": parameters}
    document = {"name": "t", "title": "", "base": {"topic.replication_factor": 3}, "steps": [{"name": "s", "do": do}]}
    return make_plan(parse_trial(document, source="t"), seed=1)


@pytest.mark.parametrize(
    ("fault", "parameters"),
    [
        ("partition", {"others": "clients"}),
        ("partition", {"shape": "isolate"}),
        ("loss", {"share": 0.1}),
        ("bandwidth", {"bytes_per_s": 20_000}),
        ("latency", {"latency_ms": 10}),
        ("reset", {}),
        ("half-open", {}),
    ],
)
def test_without_network_namespaces_no_link_can_be_broken_and_it_is_said_why(tmp_path, fault, parameters):
    with pytest.raises(UnsupportedFault, match=f"needs '{fault}'.*no network namespaces here"):
        check_capabilities(plan_with(fault, **parameters), RunDirectory(tmp_path), isolation="signals")


def test_latency_is_refused_where_toxiproxy_is_not(monkeypatch):
    monkeypatch.setattr("clusters.link_support._refused_by_kernel", dict)
    monkeypatch.setattr("clusters.link_support.toxiproxy_server", lambda: None)
    assert set(refusals()) == {Capability.DELAY}
    assert "was not built" in refusals()[Capability.DELAY]


@pytest.mark.parametrize(
    ("told", "wanted"), [("800Kbit", 100_000), ("8bit", 1), ("1600Mbit", 200_000_000), ("1.5Gbit", 187_500_000)]
)
def test_rates_of_tc_are_bytes_per_second(told, wanted):
    assert _bytes_per_s(told) == wanted
