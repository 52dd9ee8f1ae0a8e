"""Where toxiproxy comes from, and what a trial needs it for."""

import os
from pathlib import Path

import pytest

from prozess.clusters.install.tools import TOXIPROXY_VERSION, ensure_toxiproxy, toxiproxy_server
from prozess.clusters.links.links import fits, probes_for
from prozess.harness.config.impairments import Capability
from prozess.harness.errors import MissingTool
from prozess.harness.installation import sha256_of
from prozess.harness.plan.checks import capabilities_needed
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    return path


def test_a_server_on_the_path_is_taken_and_else_the_one_in_the_cache(tmp_path):
    environment = {"PATH": str(tmp_path / "bin"), "PROZESS_CACHE": str(tmp_path / "cache")}
    assert toxiproxy_server(environment=environment) is None
    cached = program(tmp_path / "cache" / "tools" / f"toxiproxy-{TOXIPROXY_VERSION}")
    assert toxiproxy_server(environment=environment) is None, "nobody knows whether it is what was built"
    cached.with_name(f"{cached.name}.sha256").write_text(sha256_of(cached))
    assert ensure_toxiproxy(environment=environment) == cached
    on_path = program(tmp_path / "bin" / "toxiproxy-server")
    assert ensure_toxiproxy(environment=environment) == on_path


def test_a_server_that_is_not_the_file_that_was_built_is_built_again(tmp_path):
    go = program(tmp_path / "bin" / "go")
    go.write_text('#!/bin/sh\necho built > "$GOBIN/server"\nchmod +x "$GOBIN/server"\n')
    environment = {"PATH": f"{go.parent}:{os.defpath}", "PROZESS_CACHE": str(tmp_path / "cache")}
    built = ensure_toxiproxy(environment=environment)
    assert toxiproxy_server(environment=environment) == built
    built.write_text("other\n")
    assert toxiproxy_server(environment=environment) is None
    assert ensure_toxiproxy(environment=environment).read_text() == "built\n"


def test_without_go_it_is_said_what_to_install(tmp_path):
    with pytest.raises(MissingTool, match="install one of them"):
        ensure_toxiproxy(environment={"PATH": str(tmp_path), "PROZESS_CACHE": str(tmp_path / "cache")})


def test_a_go_that_cannot_build_is_said_with_its_words_and_leaves_nothing(tmp_path):
    go = tmp_path / "bin" / "go"
    program(go).write_text("#!/bin/sh\necho no module here >&2\nexit 1\n")
    environment = {"PATH": f"{go.parent}:{os.defpath}", "PROZESS_CACHE": str(tmp_path / "cache")}
    with pytest.raises(MissingTool, match="no module here"):
        ensure_toxiproxy(environment=environment)
    assert [p for p in (tmp_path / "cache" / "tools").iterdir() if not p.name.endswith(".flock")] == []


@pytest.mark.parametrize(("fault", "needed"), [("latency", True), ("loss", False)])
def test_only_a_trial_with_latency_needs_it(fault, needed):
    parameters = {"latency": {"latency_ms": 5}, "loss": {"share": 0.1}}[fault]
    step = {"name": "s", "do": {"kind": "fault", "fault": fault, "targets": ["leader(0)"], "parameters": parameters}}
    document = {"name": "t", "title": "", "base": {"topic.replication_factor": 1}, "steps": [step]}
    plan = make_plan(parse_trial(document, source="t"), seed=1)
    assert (Capability.DELAY in capabilities_needed(plan)) is needed


def test_a_loss_is_shown_by_enough_datagrams_and_only_by_about_its_share():
    assert [probes_for(share) for share in (0.9, 0.1, 0.01, 0.001)] == [100, 197, 2062, 3000]
    assert fits(30, 100, 0.3)
    assert fits(100, 100, 0.95)
    assert not fits(100, 100, 0.3)
    assert not fits(3, 100, 0.5)
