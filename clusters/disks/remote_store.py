"""Breaks the remote store of tiered storage, as a whole and object by object. Parts for `prozess.clusters.impairers`.

What is away, lost or damaged lies beside the store while the fault lasts, in directories of the same names. That is all that
a process needs to put it back, whichever it is. All brokers share the store, so it does not matter of which one it is asked.
"""

import ctypes
import errno
import os
import shutil
from pathlib import Path

from prozess.clusters.disks.volumes import device_at, run_tool
from prozess.clusters.files.remote_segments import STORE_DIRECTORY, objects_of
from prozess.clusters.machine.tiered import store_beside
from prozess.harness.config.impairments import HarmedObject, StoreAway
from prozess.harness.errors import HarnessFailed
from prozess.harness.interfaces import Node
from prozess.harness.schema import Tristate

_AWAY, _BESIDE = "remote-store.away", "remote-store.beside"
_DAMAGED_BYTES = 8
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
Seen = tuple[Tristate, str]


class StoresAway:
    """Takes the store away: where it was, there is a file. Brokers would make a directory that is missing, and go on in that
    (RemoteTopicPartitionDirectory, LocalTieredStorage.configure). A store that is read-only is mounted so onto itself, since
    brokers run as root in the sandbox, whom permissions do not hold."""

    def impair(self, node: Node, impairment: StoreAway) -> None:
        there, away = _both_paths(node)
        if impairment.how == "read-only":
            if self.impaired(node, impairment)[0] is not Tristate.YES:
                run_tool("mount", "--bind", str(there), str(there))
                run_tool("mount", "-o", "remount,bind,ro", str(there))
            return
        if there.is_dir():
            away.touch()
            _exchange(there, away)

    def repair(self, node: Node, impairment: StoreAway) -> None:
        there, away = _both_paths(node)
        if impairment.how == "read-only":
            if device_at(there) is not None:
                run_tool("umount", "--lazy", str(there))
            return
        if away.is_dir():
            _exchange(there, away)
            away.unlink()

    def impaired(self, node: Node, impairment: StoreAway) -> Seen:
        there, _ = _both_paths(node)
        if impairment.how == "read-only":
            return _writable(there)
        try:
            found = len(list(os.scandir(there)))
        except NotADirectoryError:
            return Tristate.YES, "where the store was is no directory"
        except OSError as error:
            return Tristate.UNKNOWN, f"the store cannot be looked at: {error.strerror}"
        return Tristate.NO, f"the store is there, with {found} partitions"


def _writable(store: Path) -> Seen:
    """Tries to make a file in the store, and removes it."""
    probe = store / ".probe"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        seen = f"no file can be made in the store: {os.strerror(error.errno or 0)}"
        return (Tristate.YES if error.errno == errno.EROFS else Tristate.UNKNOWN), seen
    return Tristate.NO, "a file can be made in the store"


def _both_paths(node: Node) -> tuple[Path, Path]:
    """Returns where the store is, and where it is while it is away."""
    store = store_beside(node.data_directory)
    return store / STORE_DIRECTORY, store.with_name(_AWAY)


def _exchange(one: Path, other: Path) -> None:
    """Lets two paths change places at once, as renameat2(2) does: there is no moment without either."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        raise HarnessFailed(f"{one} and {other} cannot change places: {os.strerror(ctypes.get_errno())}.")


class HarmedObjects:
    """Takes an object of a partition out of the store, or changes bytes of it, and puts it back as it was."""

    def impair(self, node: Node, impairment: HarmedObject) -> None:
        store = store_beside(node.data_directory)
        if self._kept(store, impairment):
            return  # it was done before
        there = [path for key, _, _, path in objects_of(store) if key == (impairment.topic, impairment.number)]
        if not there:
            raise HarnessFailed(
                f"{impairment.topic}-{impairment.number} has no object in the remote store yet: wait until segments are full."
            )
        chosen = {"first": there[0], "middle": there[len(there) // 2], "last": there[-1]}[impairment.which]
        beside = store.with_name(_BESIDE) / impairment.how / chosen.parent.name
        beside.mkdir(parents=True, exist_ok=True)
        if impairment.how == "damaged":
            shutil.copy2(chosen, beside / chosen.name)
            with chosen.open("r+b") as file:
                file.seek(chosen.stat().st_size // 2)
                old = file.read(_DAMAGED_BYTES)
                file.seek(-len(old), os.SEEK_CUR)
                file.write(bytes(byte ^ 0xFF for byte in old))
            return
        # The records last: as long as they are there, it is not done, and would be done again from the beginning.
        for path in sorted(chosen.parent.glob(f"{chosen.stem}.*"), key=lambda path: path == chosen):
            path.replace(beside / path.name)

    def repair(self, node: Node, impairment: HarmedObject) -> None:
        store = store_beside(node.data_directory)
        for path in self._kept(store, impairment):
            there = store / STORE_DIRECTORY / path.parent.name
            there.mkdir(exist_ok=True)
            for one in path.parent.glob(f"{path.stem}.*"):
                one.replace(there / one.name)

    def impaired(self, node: Node, impairment: HarmedObject) -> Seen:
        store = store_beside(node.data_directory)
        kept = self._kept(store, impairment)
        if not kept:
            return Tristate.NO, "every object is as brokers made it"
        size = sum(path.stat().st_size for path in kept)
        first = int(kept[0].name.partition("-")[0])
        what = f"the object of offset {first} and on, {size} bytes, is {impairment.how}"
        there = store / STORE_DIRECTORY / kept[0].parent.name / kept[0].name
        if impairment.how == "lost":
            return (Tristate.NO if there.exists() else Tristate.YES), what
        if not there.exists():
            return Tristate.UNKNOWN, f"{what}, and gone by now"
        return (Tristate.NO if there.read_bytes() == kept[0].read_bytes() else Tristate.YES), what

    def _kept(self, store: Path, impairment: HarmedObject) -> list[Path]:
        """The records of the objects of that partition that lie beside the store."""
        of_partition = (store.with_name(_BESIDE) / impairment.how).glob(
            f"{impairment.topic}-{impairment.number}-*/*.log"
        )
        return sorted(of_partition)
