"""Files of a node that is down: wiped and formatted anew, or changed in place, the same way for the same seed."""

import os

import pytest

from prozess.clusters.disks.impairers import CHECKPOINT, CorruptFiles, DroppedCheckpoints, WipedDirectories
from prozess.clusters.machine.servers import (
    CHECKPOINT_NAME,
    FIRST_CHECKPOINT_NAME,
    Checkpoint,
    format_directory,
)
from prozess.harness.config.impairments import Corrupt, DropCheckpoint, Wipe
from prozess.harness.errors import HarnessFailed
from prozess.harness.interfaces import NodeState


class Node:
    name, observed = "broker-1", NodeState.STOPPED

    def __init__(self, directory):
        self.data_directory = directory

    def state(self):
        return self.observed


@pytest.fixture(params=[CHECKPOINT_NAME, FIRST_CHECKPOINT_NAME])
def node(request, tmp_path):
    checkpoint = Checkpoint(request.param, b"levels")
    format_directory(tmp_path / "data", node_id=1, cluster_id="AAAAAAAAAAAAAAAAAAAAAA", checkpoint=checkpoint)
    partition = tmp_path / "data" / "cell-000-0"
    partition.mkdir()
    (partition / "00000000000000000000.log").write_bytes(b"old" * 100)
    (partition / "00000000000000000100.log").write_bytes(b"new" * 100)
    (partition / "00000000000000000100.index").write_bytes(bytes(64))
    return Node(tmp_path / "data")


def meta_of(node):
    lines = (node.data_directory / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_a_wiped_directory_is_the_same_node_of_the_same_cluster_with_another_directory_id(node):
    before = meta_of(node)
    assert WipedDirectories().harm(node, Wipe()).startswith("5 files with ")
    after = meta_of(node)
    assert after.pop("directory.id") != before.pop("directory.id")
    assert after == before
    (left,) = (path for path in node.data_directory.rglob("*") if path.is_file() and path.name != "meta.properties")
    assert str(left.relative_to(node.data_directory)) in (CHECKPOINT_NAME, FIRST_CHECKPOINT_NAME)
    assert left.read_bytes() == b"levels"


def test_a_server_that_is_another_user_may_write_to_what_was_formatted_anew(node):
    node.data_directory.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(node.data_directory, 1000, 1000)
    owner = node.data_directory.stat().st_uid
    WipedDirectories().harm(node, Wipe())
    for path in node.data_directory.rglob("*"):
        assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (owner, 0o777 if path.is_dir() else 0o666)


@pytest.mark.parametrize("seed", [1, "a seed"])
def test_the_newest_segment_is_changed_in_place_and_by_the_seed(node, seed):
    newest = node.data_directory / "cell-000-0" / "00000000000000000100.log"
    before, inode = newest.read_bytes(), newest.stat().st_ino
    harm = Corrupt(file="segment", topic="cell-000", number=0, bytes=8, seed=seed)
    said = CorruptFiles().harm(node, harm)
    after = newest.read_bytes()
    assert said.startswith("8 of 300 bytes of cell-000-0/00000000000000000100.log changed, from ")
    assert (len(after), newest.stat().st_ino) == (300, inode)
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 8
    newest.write_bytes(before)
    CorruptFiles().harm(node, harm)
    assert newest.read_bytes() == after


def test_the_index_and_the_checkpoint_are_changed_where_they_are(node):
    partition = {"topic": "cell-000", "number": 0}
    assert "00000000000000000100.index" in CorruptFiles().harm(node, Corrupt(file="index", **partition))
    assert "nonsense" in CorruptFiles().harm(node, Corrupt(file="checkpoint", bytes=5, **partition))
    assert len((node.data_directory / CHECKPOINT).read_bytes()) == 5
    assert "5 of 5 bytes" in CorruptFiles().harm(node, Corrupt(file="checkpoint", bytes=50, **partition))


def test_a_checkpoint_is_removed_and_one_that_is_not_there_too(node):
    CorruptFiles().harm(node, Corrupt(file="checkpoint"))
    for _ in range(2):
        assert "is removed" in DroppedCheckpoints().harm(node, DropCheckpoint())
        assert not (node.data_directory / CHECKPOINT).exists()


def test_files_of_a_running_node_and_of_no_partition_are_refused(node):
    with pytest.raises(HarnessFailed, match=r"no segment of cell-001-0"):
        CorruptFiles().harm(node, Corrupt(file="segment", topic="cell-001", number=0))
    (node.data_directory / "cell-000-0" / "00000000000000000100.log").write_bytes(b"")
    with pytest.raises(HarnessFailed, match="is empty"):
        CorruptFiles().harm(node, Corrupt(file="segment", topic="cell-000", number=0))
    node.observed = NodeState.PAUSED
    for part, harm in ((WipedDirectories(), Wipe()), (CorruptFiles(), Corrupt(file="index"))):
        with pytest.raises(HarnessFailed, match="it is paused"):
            part.harm(node, harm)
    assert (node.data_directory / "cell-000-0").is_dir()
