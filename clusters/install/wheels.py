"""librdkafka of other versions: wheels of confluent-kafka in the user's cache, each unpacked into a directory of its own.

A client of such a version is a process whose import path has that directory first. The wheel is fetched once by pip, from
wherever pip is configured to fetch. Its SHA-256 is compared with the lock whenever it is used or, of a version without one,
with what it was when it was fetched; and every unpacked file with the wheel's own list of sums.
"""

import base64
import csv
import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from prozess.clusters.install.tools import Progress, alone
from prozess.harness.config.configuration import version_numbers
from prozess.harness.errors import BadInput, MissingTool
from prozess.harness.installation import cache_directory, make_cache, sha256_of, sums_in

PACKAGE = "confluent-kafka"
LOCK = "confluent-kafka.lock"
FETCH_TIMEOUT_S = 300.0
NUMBERED_OTHERWISE = {
    "2.7.0": "2.6.1",
    "2.8.2": "2.8.0",
    "2.9.0": "2.8.0",
    "2.12.2": "2.12.1",
    "2.16.1": "2.16.0",
}
"""Versions of confluent-kafka whose librdkafka has another number, as the libraries reported it. For every other wheel with a
lock it is the same."""
_UNPACKED, _PINNED = "library", "wheel.sha256"
_WHEEL = re.compile(r"confluent_kafka-(?P<version>[^-]+)-(?P<python>[^-]+)-[^-]+-(?P<platform>.+)\.whl")
_log = logging.getLogger(__name__)


def locked_wheels() -> dict[str, dict[str, str]]:
    """Returns the wheels that prozess has sums of: version → name of the file → SHA-256."""
    found: dict[str, dict[str, str]] = {}
    text = (files("prozess.clusters.install.locks") / LOCK).read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            sha256, name = line.split()
            match = _WHEEL.fullmatch(name)
            assert match is not None, line
            found.setdefault(match["version"], {})[name] = sha256
    return found


def refuse_library(
    version: str,
    *,
    progress: Progress | None = None,
    environment: Mapping[str, str] = os.environ,
    python: tuple[int, int] = sys.version_info[:2],
) -> None:
    """Raises BadInput if there is no wheel of this version of librdkafka that this Python can run.

    A version that has a lock is known. For any other the package index is asked, through pip; MissingTool if it cannot
    be asked.
    """
    tag, machine = f"cp{python[0]}{python[1]}", platform.machine()
    if (library := NUMBERED_OTHERWISE.get(version)) is not None:
        raise BadInput(
            f"client_version = {version!r} is the version of librdkafka, and confluent-kafka {version} brings librdkafka "
            f"{library}. Give client_version = {library!r}."
        )
    if (locked := locked_wheels().get(version)) is not None:
        if not any(f"-{tag}-" in name and name.endswith(f"_{machine}.whl") for name in locked):
            raise BadInput(
                f"client_version = {version!r}: confluent-kafka {version} has no wheel for Python {python[0]}.{python[1]} "
                f"on {machine}. Give one that has: {_few(wheels_for(tag, machine))}."
            )
        return
    if not _directory(version, environment).is_dir():
        (progress or _log.info)(f"Asking the package index whether there is a confluent-kafka {version} …")
        with tempfile.TemporaryDirectory(prefix="prozess-") as nowhere:
            _pip(version, ("install", "--dry-run", "--ignore-installed", "--target", nowhere), environment=environment)


def wheels_for(tag: str, machine: str) -> list[str]:
    """Returns the versions with a lock that a Python with this tag can run on such a machine, oldest first."""
    able = (
        version
        for version, names in locked_wheels().items()
        if any(f"-{tag}-" in name and name.endswith(f"_{machine}.whl") for name in names)
    )
    return sorted(able, key=version_numbers)


def _few(versions: Sequence[str]) -> str:
    return f"{', '.join(versions[-3:])}; the oldest is {versions[0]}" if versions else "there is none"


