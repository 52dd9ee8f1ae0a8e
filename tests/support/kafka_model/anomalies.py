"""Spoils the valid histories of `kafka_model`: each function plants exactly one anomaly and says what must be found, by
name of the kernel: the anomaly itself, and those that it implies. None = this history has no place for it."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from prozess.harness.clock import NS_PER_S
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, MetadataSource, ObservationKind
from tests.support.cells.partitions import (
    ACKS,
    COMMITTED_LEVEL,
    CORRUPT,
    FAIL,
    INFO,
    ISSUED,
    OK,
    OTHER_PARTITION,
    PARTITION,
    PRODUCER,
    PRODUCER_2,
    mask,
    read_row,
    send_row,
    watermark_row,
)
from tests.support.kafka_model import disks
from tests.support.kafka_model.partition import Entry, Facts

Expected = dict[str, int]


class Spoiler:
    """Plants anomalies in one history; what one has touched no other touches."""

    def __init__(self, facts: Facts, rng: random.Random) -> None:
        self.facts, self.rng = facts, rng
        self.touched: set[int] = set()
        """Offsets."""
        self.done: set[str] = set()
        """What can be planted once only."""

    # --- the log ---------------------------------------------------------------------------------------------------

    def lost(self) -> Expected | None:
        """An acknowledged record is gone, and nobody had been given it."""
        entry = self._entry(lambda e, send: send["outcome"] == OK and send["log_offset"] != NONE)
        if entry is None or self.facts.written:
            return None
        self.facts.log.remove(entry)
        for rows in self.facts.reads.values():
            rows[:] = [row for row in rows if row["log_offset"] != entry.offset]
        return {"lost": 1}

    def lost_after_it_was_read(self) -> Expected | None:
        """A record that consumers were given is gone: each of those reads was dirty. It need not have been acknowledged."""
        given = Counter(row["log_offset"] for row in self.facts.rows())
        entry = self._entry(lambda e, send: given[e.offset] > 0, recorded=False)
        if entry is None or self.facts.written:
            return None
        self.facts.log.remove(entry)
        return {"lost": 1, "dirty-read": given[entry.offset]}

    def replaced(self) -> Expected | None:
        """An acknowledged offset was given to another record. With acks=1 that is a loss; with acks=all a conflict too."""
        entry = self._entry(lambda e, send: send["log_offset"] == e.offset)
        if entry is None:
            return None
        conflict = ACKS[entry.client] == -1
        sequence = self._fresh_send(entry.offset, INFO)
        for row in self.facts.rows():
            if row["log_offset"] == entry.offset:
                row |= {"sender": PRODUCER_2, "sequence": sequence}
        entry.client, entry.sequence = PRODUCER_2, sequence
        return {"lost": 1, "offset-conflict": int(conflict)}

    def duplicate(self) -> Expected | None:
        """A record once more, further on."""
        entry = self._entry(lambda e, send: True, recorded=False)
        hole = entry and self._hole(after=entry.offset)
        if entry is None or hole is None:
            return None
        self._insert(Entry(hole, entry.client, entry.sequence))
        return {"duplicate": 1}

    def reordered(self) -> Expected | None:
        """Two records of one producer, next to each other among its own, change places."""
        plain = {id(e) for e in self._entries(lambda e, send: True, recorded=False)}
        pairs = []
        for client in {e.client for e in self.facts.log}:
            line = [e for e in self.facts.log if e.client == client]
            pairs += [(a, b) for a, b in pairwise(line) if id(a) in plain and id(b) in plain]
        if not pairs:
            return None
        a, b = self.rng.choice(pairs)
        self.touched |= {a.offset, b.offset}
        sequences = {a.offset: b.sequence, b.offset: a.sequence}
        for row in self.facts.rows():
            row["sequence"] = sequences.get(row["log_offset"], row["sequence"])
        for here, there in ((a, b), (b, a)):
            send = self.facts.sends.get(here.identity)
            if send is not None and send["log_offset"] != NONE:
                send["log_offset"] = there.offset
        a.sequence, b.sequence = b.sequence, a.sequence
        return {"reordered": 1}

    def false_acknowledgement(self) -> Expected | None:
        """An acks=all acknowledgement names the offset of another record."""
        right = self._entry(lambda e, send: send["log_offset"] == e.offset and ACKS[e.client] == -1)
        wrong = self._entry(lambda e, send: True, recorded=False)
        if right is None or wrong is None:
            return None
        self.facts.sends[right.identity]["log_offset"] = wrong.offset
        return {"offset-conflict": 1}

    def misread(self) -> Expected | None:
        """A consumer was given one record where the log has another; both are in the log."""
        entry, other = (
            self._entry(lambda e, send: True, recorded=False),
            self._entry(lambda e, send: True, recorded=False),
        )
        rows = [row for row in self.facts.rows() if entry and row["log_offset"] == entry.offset]
        if entry is None or other is None or not rows:
            return None
        self.rng.choice(rows).update(sender=other.client, sequence=other.sequence)
        return {"offset-conflict": 1, "dirty-read": 1}

    # --- identity --------------------------------------------------------------------------------------------------

    def phantom(self) -> Expected | None:
        """A record of nobody, or one that its producer never issued."""
        hole = self._hole()
        if hole is None:
            return None
        issued = self.facts.issued[PRODUCER]
        number = hole - self.facts.base
        identity = self.rng.choice([(99, number), (-5, number), (2**31 - 1, -1 - number), (PRODUCER, issued + number)])
        self._insert(Entry(hole, *identity))
        return {"phantom": 1}

    def corrupt(self) -> Expected | None:
        """A record that nobody can read any more."""
        entry = self._entry(lambda e, send: True, recorded=False)
        if entry is None:
            return None
        entry.overrides |= CORRUPT
        for row in self.facts.rows():
            if row["log_offset"] == entry.offset:
                row |= CORRUPT
        return {"corrupt": 1}

    def other_key(self) -> Expected | None:
        """A record has another key than it was sent with."""
        entry = self._entry(lambda e, send: True)
        if entry is None:
            return None
        self.facts.sends[entry.identity]["key"] = 77
        return {"corrupt": 1}

    def misplaced(self) -> Expected | None:
        """A record that was sent to another partition."""
        hole = self._hole()
        if hole is None:
            return None
        # Sent there, so no row here; early in its producer's order on purpose, which is none of this partition's.
        sequence = ISSUED * 1000 - (hole - self.facts.base)
        self._insert(Entry(hole, PRODUCER_2, sequence, overrides={"sent_partition": OTHER_PARTITION}))
        return {"misplaced": 1}

    def resurrected(self) -> Expected | None:
        """A send that certainly failed is in the log."""
        hole = self._hole()
        if hole is None:
            return None
        self._insert(Entry(hole, PRODUCER_2, self._fresh_send(hole, FAIL)))
        return {"resurrected": 1}

    # --- reading ---------------------------------------------------------------------------------------------------

    def dirty_read(self) -> Expected | None:
        """A consumer was given a record that the log does not have: a failed one, or an unknown one, which proves it."""
        hole = self._hole()
        places = [
            (rows, i)
            for rows in self.facts.reads.values()
            for i in range(1, len(rows) + 1)
            if hole is not None
            and rows[i - 1]["log_offset"] < hole
            and (i == len(rows) or _straddle(rows, i, hole))
            and not self._between(rows[i - 1]["log_offset"], hole)
        ]
        if hole is None or not places:
            return None
        rows, i = self.rng.choice(places)
        outcome = self.rng.choice((FAIL, INFO))
        sequence = self._fresh_send(hole, outcome)
        before = rows[i - 1]
        row = read_row(before["client"], hole, PRODUCER_2, sequence, before["read_ns"])
        rows.insert(i, row | {"span": before["span"]})
        return {"dirty-read": 1, "lost": int(outcome == INFO)}

    def invisible(self) -> Expected | None:
        """A record that no transaction wrote is not shown at read_committed."""
        entry = self._entry(lambda e, send: True)
        if entry is None:
            return None
        entry.hidden = True
        return {"invisible": 1}

    def skipped(self) -> Expected | None:
        """A reader was not given a record between two that it was given."""
        by_offset = {e.offset: e for e in self.facts.log}
        places = []
        for reader, rows in self.facts.reads.items():
            kept = [row for row in rows if row["sender"] != SENTINEL_CLIENT]
            for before, row, after in zip(kept, kept[1:], kept[2:], strict=False):
                three = {r["log_offset"] for r in (before, row, after)}
                rising = before["log_offset"] < row["log_offset"] < after["log_offset"]
                shown = by_offset.get(row["log_offset"])
                level = shown is not None and (shown.visible or reader not in COMMITTED_LEVEL)
                if (
                    rising
                    and level
                    and not three & self.touched
                    and len({r["span"] for r in (before, row, after)}) == 1
                ):
                    places.append((rows, row, three))
        if not places:
            return None
        rows, gone, three = self.rng.choice(places)
        rows[:] = [row for row in rows if row is not gone]
        self.touched |= three
        return {"skipped": 1}

    def rewound(self) -> Expected | None:
        """A reader was given some records again, without a seek."""
        places = []
        for rows in self.facts.reads.values():
            for j in range(len(rows)):
                for i in range(j, min(j + 4, len(rows))):
                    part = rows[j : i + 1]
                    plain = all(r["sender"] != SENTINEL_CLIENT and r["log_offset"] not in self.touched for r in part)
                    if plain and len({r["span"] for r in part}) == 1:
                        places.append((rows, i, part))
        if not places:
            return None
        rows, i, part = self.rng.choice(places)
        rows[i + 1 : i + 1] = [dict(row) for row in part]
        self.touched |= {row["log_offset"] for row in part}
        return {"rewound": 1}

    # --- time, leaders, answers ------------------------------------------------------------------------------------

    def time_travel(self) -> Expected | None:
        """A record was sent only after one that stands behind it had been acknowledged."""
        late = self._entry(lambda e, send: send["outcome"] == OK and ACKS[e.client] != 0)
        early = self._entry(lambda e, send: late is not None and e.offset < late.offset)
        if late is None or early is None:
            return None
        self._send_again(early, self.facts.sends[late.identity]["completed_ns"] + 1)
        return {}

    def read_before_it_was_sent(self) -> Expected | None:
        """A record was sent only after a reader had received it."""
        read_ns = {row["log_offset"]: row["read_ns"] for row in self.facts.rows()}
        entry = self._entry(lambda e, send: e.offset in read_ns)
        if entry is None:
            return None
        self._send_again(entry, read_ns[entry.offset] + 1)
        return {}

    def read_before_another_was_sent(self) -> Expected | None:
        """A record was sent only after a reader had received one that stands behind it."""
        read_ns = {row["log_offset"]: row["read_ns"] for row in self.facts.rows()}
        late = self._entry(lambda e, send: e.offset in read_ns, recorded=False)
        early = self._entry(lambda e, send: late is not None and e.offset < late.offset)
        if late is None or early is None:
            return None
        self._send_again(early, read_ns[late.offset] + 1)
        return {}

    def _send_again(self, entry: Entry, invoked_ns: int) -> None:
        """Moves the send of a record to a later time."""
        send = self.facts.sends[entry.identity]
        send["invoked_ns"] = invoked_ns
        if send["completed_ns"] != MISSING:
            send["completed_ns"] = max(send["completed_ns"], invoked_ns + 5)

    def watermark_fell(self) -> Expected | None:
        """A leader answered less than it had before."""
        rows = self.facts.observations
        answers = [n for n, row in enumerate(rows) if row["kind"] == ObservationKind.LEADER_HIGH_WATERMARK]
        if not answers or "watermark" in self.done:
            return None
        self.done.add("watermark")
        place = self.rng.choice(answers)
        before = rows[place]
        rows.insert(place + 1, before | {"time_ns": before["time_ns"] + 1, "value": before["value"] - 1})
        return {"watermark-regression": 1}

    def log_start_fell(self) -> Expected | None:
        """A leader answered that its log begins before where it had begun."""
        if "start" in self.done:
            return None
        self.done.add("start")
        begins = {"node": 1, "leader_epoch": 0, "kind": int(ObservationKind.LEADER_LOG_START)}
        answers = [watermark_row(at, node=1, epoch=0, value=value) | begins for at, value in ((3, 1), (4, 0))]
        self.facts.observations.extend(answers)
        return {"log-start-regression": 1}

    def looked_up_what_is_too_early(self) -> Expected | None:
        """A leader was asked for a time after all records, and gave one all the same."""
        batches = [b for b in self.facts.disks.batches if b["step"] == NONE]
        if not batches or "looked up" in self.done or self.facts.compacted:
            return None
        self.done.add("looked up")
        longest = max(batches, key=lambda b: (b["last_offset"], -b["node"]))["node"]
        found = self.rng.choice([b for b in batches if b["node"] == longest])["last_offset"]
        rows = ((ObservationKind.TIME_ASKED, 1 << 50), (ObservationKind.TIME_FOUND, found))
        self.facts.observations += [
            {"time_ns": 7, "node": longest, "step": NONE, "partition": PARTITION, "kind": int(kind), "value": value}
            for kind, value in rows
        ]
        return {"mistimed": 1}

    def epoch_fell(self) -> Expected | None:
        """A broker reported an older epoch than before."""
        rows = [row for row in self.facts.metadata if row["source"] == MetadataSource.SAMPLE]
        if not rows or "epoch" in self.done:
            return None
        self.done.add("epoch")
        before = self.rng.choice(rows)
        fell = before | {"time_ns": before["time_ns"] + 1, "leader_epoch": before["leader_epoch"] - 1}
        self.facts.metadata.append(fell)
        return {"epoch-regression": 1}

    def epoch_fell_as_read(self) -> Expected | None:
        """A reader learned an older epoch than before at a higher offset."""
        told = [row for row in self.facts.rows() if row["leader_epoch"] > 0 and row["log_offset"] not in self.touched]
        if not told:
            return None
        row = self.rng.choice(told)
        self.touched.add(row["log_offset"])
        row["leader_epoch"] = self.rng.choice((row["leader_epoch"] - 1, NONE))
        return {}

    def epoch_fell_in_logs(self) -> Expected | None:
        """From some batch on, the copies say that they are of an older epoch."""
        batches = self.facts.disks.batches
        if not batches:
            return None
        first = self.rng.choice(batches)["base_offset"]
        for row in batches:
            row["leader_epoch"] += int(row["base_offset"] < first)
        return {}

    def too_few_in_sync(self) -> Expected | None:
        """By the controllers' log one replica was in sync for long before and after a send that acks=all acknowledged."""
        entry = self._entry(lambda e, send: send["outcome"] == OK and ACKS[e.client] == -1)
        if entry is None:
            return None
        send = self.facts.sends[entry.identity]
        begin_ns, end_ns = send["invoked_ns"] - 2 * NS_PER_S, send["completed_ns"] + 2 * NS_PER_S
        truth = [row for row in self.facts.metadata if row["source"] == MetadataSource.CONTROLLER_LOG]
        within = [row for row in truth if begin_ns <= row["time_ns"] <= end_ns]
        last = max((row for row in truth if row["time_ns"] <= begin_ns), key=lambda row: row["time_ns"], default=None)
        leader = last or min(truth, key=lambda row: row["time_ns"])
        if any(row["leader"] != leader["leader"] for row in within):
            return None  # whoever followed would come from outside
        for row in within:
            row["isr"] = 1 << row["leader"]
        began = leader | {"time_ns": begin_ns, "log_position": begin_ns, "isr": 1 << leader["leader"]}
        then = max((row for row in truth if row["time_ns"] <= end_ns), key=lambda row: row["time_ns"], default=leader)
        ended = then | {"time_ns": end_ns + 1, "log_position": end_ns + 1, "isr": mask((1, 2, 3))}
        self.facts.metadata += [began, ended]
        return {}

    def elected_from_outside(self) -> Expected | None:
        """In the end a replica leads that was out of sync."""
        if "unclean" in self.done:
            return None
        self.done.add("unclean")
        truth = [row for row in self.facts.metadata if row["source"] == MetadataSource.CONTROLLER_LOG]
        last = max(truth, key=lambda row: row["time_ns"])
        other = last["leader"] % 3 + 1
        out = last | {"time_ns": last["time_ns"] + 20 * NS_PER_S, "isr": 1 << last["leader"]}
        elected = {
            "time_ns": out["time_ns"] + 1,
            "leader": other,
            "leader_epoch": last["leader_epoch"] + 1,
            "isr": 1 << other,
        }
        self.facts.metadata += [out | {"log_position": out["time_ns"]}]
        self.facts.metadata += [out | elected | {"log_position": elected["time_ns"]}]
        return {"unclean": 1}

    # --- disks -----------------------------------------------------------------------------------------------------

    def diverged(self) -> Expected | None:
        """A copy is not what the others are."""
        return {"diverged": 1} if disks.differ(self.facts.disks, self.rng) else None

    def gap(self) -> Expected | None:
        """A producer's sequence numbers leave one out, in every copy."""
        return {"out-of-sequence": 1} if disks.leave_out(self.facts.disks, self.rng) else None

    def forgetful(self) -> Expected | None:
        """A producer snapshot is not what the batches say."""
        return {"snapshot-conflict": 1} if disks.forget(self.facts.disks, self.rng) else None

    # --- where -----------------------------------------------------------------------------------------------------

    def _entries(self, wanted: Callable[[Entry, dict[str, int]], bool], *, recorded: bool = True) -> list[Entry]:
        """Records of our producers outside transactions that stand once in the log, with a row of `sends` if `recorded`."""
        copies = Counter(e.identity for e in self.facts.log)
        nothing = send_row(0, 0, INFO, NONE, 0) | {"completed_ns": MISSING}
        found = []
        for e in self.facts.log:
            send = self.facts.sends.get(e.identity)
            ours = e.client in ACKS and not e.overrides and copies[e.identity] == 1 and e.offset not in self.touched
            plain = send is None or (send["transaction"] == NONE and send["outcome"] != FAIL)
            if ours and e.visible and plain and (send is not None or not recorded) and wanted(e, send or nothing):
                found.append(e)
        return found

    def _entry(self, wanted: Callable[[Entry, dict[str, int]], bool], *, recorded: bool = True) -> Entry | None:
        found = self._entries(wanted, recorded=recorded)
        if not found:
            return None
        entry = self.rng.choice(found)
        self.touched.add(entry.offset)
        return entry

    def _hole(self, *, after: int = -1) -> int | None:
        taken = {e.offset for e in self.facts.log} | self.touched
        holes = [o for o in range(max(after + 1, self.facts.base), self.facts.sentinel) if o not in taken]
        if not holes:
            return None
        hole = self.rng.choice(holes)
        self.touched.add(hole)
        return hole

    def _between(self, low: int, high: int) -> bool:
        return any(low < e.offset < high for e in self.facts.log)

    def _fresh_send(self, offset: int, outcome: int) -> int:
        """A send of PRODUCER_2, which nobody else uses; its sequences rise with the offsets they are for."""
        sequence = offset - self.facts.base
        self.facts.sends[PRODUCER_2, sequence] = send_row(PRODUCER_2, sequence, outcome, NONE, sequence)
        return sequence

    def _insert(self, entry: Entry) -> None:
        """Into the log, and everybody who read across its offset was given it."""
        self.facts.log.append(entry)
        self.facts.log.sort(key=lambda e: e.offset)
        for reader, rows in self.facts.reads.items():
            for i in range(len(rows) - 1, 0, -1):
                if _straddle(rows, i, entry.offset):
                    row = read_row(reader, entry.offset, entry.client, entry.sequence, rows[i]["read_ns"])
                    rows.insert(i, row | {"span": rows[i]["span"]} | entry.overrides)


def _straddle(rows: list[dict[str, int]], i: int, offset: int) -> bool:
    """Were rows i-1 and i read one after the other in one span, and lies the offset between them?"""
    before, after = rows[i - 1], rows[i]
    return before["span"] == after["span"] and before["log_offset"] < offset < after["log_offset"]


KINDS = tuple(name for name in vars(Spoiler) if not name.startswith("_"))
