"""This module says what a checker is: an anomaly, the kernel that finds it, and what an engine must know to share the
work out.

`prozess.checkers.registry` lists the checkers. An engine is given a `CheckerSet`, wherever it runs. Everything in it can be
pickled, because functions are pickled as the names of their modules. A partition that is too large for one task is checked in
pieces: this module says where it is cut, and `prozess.checkers.chunked.pieces` says which rows may be left out.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from prozess.harness.columns import empty_rows
from prozess.harness.history.parquet import UNBOUNDED, PartitionRows
from prozess.harness.history.participants import REVEALED, RevealedReads
from prozess.harness.history.reader import History
from prozess.harness.interfaces.checking import (
    CellHistory,
    CellKernel,
    Finding,
    Kernel,
    KernelResult,
    PartitionHistory,
    PartitionPartRows,
)
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import TABLES

ROWS_MAX = 6_000_000
"""How many sends and reads of one partition are checked by one task: about 600 MB. A larger partition is checked in
pieces."""
PIECES_AT_LEAST = 2
"""Into how many pieces a partition is cut that has just more rows than one task may check."""
Columns = Mapping[str, np.ndarray]


class Rows(Protocol):
    """The rows of one table of one partition, of which only some are read at a time."""

    def by_offset(self, low: int, high: int, without: np.ndarray | None = None) -> tuple[Columns, np.ndarray]:
        """Returns the rows with low ≤ log_offset < high (or UNBOUNDED), and their numbers, ascending. `without`: but for the
        rows with these numbers, which ascend."""
        ...

    def by_row(self, first: int, last: int) -> tuple[Columns, np.ndarray]:
        """Returns the rows with first ≤ number < last, and their numbers."""
        ...

    def take(self, rows: np.ndarray) -> Columns:
        """Returns the rows with these numbers, which ascend."""
        ...


@dataclass(frozen=True, slots=True)
class Cuts:
    """Says where a partition is cut: the bounds of ranges of offsets and of ranges of rows. Each ascends and begins
    with 0."""

    offsets: tuple[int, ...]
    """The bounds of ranges of offsets. The last one is UNBOUNDED."""
    sends: tuple[int, ...]
    reads: tuple[int, ...]

    @property
    def rows_per_range(self) -> int:
        """Returns about how many rows a range of offsets has."""
        return (self.sends[-1] + self.reads[-1]) // max(1, len(self.offsets) - 1)


@dataclass(frozen=True, slots=True)
class Job:
    """One look at one piece: what `prozess.checkers.chunked.partitions.perform` does. `rows` is the amount of work."""

    partition: int
    stage: str
    arguments: tuple[Any, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The result of a job that could not be done, with the reason: a damaged page, for example."""

    reason: str


@dataclass(frozen=True, slots=True)
class Source:
    """The rows of a partition, and facts about it. Avoid the columns of `history`, because they are read whole. `cell`
    returns the tables of the partition's cell; None: it has no cell."""

    history: PartitionHistory
    sends: Rows
    reads: Rows
    cell: Callable[[], CellHistory] | None = None
    processed: Rows | None = None
    """The steps of a group's members; None: the partition has no cell."""

    @staticmethod
    def of(history: History, partition: int) -> "Source":
        """Returns the source of a partition, from the files of a run."""
        files, one, cell = history.files, history.partition_history(partition), history.cell_of(partition)
        return Source(
            one,
            PartitionRows(files["sends"], partition),
            PartitionRows(files["reads"], partition),
            None if cell is None else partial(history.cell_history, cell.cell, only=[one]),
            None if cell is None else PartitionRows(files["processed"], partition),
        )

    def of_rows(self, sends: Columns, reads: Columns) -> PartitionHistory:
        """Returns the partition with these rows alone. If nobody audited it, they show what they reveal of the log, behind
        the reads: an offset by itself, so all rows of an offset must be among them, or none."""
        if not self.history.audited:
            first_id = len(self.history.client_role) - len(REVEALED)
            reads = RevealedReads(sends, reads, self.history.client_isolation, first_id=first_id)
        return replace(self.history, sends=sends, reads=reads)

    @staticmethod
    def empty(table: str) -> Columns:
        """Returns a table without rows."""
        return empty_rows(TABLES[table])


