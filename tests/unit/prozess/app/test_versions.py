"""What a run depended on is written beside it, and nothing that could not be found out."""

import json
import re
import sys
from importlib import import_module

import pytest

from prozess.app.wiring import tool_versions
from prozess.clusters.install.kafka_jars import jar_facts
from prozess.clusters.install.wheels import library_facts
from prozess.harness.config.configuration import NEWEST_VERSION
from prozess.harness.errors import MissingTool
from prozess.harness.history import versions
from prozess.harness.plan import catalogue
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import load_trial, parse_trial
from prozess.harness.run_directory import RunDirectory, write_json


def test_the_stamp_names_every_version_that_matters(tmp_path):
    run = RunDirectory(tmp_path)
    plan = make_plan(load_trial("smoke"), seed=1)
    versions.stamp_versions(run, plan, jar_facts=jar_facts, library_facts=library_facts, tool_versions=tool_versions)
    told = json.loads(run.versions.read_text())
    assert told["prozess"]["version"]
    assert re.fullmatch(r"[0-9a-f]{40}", told["prozess"].get("commit", "0" * 40))
    assert told["kafka"] == ["4.4.0"]
    assert {"confluent-kafka", "pyspark", "pyarrow", "numpy"} <= told["packages"].keys()
    assert re.fullmatch(r"\d+\.\d+\.\d+", told["tools"]["librdkafka"])
    assert told["clients"] == [
        {"library": "librdkafka", "version": told["tools"]["librdkafka"], "from": "the installed package"}
    ]
    assert told["machine"]["processors"] >= 1
    assert told["python"].startswith("CPython 3.")


def test_other_trials_are_counted_once_each_whatever_processes_they_have(tmp_path):
    stage, session = "prozess.app.run.inside_sandbox", "prozess.app.run.session"
    processes = [
        (1, ["python", "-m", "prozess", "run", "smoke"]),
        (2, ["unshare", "--net", "python", "-P", "-m", stage, "/a/run", "--isolation", "namespaces"]),
        (3, ["python", "-P", "-m", stage, "/a/run", "--isolation", "namespaces"]),
        (4, ["python", "-m", session, "/b/run"]),
        (5, [stage]),
    ]
    assert versions.other_trials(processes) == 2
    run = RunDirectory(tmp_path)
    assert versions.concurrent_runs_note(run) == ""
    for count, words in ((0, ""), (1, "another trial ran on the 2 processors"), (3, "3 other trials ran")):
        write_json(run.versions, {"machine": {"processors": 2, "other_trials": count}})
        assert words in versions.concurrent_runs_note(run)
        assert bool(versions.concurrent_runs_note(run)) == bool(count)


@pytest.mark.parametrize(("jars", "told"), [({}, 1), ({"verified": False}, 1), ({"verified": True, "sha256": "ab"}, 0)])
def test_servers_from_jars_that_nobody_verified_are_named(tmp_path, jars, told):
    plan, run = make_plan(load_trial("smoke"), seed=1), RunDirectory(tmp_path)
    facts = {"jar_facts": lambda version: jars, "library_facts": lambda version: {}}
    versions.stamp_versions(run, plan, **facts, tool_versions=lambda backend: {})
    assert json.loads(run.versions.read_text())["servers"] == {
        "4.4.0": {"from": "jars in the cache", "verified": False} | jars
    }
    assert versions.unverified(run) == [
        "Kafka 4.4.0 ran from jars in the cache, for which prozess has no SHA-256 sums."
    ] * told  # fmt: skip


@pytest.mark.parametrize(
    ("told", "name"), [({"kafka_version": "4.4"}, "Kafka 4.4"), ({}, "Kafka, of a release that its")]
)
def test_a_cluster_that_was_there_is_named_by_the_release_that_its_brokers_told(tmp_path, told, name):
    plan, run = make_plan(load_trial("smoke"), seed=1).model_copy(update={"backend": "attach"}), RunDirectory(tmp_path)
    facts = {"jar_facts": lambda version: {}, "library_facts": lambda version: {}}
    versions.stamp_versions(run, plan, **facts, tool_versions=lambda backend: {})
    write_json(run.cluster, told)
    (sentence,) = versions.unverified(run)
    assert sentence.startswith(name)
    assert "unknown" not in sentence


def test_client_libraries_are_named_with_their_versions_and_those_that_nobody_verified(tmp_path):
    text = {"producer.client": "java", "producer.client_version": "2.8.2"}
    trial = {"name": "t", "title": "t", "workloads": [
        {"kind": "verifiable", "base": text},
        {"kind": "log", "axes": {"producer.client_version": ["2.0.2", "2.8.0", "default"]}},
    ]}  # fmt: skip
    plan, run = make_plan(parse_trial(trial, source="test"), seed=1), RunDirectory(tmp_path)
    versions.stamp_versions(
        run,
        plan,
        jar_facts=lambda version: {"verified": version == NEWEST_VERSION},
        library_facts=lambda version: {"verified": version == "2.8.0"},
        tool_versions=lambda backend: {"librdkafka": "2.16.0"},
    )
    told = [
        (one["library"], one["version"], one.get("verified")) for one in json.loads(run.versions.read_text())["clients"]
    ]
    assert sorted(told, key=str) == [
        ("java", "2.8.2", False),
        ("librdkafka", "2.0.2", False),
        ("librdkafka", "2.16.0", None),
        ("librdkafka", "2.8.0", True),
    ]
    assert len(versions.unverified(run)) == 2


@pytest.mark.parametrize("backend", ["compose", "ssh", "attach"])
def test_servers_that_somebody_else_installed_are_not_verified(tmp_path, backend):
    plan = make_plan(load_trial("smoke"), seed=1).model_copy(update={"backend": backend})
    write_json(RunDirectory(tmp_path).versions, {"servers": versions._servers(plan, jar_facts)})
    (told,) = versions.unverified(RunDirectory(tmp_path))
    assert catalogue.BACKENDS[backend].servers_from in told


def test_a_run_without_a_stamp_says_nothing_of_its_servers(tmp_path):
    assert versions.unverified(RunDirectory(tmp_path)) == []


def test_what_cannot_be_found_out_is_left_out(monkeypatch):
    monkeypatch.setattr(versions, "PACKAGE", "no-such-distribution")
    monkeypatch.setattr(versions, "_git", lambda *_: None)
    told = versions.versions_of(
        make_plan(load_trial("smoke"), seed=1),
        jar_facts=jar_facts,
        library_facts=library_facts,
        tool_versions=tool_versions,
    )
    assert told["packages"] == {}
    assert told["no-such-distribution"] == {"version": None}


def test_a_missing_extra_is_named(monkeypatch):
    for name in [
        name
        for name in sys.modules
        if name.partition(".")[0] == "paramiko" or name == "prozess.clusters.existing.ssh_node"
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "prozess.clusters.existing.ssh", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Without("paramiko"), *sys.meta_path])
    with pytest.raises(
        MissingTool, match=r"backend 'ssh' needs the Python package 'paramiko': pip install 'prozess\[ssh\]'"
    ):
        import_module("prozess.clusters.existing.ssh")


class _Without:
    """As if a distribution were not installed."""

    def __init__(self, name):
        self.name = name

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
