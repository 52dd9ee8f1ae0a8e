"""A partition that is too large for one task is made small first, piece by piece, by range of offsets. Whatever agrees
with everything is left out and only counted. The same kernels check what is left, with the same findings.

A record is *plain* if nothing about it can be found: one send acknowledged the offset where the log has it, everybody who
read that offset was given it, the audit at read_committed too, and it was sent here. Each rule below says which kernel needs
what it keeps although it is plain. Keeping more never changes a finding, as long as all rows of an offset are kept, or none.

If nobody audited, the log is what acknowledgements and reads reveal of each offset by itself (`RevealedReads`): so the rows
of a range of offsets reveal the log of that range. Those revealed rows stand behind the own ones, and have no numbers. A
record is plain then if a consumer was given it, too: of others `lost` and `unseen` ask how far anybody read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from prozess.checkers.log.audits import begins_everywhere
from prozess.checkers.log.leadership import short_of_replicas
from prozess.checkers.lookup import Lookup, differs_from_previous, distinct, identity_keys
from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.partition_log import Log, grouped_by_client
from prozess.harness.columns import of_clients
from prozess.harness.interfaces.checking import PartitionHistory
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, Isolation, Outcome

_NOTHING = np.empty(0, dtype=np.int64)
_LEAST = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class PieceSends:
    """Sends that are not plain: their records, when they were sent, and by which clock. All arrays have one length."""

    key: np.ndarray = field(default_factory=_NOTHING.copy)
    invoked_ns: np.ndarray = field(default_factory=_NOTHING.copy)
    clock: np.ndarray = field(default_factory=_NOTHING.copy)


@dataclass(frozen=True, slots=True)
class Residue:
    """Describes what is not plain in a piece or a block: rows of the whole partition's tables, and what other pieces must
    know of them."""

    sends: np.ndarray
    """int64: the rows of `sends` that are not plain."""
    reads: np.ndarray
    sent: PieceSends
    read_key: np.ndarray
    """The identities of the reads that are not plain."""
    log_offset: np.ndarray
    log_key: np.ndarray
    """The identities of the records of L(p) that are not plain."""
    doubtful: np.ndarray
    """The keys of transactions of which it is not known whether they were committed."""
    newest: Mapping[int, int] = field(default_factory=dict)
    """For each clock, when the last plain record was sent."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What the plain records add to what kernels judged (`counts_of`)."""


@dataclass(frozen=True, slots=True)
class PieceContext:
    """Describes what one piece must know of all other pieces, to say which of its plain records must be kept."""

    keys: np.ndarray
    """Identities that something in another piece names, ascending."""
    doubtful: np.ndarray
    """Keys of transactions in doubt, ascending."""
    offsets: np.ndarray
    """Offsets at which readers stepped unevenly, ascending. Those of steps within the piece may be left out."""
    log_offset: np.ndarray
    invoked_ns: np.ndarray
    clock: np.ndarray
    """The last of three arrays about the records of L(p) that are not plain and whose send is known: where they stand,
    when they were sent, and by which clock. They ascend by offset."""
    newest: Mapping[int, int]
    """For each clock, when the last plain record before this piece was sent."""


def nothing_known() -> PieceContext:
    """Returns the context of a piece that is looked at before the others."""
    return PieceContext(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, {})


@dataclass(frozen=True, slots=True)
class BlockEnd:
    """The first or the last row of a block of `reads`."""

    client: int
    span: int
    log_offset: int
    sender: int
    leader_epoch: int

    def goes_on_to(self, other: "BlockEnd") -> bool:
        """Returns whether the other row, which follows, is the next record for the same client, and of no older leader."""
        return (
            (other.client, other.span, other.log_offset) == (self.client, self.span, self.log_offset + 1)
            and (other.leader_epoch == NONE) == (self.leader_epoch == NONE)
            and other.leader_epoch >= self.leader_epoch
            and self.sender != SENTINEL_CLIENT
            and other.sender != SENTINEL_CLIENT
        )


