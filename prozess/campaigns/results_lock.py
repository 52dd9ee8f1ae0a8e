"""Lets one command at a time write into a location of results: a directory that machines share, or an object store.

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
from typing import Protocol

from pydantic import ValidationError

from prozess.harness.errors import BadInput, HarnessFailed
from prozess.harness.values import Frozen

LEASE_S = 90.0
"""How old the claim of a command that works may be. A command whose machine stands still for longer has lost it."""
RENEW_S = 15.0
_OWNERS = "owners"


class Claim(Frozen):
    """The file owners/ID.json: which command works here."""

    host: str
    pid: int


class ResultsStore(Protocol):
    """A location where files can be written, read, listed and removed by several machines."""

    @property
    def address(self) -> str: ...
    def read(self, name: str) -> bytes | None: ...
    def write(self, name: str, content: bytes) -> None: ...
    def remove(self, name: str) -> None: ...
    def times(self, folder: str) -> dict[str, float]:
        """Returns name → when each file of the folder was written, in seconds by the clock of the store."""
        ...


class ResultsOwner:
    """The claim of this command on a location."""

    def __init__(self, store: ResultsStore, *, lease_s: float = LEASE_S) -> None:
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
        """Removes the claim."""
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
def owned(given: ResultsStore, *, lease_s: float = LEASE_S, renew_s: float = RENEW_S) -> Iterator[ResultsOwner]:
    """A context in which a location belongs to this command, which renews its claim every `renew_s`. BadInput if another
    command works on it."""
    ownership = ResultsOwner(given, lease_s=lease_s)
    ownership.claim()
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(renew_s):
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
        thread.join(timeout=renew_s)
        with suppress(HarnessFailed):
            ownership.release()
