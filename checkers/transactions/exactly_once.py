"""This kernel checks a copier: its topic has every record that its group has committed past, once.

Source: KIP-98 and KIP-447 for copiers that commit their offsets in the transaction; for others Kafka's documentation,
design, "Message Delivery Semantics". The kernel finds what differs. The guarantee table judges what each way of
committing offsets permits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prozess.checkers.lookup import Lookup, differs_from_previous
from prozess.checkers.partition_index import PartitionIndex
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, CopyCase, join_witnesses, make_witnesses
from prozess.harness.schema import MISSING, NONE, Isolation, ObservationKind, Role


@dataclass(frozen=True, slots=True)
class _Side:
    """The records of one side (source or copy), over all its partitions. All arrays have the same length."""

    key: np.ndarray
    """int64: what is compared. NONE: nothing is known of the record's origin."""
    which: np.ndarray
    """intp: the index of its partition."""
    row: np.ndarray
    """intp: the row of `reads` of that partition."""
    offset: np.ndarray


def not_exactly_once(history: CellHistory) -> KernelResult:
    """Each record of the source topic below the group's final committed offset stands exactly once in the derived topic,
    as read_committed shows it.

    Compared by the identity of the origin, or as multisets of digests of (key, value) where that is lost. Counts
    source records without a copy (MISSING; `other_offset`: the committed offset), copies beyond the number of their
    source records (REPEATED; `other_*`: the first copy), and what is no copy of anything (STRANGE), each in its own
    partition. The final committed offset was looked up after the copiers had ended and were fenced. What was not
    committed yet is not judged, and leaves the finding incomplete. O(n log n).

    Example: the source topic has [a b c], the group committed offset 3, and the derived topic has [a a c x]. b has no copy
    (MISSING), the second a is one too many (REPEATED), and x is a copy of nothing (STRANGE).
    """
    cell = history.cell
    sources = [PartitionIndex.of(history.partitions[p]) for p in cell.written]
    copies = [PartitionIndex.of(history.partitions[p]) for p in cell.derived]
    by_content = cell.carriers[1] == "content"
    source, copy = _source(sources, by_content=by_content), _copies(copies)
    committed = _final_commits(history, sources)
    assert len(source.key) == len(source.which) == len(source.offset), "the records of one side"
    below = source.offset < committed[source.which]
    unknown = [
        *(r for index in sources if (r := index.incomplete())),
        *(r for index in copies if (r := index.incomplete(Isolation.READ_COMMITTED))),
    ]
    parts = [_repeated(source, copy, copies, whole=not unknown)]
    if not unknown:  # what the audit did not show may be there all the same
        parts += [_missing(source, copy, sources, below=below, committed=committed), _strange(source, copy, copies)]
    found = np.concatenate(parts)
    incomplete = "; ".join([*unknown, *_unfinished(sources, source, below, committed)]) or None
    return KernelResult(
        found[:WITNESSES_MAX], len(found), judged=int(np.count_nonzero(below)) + len(copy.key), incomplete=incomplete
    )


def _source(indexes: Sequence[PartitionIndex], *, by_content: bool) -> _Side:
    return _side([(index, index.log.rows, index.log.offset) for index in indexes], by_origin=by_content)


def _copies(indexes: Sequence[PartitionIndex]) -> _Side:
    return _side([(index, index.visible.rows, index.visible.offset) for index in indexes], by_origin=True)


def _side(logs: Sequence[tuple[PartitionIndex, np.ndarray, np.ndarray]], *, by_origin: bool) -> _Side:
    keys = [index.reads["origin"][rows] if by_origin else index.read_key[rows] for index, rows, _ in logs]
    empty = [np.empty(0, dtype=np.int64)]
    return _Side(
        key=np.concatenate([*keys, *empty]),
        which=np.repeat(np.arange(len(logs)), [len(rows) for _, rows, _ in logs]),
        row=np.concatenate([*(rows for _, rows, _ in logs), np.empty(0, dtype=np.intp)]),
        offset=np.concatenate([*(offset for _, _, offset in logs), *empty]),
    )


def _final_commits(history: CellHistory, sources: Sequence[PartitionIndex]) -> np.ndarray:
    """Returns int64[sources]: the committed offset that the observer learned last. MISSING: it was not reported; NONE:
    nothing was committed."""
    seen, role = history.tables["observations"], sources[0].client_role
    rows = np.flatnonzero(seen["kind"] == ObservationKind.COMMITTED.value)
    observer = seen["client"][rows]
    rows = rows[
        (observer >= 0) & (observer < len(role)) & (role[np.clip(observer, 0, len(role) - 1)] == Role.OBSERVER.value)
    ]
    rows = rows[np.argsort(seen["time_ns"][rows], kind="stable")]  # the latest counts
    last = dict(zip(seen["partition"][rows].tolist(), seen["value"][rows].tolist(), strict=True))
    return np.array([last.get(index.partition, MISSING) for index in sources], dtype=np.int64)


def _unfinished(
    sources: Sequence[PartitionIndex], source: _Side, below: np.ndarray, committed: np.ndarray
) -> list[str]:
    """Returns the reasons why the copiers did not finish their work."""
    # How many records of each source partition are not committed yet.
    left = np.bincount(source.which[~below], minlength=len(sources))
    reasons = []
    for slot, index in enumerate(sources):
        if committed[slot] == MISSING:
            reasons.append(f"the group's committed offset of partition {index.partition} was not looked up at the end")
        elif left[slot]:
            reasons.append(
                f"the copiers did not finish: {left[slot]} records of partition {index.partition} are not committed"
            )
    return reasons


