"""This machine's own record of what each run made: it stands outside of the run's directory, and decides what may be undone.

A run directory is data. Somebody may have sent it, and whatever it says may be a lie: that a process is the run's, that a
cluster is still in use, which topics are ours. Nothing is killed, deleted, run or logged in to because a run directory says
so. A run that is about to touch anything begins a record first:

    ~/.local/state/prozess/runs/TOKEN/       ($XDG_STATE_HOME/prozess, if that is set)
        run.json        the path and the inode of the run's directory
        plan.sha256     which plan it carries out
        plan.json, pids.jsonl, journal.jsonl, lasting.json, made.jsonl, alive.lock    until the run is over

and the directory repeats the token, 32 random bytes, in its file `token`. The files of the last line are written twice, here
first and then in the run's directory (`kept`): the copy here counts, the other one is for people, and for `--trust`.

    a directory that was sent        it has no token, or one that nobody here knows     nothing of it is believed
    one that was changed             its token is known                                 what is undone is what stands here
    one that was moved               the inode is the same                              as before
    a copy                           another inode at another path                      as one that was sent: heal the first

The record belongs to the user who runs prozess, and nobody else may enter it (0700); another owner or mode is refused.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from prozess.harness.errors import MissingTool
from prozess.harness.installation import home_directory
from prozess.harness.run_directory import RunDirectory, read_document, write_whole

TOKEN, RUN, DIGEST = "token", "run.json", "plan.sha256"
PLAN, PIDS, MADE = "plan.json", "pids.jsonl", "made.jsonl"
STATE_HOME = "XDG_STATE_HOME"
_TOKEN_BYTES = 32
_WORD = re.compile(r"[0-9a-f]{64}")
_PRIVATE = 0o700
_OTHERS = 0o077
_RECORDS_MANY = 500
"""From so many records on, those of directories that are gone are removed when another one begins."""


def state_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns `$XDG_STATE_HOME/prozess`, or else `~/.local/state/prozess`. It may not exist yet.

    A home that belongs to another user is not used (sudo may keep HOME): the account's own is. A relative XDG_STATE_HOME is
    ignored, as the XDG base directory specification says."""
    shared = environment.get(STATE_HOME, "")
    if shared and Path(shared).is_absolute():
        return Path(shared) / "prozess"
    home = home_directory(environment)
    with suppress(OSError):
        if home.stat().st_uid != os.geteuid():
            home = home_directory({})
    return home / ".local" / "state" / "prozess"


def private_directory(name: str) -> Path:
    """Returns a directory of that name in the state directory, which is made if need be, and which nobody else may enter.

    MissingTool if that is not possible, or if it belongs to somebody else."""
    return _make(state_directory() / name)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What this machine wrote down of one run. `home`: where the run's directory was when it began."""

    directory: Path
    token: str
    home: Path

    @property
    def mark(self) -> str:
        """Returns 12 characters that no other run has, for names of what the run makes. They do not report the token."""
        return hashlib.sha256(self.token.encode()).hexdigest()[:12]

    def keep_plan(self, text: str) -> None:
        """Writes down which plan the run carries out, before it does."""
        write_whole(self.directory / PLAN, text)
        write_whole(self.directory / DIGEST, hashlib.sha256(text.encode()).hexdigest())

    def knows_plan(self, text: str) -> bool:
        """Returns whether this is the plan that the run carried out here."""
        try:
            known = (self.directory / DIGEST).read_text(encoding="utf-8")
        except OSError:
            return False
        return secrets.compare_digest(known, hashlib.sha256(text.encode()).hexdigest())

    def settle(self) -> None:
        """Removes what is needed only while the run may have left something. The record that the run was ours stays."""
        for path in self.directory.iterdir():
            if path.name not in (RUN, DIGEST):
                path.unlink(missing_ok=True)


def begin(run: RunDirectory) -> RunRecord:
    """Begins the record of a run, before its first effect, and returns it. One that is there is continued.

    MissingTool if the state directory cannot be used: nothing may be made that nobody writes down."""
    if (known := record_of(run)) is not None:
        return known
    runs = _make(state_directory() / "runs")
    _forget_the_gone(runs)
    token = secrets.token_hex(_TOKEN_BYTES)
    directory = runs / token
    home = run.path.resolve()
    try:
        directory.mkdir(mode=_PRIVATE)
        write_whole(directory / RUN, json.dumps({"path": str(home), "inode": home.stat().st_ino}))
        write_whole(home / TOKEN, token)
        for made in (directory, runs):
            _sync(made)
    except OSError as error:
        raise _unusable(directory, error.strerror or str(error)) from error
    return RunRecord(directory, token, home)


def record_of(run: RunDirectory) -> RunRecord | None:
    """Returns what this machine wrote down of the run in this directory; None if it is somebody else's, or a copy.

    MissingTool if the state directory belongs to another user, or others may write there: then nothing in it is believed."""
    token = _token_in(run.path)
    if token is None:
        return None
    state = state_directory()
    directory = state / "runs" / token
    try:
        if not directory.is_dir():
            return None
    except OSError:  # nobody of ours was ever there
        return None
    for path in (state, state / "runs", directory):
        _refuse_others(path)
    record = _read(directory / RUN)
    home, inode = record.get("path"), record.get("inode")
    if not isinstance(home, str) or not isinstance(inode, int):
        return None
    here = run.path.resolve()
    if str(here) != home and here.stat().st_ino != inode:
        return None
    return RunRecord(directory, token, Path(home))