def ensure_library(
    version: str, *, progress: Progress | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """Returns the directory that has confluent_kafka with librdkafka of this version. It is fetched if it is not in the
    cache or has changed there.

    BadInput if there is none for this Python; MissingTool if it cannot be had, or is not what the lock says; NotReady if
    another process keeps fetching beyond the limit.
    """
    refuse_library(version, progress=progress, environment=environment)
    if (found := _present(version, environment)) is not None:
        return found
    directory = make_cache("clients", environment=environment)
    target = _directory(version, environment)
    lock = directory / f"{target.name}.flock"
    with alone(lock, awaited=f"another process that fetches confluent-kafka {version}", timeout_s=FETCH_TIMEOUT_S):
        if _present(version, environment) is None:
            _fetch(version, target, progress or _log.info, environment)
    found = _present(version, environment)
    assert found is not None, target
    return found


def library_facts(version: str, *, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Returns what versions.json says of a client library; empty if it is not in the cache. `verified`: does the wheel
    have the sum of the lock that comes with prozess?"""
    if _present(version, environment) is None:
        return {}
    wheel = _wheel_in(_directory(version, environment))
    locked = locked_wheels().get(version, {})
    return {"verified": wheel.name in locked, "wheel": wheel.name, "sha256": sha256_of(wheel)}


def _directory(version: str, environment: Mapping[str, str]) -> Path:
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}-{platform.machine()}"
    return cache_directory(environment) / "clients" / f"librdkafka-{version}-{tag}"


def _wheel_in(directory: Path) -> Path:
    (wheel,) = directory.glob("*.whl")
    return wheel


def _present(version: str, environment: Mapping[str, str]) -> Path | None:
    """Returns the unpacked wheel if it is what it should be, file by file; else None."""
    directory = _directory(version, environment)
    try:
        wheel = _wheel_in(directory)
        pinned = (directory / _PINNED).read_text(encoding="utf-8").strip()
        should = locked_wheels().get(version, {}).get(wheel.name, pinned)
        if should != pinned or sums_in(directory, [wheel.name])[wheel.name] != should:
            return None
        library = directory / _UNPACKED
        whole = all(hashlib.sha256((library / name).read_bytes()).digest() == sum_ for name, sum_ in _recorded(wheel))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    return library if whole else None


def _recorded(wheel: Path) -> list[tuple[str, bytes]]:
    """Returns name and SHA-256 of each file that the wheel lists in its RECORD."""
    with zipfile.ZipFile(wheel) as archive:
        (record,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        rows = list(csv.reader(archive.read(record).decode().splitlines()))
    sums = ((name, text.removeprefix("sha256=")) for name, text, _ in rows if text)
    return [(name, base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))) for name, text in sums]


def _fetch(version: str, target: Path, progress: Progress, environment: Mapping[str, str]) -> None:
    """Fetches the wheel, verifies it, unpacks it, and puts it in place whole. The caller holds the lock."""
    progress(f"Fetching confluent-kafka {version} with pip (about 4 MB) …")
    with tempfile.TemporaryDirectory(prefix=f".fetching-{target.name}-", dir=target.parent) as workspace:
        whole = Path(workspace) / "whole"
        whole.mkdir()
        _pip(version, ("download", "--dest", str(whole)), environment=environment)
        wheel = _wheel_in(whole)
        found = sha256_of(wheel)
        (whole / _PINNED).write_text(f"{found}\n", encoding="utf-8")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(whole / _UNPACKED)
        if target.exists():
            shutil.move(target, Path(workspace) / "damaged")
        whole.rename(target)
    verified = wheel.name in locked_wheels().get(version, {})
    progress(f"confluent-kafka {version}: {'verified' if verified else 'UNVERIFIED: prozess has no sum of it'}.")


def _pip(version: str, words: Sequence[str], *, environment: Mapping[str, str]) -> None:
    """Runs pip on the package of this version. BadInput if there is no such wheel; MissingTool if it cannot be had."""
    sums = sorted(locked_wheels().get(version, {}).values())
    with tempfile.TemporaryDirectory(prefix="prozess-") as directory:
        wanted = Path(directory) / "requirements.txt"
        hashes = "".join(f" --hash=sha256:{sum_}" for sum_ in sums)
        wanted.write_text(f"{PACKAGE}=={version}{hashes}\n", encoding="utf-8")
        command = [sys.executable, "-P", "-m", "pip", *words, "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--no-deps", "--only-binary", ":all:", "--retries", "2", "--requirement", str(wanted)]
        try:
            done = subprocess.run(
                [*command, *(("--require-hashes",) if sums else ())],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=FETCH_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise MissingTool(
                f"confluent-kafka {version} was not there after {FETCH_TIMEOUT_S:g} s of pip. Try again on a faster "
                "network, or name a nearer package index in pip's configuration."
            ) from error
    if done.returncode != 0:
        raise explained(version, done.stderr)


def explained(version: str, text: str) -> BadInput | MissingTool:
    """Returns the error that says why pip failed, and what to do, without any address in it."""
    what = f"confluent-kafka {version} cannot be fetched with pip"
    if "No module named pip" in text:
        return MissingTool(f"{what}: this Python has none. Install it: python -m ensurepip.")
    if "DO NOT MATCH THE HASHES" in text:
        return MissingTool(f"{what}: the package index has another wheel than prozess has the sum of. Ask who runs it.")
    if re.search(r"NewConnectionError|Max retries|ConnectTimeout|ReadTimeout|ProxyError|Name or service", text):
        return MissingTool(f"{what}: the package index cannot be reached. Connect this machine, or name another index.")
    if "No matching distribution" in text:
        return BadInput(
            f"client_version = {version!r}: the package index has no confluent-kafka {version} with a wheel for Python "
            f"{sys.version_info[0]}.{sys.version_info[1]} on {platform.machine()}. Give one that it has: "
            f"{_few(wheels_for(f'cp{sys.version_info[0]}{sys.version_info[1]}', platform.machine()))}."
        )
    lines = [line.strip() for line in re.sub(r"\w+://\S+", "…", text).splitlines() if line.strip()] or ["nothing"]
    return MissingTool(f"{what}: it says {lines[-1][:200]!r}.")
