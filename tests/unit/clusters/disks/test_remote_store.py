"""The remote store as it is broken: what is away, lost or damaged is put back as it was, by whoever does it."""

import errno
import sys
from types import SimpleNamespace

import pytest

from prozess.clusters.disks.remote_store import HarmedObjects, StoresAway
from prozess.clusters.files.remote_segments import STORE_DIRECTORY, read_remote_logs
from prozess.clusters.machine.processes import captured
from prozess.clusters.machine.tiered import make_store
from prozess.harness.config.impairments import HarmedObject, StoreAway
from prozess.harness.errors import HarnessFailed
from prozess.harness.schema import NONE, Tristate
from tests.unit.clusters.files.test_remote_segments import OTHER, SEGMENT, batch, name_of, put

AWAY = StoreAway()


@pytest.fixture
def node(tmp_path):
    store = make_store(tmp_path)
    put(store, 0, SEGMENT, batch(0, 5), batch(5, 5), batch(10, 5))
    put(store, 15, OTHER, batch(15, 5))
    for path in list((store / STORE_DIRECTORY).glob("*/*.log")):
        path.with_suffix(".index").write_bytes(b"index")
    return SimpleNamespace(name="broker-1", data_directory=tmp_path / "broker-1" / "data")


def content(node):
    store = node.data_directory.parent.parent / "remote-store"
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def whole(node):
    store = node.data_directory.parent.parent / "remote-store"
    (log,) = read_remote_logs(store, {}, [(0, "t", 0)], on_problem=pytest.fail)
    return {one.first_offset: (one.whole_to, one.damaged) for one in log.segments}


def harmed(how="lost", which="first", **more):
    return HarmedObject(**{"topic": "t", "number": 0, "how": how, "which": which} | more)


def test_a_store_that_is_away_is_seen_to_be_and_nobody_can_make_another_in_its_place(node):
    before, part = content(node), StoresAway()
    assert part.impaired(node, AWAY)[0] is Tristate.NO
    part.impair(node, AWAY)
    part.impair(node, AWAY)
    assert part.impaired(node, AWAY) == (Tristate.YES, "where the store was is no directory")
    with pytest.raises(OSError, match="directory"):
        (node.data_directory.parent.parent / "remote-store" / STORE_DIRECTORY / "t-1").mkdir(
            parents=True, exist_ok=True
        )
    StoresAway().repair(node, AWAY)
    assert (part.impaired(node, AWAY)[0], content(node)) == (Tristate.NO, before)
    part.repair(node, AWAY)
    assert content(node) == before


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_an_object_is_harmed_seen_to_be_and_put_back_by_another_process(node, how):
    before = content(node)
    HarmedObjects().impair(node, harmed(how))
    HarmedObjects().impair(node, harmed(how))  # the same again, as after a kill
    effect, seen = HarmedObjects().impaired(node, harmed(how))
    assert effect is Tristate.YES
    assert f"the object of offset 0 and on, {len(batch(0, 5)) * 3} bytes, is {how}" in seen
    assert whole(node) == ({15: (20, 0)} if how == "lost" else {0: (5, 1), 15: (20, 0)})
    HarmedObjects().repair(node, harmed(how))
    HarmedObjects().repair(node, harmed(how))
    assert (content(node), HarmedObjects().impaired(node, harmed(how))[0]) == (before, Tristate.NO)


def test_first_and_last_are_meant_in_the_order_of_offsets_and_a_lost_object_has_no_file_left(node):
    HarmedObjects().impair(node, harmed(which="last"))
    assert whole(node) == {0: (15, 0)}
    assert not [name for name in content(node) if name_of(OTHER) in name]


def test_an_object_that_was_deleted_meanwhile_leaves_its_damage_unknown(node):
    HarmedObjects().impair(node, harmed("damaged"))
    next((node.data_directory.parent.parent / "remote-store").rglob("*00-*.log")).unlink()
    assert HarmedObjects().impaired(node, harmed("damaged"))[0] is Tristate.UNKNOWN


def test_a_partition_without_an_object_cannot_be_harmed(node):
    with pytest.raises(HarnessFailed, match="t-3 has no object in the remote store yet"):
        HarmedObjects().impair(node, harmed(number=3))
    assert HarmedObjects().impaired(node, harmed(number=3))[0] is Tristate.NO
    assert NONE not in whole(node)


READ_ONLY = """
import sys
from pathlib import Path
from types import SimpleNamespace
from prozess.clusters.disks.remote_store import StoresAway
from prozess.harness.config.impairments import StoreAway
part, store = StoresAway(), Path(sys.argv[1])
node = SimpleNamespace(name="broker-1", data_directory=store.parent / "broker-1" / "data")
fault = StoreAway(how="read-only")
seen = [part.impaired(node, fault)[0].name]
part.impair(node, fault); part.impair(node, fault)
seen += [part.impaired(node, fault)[0].name, len(list(store.rglob("*.log")))]
try:
    next(store.rglob("*.log")).unlink()
except OSError as error:
    seen.append(error.errno)
StoresAway().repair(node, fault); part.repair(node, fault)
print(*seen, part.impaired(node, fault)[0].name)
"""


def test_a_store_that_is_read_only_can_be_read_and_nothing_is_made_or_deleted_in_it(node, need):
    need("namespaces")
    before, store = content(node), node.data_directory.parent.parent / "remote-store"
    # In a mount namespace of its own, with the ids of its own: nothing is mounted outside.
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", READ_ONLY, str(store)]
    done = captured(command, timeout_s=60)
    assert (done.stdout.split(), done.stderr) == (["NO", "YES", "2", str(errno.EROFS), "NO"], "")
    assert content(node) == before
