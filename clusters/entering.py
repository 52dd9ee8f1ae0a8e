"""Calling a function in another network namespace."""

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from harness.errors import HarnessFailed

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000


def call_in_network(path: Path, function: Callable[[], T], *, who: str) -> T:
    """Call `function` in the network namespace that this file stands for, in a thread of its own: setns(2) acts on the
    calling thread. A socket it makes stays there, and a process it starts is born there. `who`: whose network it is.
    HarnessFailed if it cannot be entered."""
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            _enter(path, who)
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            errors.append(error)

    thread = threading.Thread(target=body, name=f"in the network of {who}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _enter(path: Path, who: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise HarnessFailed(f"the network of {who} is gone or not ours to enter: {error.strerror}.") from error
    try:
        if libc.setns(descriptor, _CLONE_NEWNET):
            raise HarnessFailed(f"cannot enter the network of {who}: {os.strerror(ctypes.get_errno())}.")
    finally:
        os.close(descriptor)