def cuts_of(history: History, partition: int, *, rows_max: int) -> Cuts | None:
    """Returns where to cut a partition that has more rows than `rows_max`. None: it has not.

    Ranges have equal numbers of rows, as far as the footers say: readers may have read the begin of a log again and again.
    """
    files = [history.files[name] for name in ("sends", "reads")]
    lengths = [file.rows_of(partition) for file in files]
    if sum(lengths) <= rows_max:
        return None
    number = -(-sum(lengths) * PIECES_AT_LEAST // max(rows_max, PIECES_AT_LEAST))
    ranges = [
        (*file.offsets_of(one), file.length_of(one)) for file in files for one in file.row_ranges.get(partition, ())
    ]
    inner = cut_evenly(np.array(ranges, dtype=np.float64), number)
    sends, reads = (tuple(length * n // number for n in range(number + 1)) for length in lengths)
    return Cuts((0, *sorted({bound for bound in inner if 0 < bound < UNBOUNDED}), UNBOUNDED), sends, reads)


def cut_evenly(ranges: np.ndarray, number: int) -> list[int]:
    """Returns the offsets between so many pieces with equal numbers of rows. `ranges` has a row for each range of rows: its
    least offset, its greatest one, and how many rows it has, which are taken to be spread evenly."""
    low, high, rows = ranges[ranges[:, 1] >= 0].T  # whatever has no offset is in no piece
    if not len(rows):
        return []
    low, behind = np.maximum(low, 0), high + 1
    # Example: 600 rows from 0 to 99, and 100 from 0 to 999. Up to offset 100 there are 6.1 rows at each offset, and 0.1 from
    # there on, which is 610 rows up to 100, and 700 up to 1,000. Two pieces meet at 350 / 6.1 = 57.
    at = np.concatenate([low, behind])
    order = np.argsort(at, kind="stable")
    density = np.cumsum(np.concatenate([rows / (behind - low), -rows / (behind - low)])[order])[:-1]
    before = np.concatenate([[0.0], np.cumsum(np.maximum(density, 0) * np.diff(at[order]))])
    return [int(bound) for bound in np.interp(before[-1] * np.arange(1, number) / number, before, at[order])]


# Parts of a partition that is checked in pieces, for kernels of its cell that find of each record by itself what they find.


@dataclass(frozen=True, slots=True, eq=False)
class PartitionPart:
    """Says which rows of `sends` and `reads` are in one part of a partition. All rows of a record, and all rows of an
    offset, are in the same part: those of plain records in the part of their piece, and all others in the last part."""

    number: int
    offsets: tuple[int, int] | None
    """The bounds of a piece. None: the last part."""
    sends: np.ndarray
    """The numbers of rows, ascending: those of the last part, or those of a piece that are in the last part."""
    reads: np.ndarray
    rows: int
    """The amount of work."""

    def of(self, source: "Source") -> tuple[PartitionHistory, PartitionPartRows]:
        """Returns the partition with the rows of this part alone."""
        left = source.reads.take(self.reads)
        if self.offsets is None:
            (sends, sends_rows), (reads, reads_rows) = (source.sends.take(self.sends), self.sends), (left, self.reads)
        else:
            sends, sends_rows = source.sends.by_offset(*self.offsets, self.sends)
            reads, reads_rows = source.reads.by_offset(*self.offsets, self.reads)
        assert source.history.audited, "what is revealed of a log is in no part"
        rows = PartitionPartRows(self.number, sends_rows, reads_rows, np.sort(left["log_offset"]))
        return replace(source.history, sends=sends, reads=reads), rows


ShareKey = tuple[int, int | None]
"""A partition, and the number of a part of it. None: all of it."""


@dataclass(frozen=True, slots=True)
class CellShare:
    """Describes what one look at a cell sees: one of its partitions, or a part of one."""

    partition: int
    rows: int
    """The amount of work."""
    part: PartitionPart | None = None

    @property
    def key(self) -> ShareKey:
        """Returns what names this share among those of its cell."""
        return self.partition, self.part.number if self.part is not None else None

    def look(self, cell: int, facts: str, stage: str, arguments: tuple[Any, ...]) -> "Look":
        """Returns what a task is asked to find out here: `stage` of the facts named `facts`, with these arguments."""
        return Look(cell, self.partition, facts, stage, arguments, self.rows, self.part)


# What must be known of all partitions of a cell together.


Known = Mapping[str, Any]
"""For each `CellFacts`, by its name, what is known of all partitions of one cell together. `Failed`: it could not be found
out, and the cell is too large to be checked without."""
TakenRows = Mapping[int, tuple[np.ndarray, np.ndarray]]
"""For each of some partitions, numbers of rows of `sends` and of `reads`, ascending."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at one partition of a cell, or at a part of it, to gather the facts named `facts`. `rows` is the amount of
    work."""

    cell: int
    partition: int
    facts: str
    stage: str
    arguments: tuple[Any, ...]
    rows: int
    part: PartitionPart | None = None
    check: bool = False
    """Also check the partition, with every checker that needs to know nothing of the others: what was read and indexed for
    the look serves them, too."""

    @property
    def key(self) -> ShareKey:
        """Returns what names the share that this is a look at among those of its cell."""
        return self.partition, self.part.number if self.part is not None else None


class Gather(Protocol):
    """Gathers facts about cells by looks at each of their partitions."""

    def __call__(
        self,
        cells: Mapping[int, Sequence[CellShare]],
        each: Callable[[Sequence[Look]], Sequence[Any]],
        anomalies: Sequence[str],
    ) -> Mapping[int, Any]:
        """Returns, for each cell, what is known of all its partitions. `cells` maps a cell to its shares, by partition.
        `each` carries out looks and returns the results in their order. `anomalies` are those whose kernels ask."""
        ...


def no_rows(_: object) -> TakenRows:
    """Returns no rows: for kernels that are never given whole what they know facts about."""
    return {}


@dataclass(frozen=True, slots=True)
class CellFacts:
    """Describes what kernels must know of all partitions of a cell together, such as which transactions were shown
    anywhere."""

    name: str
    gather: Gather
    look: Callable[..., object]
    """(history of a cell with one partition, stage, *arguments) → what this look shows, as `gather` takes it."""
    rows: Callable[[Any], TakenRows] = no_rows
    """(what is known) → the only rows that kernels look at which know this and are given the cell whole, of partitions that
    are checked in pieces."""


# Checkers.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChecker:
    """A checker that finds an anomaly in one partition at a time."""

    of_cells: ClassVar[bool] = False
    anomaly: str
    kernel: Kernel
    judged_when_plain: tuple[str, ...] | None = None
    """What the records that were left out add to `judged` (`prozess.checkers.chunked.pieces.counts_of`), if the kernel
    finds the same in what is left of a partition as in the whole. None: it is given every partition whole."""
    fact: bool = False
    """Its findings are counted and shown, and no guarantee judges them."""
    side_by_side: Callable[[Sequence[PartitionHistory]], Sequence[KernelResult]] | None = None
    """Returns what the kernel finds in each of these small partitions: one call for all costs hardly more than one for one.
    None: the kernel is given one at a time."""

    @property
    def in_pieces(self) -> bool:
        """Returns whether the kernel may be given what is left of a partition."""
        return self.judged_when_plain is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ByPartition:
    """Says how a kernel over a cell is given one partition at a time, and how its findings become one. A cell that has
    only some of its partitions yields what concerns those, in their order."""

    whole_cell_if_retry_topic: bool = False
    """The kernel is given the whole cell if its group hands records on to a retry topic: a partition is checked together
    with its retry partition."""
    by_case: bool = False
    """Witnesses are ordered by their cases first."""
    judges_cell: bool = False
    """`judged` counts things of the whole cell (transactions), not of each partition."""
    in_pieces: bool = False
    """The kernel finds the same in a partition that was looked at in pieces as in the whole."""
    in_parts: bool = False
    """The kernel is given a partition that was looked at in pieces a `PartitionPart` at a time. It has a witness for each
    record (and case), in the order of clients and sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellChecker:
    """A checker that finds an anomaly of a whole cell: of a group, or of transactions."""

    of_cells: ClassVar[bool] = True
    """There is one finding of a cell, and its witnesses name their partitions."""
    fact: ClassVar[bool] = False
    """Facts that are only counted are looked for in partitions."""
    anomaly: str
    kernel: CellKernel
    traits: frozenset[str] = frozenset()
    """The checker is for cells that have one of these traits (`prozess.harness.plan.plan.Cell.traits`). Empty: for every
    cell."""
    by_partition: ByPartition | None = None
    """How the kernel is given one partition at a time. None: it is given the cell whole."""
    knows: CellFacts | None = None
    """What the kernel must know of all partitions of the cell. A kernel that is given the cell whole, and knows this,
    needs little else."""
    reads_rows: bool = True
    """Whether the kernel looks at sends and reads."""

    def applies(self, traits: Collection[str]) -> bool:
        """Returns whether the checker is for a cell with these traits."""
        return not self.traits or not self.traits.isdisjoint(traits)

    def may_be_cut(self, cell: Cell) -> ByPartition | None:
        """Returns how the kernel may be given the partitions of this cell one by one. None: it may not."""
        if self.by_partition is None:
            return None
        hands_on = cell.group is not None and cell.group.configuration.hands_on
        return None if self.by_partition.whole_cell_if_retry_topic and hands_on else self.by_partition

    def is_cut(self, cell: Cell, known: Known) -> bool:
        """Returns whether the kernel is given the partitions one by one, if this is known of all of them."""
        return self.may_be_cut(cell) is not None and (self.knows is None or self.knows.name in known)

    @property
    def is_side_by_side(self) -> bool:
        """Returns whether what the kernel finds in several partitions is what it finds in each, in their order."""
        sharing = self.by_partition
        return self.knows is None and sharing is not None and not (sharing.by_case or sharing.judges_cell)

    def looks_at_rows(self, known: Known) -> bool:
        """Returns whether the kernel looks at sends and reads of a whole cell, if this is known of it."""
        return self.reads_rows and (self.knows is None or self.knows.name not in known)

    def unknown(self, known: Known) -> "Failed | None":
        """Returns why what the kernel must know could not be found out. None: it is known, or not needed."""
        found = None if self.knows is None else known.get(self.knows.name)
        return found if isinstance(found, Failed) else None


Checker = PartitionChecker | CellChecker


# Partitions that are looked at in pieces.


class PartitionRemainder(Protocol):
    """Describes what is left of a partition that was looked at in pieces."""

    @property
    def parts(self) -> Sequence[PartitionPart] | Failed:
        """Returns the parts of the partition. `Failed`: a piece could not be read."""
        ...

    def check(self, source: Source, checkers: Mapping[str, PartitionChecker]) -> list[Finding]:
        """Returns what these checkers find in the whole partition. All of them may be given it in pieces."""
        ...

    def check_cell(self, source: Source, anomalies: Sequence[str]) -> list[Finding]:
        """Returns what these checkers of the partition's cell find in the whole partition."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceRules:
    """Says how a partition is looked at in pieces. The checkers say which rows may be left out."""

    may_be_split: Callable[[PartitionHistory, Cell | None], bool]
    """(a partition, its cell) → may it be checked in pieces?"""
    perform: Callable[[Source, Job], object]
    """Does one job on one piece."""
    remainders: Callable[
        [Mapping[int, Cuts], Callable[[Sequence[Job]], Sequence[object]], Mapping[int, Collection[str]]],
        Mapping[int, PartitionRemainder],
    ]
    """(where each partition is cut, a function that carries out jobs, anomalies of its cell that are asked for in
    pieces) → what is left of each partition."""
    agreed: Callable[[CellHistory, Sequence[str]], Sequence[KernelResult | None]]
    """(small partitions of a cell, `judged_when_plain`) → what a kernel finds in each. None: it must look."""


# What an engine is given.


@dataclass(frozen=True, slots=True)
class CheckerSet:
    """The checkers of one check, by anomaly, and how partitions are looked at in pieces."""

    order: tuple[str, ...]
    """The anomalies in the order of the findings."""
    partition: Mapping[str, PartitionChecker]
    cell: Mapping[str, CellChecker]
    pieces: PieceRules

    @staticmethod
    def of(checkers: Sequence[Checker], pieces: PieceRules) -> "CheckerSet":
        """Returns a set of these checkers, in their order."""
        return CheckerSet(
            tuple(checker.anomaly for checker in checkers),
            {checker.anomaly: checker for checker in checkers if isinstance(checker, PartitionChecker)},
            {checker.anomaly: checker for checker in checkers if isinstance(checker, CellChecker)},
            pieces,
        )

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        """Returns the kernels that look at one partition at a time, by anomaly."""
        return {name: checker.kernel for name, checker in self.partition.items()}

    @property
    def facts(self) -> Mapping[str, CellFacts]:
        """Returns what kernels must know of all partitions of a cell, by name."""
        return {checker.knows.name: checker.knows for checker in self.cell.values() if checker.knows is not None}
