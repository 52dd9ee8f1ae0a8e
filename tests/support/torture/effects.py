"""Everything that a call does beyond reading: processes, signals, connections, and files that it changes, with their paths.

Python reports most of it by audit events (PEP 578); what librdkafka, pidfds and ssh do is shown by doubles.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

_CHANGES = {
    "os.remove": (0,), "os.rename": (0, 1), "os.rmdir": (0,), "os.mkdir": (0,), "os.chmod": (0,), "os.chown": (0,),
    "os.truncate": (0,), "os.link": (1,), "os.symlink": (1,), "shutil.rmtree": (0,), "os.utime": (0,),
}  # fmt: skip
"""Audit events that change files → which of their arguments are the paths."""
_ACTS = ("socket.connect", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.kill", "os.killpg", "os.fork",
         "signal.pthread_kill", "socket.sendto", "socket.sendmsg")  # fmt: skip
_BESIDE = ("os.remove", "os.rmdir")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_recorded: list["Effects"] = []


class Effects:
    """What was done: `acts`, and the real paths of the files that were changed."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.changed: set[Path] = set()

    def outside(self, *directories: Path) -> list[Path]:
        """The changed files that are in none of these directories, and are no file of Python's own."""
        allowed = [directory.resolve() for directory in directories]
        mine = (path for path in self.changed if "__pycache__" not in path.parts and path != Path(os.devnull))
        return sorted(path for path in mine if not any(path.is_relative_to(directory) for directory in allowed))

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _ACTS:
            self.acts.append(f"{event} {arguments!r:.200}")
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            mode, flags = arguments[1], arguments[2]
            if (isinstance(mode, str) and set(mode) & set("wax+")) or (mode is None and flags & _WRITING):
                self._change(arguments[0])
        elif event in _CHANGES:
            for number in _CHANGES[event]:
                if isinstance(arguments[number], str | bytes | os.PathLike):
                    path = Path(os.fsdecode(arguments[number]))
                    if event in _BESIDE and arguments[-1] >= 0:  # by a descriptor of its directory, as rmtree does
                        path = Path(f"/proc/self/fd/{arguments[-1]}").readlink() / path
                    if event == "os.mkdir" and path.is_dir():
                        continue  # which changes nothing
                    self._change(path, followed=event in ("os.chmod", "os.truncate"))

    def _change(self, path: str | bytes | os.PathLike[str], *, followed: bool = True) -> None:
        given = Path(os.fsdecode(path))
        self.changed.add(
            Path(os.path.realpath(given)) if followed else Path(os.path.realpath(given.parent), given.name)
        )


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _recorded:
        _recorded[-1].note(event, arguments)


sys.addaudithook(_hook)


@contextmanager
def recorded() -> Iterator[Effects]:
    """A context that says what is done in it. Signals, Kafka's clients and ssh are doubles: nothing reaches anybody."""
    effects = Effects()

    def double(name: str) -> Any:
        def act(*arguments: object, **_: object) -> Any:
            effects.acts.append(f"{name} {arguments!r:.200}")
            raise ConnectionRefusedError("a double")

        return act

    import confluent_kafka.admin
    import paramiko

    from prozess.clusters.existing import adoption
    from prozess.clusters.protocol import admin

    with (
        patch.object(adoption, "AdminClient", double("AdminClient")),
        patch.object(admin, "AdminClient", double("AdminClient")),
        patch.object(confluent_kafka.admin, "AdminClient", double("AdminClient")),
        patch.object(paramiko.SSHClient, "connect", double("ssh")),
        patch.object(signal, "pidfd_send_signal", double("pidfd_send_signal")),
        patch.object(os, "kill", double("os.kill")),
        patch.object(os, "killpg", double("os.killpg")),
    ):
        _recorded.append(effects)
        try:
            yield effects
        finally:
            _recorded.remove(effects)