class _Counted:
    """Says how often each key stands on one side."""

    def __init__(self, keys: np.ndarray) -> None:
        ordered = np.sort(keys[keys != NONE])
        first = np.flatnonzero(differs_from_previous(ordered))
        self._keys = Lookup(ordered[first])
        # Example: 3 7 7 7 begins anew at 0 and 1: 3 stands there once, 7 three times.
        self._counts = np.diff(np.append(first, len(ordered)))

    def of(self, keys: np.ndarray) -> np.ndarray:
        """Returns int64[k]: how often each of these keys stands there; 0 for NONE."""
        slot = self._keys.find(keys)
        assert len(slot) == len(keys), "a slot for each key"
        found = np.zeros(len(keys), dtype=np.int64)
        found[slot >= 0] = self._counts[slot[slot >= 0]]
        found[keys == NONE] = 0
        return found


def _rank(keys: np.ndarray) -> np.ndarray:
    """Returns int64[n]: how many equal keys stand before each key."""
    order = np.argsort(keys, kind="stable")
    first = np.flatnonzero(differs_from_previous(keys[order]))
    rank = np.empty(len(keys), dtype=np.int64)
    # Example: keys 7 3 7 7. In order 3 7 7 7, groups begin at 0 and 1, so the ranks in order are 0 0 1 2, and 0 0 1 2 again
    # as they stood: the second 7 has one before it, the third two.
    rank[order] = np.arange(len(keys)) - np.repeat(first, np.diff(np.append(first, len(keys))))
    return rank


def _missing(
    source: _Side, copy: _Side, sources: Sequence[PartitionIndex], *, below: np.ndarray, committed: np.ndarray
) -> np.ndarray:
    """Returns source records below the committed offset that have fewer copies than there are such records."""
    chosen = np.flatnonzero(below & (source.key >= 0))
    rank = _rank(source.key[chosen])
    # There are n equal source records and k copies of them: those of rank k and above have none. Example: b b b with two
    # copies: the third b (rank 2) has none. Which of equal records it is nobody can say, so it is the last.
    chosen = chosen[rank >= _Counted(copy.key).of(source.key[chosen])]
    parts = []
    for slot, index in enumerate(sources):
        mine = chosen[source.which[chosen] == slot]
        rows = source.row[mine]
        columns = {
            "partition": np.full(len(mine), index.partition),
            "client": index.reads["sender"][rows],
            "sequence": index.reads["sequence"][rows],
            "log_offset": source.offset[mine],
            "other_offset": np.full(len(mine), committed[slot]),
            "case": np.full(len(mine), CopyCase.MISSING),
            **index.sent(index.send_rows(index.read_key[rows])),
        }
        parts.append(make_witnesses(len(mine), columns))
    return join_witnesses(parts)


def _repeated(source: _Side, copy: _Side, copies: Sequence[PartitionIndex], *, whole: bool) -> np.ndarray:
    """Returns copies beyond the number of their source records. A record that is there proves this, so an incomplete
    audit cannot make one up. A source that the audit did not show counts for one. If the audit showed all sources
    (`whole`), a copy without a source is strange."""
    rank, sources = _rank(copy.key), _Counted(source.key).of(copy.key)
    # Example: one source and three copies: those of rank 1 and 2 are too many. No source that is known, and two copies, and
    # the audit not whole: rank 1 is one too many in any case.
    chosen = np.flatnonzero((copy.key >= 0) & (rank >= np.maximum(1, sources)) & ((sources > 0) | (not whole)))
    return _of_copies(copy, copies, chosen, first=_first_of(copy.key, chosen), case=CopyCase.REPEATED)


def _strange(source: _Side, copy: _Side, copies: Sequence[PartitionIndex]) -> np.ndarray:
    """Returns the records in V of the derived topic that no source record explains."""
    chosen = np.flatnonzero(_Counted(source.key).of(copy.key) == 0)
    return _of_copies(copy, copies, chosen, first=None, case=CopyCase.STRANGE)


def _first_of(keys: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Returns intp[chosen]: where the key of each of these stands first."""
    order = np.argsort(keys, kind="stable")
    new = np.flatnonzero(differs_from_previous(keys[order]))
    # `new` are the first of each key in the order of keys; `order` leads back to where it stands.
    slot = Lookup(keys[order][new]).find(keys[chosen])
    return np.asarray(order[new[slot]])


def _of_copies(
    copy: _Side, copies: Sequence[PartitionIndex], chosen: np.ndarray, *, first: np.ndarray | None, case: CopyCase
) -> np.ndarray:
    """Returns one witness for each of these copies, in the partition where it stands. `client` and `sequence` are the
    copier's."""
    parts = []
    for slot, index in enumerate(copies):
        mine = np.flatnonzero(copy.which[chosen] == slot)
        rows = copy.row[chosen[mine]]
        columns = {
            "partition": np.full(len(mine), index.partition),
            "client": index.reads["sender"][rows],
            "sequence": index.reads["sequence"][rows],
            "log_offset": copy.offset[chosen[mine]],
            "case": np.full(len(mine), case),
            **index.sent(index.send_rows(index.read_key[rows])),
        }
        if first is not None:
            columns["other_offset"] = copy.offset[first[mine]]
        parts.append(make_witnesses(len(mine), columns))
    return join_witnesses(parts)
