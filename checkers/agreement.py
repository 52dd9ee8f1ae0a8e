"""Small partitions side by side in which everybody agrees: what kernels of the log judge there is a matter of counting.

Everybody agrees on a partition if each of its sends was acknowledged, outside of transactions, at its own offset; both audits
were given exactly these records up to their sentinels; every reader was given, within a span, one record of the log after the
other; and nothing was read, or acknowledged behind it, before it was sent. Kernels that may be given what is left of a
partition (`prozess.harness.checking.checker.PartitionChecker.judged_when_plain`) find nothing there, and have no reason to
give: nothing is left of it. Where anything else is seen, nothing is known of the partition, and each kernel looks at it.

Example: a, b and c were acknowledged at 0, 1 and 2, and the sentinels stand at 3. Both audits were given a b c, and a reader
was given b c: they agree, `lost` judges 3 records, and `rewound` 8 reads. Had the reader been given a c, or had nobody
acknowledged c, `skipped` or `lost` would have to look.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from prozess.checkers.batches import CONTROL
from prozess.checkers.copies import Copies
from prozess.checkers.log.audits import begins_everywhere
from prozess.checkers.lookup import Indexed, ordinary_keys
from prozess.checkers.partition_index import ClientIndex
from prozess.harness.columns import joined, of_clients
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import no_witnesses
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, Isolation, Outcome, Role

_SENDS = (
    *("client", "sequence", "key", "transaction", "log_offset", "outcome", "code"),
    *("invoked_ns", "completed_ns"),
)
_READS = (
    "client",
    "span",
    "sender",
    "sequence",
    "key",
    "sent_partition",
    "log_offset",
    "flags",
    "leader_epoch",
    "read_ns",
)
_LEVELS = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
_LONGEST = 1 << 61
"""How long the times of all partitions may be together, one after the other, in ns."""


class Agreement(Indexed):
    """Says of some partitions of a cell, which are few rows each, on which of them everybody agrees."""

    def __init__(self, history: CellHistory) -> None:
        ones = list(history.partitions.values())
        self.partition = np.array([one.partition for one in ones], dtype=np.int64)
        self.agreed = np.array([_may_agree(one) for one in ones], dtype=bool)
        """bool[partitions]: does everybody agree on it? Until everything was looked at: may it be so?"""
        assert all(one.client_role is ones[0].client_role for one in ones), "partitions of one history"
        held = [(i, one) for i, one in enumerate(ones) if self.agreed[i]]
        self.client_clock = ones[0].client_clock
        self.counts: dict[str, np.ndarray] = {}
        """What the records of each partition on which everybody agrees add to what kernels judge, as `counts_of` does in
        `prozess.checkers.chunked.pieces`. Epochs are not among them."""
        self.end = np.zeros(len(ones), dtype=np.int64)
        """The offset behind the last record of each partition on which everybody agrees."""
        if not held:
            return
        number = np.array([i for i, _ in held])
        self.sends, of = joined([one.sends for _, one in held], _SENDS)
        self.send_owner = number[of]
        """intp[sends]: the index of the partition of each row of `sends`."""
        self.reads, of = joined([one.reads for _, one in held], _READS)
        self.read_owner = number[of]
        self._ends = np.full((len(_LEVELS), len(ones)), NONE, dtype=np.int64)
        self._ends[:, number] = [[one.audit_end[level] for _, one in held] for level in _LEVELS]
        send_key = ordinary_keys(self.sends["client"], self.sends["sequence"])
        read_key = ordinary_keys(self.reads["sender"], self.reads["sequence"])
        if send_key is None or read_key is None:  # there is a record of no client of ours
            self.agreed[:] = False
            return
        self._look_at_sends(ones[0], send_key)
        self._index_offsets()
        self._look_at_reads(ones[0], send_key, read_key)
        self._look_at_times()
        self._look_at_replicas(ones)
        self._count(ones[0])

    def _deny(self, owner: np.ndarray) -> None:
        self.agreed[owner] = False

    def _look_at_sends(self, one: PartitionHistory, key: np.ndarray) -> None:
        sends, owner = self.sends, self.send_owner
        client, offset = sends["client"], sends["log_offset"]
        same = owner[1:] == owner[:-1]
        self._deny(owner[1:][same & (key[1:] <= key[:-1])])
        limit = of_clients(ClientIndex.of(one.client_role).limit(one.client_issued), client, unknown=0)
        good = (sends["outcome"] == Outcome.OK.value) & (sends["completed_ns"] != MISSING) & (sends["code"] == 0)
        good &= (of_clients(one.client_acks, client, unknown=0) != 0) & (sends["sequence"] < limit)
        good &= (offset >= 0) & (offset < self._ends.min(axis=0)[owner])
        mine = client != SENTINEL_CLIENT
        self._deny(owner[(mine & ~good) | (sends["transaction"] != NONE)])
        # Rows of one client ascend by sequence: its records are in the order in which they were sent if offsets ascend.
        self._deny(owner[1:][same & mine[:-1] & (client[1:] == client[:-1]) & (offset[1:] <= offset[:-1])])
        self.rows = np.flatnonzero(mine & good)
        """The rows of `sends` of records, without the sentinels', and later those of the partitions that agree."""

    def _index_offsets(self) -> None:
        """Gives each offset of a log a slot, one partition after the other. A partition whose offsets leave many out is not
        dealt with. Example: the offsets 5 6 7 of one partition and 0 1 of the next have the slots 0 1 2 and 3 4."""
        count = len(self.agreed)
        owner, offset = self.send_owner[self.rows], self.sends["log_offset"][self.rows]
        self._least, greatest = np.full(count, np.iinfo(np.int64).max), np.full(count, NONE, dtype=np.int64)
        np.minimum.at(self._least, owner, offset)
        np.maximum.at(greatest, owner, offset)
        self.end = greatest + 1
        number = np.bincount(owner, minlength=count)
        self._width = np.where(number > 0, greatest - self._least + 1, 0)
        self.agreed &= self._width <= 2 * number + 64
        self._width[~self.agreed] = 0
        self._first = np.cumsum(self._width) - self._width
        self.rows = self.rows[self.agreed[owner]]
        slot = self._slot(self.send_owner[self.rows], self.sends["log_offset"][self.rows])
        self._send_at = np.full(int(self._width.sum()) + 1, -1, dtype=np.intp)
        """intp[slots + 1]: the row of `sends` that was acknowledged there, -1 for none, as at the last one."""
        self._send_at[slot] = self.rows
        # Where two sends name one offset, the last one stands there now: the other one finds it in its own slot.
        self._deny(self.send_owner[self.rows[self._send_at[slot] != self.rows]])
        self._log = self._send_at[self._send_at >= 0]
        """The rows of `sends` in the order of the logs, one partition after the other."""

    def _slot(self, owner: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """Returns intp[k]: the slot of each of these offsets. -1: there is none."""
        behind = offset - self._least[owner]
        return np.where((behind >= 0) & (behind < self._width[owner]), self._first[owner] + behind, -1)

    def _look_at_reads(self, one: PartitionHistory, send_key: np.ndarray, read_key: np.ndarray) -> None:
        reads, sends, owner = self.reads, self.sends, self.read_owner
        offset, client = reads["log_offset"], reads["client"]
        slot = self._slot(owner, offset)
        shown = reads["sender"] != SENTINEL_CLIENT
        send = self._send_at[slot]
        # Where there is no send (-1), the last one is compared, if there is one at all, and the mask drops what it says.
        alike = send >= 0
        if len(send_key):
            alike &= (send_key[send] == read_key) & (sends["key"][send] == reads["key"])
        target = reads["sent_partition"]
        alike &= (target == self.partition[owner]) | (target == NONE)
        self._deny(owner[(shown & ~alike) | (reads["flags"] != 0)])
        kept = np.flatnonzero(shown & alike)
        self.shown, self.send_of_shown = kept, send[kept]
        """The rows of `reads` that show a record where the log has it, and the rows of `sends` that sent it."""
        self._position = (np.cumsum(self._send_at >= 0) - 1)[slot[kept]]
        its, who, span, read_ns = (of[kept] for of in (owner, client, reads["span"], reads["read_ns"]))
        goes_on = (its[1:] == its[:-1]) & (who[1:] == who[:-1])
        self._deny(its[1:][goes_on & (read_ns[1:] < read_ns[:-1])])
        goes_on &= span[1:] == span[:-1]
        self._deny(its[1:][goes_on & (np.diff(self._position) != 1)])
        role = of_clients(one.client_role, client, unknown=NONE)
        level = of_clients(one.client_isolation, client, unknown=NONE)
        self._by_audit = role == Role.AUDIT.value
        number = np.bincount(self.send_owner[self.rows], minlength=len(self.agreed))
        for of_level, end in zip(_LEVELS, self._ends, strict=True):
            rows = np.flatnonzero(self._by_audit & (level == of_level.value))
            its, its_offset = owner[rows], offset[rows]
            self._deny(its[1:][(its[1:] == its[:-1]) & (its_offset[1:] <= its_offset[:-1])])
            self._deny(its[its_offset > end[its]])
            # All of them ascend, and each stands where the log has it: as many are all of them.
            self.agreed &= np.bincount(its[shown[rows]], minlength=len(number)) == number
        self._early_sentinels = owner, offset, ~shown & self._by_audit & (level == Isolation.READ_UNCOMMITTED.value)

    def _look_at_times(self) -> None:
        """Looks whether something was acknowledged, or read, before a record up to there was sent, by whatever clock."""
        owner, invoked_ns = self.send_owner[self._log], self.sends["invoked_ns"][self._log]
        if not len(owner):
            return
        first = int(invoked_ns.min())
        length = int(invoked_ns.max()) - first + 1
        if length > _LONGEST // len(self.agreed):
            self.agreed[:] = False
            return
        # Times of each partition are moved behind those of the one before, so that one running maximum serves all.
        # Example: sent at 3 5 4 and 1 2. The length is 5, moved they are 2 4 3 and 5 6, and the maxima 2 4 4 5 6.
        moved = owner * length - first
        newest_ns = np.maximum.accumulate(invoked_ns + moved) - moved
        behind = (owner[1:] == owner[:-1]) & (newest_ns[:-1] > self.sends["completed_ns"][self._log][1:])
        self._deny(owner[1:][behind])
        early = newest_ns[self._position] > self.reads["read_ns"][self.shown]
        self._deny(self.read_owner[self.shown[early]])

    def _look_at_replicas(self, ones: Sequence[PartitionHistory]) -> None:
        """Looks whether every replica has more records than the audit at read_uncommitted was given, as `invisible` does."""
        copies, end = Copies(ones), self._ends[0]
        low = np.array([begins_everywhere(one) for one in ones])
        rows = copies.rows("replicas", ("base_offset", "last_offset", "attributes"))
        owner = copies.owner[rows["copy"]]
        length = np.minimum(rows["last_offset"] + 1, end[owner]) - np.maximum(rows["base_offset"], low[owner])
        length[(rows["attributes"] & CONTROL) != 0] = 0
        stored = np.zeros(len(copies.owner), dtype=np.int64)
        np.add.at(stored, rows["copy"], np.maximum(length, 0))
        least = np.full(len(ones), np.iinfo(np.int64).max)
        np.minimum.at(least, copies.owner, stored)
        its, offset = self.send_owner[self._log], self.sends["log_offset"][self._log]
        given = np.bincount(its[offset >= low[its]], minlength=len(ones))
        its, offset, chosen = self._early_sentinels
        chosen &= (offset >= low[its]) & (offset < end[its])
        given += np.bincount(its[chosen], minlength=len(ones))
        known = np.array([set(one.assignment) <= one.copies.keys() and not one.compacted for one in ones])
        self.agreed &= ~known | (given >= least) | (least == np.iinfo(np.int64).max)

    def _count(self, one: PartitionHistory) -> None:
        def count(owner: np.ndarray) -> np.ndarray:
            return np.bincount(owner, minlength=len(self.agreed))

        clock = of_clients(one.client_clock, self.sends["client"][self._log], unknown=NONE)
        acks = of_clients(one.client_acks, self.sends["client"][self._log], unknown=0)
        read_clock = of_clients(one.client_clock, self.reads["client"][self.shown], unknown=NONE)
        sent, shown = self.send_owner[self._log], self.read_owner[self.shown]
        self.counts = {
            "records": count(sent),
            "of_no_transaction": count(sent),
            "acks_all": count(sent[acks == -1]),
            "timed": count(sent[clock != NONE]),
            "timed_reads": count(shown[read_clock != NONE]),
            "reads": count(shown),
            "consumed": count(shown[~self._by_audit[self.shown]]),
            "unaudited": np.zeros(len(self.agreed), dtype=np.int64),  # what nobody audited does not agree
        }


def _may_agree(one: PartitionHistory) -> bool:
    """Returns whether both audits of a partition are complete."""
    return one.audited and all(level in one.audit_end for level in _LEVELS)


def nothing_where_agreed(history: CellHistory, names: Sequence[str]) -> list[KernelResult | None]:
    """Returns what a kernel that may be given pieces finds in each partition: nothing, where everybody agrees. `names`: its
    `judged_when_plain`. None: somebody may disagree, and the kernel must look."""
    index = Agreement.of(history)
    if not index.agreed.any():
        return [None] * len(index.agreed)
    judged = sum((index.counts[name] for name in names), np.zeros(len(index.agreed), dtype=np.int64))
    # One result for all partitions with as much: there are many.
    of_number = {number: KernelResult(no_witnesses(), 0, number) for number in judged.tolist()}
    return [
        of_number[number] if agreed else None
        for number, agreed in zip(judged.tolist(), index.agreed.tolist(), strict=True)
    ]


def ends_where_agreed(history: CellHistory) -> Mapping[int, int]:
    """Returns, for each partition on which everybody agrees, the offset behind its last record; of one partition alone
    nothing. The audits of these are complete."""
    if len(history.partitions) < 2:
        return {}
    index = Agreement.of(history)
    return {
        partition: end
        for partition, end, agreed in zip(
            index.partition.tolist(), index.end.tolist(), index.agreed.tolist(), strict=True
        )
        if agreed
    }
