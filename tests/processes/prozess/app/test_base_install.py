"""Without the packages of any extra, a configuration is validated, and everything is listed and explained."""

import os
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from prozess.harness.installation import EXTRAS
from tests.support.paths import ROOT

LIMIT_S = 60
PAYMENTS = "docs/examples/payments"
FILES = [
    word
    for kind in ("broker", "topic", "producer", "consumer")
    for word in (f"--{kind}", f"{PAYMENTS}/{'server' if kind == 'broker' else kind}.properties")
]


def required_by(distribution):
    """The names of the distributions that this one needs without any of its extras."""
    wanted = map(Requirement, metadata.requires(distribution) or ())
    return [need.name for need in wanted if need.marker is None or need.marker.evaluate({"extra": ""})]


@pytest.fixture(scope="module")
def base_install(tmp_path_factory):
    """Runs a command of prozess where nothing is installed but what `pip install prozess` brings."""
    site, wanted, found = tmp_path_factory.mktemp("site"), required_by("prozess"), set()
    while wanted:
        if (name := canonicalize_name(wanted.pop())) not in found:
            found.add(name)
            wanted += required_by(name)
    for name in found:
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(distribution.locate_file(top))
    environment = os.environ | {"PYTHONPATH": f"{site}:{ROOT}"}

    def ran(*words):
        command = [sys.executable, "-S", "-P", "-m", "prozess", *words]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    return ran


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--help"], "validate"),
        (["list"], "smoke"),
        (["list", "--scenarios"], "smoke"),
        (["explain", "acks"], "how many replicas have the record"),
        (["explain", "lost"], "pip install 'prozess[run]'"),
        (["explain", "kill"], "stop a process"),
        (["explain", "KAFKA-14034"], "known defect"),
        (["validate", *FILES, "--minutes", "0", "--commits", "sync-after"], "anomalies cannot happen"),
    ],
)
def test_what_needs_no_trial_needs_no_package_of_an_extra(base_install, words, shown):
    ran = base_install(*words)
    assert ran.returncode == 0, ran.stderr
    assert shown in ran.stdout


@pytest.mark.parametrize("words", [["run", "smoke"], ["check", "no-such-run"], ["generate", "--help"]])
def test_what_needs_them_says_so_in_one_sentence(base_install, words):
    ran = base_install(*words)
    if "--help" in words:
        assert ran.returncode == 0, ran.stderr
        return
    assert ran.returncode != 0
    assert "Traceback" not in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1, ran.stderr


def test_an_unknown_subject_is_refused_with_the_nearest_names(base_install):
    ran = base_install("explain", "losst")
    assert ran.returncode == 254
    assert "Did you mean lost" in ran.stderr.replace("\n", " ")


def test_every_package_of_the_extra_run_has_its_module_in_the_table():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    distributions = {"toxiproxy-python": "toxiproxy"}
    names = {word.partition(">")[0] for word in project["optional-dependencies"]["run"]}
    assert {module for module, extra in EXTRAS.items() if extra == "run"} == {
        distributions.get(name, name).replace("-", "_") for name in names
    }
