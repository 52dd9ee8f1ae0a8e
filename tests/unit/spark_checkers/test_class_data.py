"""Spark's class-data archive is used only while it is what was made; what cannot be made costs nothing but a line in the log.
(That it is made, and mapped by the virtual machine: tests/system/spark/test_engine.py.)"""

import os
from pathlib import Path

import pytest

from prozess.harness.errors import HarnessFailed
from prozess.spark_checkers import session

JAVA = Path("/usr/bin/env")
"""Any program: nothing here runs it."""


@pytest.fixture(autouse=True)
def builds(tmp_path, monkeypatch):
    """Every build, which writes four bytes, or fails if the list holds a reason."""
    made: list[str] = []

    def build(place, java, options):
        made.append(options)
        if options == "bad":
            raise HarnessFailed("it has no classes")
        (place / "spark.jsa").write_bytes(b"0123")
        return ["spark.jsa"]

    monkeypatch.setenv("PROZESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(session, "_build", build)
    return made


def archive_in(flags):
    return Path(flags.split()[0].removeprefix("-XX:SharedArchiveFile="))


def test_an_archive_is_made_once_for_each_set_of_options(builds):
    flags = session.archive_flags(JAVA, "-Xms1m")
    assert archive_in(flags).read_bytes() == b"0123"
    assert session.archive_flags(JAVA, "-Xms1m") == flags
    assert session.archive_flags(JAVA, "-Xms2m") != flags
    assert builds == ["-Xms1m", "-Xms2m"]


def test_an_archive_that_was_cut_off_or_changed_is_made_again(builds):
    archive = archive_in(session.archive_flags(JAVA, ""))
    archive.write_bytes(b"012")
    session.archive_flags(JAVA, "")
    os.utime(archive, ns=(0, 0))
    session.archive_flags(JAVA, "")
    assert (len(builds), archive.read_bytes()) == (3, b"0123")


def test_what_could_not_be_made_is_logged_and_not_tried_again(builds, caplog):
    caplog.set_level("INFO", session.__name__)
    assert [session.archive_flags(JAVA, "bad") for _ in range(2)] == ["", ""]
    assert (len(builds), caplog.text.count("it has no classes")) == (1, 2)


def test_while_another_process_makes_it_spark_starts_without(builds, caplog):
    caplog.set_level("INFO", session.__name__)
    place = archive_in(session.archive_flags(JAVA, "")).parent
    (place / "spark.jsa").unlink()
    with session.FileLock(place.with_name(place.name + ".flock")):
        assert session.archive_flags(JAVA, "") == ""
    assert (len(builds), "without a class-data archive" in caplog.text) == (1, True)


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PROZESS_CACHE", str(tmp_path / "file"))
    assert session.archive_flags(JAVA, "") == ""