class Piece:
    """The rows of one range of offsets. `sends_rows` and `reads_rows` say which rows of the whole partition they are."""

    def __init__(
        self, history: PartitionHistory, sends_rows: np.ndarray, reads_rows: np.ndarray, *, whole: bool = False
    ) -> None:
        """If `whole` is set, no record of the piece is plain."""
        self.history, self.index = history, PartitionIndex.of(history)
        count = len(self.index.reads["client"])
        assert len(sends_rows) == len(self.index.sends["client"]), "the numbers of all rows of `sends` of the piece"
        assert len(reads_rows) == count or not history.audited, "the numbers of all rows of `reads` of the piece"
        self._sends_rows, self._reads_rows = sends_rows, reads_rows
        self._counted = np.ones(count, dtype=bool) if history.audited else self.index.by_consumer
        """bool[reads]: does this read count among those that are judged? Without an audit those of consumers do."""
        index, log = self.index, self.index.log
        self.send_position, self.read_position = index.send_position, index.read_position
        self.plain = self._plain(log) & (not whole)
        """bool[L(p)]: is each record plain?"""
        # Row of `sends` → position becomes position → row. Where several sends name one offset, the record is not plain, and
        # which of them is kept here does not matter.
        acknowledged = np.full(len(self.plain), -1, dtype=np.intp)
        there = np.flatnonzero(self.send_position >= 0)
        acknowledged[self.send_position[there]] = there
        assert len(acknowledged) == len(log.key), "one entry for each record of the piece's log"
        self.send = np.where(self.plain, acknowledged, -1)
        """intp[L(p)]: the row of `sends` of each plain record, -1 for others."""

    def _plain(self, log: Log) -> np.ndarray:
        index, reads, sends = self.index, self.index.reads, self.index.sends
        # Readable, and of one of our producers: else `phantom` or `corrupt` may find it.
        plain: np.ndarray = (log.key >= 0) & ~index.never_issued(log.rows)
        # Every read of its offset shows this record, which was sent here, and has no mark.
        wrong = ~index.agrees(self.read_position, index.read_key) | (reads["flags"] != 0)
        wrong |= (reads["sender"] == SENTINEL_CLIENT) | index.sent_elsewhere(np.arange(len(wrong)))
        # One wrong read is enough: whoever else read that offset rightly does not make its record plain again.
        plain[self.read_position[wrong & (self.read_position >= 0)]] = False
        plain[index.unshown] = False
        changed = self.read_position[index.wrong_keys]
        plain[changed[changed >= 0]] = False
        # One send acknowledged it here, in order, with a reply, by enough replicas.
        # What breaks one of these is left to the kernel that judges it: `time-travel`, `unreported`, `under-acknowledged`.
        well = index.send_confirmed & (sends["outcome"] == Outcome.OK.value) & (sends["completed_ns"] != MISSING)
        well &= (sends["code"] == 0) & ~index.sent_with(acks=0)
        well[short_of_replicas(self.history).rows] = False
        there = self.send_position >= 0  # not two sends that name one offset
        # Example: a and x were both acknowledged at the offset of position 0, and b at that of 1. The counts are 2 1: a is
        # not plain.
        plain &= np.bincount(self.send_position[there], minlength=len(plain)) == 1
        good = np.zeros(len(plain), dtype=bool)
        good[self.send_position[well]] = True
        if not index.audited:
            good &= self._last_given_ns() != _LEAST
        return plain & good

    def _last_given_ns(self) -> np.ndarray:
        """Returns int64[L(p)]: when a consumer was last given what stands there; the least number where none was."""
        last_ns = np.full(len(self.index.log.key), _LEAST)
        rows = np.flatnonzero(self.index.by_consumer & (self.read_position >= 0))
        np.maximum.at(last_ns, self.read_position[rows], self.index.reads["read_ns"][rows])
        return last_ns

    def _numbered(self, rows: np.ndarray) -> np.ndarray:
        """Returns the numbers that these rows of `reads` have in the whole partition, without what is only revealed."""
        return np.asarray(self._reads_rows[rows[rows < len(self._reads_rows)]])

    def left_out_ns(self, keep: np.ndarray) -> tuple[int, int] | None:
        """Returns `left_out_ns` of a history from which all plain records are left out but for those to keep."""
        left_out = self.plain & ~keep
        if not left_out.any():
            return None
        sends, send = self.index.sends, self.send[left_out]
        done_ns = np.maximum(sends["completed_ns"][send], sends["invoked_ns"][send])
        return int(done_ns.max()), int(self._last_given_ns()[left_out].min())

    def left_out_given(self, keep: np.ndarray) -> np.ndarray:
        """Returns `left_out_given` of a history from which all plain records are left out but for those to keep."""
        index, most = self.index, np.iinfo(np.int64).max
        rows = np.flatnonzero((index.by_consumer | index.audited) & (self.read_position >= 0))
        at, epoch = self.read_position[rows], index.reads["leader_epoch"][rows]
        received = np.bincount(at[index.by_consumer[rows]], minlength=len(self.plain)) > 0
        least, greatest = np.full(len(self.plain), most), np.full(len(self.plain), _LEAST)
        np.minimum.at(least, at, epoch)
        np.maximum.at(greatest, at, epoch)
        given = np.flatnonzero(self.plain & ~keep & received)
        offset, epoch = index.log.offset[given], np.where(least == greatest, least, NONE)[given]
        # Example: offsets 0 1 2 5 6 at epochs 4 4 5 5 5: 0-1 at 4, 2 at 5, and 5-6 at 5.
        starts = np.flatnonzero(differs_from_previous(epoch) | differs_from_previous(offset - np.arange(len(given))))
        if not len(given):
            return np.empty((0, 4), dtype=np.int64)
        behind = offset[np.append(starts[1:], len(given)) - 1] + 1
        newest_ns = np.maximum.reduceat(index.sends["invoked_ns"][self.send[given]], starts)
        return np.stack([offset[starts], behind, epoch[starts], newest_ns], axis=1)

    def residue(self) -> Residue:
        """Returns everything that is not plain, and what other pieces must know."""
        index, sends = self.index, self.index.sends
        assert len(self.plain) == len(index.log.key), "one entry for each record of the piece's log"
        # All rows of an offset go one way, because what is plain is asked by position: sends and reads of it alike.
        left_sends, left_reads = (
            np.flatnonzero(~self._chosen(p, self.plain)) for p in (self.send_position, self.read_position)
        )
        doubtful = left_sends[sends["outcome"][left_sends] == Outcome.INFO.value]
        doubtful = doubtful[sends["transaction"][doubtful] != NONE]
        clock = self._clock(self.send)
        # The last send of each clock among the plain records: a record of a later piece may have been acknowledged before it.
        newest = {
            value: int(sends["invoked_ns"][self.send[clock == value]].max())
            for value in np.unique(clock[self.plain]).tolist()
        }
        return Residue(
            sends=self._sends_rows[left_sends],
            reads=self._numbered(left_reads),
            sent=self.sent(left_sends),
            read_key=distinct(index.read_key[left_reads]),
            log_offset=index.log.offset[~self.plain],
            log_key=index.log.key[~self.plain],
            doubtful=identity_keys(sends["client"][doubtful], sends["transaction"][doubtful]),
            newest=newest,
            counts=counts_of(
                self.history,
                self.plain,
                self.send,
                self._chosen(self.read_position, self.plain) & self._counted,
                self._clock(self.send),
            ),
        )

    def keep(self, context: PieceContext) -> np.ndarray:
        """Returns bool[L(p)]: the plain records that must be kept all the same."""
        keep = np.zeros(len(self.plain), dtype=bool)
        if self.plain.any():
            # What another piece asks for counts as not plain in the order of its client: its neighbours are kept, too.
            asked = self._asked(context)
            keep |= asked
            self._keep_steps(keep, distinct(np.concatenate([context.offsets, self._uneven()])))
            assert asked.shape == keep.shape, "one entry for each record"
            self._keep_order(keep, asked | ~self.plain)
            self._keep_times(keep, context)
        return keep & self.plain

    def kept(self, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray, PieceSends]:
        """Returns the rows of `sends` and of `reads` of the records to keep, and their sends."""
        assert not (keep & ~self.plain).any(), "what is not plain is in the residue already"
        sends, reads = (np.flatnonzero(self._chosen(p, keep)) for p in (self.send_position, self.read_position))
        return self._sends_rows[sends], self._numbered(reads), self.sent(sends)

    def least_done_ns(self) -> dict[int, int]:
        """Returns, for each clock, when its first plain record was acknowledged or read. A record that was sent later but
        stands in front of it matters."""
        rows = np.flatnonzero(self._chosen(self.read_position, self.plain) & self._counted)
        send = self.send[self.plain]
        clock = np.concatenate([self._clock(send), self._clock_of_reads(rows)])
        time_ns = np.concatenate([self.index.sends["completed_ns"][send], self.index.reads["read_ns"][rows]])
        known = np.unique(clock[clock != NONE]).tolist()
        return {value: int(time_ns[clock == value].min()) for value in known}

    def sent(self, rows: np.ndarray) -> PieceSends:
        """Returns what other pieces must know of these rows of `sends`."""
        index = self.index
        clock = of_clients(self.history.client_clock, index.sends["client"][rows], unknown=NONE)
        return PieceSends(index.send_key[rows], index.sends["invoked_ns"][rows], clock)

    def _uneven(self) -> np.ndarray:
        """Returns the offsets of this piece at which readers stepped unevenly within it. A step over offsets that have no
        record, such as the marker of a transaction, is even: whoever leads from a record of the log to the next one has
        skipped nothing. Many records would be kept otherwise, where transactions are small."""
        names, own = ("client", "span", "sender", "log_offset", "leader_epoch"), len(self._reads_rows)
        reads = {name: self.index.reads[name][:own] for name in names}
        # Rows that follow one another here, but not in the whole partition, are no step: a block finds what is between them.
        apart = _apart(reads) & (np.diff(self._reads_rows) == 1)
        same = np.flatnonzero(apart & _goes_on(reads))
        level = of_clients(self.index.client_isolation, reads["client"][same], unknown=NONE)
        for isolation, log in (
            (Isolation.READ_UNCOMMITTED, self.index.log),
            (Isolation.READ_COMMITTED, self.index.visible),
        ):
            mine = same[(level == Isolation.READ_COMMITTED) == (isolation is Isolation.READ_COMMITTED)]
            at, to = (log.positions.find(reads["log_offset"][rows]) for rows in (mine, mine + 1))
            breaks = _epoch_breaks(reads["leader_epoch"][mine], after=reads["leader_epoch"][mine + 1])
            # Example: a transaction's marker stands at 2. A step from offset 1 to 3 leads from position 1 to position 2 of
            # the log: even.
            apart[mine[(at >= 0) & (to == at + 1) & ~breaks]] = False
        return _beside(reads["log_offset"], apart)

    def _asked(self, context: PieceContext) -> np.ndarray:
        """Returns the records that another piece names (another copy, a wrong acknowledgement, a wrong read), and the
        records of transactions in doubt, which `lost` needs."""
        asked: np.ndarray = Lookup(context.keys).find(self.index.log.key) >= 0
        if len(context.doubtful):
            # Where there is no plain send (-1), row 0 is read, and the mask drops what it has.
            sends, rows = self.index.sends, np.maximum(self.send, 0)
            transactional = self.plain & (sends["transaction"][rows] != NONE)
            slot = np.flatnonzero(transactional)
            key = identity_keys(sends["client"][rows[slot]], sends["transaction"][rows[slot]])
            asked[slot] |= Lookup(context.doubtful).find(key) >= 0
        return asked

    def _keep_steps(self, keep: np.ndarray, offsets: np.ndarray) -> None:
        """Keeps what `rewound` and `skipped` need: both ends of each uneven step, and the first record behind each in
        L(p) and in V(p). The first record of this piece may be behind a step that begins in another piece."""
        positions = self.index.log.positions
        for log in (self.index.log, self.index.visible):
            if len(log.offset):
                # Beside what is asked for, the first record of the piece (the 0 that is appended): a step may begin before
                # the piece. Behind the last record there is none here, and the last one is kept in its stead.
                # Example: the log has 4 5 8. Behind the uneven offset 5 comes 8; behind 8 comes what another piece has.
                behind = np.minimum(np.searchsorted(log.offset, offsets, side="right"), len(log.offset) - 1)
                slot = positions.find(log.offset[np.append(behind, 0)])
                keep[slot[slot >= 0]] = True
        slot = positions.find(offsets)
        keep[slot[slot >= 0]] = True

    def _keep_order(self, keep: np.ndarray, marked: np.ndarray) -> None:
        """Keeps what `reordered` needs: of each client's records both ends of every descent, the neighbours of what is
        not plain, and the first and the last record, whose neighbours are in other pieces."""
        log = self.index.log
        sender = self.index.reads["sender"][log.rows]
        line = grouped_by_client(sender)
        key, near = log.key[line], marked[line].copy()
        # Example: one client's line is 1 2 3 7 4 5. 7 and 4 are the ends of a descent, 1 and 5 those of the line: 2 and 3 go.
        # From one client's line to the next this marks the ends of lines, which are kept in any case.
        near[1:] |= marked[line[:-1]]
        near[:-1] |= marked[line[1:]]
        # `edge` is true of a record that begins a line, or to which one descends: it is kept, and so is the one before it.
        edge = differs_from_previous(sender[line])
        edge[1:] |= key[1:] < key[:-1]
        near |= edge
        near[:-1] |= edge[1:]
        near[-1] = True
        keep[line[near]] = True

    def _keep_times(self, keep: np.ndarray, context: PieceContext) -> None:
        """Keeps what `time-travel` needs: every record that was acknowledged or read before something in front of it was
        sent, or before it was sent itself, and the plain record in front of it that was sent last, or is itself. It keeps the
        last one of the whole piece as well, for the pieces behind it. Where another piece has the send of a record, nobody
        knows here when that was acknowledged."""
        index, sends, rows = self.index, self.index.sends, np.maximum(self.send, 0)
        # `any_ns`: when each record was sent, plain or not; `sent_ns`: of plain ones alone, which can be kept here.
        sent_ns = np.where(self.plain, sends["invoked_ns"][rows], _LEAST)
        clock, any_ns = self._clock(self.send), sent_ns.copy()
        slot = index.log.positions.find(context.log_offset)
        inside = slot >= 0
        assert len(context.log_offset) == len(context.invoked_ns) == len(context.clock), (
            "three arrays about the same records"
        )
        any_ns[slot[inside]], clock[slot[inside]] = context.invoked_ns[inside], context.clock[inside]
        done = np.flatnonzero((self.send_position >= 0) & (sends["completed_ns"] != MISSING))
        given = np.flatnonzero((self.read_position >= 0) & self._counted)
        when_ns = np.concatenate([sends["completed_ns"][done], index.reads["read_ns"][given]])
        where = np.concatenate([self.send_position[done], self.read_position[given]])
        event_clock = np.concatenate([self._clock(done), self._clock_of_reads(given)])
        # Records of which another piece has the send: left are those that are not plain, less those whose send is here.
        sent_elsewhere = ~self.plain
        sent_elsewhere[self.send_position[done[index.send_confirmed[done]]]] = False
        first = int(index.log.offset[0])
        before = context.log_offset < first
        for value in {*np.unique(clock[clock != NONE]).tolist(), *context.newest, *context.clock[before].tolist()}:
            mine = clock == value
            # What the pieces before this one bring along, and then the running maximum within it.
            earlier = context.invoked_ns[before & (context.clock == value)]
            carried = max(int(earlier.max(initial=_LEAST)), context.newest.get(value, _LEAST))
            newest = np.maximum(np.maximum.accumulate(np.where(mine, any_ns, _LEAST)), carried)
            late = sent_elsewhere.copy()
            # An event at a position is late if something up to there was sent after it.
            late[where[(event_clock == value) & (newest[where] > when_ns)]] = True
            plain = np.maximum.accumulate(np.where(mine, sent_ns, _LEAST))
            keep |= late
            # Where the running maximum of plain sends first had the value that it has at a late record, that send's record
            # stands. Example: sent at 10 50 30, and the third is late. The maxima are 10 50 50, and 50 was first reached at
            # the second record, which is kept with it. The last maximum is appended for the pieces behind this one.
            keep[np.searchsorted(plain, np.append(plain[late], plain[-1]))] = True

    def _clock(self, send: np.ndarray) -> np.ndarray:
        """Returns int[k]: the clock of the client of each of these sends. NONE where there is no send (-1)."""
        if not len(self.index.sends["client"]):
            return np.full(len(send), NONE, dtype=np.int64)
        clock = of_clients(self.history.client_clock, self.index.sends["client"][np.maximum(send, 0)], unknown=NONE)
        return np.asarray(np.where(send >= 0, clock, NONE)).astype(np.int64)

    def _clock_of_reads(self, rows: np.ndarray) -> np.ndarray:
        """Returns int[k]: the clock of the client that read each of these rows of `reads`. NONE: it is not known."""
        client = self.index.reads["client"][rows]
        return of_clients(self.history.client_clock, client, unknown=NONE).astype(np.int64)

    @staticmethod
    def _chosen(slot: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Returns bool[rows]: do they stand at a chosen position of L(p)?"""
        if not len(chosen):
            return np.zeros(len(slot), dtype=bool)
        return np.asarray((slot >= 0) & chosen[slot])


def uneven_offsets(reads: Mapping[str, np.ndarray], bounds: Sequence[int]) -> np.ndarray:
    """Returns the offsets of rows, in the order of reading, where the same client does not go on by one, or beside a
    sentinel. Ascending. Two rows that are in the same piece are left out: the piece knows them. `bounds` are those of
    pieces."""
    offset = reads["log_offset"]
    # `searchsorted` of the bounds numbers the pieces from 1 on; 0 is below all of them, where rows have no offset.
    # Example: pieces begin at 0 and 1000. The offsets 999 1000 1001 are in 1 2 2: only the first step leads to another piece.
    piece = np.searchsorted(np.asarray(bounds), offset, side="right")
    within = (piece[1:] == piece[:-1]) & (piece[1:] > 0)
    return _beside(offset, _apart(reads) & ~within)


def _apart(reads: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns, for each two rows that follow one another, whether the same client does not go on by one, one of them is a
    sentinel, or leader epochs do not go on."""
    # Index n is the step from row n to row n+1.
    sentinel, epoch = reads["sender"] == SENTINEL_CLIENT, reads["leader_epoch"]
    apart = (np.diff(reads["log_offset"]) != 1) | sentinel[1:] | sentinel[:-1]
    if epoch.strides != (0,):  # not one value for all
        apart |= _epoch_breaks(epoch[:-1], after=epoch[1:])
    for name in ("client", "span"):
        apart |= reads[name][1:] != reads[name][:-1]
    return np.asarray(apart)


def _epoch_breaks(epoch: np.ndarray, *, after: np.ndarray) -> np.ndarray:
    """Returns bool[n]: is the leader epoch afterwards lower, or is one of the two not known?"""
    return np.asarray((after < epoch) | ((epoch == NONE) != (after == NONE)))


def _goes_on(reads: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns, for each two rows that follow one another, whether both show records to one client in one span."""
    sentinel = reads["sender"] == SENTINEL_CLIENT
    goes_on = ~(sentinel[1:] | sentinel[:-1])
    for name in ("client", "span"):
        goes_on &= reads[name][1:] == reads[name][:-1]
    return np.asarray(goes_on)


def _beside(offset: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """Returns the offsets, ascending, of the rows on both sides of these indices between rows."""
    if not len(offset):
        return _NOTHING
    # Example: rows 0 1 2 3, apart between 1 and 2, so apart is F T F. Shifted to both sides: rows 1 and 2.
    return distinct(offset[np.append(apart, False) | np.append(False, apart)])


def block_ends(reads: Mapping[str, np.ndarray]) -> list[BlockEnd]:
    """Returns the first row and the last row. Empty if there are no rows."""
    return [
        BlockEnd(*(int(reads[name][row]) for name in ("client", "span", "log_offset", "sender", "leader_epoch")))
        for row in ((0, -1) if len(reads["client"]) else ())
    ]


def uneven_ends(blocks: Sequence[Sequence[BlockEnd]]) -> np.ndarray:
    """Returns the offsets at which one block does not go on evenly to the next, and always those of the very first and
    the very last row. Ascending."""
    ends = [end for block in blocks for end in block]
    assert len(ends) % 2 == 0, "a block has two ends, or no row"
    # first, last, first, last, …: each last row meets the first row of the block behind it. A block of one row has two ends
    # that are equal, and so `id` distinguishes them.
    met = [pair for pair in zip(ends[1::2], ends[2::2], strict=False) if pair[0].goes_on_to(pair[1])]
    even = {id(end) for pair in met for end in pair}
    return distinct(np.array([end.log_offset for end in ends if id(end) not in even], dtype=np.int64))


def counts_of(
    history: PartitionHistory, plain: np.ndarray, send: np.ndarray, read: np.ndarray, clock: np.ndarray
) -> dict[str, int]:
    """Returns how much plain records add to what kernels judged. `plain` is bool[L(p)]; `send` and `clock` belong to
    each record; `read` (bool[reads]) says which reads show plain records."""
    index = PartitionIndex.of(history)
    reader_clock = of_clients(history.client_clock, index.reads["client"], unknown=NONE)
    assert len(plain) == len(send) == len(clock), "one entry for each record"
    acks = of_clients(index.client_acks, index.sends["client"][send[plain]], unknown=0)
    return {
        "records": int(np.count_nonzero(plain)),
        "from_start": int(np.count_nonzero(plain & (index.log.offset >= begins_everywhere(history)))),
        # `invisible` compares two audits, and `unseen` asks where there was none.
        "of_no_transaction": int(np.count_nonzero(index.sends["transaction"][send[plain]] == NONE)) * index.audited,
        "unaudited": int(np.count_nonzero(plain)) * (not index.audited),
        "acks_all": int(np.count_nonzero(acks == -1)),
        "timed": int(np.count_nonzero(clock[plain] != NONE)),
        "timed_reads": int(np.count_nonzero(read & (reader_clock != NONE))),
        "reads": int(np.count_nonzero(read)),
        "epochs": int(np.count_nonzero(read & (index.reads["leader_epoch"] >= 0))),
        "consumed": int(np.count_nonzero(read & index.by_consumer)),
    }


def contexts_of(residues: list[Residue], sent: list[PieceSends], offsets: np.ndarray) -> Iterator[PieceContext]:
    """Yields what each piece must know, in their order. `sent` are sends that were kept although they are plain. All of
    them have the same arrays: of a large partition these are large."""
    sent_by_all = [residue.sent for residue in residues] + sent
    # A send may be known several times, as not plain and as kept: each record once, for the lookup.
    key = np.concatenate([one.key for one in sent_by_all])
    order = np.argsort(key, kind="stable")
    key = key[order]
    new = differs_from_previous(key)
    known = Lookup(key[new])
    invoked_ns, clock = (
        np.concatenate([getattr(one, name) for one in sent_by_all])[order][new] for name in ("invoked_ns", "clock")
    )
    asked = distinct(np.concatenate([one.read_key for one in residues]))
    left = distinct(np.concatenate([one.sent.key for one in residues]))
    asked = asked[(asked >= 0) & (Lookup(left).find(asked) < 0)]  # what was sent and is not plain is kept anyway
    log_offset, log_key = (
        np.concatenate([getattr(one, name) for one in residues]) for name in ("log_offset", "log_key")
    )
    assert len(known.values) == len(invoked_ns) == len(clock), "each record's send once"
    # Pieces ascend by offset, and so do the records of each: all of them together do, too.
    slot = known.find(log_key)
    log_offset, slot = log_offset[slot >= 0], slot[slot >= 0]
    of_all = PieceContext(
        keys=asked,
        doubtful=distinct(np.concatenate([one.doubtful for one in residues])),
        offsets=offsets,
        log_offset=log_offset,
        invoked_ns=invoked_ns[slot],
        clock=clock[slot],
        newest={},
    )
    newest: dict[int, int] = {}
    for residue in residues:
        # Each piece is given what the pieces before it sent last, and then adds its own for those behind it.
        yield replace(of_all, newest=dict(newest))
        for value, time_ns in residue.newest.items():
            newest[value] = max(newest.get(value, _LEAST), time_ns)


def open_keys(residues: list[Residue], sent: list[PieceSends]) -> np.ndarray:
    """Returns the identities of records of L(p) that are not plain and whose send no piece has reported yet. The send
    may be plain."""
    known = Lookup(distinct(np.concatenate([one.key for one in [r.sent for r in residues] + sent])))
    asked = distinct(np.concatenate([residue.log_key for residue in residues]))
    return asked[(asked >= 0) & (known.find(asked) < 0)]
