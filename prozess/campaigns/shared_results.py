"""A location of results that several machines write to, a directory that they share or an object store, and the claim by
which one command at a time works there.

Object stores have no locks. Each command leaves a file, its *claim*, in `owners/`, and writes it again as long as it works.
It writes its claim first and looks for others then: of two commands that begin at once, at least one sees the other, and
refuses (both may). A claim that was not written again for LEASE_S belongs to a command that is gone. Ages are differences of
times of the store, so that clocks of machines do not matter.

    A writes owners/a     A lists: a, nothing else → A works, and writes owners/a every RENEW_S
    B writes owners/b     B lists: a and b         → B removes owners/b and refuses
    A is killed           its claim grows old      → C lists: a (old), c → C removes owners/a and works
    A was only frozen     and comes back           → A finds owners/a gone, and stops before it removes anything
"""

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import ValidationError

from prozess.harness.clock import NS_PER_S
from prozess.harness.errors import BadInput, HarnessFailed
from prozess.harness.history.store import files_in, location_of, stored_run, write_file
from prozess.harness.values import Frozen

if TYPE_CHECKING:
    from pyarrow import fs

LEASE_S = 90.0
"""How old the claim of a command that works may be. A command whose machine stands still for longer has lost it."""
RENEW_S = 15.0
_OWNERS = "owners"


