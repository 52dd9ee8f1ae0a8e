"""librdkafka of another version: fetched once by the real pip, verified whenever it is used, refused in a sentence."""

import base64
import hashlib
import os
import sys
import zipfile

import pytest

from prozess.clusters.install import wheels
from prozess.clusters.install.wheels import ensure_library, library_facts, locked_wheels, refuse_library, wheels_for
from prozess.harness.errors import BadInput, MissingTool

VERSION = "99.1.0"
NAME = f"confluent_kafka-{VERSION}-py3-none-any.whl"
ABOUT = f"confluent_kafka-{VERSION}.dist-info"
METADATA = f"Metadata-Version: 2.1\nName: confluent-kafka\nVersion: {VERSION}\n"
FILES = {
    "confluent_kafka/__init__.py": b"def libversion(): return ('99.1.0', 0)\n",
    f"{ABOUT}/METADATA": METADATA.encode(),
    f"{ABOUT}/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


@pytest.fixture
def index(tmp_path):
    """A folder that pip takes for a package index, with one wheel, and a cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    lines = []
    with zipfile.ZipFile(folder / NAME, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
            sum_ = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={sum_},{len(content)}\n")
        record = f"{ABOUT}/RECORD"
        archive.writestr(record, "".join([*lines, f"{record},,\n"]))
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}
    return {**os.environ, **pip, "PROZESS_CACHE": str(tmp_path / "cache")}


def test_a_wheel_is_fetched_once_and_named_unverified_without_a_lock(index):
    told = []
    library = ensure_library(VERSION, progress=told.append, environment=index)
    assert (library / "confluent_kafka" / "__init__.py").read_bytes() == FILES["confluent_kafka/__init__.py"]
    assert told[-1] == f"confluent-kafka {VERSION}: UNVERIFIED: prozess has no sum of it."
    assert ensure_library(VERSION, progress=told.append, environment=index) == library
    assert len(told) == 3  # asked, fetched, and nothing the second time
    facts = library_facts(VERSION, environment=index)
    assert (facts["verified"], facts["wheel"]) == (False, NAME)


def test_a_file_or_a_wheel_that_changed_in_the_cache_is_fetched_again(index):
    library = ensure_library(VERSION, environment=index)
    for damaged in (library / "confluent_kafka" / "__init__.py", library.parent / NAME):
        original = damaged.read_bytes()
        damaged.write_bytes(original + b"#")
        assert library_facts(VERSION, environment=index) == {}
        assert ensure_library(VERSION, environment=index) == library
        assert damaged.read_bytes() == original


def test_a_wheel_that_is_not_what_its_lock_says_is_not_used(index, monkeypatch):
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    name = f"confluent_kafka-{VERSION}-{tag}-{tag}-manylinux_2_28_{os.uname().machine}.whl"
    monkeypatch.setattr(wheels, "locked_wheels", lambda: {VERSION: {name: "ab" * 32}})
    with pytest.raises(MissingTool, match="another wheel than prozess has the sum of"):
        ensure_library(VERSION, environment=index)


def test_a_version_that_does_not_exist_is_refused_with_one_that_does(index):
    with pytest.raises(
        BadInput, match=r"client_version = '98\.0\.0': the package index has no .* Give one that it has"
    ):
        refuse_library("98.0.0", environment=index)


def test_a_version_without_a_wheel_for_this_python_is_refused_without_asking_anybody():
    with pytest.raises(BadInput, match=r"2\.0\.2 has no wheel for Python 3\.99 on .*there is none"):
        refuse_library("2.0.2", python=(3, 99), environment={"PATH": "/nowhere"})
    refuse_library("2.8.0", python=(3, 11), environment={"PATH": "/nowhere"})


def test_without_a_network_the_sentence_says_so(index, tmp_path):
    nowhere = {**index, "PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    with pytest.raises(MissingTool, match="the package index cannot be reached"):
        refuse_library("98.0.0", environment={**nowhere, "PIP_RETRIES": "0"})


def test_the_lock_has_a_wheel_for_every_python_that_prozess_supports():
    assert all(len(sum_) == 64 for names in locked_wheels().values() for sum_ in names.values())
    for python in ("cp311", "cp312", "cp313", "cp314"):
        for machine in ("x86_64", "aarch64"):
            assert len(wheels_for(python, machine)) >= 5


def test_the_number_of_a_package_that_brings_another_librdkafka_is_refused_with_that():
    with pytest.raises(BadInput, match=r"confluent-kafka 2\.9\.0 brings librdkafka 2\.8\.0\. Give .*'2\.8\.0'"):
        refuse_library("2.9.0", environment={"PATH": "/nowhere"})
