"""What a run depended on is written beside it, and nothing that could not be found out."""

import json
import re
import sys

import pytest

from harness import catalogue, versions
from harness.errors import MissingTool
from harness.foreign import HERE, PACKAGES, foreign_packages, why_not_ours
from harness.planning import make_plan
from harness.run_directory import RunDirectory
from harness.trial import load_trial


def test_the_stamp_names_every_version_that_matters(tmp_path):
    run = RunDirectory(tmp_path)
    versions.stamp_versions(run, make_plan(load_trial("smoke"), seed=1))
    told = json.loads(run.versions.read_text())
    assert told["prozess"]["version"]
    assert re.fullmatch(r"[0-9a-f]{40}", told["prozess"].get("commit", "0" * 40))
    assert told["kafka"] == ["4.3.1"]
    assert {"confluent-kafka", "pyspark", "pyarrow", "numpy"} <= told["packages"].keys()
    assert re.fullmatch(r"\d+\.\d+\.\d+", told["tools"]["librdkafka"])
    assert told["machine"]["processors"] >= 1
    assert told["python"].startswith("CPython 3.")


def test_what_cannot_be_found_out_is_left_out(monkeypatch):
    monkeypatch.setattr(versions, "PACKAGE", "no-such-distribution")
    monkeypatch.setattr(versions, "_git", lambda *_: None)
    told = versions.versions_of(make_plan(load_trial("smoke"), seed=1))
    assert told["packages"] == {}
    assert told["no-such-distribution"] == {"version": None}


def test_a_package_of_somebody_else_with_our_name_is_found(tmp_path):
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").touch()
    (tmp_path / "workloads.py").touch()
    (tmp_path / "nemesis").mkdir()  # no package: a directory of data
    found = foreign_packages([str(HERE), str(tmp_path)])
    assert found == [tmp_path / "harness" / "__init__.py", tmp_path / "workloads.py"]


def test_ours_are_not_foreign():
    assert foreign_packages([str(HERE)]) == []
    assert all(why_not_ours(f"{name}.anything") is None for name in PACKAGES)


def test_a_foreign_package_in_front_is_named_instead_of_a_traceback(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "clusters", _module(tmp_path / "clusters" / "__init__.py"))
    monkeypatch.delitem(sys.modules, "clusters.doctor", raising=False)
    with pytest.raises(MissingTool, match=r"another package 'clusters' at .*PYTHONPATH"):
        catalogue.service("doctor")


def test_a_missing_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "paramiko" or name == "clusters.ssh_host"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "clusters.ssh", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Without("paramiko"), *sys.meta_path])
    with pytest.raises(
        MissingTool, match=r"backend 'ssh' needs the Python package 'paramiko': pip install 'prozess\[ssh\]'"
    ):
        catalogue.resolve(catalogue.BACKENDS, "ssh", what="backend")


def _module(where):
    from types import ModuleType

    made = ModuleType("clusters")
    made.__file__, made.__path__ = str(where), [str(where.parent)]
    return made


class _Without:
    """As if a distribution were not installed."""

    def __init__(self, name):
        self.name = name

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