@dataclass(frozen=True)
class SharedResults:
    """A directory that several machines can read and write. It can be pickled and sent to Spark's workers, with what it takes
    to log in."""

    filesystem: "fs.FileSystem"
    directory: str
    """The path of the directory in that file system."""
    address: str
    """The same for messages: a path or a URI without secrets."""

    @staticmethod
    def at(results: Path | str) -> "SharedResults":
        """Returns the location with this path or URI. BadInput for a file system that pyarrow cannot write to."""
        from pyarrow import fs

        found = location_of(results)
        if isinstance(found, Path):
            path = str(found.resolve())
            return SharedResults(fs.LocalFileSystem(), path, path)
        run = stored_run(found)
        return SharedResults(run.filesystem, run.directory, run.address)

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder, in order; none if it is not there."""
        with self._as_one_sentence("read"):
            found = files_in(self.filesystem, f"{self.directory}/{folder}")
            return [name for name, _ in found if not name.startswith(".")]

    def folders(self, folder: str) -> list[str]:
        """Returns the names of the folders in a folder, in order; none if it is not there."""
        from pyarrow import fs

        with self._as_one_sentence("read"):
            below = fs.FileSelector(f"{self.directory}/{folder}", allow_not_found=True)
            found = self.filesystem.get_file_info(below)
            return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def times(self, folder: str) -> dict[str, float]:
        """Returns name → when each file of a folder was written, in seconds by the store's clock; none if it is not there."""
        from pyarrow import fs

        with self._as_one_sentence("read"):
            below = fs.FileSelector(f"{self.directory}/{folder}", allow_not_found=True)
            found = self.filesystem.get_file_info(below)
            return {
                info.base_name: info.mtime_ns / NS_PER_S
                for info in found
                if info.type == fs.FileType.File and not info.base_name.startswith(".")
            }

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file; None if it is not there."""
        from pyarrow import fs

        with self._as_one_sentence("read"):
            path = f"{self.directory}/{name}"
            if self.filesystem.get_file_info(path).type != fs.FileType.File:
                return None
            with self.filesystem.open_input_stream(path) as stream:
                content: bytes = stream.read()
                return content

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, which is there as a whole or not at all."""
        with self._as_one_sentence("written"):
            write_file(self.filesystem, f"{self.directory}/{name}", content)

    def send(self, folder: Path, name: str) -> None:
        """Copies a folder of this machine, with everything in it, to where the name says."""
        from pyarrow import fs

        with self._as_one_sentence("written"):
            for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
                target = f"{self.directory}/{name}/{path.relative_to(folder)}"
                self.filesystem.create_dir(target.rpartition("/")[0], recursive=True)
                fs.copy_files(str(path), target, destination_filesystem=self.filesystem)

    def remove(self, name: str) -> None:
        """Removes a file or a folder, if it is there."""
        from pyarrow import fs

        with self._as_one_sentence("written"):
            path = f"{self.directory}/{name}"
            kind = self.filesystem.get_file_info(path).type
            if kind == fs.FileType.Directory:
                self.filesystem.delete_dir(path)
            elif kind == fs.FileType.File:
                self.filesystem.delete_file(path)

    @contextmanager
    def _as_one_sentence(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise HarnessFailed(
                f"{self.address} cannot be {what}: {str(error).splitlines()[0]}. Look at the address, at how to log in, and "
                "at what you may do there."
            ) from error


class Claim(Frozen):
    """The file owners/ID.json: which command works here."""

    host: str
    pid: int


class ResultsOwner:
    """The claim of this command on a location."""

    def __init__(self, store: SharedResults, *, lease_s: float = LEASE_S) -> None:
        self._store, self._lease_s = store, lease_s
        self._file = f"{uuid.uuid4().hex}.json"
        self._claim = Claim(host=socket.gethostname(), pid=os.getpid())
        self._lost = False

    def claim(self) -> None:
        """Claims the location. BadInput, and nothing is left, if another command works on it."""
        self._write()
        others = self._others()
        if others:
            self.release()
            raise BadInput(
                f"{self._store.address}: another command works on these results ({', '.join(others)}). Wait until it has "
                f"ended, or give another location to --run. The claim of a command that was killed expires after "
                f"{self._lease_s:g} s."
            )

    def renew(self) -> None:
        """Writes the claim again. HarnessFailed, now and from then on, if another command took the location for abandoned."""
        self.ensure()
        self._write()

    def ensure(self) -> None:
        """Raises HarnessFailed unless the location still belongs to this command."""
        self._lost = self._lost or self._store.read(f"{_OWNERS}/{self._file}") is None
        if self._lost:
            raise HarnessFailed(
                f"{self._store.address} no longer belongs to this command: it stood still for more than {self._lease_s:g} s, "
                "and another one went on. Nothing was removed. The same command continues when the other one has ended."
            )

    def release(self) -> None:
        """Lets another command have the results: the claim of this one goes."""
        self._store.remove(f"{_OWNERS}/{self._file}")

    def _write(self) -> None:
        self._store.write(f"{_OWNERS}/{self._file}", self._claim.model_dump_json().encode())

    def _others(self) -> list[str]:
        """Returns the other commands that work here, in words, and removes the claims that have expired."""
        times = self._store.times(_OWNERS)
        now_s = times[self._file]
        working = []
        for name in sorted(times.keys() - {self._file}):
            if now_s - times[name] > self._lease_s:
                self._store.remove(f"{_OWNERS}/{name}")
                continue
            content = self._store.read(f"{_OWNERS}/{name}")
            if content is None:  # it has just ended
                continue
            words = "a command that has just begun"
            with suppress(ValidationError):  # its file is being written
                other = Claim.model_validate_json(content)
                words = f"process {other.pid} on {other.host}"
            working.append(words)
        return working


@contextmanager
def owned(given: SharedResults) -> Iterator[ResultsOwner]:
    """A context in which a location belongs to this command, which renews its claim every RENEW_S. BadInput if another
    command works on it."""
    ownership = ResultsOwner(given)
    ownership.claim()
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(RENEW_S):
            with suppress(
                HarnessFailed
            ):  # the store is out of reach for now; or the claim is lost, which `ensure` says
                ownership.renew()

    thread = threading.Thread(target=keep, name="results-lock", daemon=True)
    thread.start()
    try:
        yield ownership
    finally:
        ended.set()
        thread.join(timeout=RENEW_S)
        with suppress(HarnessFailed):
            ownership.release()
