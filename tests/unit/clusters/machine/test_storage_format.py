"""Formatted data directories: which levels a checkpoint promises, and that nothing of an earlier run is left."""

from pathlib import Path

import pytest

from prozess.clusters.machine.servers import (
    CHECKPOINT_NAME,
    FIRST_CHECKPOINT_NAME,
    Checkpoint,
    feature_levels,
    format_directory,
    new_kafka_uuid,
)
from prozess.harness.errors import ClusterFailed

# What StorageTool of 4.3.1 and 3.9.2 wrote; no cluster id is in it.
CHECKPOINT_431 = bytes.fromhex(
    "000000000000000000000047000000000219d78284002000000000000001a1f882e857000001a1f882e857ffffffffffffffffffffffffffff"
    "000000012a0000000800000003160000000000000000000000000000000000000001000000f1000000000234a2e1ed00000000000500000"
    "1a1f882e878000001a1f882e878ffffffffffffffffffffffffffff000000063a000000012e010c00116d657461646174612e7665727369"
    "6f6e001e00005a000002014e010c0021656c696769626c652e6c65616465722e7265706c696361732e76657273696f6e000100003400000"
    "40128010c000e67726f75702e76657273696f6e00010000340000060128010c000e73686172652e76657273696f6e000100003800000801"
    "2c010c001073747265616d732e76657273696f6e000100004000000a0134010c00147472616e73616374696f6e2e76657273696f6e00020"
    "00000000000000000070000003f0000000002e36eeb62002000000000000001a1f882e879000001a1f882e879ffffffffffffffffffffff"
    "ffffff000000011a00000008000000040600000000"
)
CHECKPOINT_392 = bytes.fromhex(
    "0000000000000000000000470000000002931cdb7b002000000000000001a1f88c7427000001a1f88c7427ffffffffffffffffffffffffffff"
    "000000012a00000008000000031600000000000000000000000000000000000000010000004f0000000002cf74a5a500000000000000000"
    "1a1f88c7464000001a1f88c7464ffffffffffffffffffffffffffff000000013a000000012e010c00116d657461646174612e7665727369"
    "6f6e0015000000000000000000020000003f00000000020d6511c3002000000000000001a1f88c7465000001a1f88c7465fffffffffffff"
    "fffffffffffffff000000011a00000008000000040600000000"
)


def test_the_levels_that_a_checkpoint_promises_are_read_from_it() -> None:
    assert feature_levels(CHECKPOINT_392) == {"metadata.version": 21}
    assert feature_levels(CHECKPOINT_431) == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }


@pytest.mark.parametrize("damaged", [b"", CHECKPOINT_431[:200], CHECKPOINT_431[:150] + b"?" + CHECKPOINT_431[151:]])
def test_a_damaged_checkpoint_is_refused(damaged: bytes) -> None:
    with pytest.raises(ClusterFailed, match="Remove it from the cache"):
        feature_levels(damaged)


def test_a_formatted_directory_holds_nothing_of_an_earlier_run(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "cell-000-0").mkdir(parents=True)
    (data / "cell-000-0" / "00000000000000000000.log").write_bytes(b"old")
    format_directory(data, node_id=2, cluster_id="c" * 22, checkpoint=Checkpoint(CHECKPOINT_NAME, CHECKPOINT_392))
    assert sorted(path.name for path in data.iterdir()) == ["bootstrap.checkpoint", "meta.properties"]
    meta = dict(line.split("=") for line in (data / "meta.properties").read_text().splitlines())
    directory_id = meta.pop("directory.id")
    assert meta == {"version": "1", "cluster.id": "c" * 22, "node.id": "2"}
    assert len(directory_id) == 22


def test_from_4_4_on_the_levels_are_a_snapshot_that_controllers_alone_have(tmp_path: Path) -> None:
    checkpoint = Checkpoint(FIRST_CHECKPOINT_NAME, b"levels")
    broker, controller = frozenset({"broker"}), frozenset({"broker", "controller"})
    assert [checkpoint.belongs_to(roles) for roles in (broker, controller)] == [False, True]
    assert Checkpoint(CHECKPOINT_NAME, b"levels").belongs_to(broker)
    format_directory(tmp_path / "data", node_id=1, cluster_id="c" * 22, checkpoint=checkpoint)
    assert (tmp_path / "data" / FIRST_CHECKPOINT_NAME).read_bytes() == b"levels"
    format_directory(tmp_path / "data", node_id=1, cluster_id="c" * 22, checkpoint=None)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["meta.properties"]


def test_uuids_never_look_like_an_option() -> None:
    assert all(len(u) == 22 and not u.startswith("-") for u in (new_kafka_uuid() for _ in range(500)))
