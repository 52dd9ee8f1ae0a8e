"""What identifies the code of a machine: sources, packages that add something, and Python."""

import json
import subprocess
import sys
import zipfile
from importlib.metadata import EntryPoint

import pytest

from prozess.harness import plugins
from prozess.harness.code_identity import code_identity, refuse_other_code, trials_identity
from prozess.harness.errors import MissingTool
from prozess.spark_checkers.session import _archive


def identity_from(path, *, changed=None, tmp_path):
    """What a Python says that imports prozess from this archive."""
    if changed is not None:
        name, old, new = changed
        other = tmp_path / "changed.zip"
        with zipfile.ZipFile(path) as before, zipfile.ZipFile(other, "w") as after:
            for file in before.namelist():
                content = before.read(file)
                if file == name:
                    assert old in content
                    content = content.replace(old, new)
                after.writestr(file, content)
        path = other
    code = f"""
import json, sys
sys.path.insert(0, {str(path)!r})
from prozess.harness import code_identity as module
assert ".zip" in module.__file__
print(json.dumps(dict(module.code_identity())))
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_archive_for_workers_has_the_identity_of_this_checkout(tmp_path):
    assert identity_from(_archive(tmp_path), tmp_path=tmp_path) == dict(code_identity())


@pytest.mark.parametrize(
    "changed",
    [
        ("prozess/checkers/log/duplicates.py", b"def duplicate(", b"def  duplicate("),
        ("prozess/spark_checkers/oracle/log.sql", b"--- anomaly duplicate", b"--- anomaly  duplicate"),
    ],
    ids=["Python", "SQL"],
)
def test_one_changed_line_of_a_check_is_another_identity_that_is_refused_by_name(changed, tmp_path):
    other = identity_from(_archive(tmp_path), changed=changed, tmp_path=tmp_path)
    assert other["python"] == code_identity()["python"]
    with pytest.raises(MissingTool, match=r"is not that of this command \(prozess: \w{12} there, \w{12} here\)"):
        refuse_other_code(code_identity(), other)


def test_a_package_that_only_one_side_has_is_named():
    mine = dict(code_identity())
    with pytest.raises(MissingTool, match=r"acme-trials: none there, 1\.0 abc here"):
        refuse_other_code({**mine, "acme-trials": "1.0 abc"}, mine)
    with pytest.raises(MissingTool, match=r"python: CPython 3\.9 there"):
        refuse_other_code(mine, {**mine, "python": "CPython 3.9"})
    refuse_other_code(mine)


def test_packages_that_add_something_are_part_of_it_with_their_version(monkeypatch):
    points = [
        EntryPoint("a", "json.tool:main", "prozess.checkers"),
        EntryPoint("b", "nowhere_at_all:x", "prozess.faults"),
    ]
    monkeypatch.setattr(plugins, "entry_points_of_others", lambda: points)
    code_identity.cache_clear()
    try:
        assert code_identity()["an installed package"] == "missing"
        monkeypatch.setattr(plugins, "entry_points_of_others", lambda: points[:1])
        code_identity.cache_clear()
        assert len(code_identity()["an installed package"]) == 64
    finally:
        code_identity.cache_clear()


def test_the_trials_that_come_with_prozess_have_an_identity():
    assert len(trials_identity()) == 64
