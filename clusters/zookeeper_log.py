"""ZooKeeper's transaction logs of several servers: which transactions were committed.

Each server appends every proposal to its log before it acknowledges it, and a proposal that a majority has is committed
(https://zookeeper.apache.org/doc/r3.8.4/zookeeperInternals.html).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clusters.wire import Malformed
from clusters.zookeeper_snapshot import snapshot_transactions
from clusters.zookeeper_transactions import Transaction, read_transactions
from harness.errors import HistoryUnreadable

VERSION_DIRECTORY = "version-2"
_FILE, _SNAPSHOT = re.compile(r"log\.([0-9a-f]+)"), re.compile(r"snapshot\.([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of one server's log that was written without a break. Whoever has a committed transaction has in the same
    stretch, before it, nothing but what was committed before it, and all of that: followers take a leader's past as it is.
    Behind the last committed one may be proposals that nobody else took."""

    transactions: list[Transaction]
    given: tuple[Path, int] | None = None
    """The snapshot that it follows, and of which transaction's state; None: it is from the ensemble's beginning on."""

    def up_to(self, zxid: int, checksum: int) -> list[Transaction]:
        """All of it up to that transaction; empty if it is not there."""
        before = [transaction for transaction in self.transactions if transaction.zxid <= zxid]
        return before if before and (before[-1].zxid, before[-1].checksum) == (zxid, checksum) else []

    @property
    def gap(self) -> bool:
        """Is something missing in it?"""
        pairs = zip(self.transactions, self.transactions[1:], strict=False)
        return any(
            (b.epoch, b.number) != (a.epoch, a.number + 1) and not (b.number == 1 and b.epoch > a.epoch)
            for a, b in pairs
        )


def committed_transactions(directories: Sequence[Path]) -> list[Transaction]:
    """What a majority of the servers has, and everything before that. `directories`: the data directory of *each* server of
    the ensemble (or its `version-2`), missing ones too: they count.

    A server that was away for long, or whose unfinished proposals must go, is given a snapshot by the leader: the stretch of
    its log before that may end in what was never committed, and what the snapshot covers is in other servers' logs. So the
    past is put together from the end on, from stretches that share a transaction. Where no log tells the beginning, it is
    the nodes of a snapshot, each as it was last written.
    HistoryUnreadable: no majority is readable, or neither a log nor a snapshot tells some part of the past.
    """
    logs, problems = [], []
    for directory in directories:
        try:
            logs.append(_stretches(directory))
        except HistoryUnreadable as error:
            problems.append(str(error))
    majority = len(directories) // 2 + 1
    counts = Counter((t.zxid, t.checksum) for log in logs for stretch in log for t in stretch.transactions)
    agreed = [key for key, count in counts.items() if count >= majority]
    if not agreed:
        raise HistoryUnreadable(
            f"Committed is what {majority} of {len(directories)} ZooKeeper servers have in their logs, and nothing is; "
            f"readable: {len(logs)}. " + " ".join(problems)
        )
    return _past_of(max(agreed), [stretch for log in logs for stretch in log if not stretch.gap])


def _past_of(end: tuple[int, int], stretches: Sequence[Stretch]) -> list[Transaction]:
    """Everything up to the transaction `end` (zxid, checksum), the ensemble's first one first."""
    past: list[Transaction] = []
    while True:
        known = [(found, stretch) for stretch in stretches if (found := stretch.up_to(*end))]
        found, longest = min(known, key=lambda pair: pair[0][0].zxid, default=([], None))
        past = found + past[1:]
        if longest is not None and longest.given is None and found[0].number == 1:
            return past
        if len(found) < 2:
            return _in_a_snapshot(end[0], [stretch for _, stretch in known]) + past
        end = found[0].zxid, found[0].checksum


def _in_a_snapshot(zxid: int, stretches: Sequence[Stretch]) -> list[Transaction]:
    """What one of these stretches, which begin with that transaction, follows."""
    given = [stretch.given for stretch in stretches if stretch.given is not None]
    if not given:
        raise HistoryUnreadable(f"No ZooKeeper server's log or snapshot tells what was before transaction {zxid:#x}.")
    return snapshot_transactions(*given[0])


def _stretches(directory: Path) -> list[Stretch]:
    """One server's log, divided where it was given a snapshot: one of a state that its own log does not lead to."""
    inner = directory / VERSION_DIRECTORY
    directory = inner if inner.is_dir() else directory
    found: dict[int, Transaction] = {}
    for _, path in sorted(_numbered(directory, _FILE).items()):
        try:
            found |= {transaction.zxid: transaction for transaction in read_transactions(path.read_bytes())}
        except OSError as error:
            raise HistoryUnreadable(f"{path} cannot be read: {error.strerror}.") from error
        except Malformed as error:
            raise HistoryUnreadable(f"{path} {error}.") from error
    if not found:
        raise HistoryUnreadable(f"{directory} holds no transaction of ZooKeeper.")
    snapshots = _numbered(directory, _SNAPSHOT)
    given = [zxid for zxid in sorted(snapshots) if zxid > 0 and zxid not in found]
    ordered, stretches = [found[zxid] for zxid in sorted(found)], []
    for after, until in zip([0, *given], [*given, 1 << 63], strict=True):
        part = [transaction for transaction in ordered if after < transaction.zxid <= until]
        if part:
            stretches.append(Stretch(part, given=(snapshots[after], after) if after else None))
    return stretches


def _numbered(directory: Path, pattern: re.Pattern[str]) -> dict[int, Path]:
    """Files by the transaction in their names."""
    return {int(match[1], 16): path for path in directory.glob("*") if (match := pattern.fullmatch(path.name))}