def kept(path: Path) -> tuple[Path, ...]:
    """Returns where a file of a run's directory is kept: in the record first, if there is one, then in the directory.

    Everything is written to each, in this order. The first one counts."""
    record = record_of(RunDirectory(path.parent))
    return (path,) if record is None else (record.directory / path.name, path)


def home_of(run: RunDirectory) -> Path:
    """Returns where the run's directory was when the run began, by which what it made elsewhere is named."""
    record = record_of(run)
    return run.path.resolve() if record is None else record.home


def is_ours(run: RunDirectory) -> bool:
    """Returns whether this machine carried out the plan that the directory has now."""
    record = record_of(run)
    try:
        return record is not None and record.knows_plan(read_document(run.plan))
    except (OSError, UnicodeDecodeError):
        return False


def _token_in(directory: Path) -> str | None:
    try:
        descriptor = os.open(directory / TOKEN, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        text = os.read(descriptor, 4 * _TOKEN_BYTES).decode(errors="replace").strip()
    finally:
        os.close(descriptor)
    return text if _WORD.fullmatch(text) else None


def _make(directory: Path) -> Path:
    try:
        directory.parent.parent.mkdir(parents=True, exist_ok=True)
        for path in (directory.parent, directory):
            path.mkdir(mode=_PRIVATE, exist_ok=True)
    except OSError as error:
        raise _unusable(directory, error.strerror or str(error)) from error
    for path in (directory.parent, directory):
        _refuse_others(path)
    return directory


def _refuse_others(path: Path) -> None:
    """Raises MissingTool unless the directory is this user's alone, and no link."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _unusable(path, "it is a link, or no directory")
    if found.st_uid != os.geteuid():
        raise _unusable(path, f"it belongs to user {found.st_uid}, and this is user {os.geteuid()}")
    if found.st_mode & _OTHERS:
        raise _unusable(path, f"others may enter it (mode {stat.S_IMODE(found.st_mode):04o}; it must be 0700)")


def _unusable(path: Path, why: str) -> MissingTool:
    return MissingTool(
        f"{str(path)!r} cannot be used ({why}). prozess writes down there what each run makes, so that nothing else is ever "
        f"undone. Set {STATE_HOME} to a directory of your own, for `prozess run` and `prozess heal` alike."
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _forget_the_gone(runs: Path) -> None:
    """Removes the records of runs that are over, and whose directories are gone, once there are many."""
    records = list(runs.iterdir())
    if len(records) < _RECORDS_MANY:
        return
    for directory in records:
        home = _read(directory / RUN).get("path")
        if isinstance(home, str) and not Path(home).exists() and not (directory / PLAN).exists():
            shutil.rmtree(directory, ignore_errors=True)


# What a run makes in a cluster that stays: topics, each with the id that Kafka gave it, and groups.
#
# One JSON object per line of made.jsonl; the last line of a name is its state. A name is written down before Kafka is asked
# for it, and was seen to be free then; its id as soon as it is known; and that it is gone when that was seen:
#
#     {"kind": "topic", "name": "prozess-smoke-1-…-cell-000", "id": null, "gone": false}


class Made:
    """The topics and groups that one run makes in a cluster which was there before it."""

    def __init__(self, run: RunDirectory) -> None:
        self._paths = kept(run.path / MADE)

    def begin(self, kind: str, names: Iterable[str]) -> None:
        """Writes down that these are about to be made. When this returns, it is on the disk (fsync)."""
        known = self._states(kind)
        self._write([self._line(kind, name, None) for name in names if name not in known])

    def made(self, ids: Mapping[str, UUID]) -> None:
        """Writes down which ids Kafka gave to topics."""
        known = self._states("topic")
        new = {name: topic_id for name, topic_id in ids.items() if known.get(name) != topic_id}
        self._write([self._line("topic", name, str(topic_id)) for name, topic_id in new.items()])

    def gone(self, kind: str, names: Iterable[str]) -> None:
        """Writes down that these are not there any more, or never became ours."""
        self._write([self._line(kind, name, None, gone=True) for name in names])

    @property
    def topics(self) -> dict[str, UUID | None]:
        """Returns the topics that may be there: name → id; None if the run ended before Kafka informed it."""
        return self._states("topic")

    @property
    def groups(self) -> tuple[str, ...]:
        """Returns the groups that may be there."""
        return tuple(self._states("group"))

    @staticmethod
    def _line(kind: str, name: str, topic_id: str | None, *, gone: bool = False) -> str:
        return json.dumps({"kind": kind, "name": name, "id": topic_id, "gone": gone}) + "\n"

    def _write(self, lines: list[str]) -> None:
        for path in self._paths if lines else ():
            with path.open("a", encoding="utf-8") as file:
                file.write("".join(lines))
                file.flush()
                os.fsync(file.fileno())

    def _states(self, kind: str) -> dict[str, UUID | None]:
        found: dict[str, UUID | None] = {}
        try:
            lines = self._paths[0].read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            return found
        for line in lines:
            with suppress(ValueError, KeyError, TypeError, AttributeError):  # torn: its write never returned
                entry = json.loads(line)
                if entry["kind"] != kind:
                    continue
                name = str(entry["name"])
                if entry["gone"]:
                    found.pop(name, None)
                elif entry["id"] is not None or name not in found:
                    found[name] = None if entry["id"] is None else UUID(entry["id"])
        return found
