"""Which logs a broker keeps, by the names of their directories and the ids in them."""

import base64
from uuid import UUID

from prozess.clusters.files.log_directories import LogDirectory, log_directories
from prozess.harness.interfaces.witnesses import OnDisk

ONE, OTHER = UUID(int=7), UUID(int=8)
HEX = "0ab7323fa0c4484581eb9c23a7068d07"


def keep(folder, name, topic_id=None):
    (folder / name).mkdir()
    if topic_id is not None:
        text = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
        (folder / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {text}\n")


def test_logs_are_distinguished_by_the_ids_of_their_topics_and_by_what_becomes_of_them(tmp_path):
    keep(tmp_path, "a-b-0", OTHER)
    keep(tmp_path, f"a-b-0.{HEX}-delete", ONE)
    keep(tmp_path, f"a-b-1.{HEX}-stray", ONE)
    keep(tmp_path, f"a-b-2.{HEX}-future", ONE)
    keep(tmp_path, "a-b-3")
    keep(tmp_path, "other-0", ONE)
    (tmp_path / "meta.properties").write_text("version=1")
    assert list(log_directories(tmp_path, {"a-b"})) == [
        LogDirectory("a-b", 0, OTHER, OnDisk.SERVED),
        LogDirectory("a-b", 0, ONE, OnDisk.GOING),
        LogDirectory("a-b", 1, ONE, OnDisk.GOING),
    ]


def test_a_damaged_file_or_a_missing_directory_says_nothing(tmp_path):
    keep(tmp_path, "t-0", ONE)
    (tmp_path / "t-0" / "partition.metadata").write_text("version: 0\n")
    assert list(log_directories(tmp_path, {"t"})) == []
    assert list(log_directories(tmp_path / "nowhere", {"t"})) == []
