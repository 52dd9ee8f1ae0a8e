"""Keeps the edges between transactions that looks at partitions find, in little memory. It puts together those of a partition
that is looked at in parts.

Transactions are named by their ranks in time. The order of writes in a partition goes through all of its parts: a part
says where its chains of the log begin and end, and the edges between chains are made when all are known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from prozess.checkers.lookup import differs_from_previous, distinct
from prozess.checkers.transactions.index import CellIndex
from prozess.checkers.transactions.isolation import Edges, gap_numbers
from prozess.harness.checking.checker import CellShare, TakenRows
from prozess.harness.schema import Isolation

_NO_ROWS = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class EdgeRecords:
    """Says, for edges of a part of a partition, which record of the log each is of."""

    send: np.ndarray
    """int32: its row of `sends`."""
    offset: np.ndarray
    """int64."""

    def chosen(self, mask: np.ndarray) -> "EdgeRecords":
        """Returns those where `mask` is true, or in the indices that it names."""
        return EdgeRecords(self.send[mask], self.offset[mask])


@dataclass(frozen=True, slots=True, eq=False)
class NearEdges:
    """Edges of one partition, in little memory. Transactions are named by their ranks in time."""

    writer: np.ndarray
    reader: np.ndarray
    row: np.ndarray
    level: np.ndarray
    """int8, as `Edges.level`. The others are int32."""
    records: EdgeRecords | None = None
    """Which records these are of. None: the partition is looked at whole, and rows say it."""

    @staticmethod
    def of(index: CellIndex, edges: Edges) -> "NearEdges":
        """Returns edges of the one partition here."""
        writer, reader = (index.transactions.in_time[of] for of in (edges.writer, edges.reader))
        row, level = edges.row, edges.level.astype(np.int8)
        if index.part is None:
            return NearEdges(writer, reader, row.astype(np.int32), level)
        return NearEdges(writer, reader, _whole_rows(index, row), level, _records_at(index, row))

    @property
    def size_bytes(self) -> int:
        """Returns how much memory they take."""
        records = () if self.records is None else (self.records.send, self.records.offset)
        return sum(array.nbytes for array in (self.writer, self.reader, self.row, self.level, *records))

    @staticmethod
    def nothing() -> "NearEdges":
        """Returns an empty set of edges: that of a partition in which none is looked for, or none found."""
        return NearEdges(_NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS)

    def chosen(self, mask: np.ndarray) -> "NearEdges":
        """Returns the edges where `mask` is true, or in the indices that it names."""
        records = None if self.records is None else self.records.chosen(mask)
        return NearEdges(self.writer[mask], self.reader[mask], self.row[mask], self.level[mask], records)


def _whole_rows(index: CellIndex, row: np.ndarray) -> np.ndarray:
    """Returns int32[k]: the numbers that these rows of `reads` of a part have in the whole partition."""
    assert index.part is not None
    return np.asarray(index.part.reads[row].astype(np.int32))


def _records_at(index: CellIndex, row: np.ndarray) -> EdgeRecords:
    """Returns which records these rows of `reads` show, of a part of a partition. Each was sent in a transaction."""
    assert index.part is not None
    [partition] = index.partitions
    send = index.part.sends[partition.send_of_read[row]].astype(np.int32)
    return EdgeRecords(send, partition.reads["log_offset"][row].astype(np.int64))


# The order of writes through all parts of a partition.


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """Describes the chains of a part: its records of committed transactions that follow one another in V, where nothing of
    another part stands between. Arrays have one entry for each chain.

    Example: V is [1 1 2 | 3 | 2 1] by transaction, and the record of 3 is in another part. The chains are 1 … 2 and 2 … 1,
    and the other part has the chain 3 … 3. The seams are 2 → 3 and 3 → 2.
    """

    begin: np.ndarray
    """int64: the offset of the first record."""
    first: np.ndarray
    """int32: its transaction, by its rank in time."""
    last: np.ndarray
    """int32: the transaction of the last record."""
    row: np.ndarray
    """int32: the row of `reads` that shows the last record."""
    records: EdgeRecords

    @staticmethod
    def of(index: CellIndex, committed: np.ndarray) -> "Chains":
        """Returns the chains of a part, which is the one partition here. `committed`: bool[transactions]."""
        assert index.part is not None
        rows, transaction = index.shown_by(0)
        keep = committed[transaction]
        rows, rank = rows[keep], index.transactions.in_time[transaction[keep]]
        # Example: the last part has the breaks 10 and 20, and this one records at 3, 5 and 12. They are in the gaps 0 0 1:
        # two chains, from 3 to 5, and 12 alone.
        starts = differs_from_previous(gap_numbers(index, 0, rows))
        # A chain ends where the next record begins another, and at the end. The cut is for a part without any record.
        ends = np.append(starts[1:], True)[: len(starts)]
        offset = index.partitions[0].reads["log_offset"][rows[starts]].astype(np.int64)
        row, records = _whole_rows(index, rows[ends]), _records_at(index, rows[ends])
        assert len(offset) == len(row) == len(records.send), "one entry for each chain"
        return Chains(offset, rank[starts], rank[ends], row, records)


def seams_of(parts: Sequence[Chains]) -> NearEdges:
    """Returns the edges between the chains of all parts of a partition, in the order of the log."""
    begin, first, last, row = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("begin", "first", "last", "row")
    )
    send, offset = (np.concatenate([getattr(part.records, name) for part in parts]) for name in ("send", "offset"))
    assert len(begin) == len(row) == len(send), "one entry for each chain"
    order = np.argsort(begin, kind="stable")  # the chains of all parts, in the order of the log
    before, after = order[:-1], order[1:]
    # A seam within one transaction is no edge.
    differ = last[before] != first[after]
    before, after = before[differ], after[differ]
    level = np.full(len(before), Isolation.NOT_A_READER, dtype=np.int8)
    records = EdgeRecords(send[before], offset[before])
    return NearEdges(last[before], first[after], row[before], level, records)


# All edges of a cell.


def join_edges_of(
    shares: Sequence[CellShare], parts: Sequence[NearEdges], seams: dict[int, NearEdges]
) -> tuple[Edges, TakenRows]:
    """Returns the edges of all partitions, in the order in which whole partitions have them. The number of a partition is
    its index among them. `seams` are those of the partitions that were looked at in parts; of these the rows of edges are
    returned, and in `Edges.row` their indices among them."""
    assert seams.keys() <= {share.partition for share in shares}, "seams are of partitions of the cell"
    found: dict[int, list[NearEdges]] = {}
    for share, part in zip(shares, parts, strict=True):
        found.setdefault(share.partition, []).append(part)
    taken = {}
    for partition, more in seams.items():
        edges = _in_order(_joined([*found[partition], more]))
        assert edges.records is not None
        # Rows of the whole partition become indices among those that are taken. Example: edges of the rows 90 7 90 take the
        # rows 7 90, and are of 1 0 1.
        sends, reads = distinct(edges.records.send.astype(np.int64)), distinct(edges.row.astype(np.int64))
        taken[partition] = sends, reads
        row = np.searchsorted(reads, edges.row)
        found[partition] = [NearEdges(edges.writer, edges.reader, row, edges.level)]
    every = [edges for partition in sorted(found) for edges in found[partition]]

    def column(name: str) -> np.ndarray:
        return np.concatenate([np.empty(0, dtype=np.intp), *(getattr(edges, name) for edges in every)])

    # The index of a partition for each of its edges: 3 and 2 edges are 0 0 0 1 1.
    position = np.repeat(np.arange(len(every)), [len(edges.row) for edges in every])
    return Edges(column("writer"), column("reader"), position, column("row"), column("level")), taken


def _joined(parts: Sequence[NearEdges]) -> NearEdges:
    def column(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    known = [part.records for part in parts if part.records is not None]
    records = EdgeRecords(*(np.concatenate([getattr(one, f.name) for one in known]) for f in fields(EdgeRecords)))
    return NearEdges(column("writer"), column("reader"), column("row"), column("level"), records)


def _in_order(edges: NearEdges) -> NearEdges:
    """Returns the edges by reads in the order of rows, and behind them those by writes in the order of the log."""
    assert edges.records is not None
    by_write = edges.level == Isolation.NOT_A_READER
    # The last key counts most: False before True, so reads before writes, and within each the other key.
    return edges.chosen(np.lexsort((np.where(by_write, edges.records.offset, edges.row), by_write)))
