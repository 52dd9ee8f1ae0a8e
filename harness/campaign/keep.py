"""What a campaign keeps on the disk: findings always, bulk by rule."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.campaign.plan import Keep
from harness.campaign.state import Attempt
from harness.verdict import Verdict

GIB = 2**30
_BULK = ("rows", "nodes", "tools")
_HISTORY = ("history", "logs")


@dataclass(frozen=True, slots=True)
class Kept:
    """How much there is, and whether that is too much although nothing more may go."""

    bytes: int
    full: bool


def tidy(path: Path, attempt: Attempt, keep: Keep) -> None:
    """Take from a run that is over what the rule does not keep of it."""
    if attempt.verdict == Verdict.HELD and keep.held != "everything":
        _remove(path, _BULK if keep.held == "history" else (*_BULK, *_HISTORY))


def drop_bulk(path: Path) -> int:
    """Take data of nodes and rows from a run that is over (the tables are made); bytes that were freed."""
    return _remove(path, _BULK)


def make_room(runs: Path, attempts: Sequence[Attempt], keep: Keep) -> Kept:
    """Below the limit again: of the oldest runs that held, then of others, data of nodes and rows (the tables are made), then
    of those that held, tables and logs."""
    limit = int(keep.disk_max_gib * GIB)
    size = size_of(runs)
    held = [a.run for a in attempts if a.run and a.verdict == Verdict.HELD]
    others = [a.run for a in attempts if a.run and a.verdict != Verdict.HELD]
    for names, parts in ((held, _BULK), (others, _BULK), (held, _HISTORY)):
        for name in names:
            if size <= limit:
                return Kept(size, full=False)
            size -= _remove(runs / name, parts)
    return Kept(size, full=size > limit)


def size_of(path: Path) -> int:
    """Bytes on the disk of everything below (blocks, not lengths: rows are sparse)."""
    return sum(file.lstat().st_blocks * 512 for file in path.rglob("*") if not file.is_dir())


def _remove(run: Path, parts: Iterable[str]) -> int:
    freed = 0
    for part in parts:
        if (run / part).is_dir():
            freed += size_of(run / part)
            shutil.rmtree(run / part, ignore_errors=True)
    return freed
