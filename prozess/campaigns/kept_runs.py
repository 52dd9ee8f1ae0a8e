"""Keeps the files of many runs by rule: findings always, rows and nodes' data as long as there is room."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import PositiveFloat

from prozess.campaigns.engine import TrialAttempt
from prozess.harness.values import Frozen
from prozess.harness.verdict import Verdict

GIB = 2**30
_BULK = ("rows", "nodes", "tools")
_HISTORY = ("history", "logs")


class Keep(Frozen):
    """The rule by which files of a run are kept.

    The verdict, the findings, the report, the plan and the resolved targets are always kept. A run that was
    violated or unknown keeps everything.
    """

    held: Literal["everything", "history", "verdict"] = "verdict"
    """The files that are kept of a run that held: all; its tables, without rows and data of nodes; or its verdict alone."""
    disk_max_gib: PositiveFloat = 20.0
    """Beyond this size, more files of the oldest runs that held are removed. If that is not enough, the campaign stops with a
    message.
    """


def tidy(runs: Path, attempt: TrialAttempt, keep: Keep) -> None:
    """Removes the files of a finished run that the rule does not keep."""
    if attempt.run is not None and attempt.verdict is Verdict.HELD and keep.held != "everything":
        _remove(runs / attempt.run, _BULK if keep.held == "history" else (*_BULK, *_HISTORY))


def make_room(runs: Path, attempts: Sequence[TrialAttempt], keep: Keep) -> bool:
    """Removes data until the directory is below its limit again. Returns whether it is.

    First the nodes' data and the rows of the oldest runs that held go, then those of the others (their tables are
    made), then tables and logs of those that held.
    """
    limit = int(keep.disk_max_gib * GIB)
    size = size_of(runs)
    held = [a.run for a in attempts if a.run and a.verdict is Verdict.HELD]
    others = [a.run for a in attempts if a.run and a.verdict is not Verdict.HELD]
    for names, parts in ((held, _BULK), (others, _BULK), (held, _HISTORY)):
        for name in names:
            if size <= limit:
                return True
            size -= _remove(runs / name, parts)
    return size <= limit


def size_of(path: Path) -> int:
    """Returns the bytes that everything below a path takes on the disk (blocks, not lengths: rows are sparse)."""
    return sum(file.lstat().st_blocks * 512 for file in path.rglob("*") if not file.is_dir())


def _remove(run: Path, parts: Iterable[str]) -> int:
    freed = 0
    for part in parts:
        if (run / part).is_dir():
            freed += size_of(run / part)
            shutil.rmtree(run / part, ignore_errors=True)
    return freed
