"""Faults of links are refused when a trial is planned, with the reason, where they cannot be made."""

import pytest

from prozess.app.run.outside_sandbox import check_capabilities
from prozess.clusters.links import kernel_probe
from prozess.clusters.links.links import _bytes_per_s
from prozess.clusters.links.support import WAYS, refusals
from prozess.harness.config.impairments import Capability
from prozess.harness.errors import UnsupportedFault
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory


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


@pytest.mark.parametrize(
    ("inside", "go", "refused"),
    [(False, None, {Capability.DELAY}), (True, "/bin/go", {Capability.DELAY}), (False, "/bin/go", set())],
)
def test_latency_is_refused_where_toxiproxy_is_not_and_is_not_built_before_the_run_either(
    monkeypatch, inside, go, refused
):
    monkeypatch.setattr("prozess.clusters.links.support._refused_by_kernel", dict)
    monkeypatch.setattr("prozess.clusters.links.support.toxiproxy_server", lambda: None)
    monkeypatch.setattr("prozess.clusters.links.support.shutil.which", lambda name: go)
    monkeypatch.delenv("PROZESS_ISOLATION", raising=False)
    if inside:
        monkeypatch.setenv("PROZESS_ISOLATION", "namespaces")
    assert set(refusals()) == refused
    assert all("was not built" in why for why in refusals().values())


def test_each_fault_of_links_whose_way_is_said_is_tried():
    assert set(kernel_probe.TRIALS) == set(WAYS)


@pytest.mark.parametrize(
    ("told", "wanted"), [("800Kbit", 100_000), ("8bit", 1), ("1600Mbit", 200_000_000), ("1.5Gbit", 187_500_000)]
)
def test_rates_of_tc_are_bytes_per_second(told, wanted):
    assert _bytes_per_s(told) == wanted
