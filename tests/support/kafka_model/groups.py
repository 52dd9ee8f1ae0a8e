"""A small model of a consumer group on one partition that writes valid histories; what spoils them. One seed, one history.

Members come one after the other: each is assigned the partition, begins at the committed offset (or where a reset leads),
processes batches and commits after them. Commits are accepted, refused, or never answered, and then took effect or not.
Members release the partition, close, die in the middle of a batch, or are frozen past their session and learn late that they
have lost it; living ones may be given it again, in a new span. Some seek.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from prozess.harness.config.configuration import GroupConfiguration, ProducerConfiguration, TopicConfiguration
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import GroupCase
from prozess.harness.plan.cell_work import GroupSession, GroupWork
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import MISSING, NONE, Isolation, ObservationKind, Role
from tests.support.cells.partitions import FAIL, INFO, OK, PARTITION, PRODUCER, history, read_row, table

MEMBERS = (6, 7, 8, 9)
INTRUDER = 10
"""Lives all the time and owns nothing, until somebody spoils the history."""
OTHER_PARTITION = PARTITION + 1
"""Of a group that starves its members: a partition without records, which the intruder has all the time."""
ASSIGN, REVOKE, LOST, CLOSE = 1, 2, 3, 4
SECOND = 1_000_000_000
SESSION_S = 6
UNSETTLED_S = 60
"""Longer than this group may take to settle."""
CELL = Cell(
    cell=0,
    name="cell",
    workload="group",
    topic_name="cell-000",
    axes={},
    topic=TopicConfiguration(),
    producer=ProducerConfiguration(),
    work=GroupWork(
        configuration=GroupConfiguration(
            commit="sync-after", session_timeout_ms=SESSION_S * 1000, isolation_level="read_uncommitted"
        ),
        session=GroupSession(timeout_ms=SESSION_S * 1000, heartbeat_ms=SESSION_S * 250),
    ),
    partitions=(PARTITION,),
)
Row = dict[str, int]


class Group:
    """The group while it lives."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.now_ns = rng, SECOND
        offset, self.log = rng.choice((0, 7, 10**12)), []
        for _ in range(rng.randrange(3, 40)):
            self.log.append(offset)
            offset += rng.choice((1, 1, 1, 2, 5))
        self.committed: int | None = None
        self.tables: dict[str, list[Row]] = {
            name: [] for name in ("processed", "commits", "assignments", "positions", "observations")
        }
        self.reads: list[Row] = []
        self.spans = dict.fromkeys(MEMBERS, -1)
        self.dead: dict[int, int] = {}
        self.frozen: dict[int, list[tuple[int, int]]] = {member: [] for member in (*MEMBERS, INTRUDER)}
        self.busy: set[int] = set()
        """Frozen right now."""
        for member in (*MEMBERS, INTRUDER):  # who joins is informed, even if there is nothing for it
            first = {"client": member, "event": ASSIGN, "started_ns": SECOND // 2, "done_ns": SECOND // 2 + 1}
            self.tables["assignments"].append({"partition": NONE, **first})
        self.done: set[str] = set()
        """What can be planted once only."""
        self.cell = CELL

    # --- one member's turn -----------------------------------------------------------------------------------------

    def turn(self, member: int, *, last: bool = False) -> None:
        """From assignment to giving up."""
        self._note("assignments", client=member, event=ASSIGN, started_ns=self.now_ns, done_ns=self._tick())
        position = self.log[0] if self.committed is None else self.committed
        self._begin_span(member, position, event=3 if self.committed is None else 1)
        for _ in range(99 if last else self.rng.randrange(4)):
            batch = [offset for offset in self.log if offset >= position][: self.rng.randrange(1, 6)]
            if not batch:
                break
            if not last and self.rng.random() < 0.12:
                return self._die(member, batch)
            if not last and self.rng.random() < 0.08:
                return self._freeze(member, batch)
            self._process(member, batch, finished=len(batch))
            position = batch[-1] + 1
            if last or self.rng.random() < 0.7:
                self._commit(member, position, surely=last)
            if not last and self.rng.random() < 0.1:
                position = self.rng.choice([offset for offset in self.log if offset <= position])
                self._begin_span(member, position, event=2)
        event = CLOSE if last else REVOKE
        self._note("assignments", client=member, event=event, started_ns=self._tick(), done_ns=self._tick())

    def _begin_span(self, member: int, position: int, *, event: int) -> None:
        self.spans[member] += 1
        where = {"log_offset": position, "event": event, "span": self.spans[member]}
        self._note("positions", client=member, time_ns=self._tick(), **where)

    def _process(self, member: int, batch: Sequence[int], *, finished: int) -> None:
        now_ns = self._tick()
        for number, offset in enumerate(batch):
            row = read_row(member, offset, PRODUCER, self.log.index(offset), now_ns)
            self.reads.append(row | {"span": self.spans[member]})
            if number > finished:
                continue
            started_ns = self._tick()
            done_ns = self._tick() if number < finished else MISSING
            same = {"sender": PRODUCER, "sequence": self.log.index(offset), "span": self.spans[member]}
            self._note("processed", client=member, log_offset=offset, started_ns=started_ns, done_ns=done_ns, **same)

    def _commit(self, member: int, position: int, *, surely: bool) -> None:
        how = "ok" if surely else self.rng.choice(("ok", "ok", "ok", "refused", "written", "vanished"))
        invoked_ns, completed_ns = self._tick(), MISSING
        if how in ("ok", "refused"):
            completed_ns = self._tick()
        if how in ("ok", "written"):
            self.committed = position
        outcome = {"ok": OK, "refused": FAIL}.get(how, INFO)
        times = {"invoked_ns": invoked_ns, "completed_ns": completed_ns}
        self._note("commits", client=member, log_offset=position, position=position, outcome=outcome, mode=1, **times)

    def _die(self, member: int, batch: Sequence[int]) -> None:
        self._process(member, batch, finished=self.rng.randrange(len(batch)))
        self.dead[member] = self.now_ns
        self.now_ns += (SESSION_S + 1) * SECOND

    def _freeze(self, member: int, batch: Sequence[int]) -> None:
        """Another is given the partition meanwhile; it learns that it lost it only when it thaws."""
        self._process(member, batch, finished=len(batch))
        began_ns = self.now_ns
        self.now_ns += (SESSION_S + 2) * SECOND
        self.busy.add(member)
        others = [other for other in MEMBERS if other not in self.busy and other not in self.dead]
        if len(others) > 1:
            self.turn(self.rng.choice(others))
        self.busy.remove(member)
        self.frozen[member].append((began_ns, self.now_ns))
        self._note("assignments", client=member, event=LOST, started_ns=self._tick(), done_ns=self._tick())

    def look_up(self) -> None:
        """Somebody asks for the committed offset."""
        value = NONE if self.committed is None else self.committed
        kind = int(ObservationKind.COMMITTED)
        self._note("observations", client=INTRUDER, kind=kind, value=value, time_ns=self._tick())

    def finish(self) -> "Group":
        """The last member drains the partition and closes."""
        alive = [member for member in MEMBERS if member not in self.dead]
        kind = int(ObservationKind.DRAIN_BEGUN)
        self._note("observations", client=alive[0], kind=kind, value=1000, time_ns=self._tick())
        self.turn(alive[0], last=True)
        self.look_up()
        return self

    def _tick(self) -> int:
        self.now_ns += SECOND // 100
        return self.now_ns

    def _note(self, table: str, **values: int) -> None:
        self.tables[table].append({"partition": PARTITION, **values})

    # --- as arrays -------------------------------------------------------------------------------------------------

    def history(self) -> CellHistory:
        """The arrays."""
        everybody = (*MEMBERS, INTRUDER)
        clients = [
            {
                "client": member,
                "role": int(Role.MEMBER),
                "started_ns": 0,
                "complete": int(member not in self.dead),
                "ended_ns": MISSING if member in self.dead else self.now_ns + SECOND,
            }
            for member in everybody
        ]
        every = range(0, self.now_ns + SECOND, SECOND // 2)
        beats = [{"client": m, "time_ns": t} for m in everybody for t in every if self._beats(m, t)]
        tables = {**self.tables, "clients": clients, "heartbeats": beats, "transactions": []}
        log = [(offset, PRODUCER, number) for number, offset in enumerate(self.log)]
        sends = [(PRODUCER, number, OK, offset) for number, offset in enumerate(self.log)]
        made = history(sends=sends, log=log, sentinel=self.log[-1] + 9)
        role, level = made.client_role.copy(), made.client_isolation.copy()
        role[list(everybody)], level[list(everybody)] = Role.MEMBER, Isolation.READ_UNCOMMITTED
        of_members = sorted(self.reads, key=lambda row: row["client"])
        reads = {
            name: np.concatenate([np.array([row[name] for row in of_members], dtype=values.dtype), values])
            for name, values in made.reads.items()
        }
        observations = table("observations", self.tables["observations"])
        partition = replace(made, reads=reads, client_role=role, client_isolation=level, observations=observations)
        empty = replace(history(sends=[], log=[], sentinel=0), partition=OTHER_PARTITION)
        return CellHistory(
            cell=self.cell,
            partitions={number: (partition, empty)[number - PARTITION] for number in self.cell.partitions},
            tables={name: table(name, rows) for name, rows in tables.items()} | {"asked": table("observations", ())},
            clients=(),
        )

    def _beats(self, member: int, time_ns: int) -> bool:
        frozen = any(begin_ns < time_ns < end_ns for begin_ns, end_ns in self.frozen[member])
        return time_ns <= self.dead.get(member, time_ns) and not frozen


def drawn_group(seed: int) -> Group:
    """A valid history."""
    rng = random.Random(seed)
    group = Group(rng)
    for _ in range(rng.randrange(1, 8)):
        alive = [member for member in MEMBERS if member not in group.dead]
        if len(alive) > 1:
            group.turn(rng.choice(alive[:-1]))
        if rng.random() < 0.5:
            group.look_up()
    return group.finish()


EXCUSED = {
    "reprocessed": {int(c) for c in GroupCase} - {int(GroupCase.NO_CAUSE), int(GroupCase.COVERED)},
    "commit-regression": {int(GroupCase.SOUGHT)},
}
"""Cases that valid histories show: what was not yet committed is processed again, who seeks commits less."""


# --- what spoils them -----------------------------------------------------------------------------------------------


def unprocessed(group: Group) -> dict[str, int] | None:
    """A record was committed past, and its only processing never happened."""
    finished = [row for row in group.tables["processed"] if row["done_ns"] != MISSING]
    once = [row for row in finished if sum(other["log_offset"] == row["log_offset"] for other in finished) == 1]
    if not once:
        return None
    group.tables["processed"].remove(group.rng.choice(once))
    return {"unprocessed": 1}


def mistaken(group: Group) -> dict[str, int] | None:
    """A step names another record than the log has at its offset."""
    finished = [row for row in group.tables["processed"] if row["done_ns"] != MISSING]
    once = [row for row in finished if sum(other["log_offset"] == row["log_offset"] for other in finished) == 1]
    if not once:
        return None
    group.rng.choice(once)["sequence"] += 1_000_000
    return {"unprocessed": 1}


def reprocessed(group: Group) -> dict[str, int] | None:
    """A member processed a record twice in a row."""
    finished = [row for row in group.tables["processed"] if row["done_ns"] != MISSING]
    once = [row for row in finished if sum(other["log_offset"] == row["log_offset"] for other in finished) == 1]
    sought = {(row["client"], row["span"]) for row in group.tables["positions"] if row["event"] == 2}
    once = [row for row in once if (row["client"], row["span"]) not in sought]
    if not once:
        return None
    row = group.rng.choice(once)
    group.tables["processed"].append(row | {"started_ns": row["done_ns"] + 1, "done_ns": row["done_ns"] + 2})
    return {"reprocessed": 1}


def commit_regression(group: Group) -> dict[str, int] | None:
    """A commit was accepted although a greater one had been acknowledged."""
    sought_ns = min((row["time_ns"] for row in group.tables["positions"] if row["event"] == 2), default=MISSING)
    accepted = [row for row in group.tables["commits"] if row["outcome"] == OK]
    if sought_ns != MISSING:  # later ones may be explained by what was committed after the seek
        accepted = [row for row in accepted if row["completed_ns"] < sought_ns]
    # One that was given up may be written later, and explain it.
    given_up = [row for row in group.tables["commits"] if row["completed_ns"] == MISSING]
    accepted = [
        row for row in accepted
        if not any(o["invoked_ns"] < row["completed_ns"] and o["log_offset"] < row["log_offset"] for o in given_up)
    ]  # fmt: skip
    if not accepted:
        return None
    row = group.rng.choice(accepted)
    lower = {"log_offset": row["log_offset"] - 1, "position": row["log_offset"] - 1}
    times = {"invoked_ns": row["completed_ns"] + 1, "completed_ns": row["completed_ns"] + 2}
    group.tables["commits"].append(row | lower | times)
    return {"commit-regression": 1}


def commit_ahead(group: Group) -> dict[str, int] | None:
    """A member committed more than it had read."""
    tried = [row for row in group.tables["commits"] if row["outcome"] != FAIL]
    if not tried:
        return None
    group.rng.choice(tried)["position"] -= 1
    return {"commit-ahead": 1}


def two_owners(group: Group) -> dict[str, int] | None:
    """A second member was assigned the partition while the last one owned it."""
    assigned = [row for row in group.tables["assignments"] if row["event"] == ASSIGN]
    if group.frozen[assigned[-1]["client"]]:
        return None  # what one owned soon after it thawed, it may have lost without knowing
    begun_ns = assigned[-1]["done_ns"]
    same = {"partition": PARTITION, "client": INTRUDER}
    group.tables["assignments"] += [
        {**same, "event": ASSIGN, "started_ns": begun_ns + 1, "done_ns": begun_ns + 2},
        {**same, "event": REVOKE, "started_ns": begun_ns + 1000, "done_ns": begun_ns + 1001},
    ]
    return {"two-owners": 1}


def orphaned(group: Group) -> dict[str, int] | None:
    """While the members drained the last owner lost the partition, or never was assigned it, and nobody had it then."""
    assignments = group.tables["assignments"]
    last = next(row for row in reversed(assignments) if row["event"] == ASSIGN and row["client"] != INTRUDER)
    closed = next(row for row in reversed(assignments) if row["event"] == CLOSE)
    if "orphaned" in group.done:
        return None
    group.done.add("orphaned")
    if group.rng.random() < 0.5:
        assignments.remove(last)
    else:
        taken_ns = closed["started_ns"] - 3
        assignments.append(last | {"event": LOST, "started_ns": taken_ns, "done_ns": taken_ns + 1})
    return {"orphaned": 1}


def unstable(group: Group) -> dict[str, int] | None:
    """Long after the last member has closed, one that lives and asks for it is given the partition."""
    if "unstable" in group.done:
        return None
    group.done.add("unstable")
    group.now_ns += UNSETTLED_S * SECOND
    times = {"started_ns": group.now_ns, "done_ns": group.now_ns + 1}
    group.tables["assignments"] += [
        {"partition": PARTITION, "client": INTRUDER, "event": ASSIGN, **times},
        {"partition": PARTITION, "client": INTRUDER, "event": CLOSE} | {name: t + 2 for name, t in times.items()},
    ]
    return {"unstable": 1}


def starved(group: Group) -> dict[str, int] | None:
    """When the last owner has closed, one that has another partition is given this one, too, and for long none of the others
    that live gets one. It is looked at twice."""
    closed = {row["client"] for row in group.tables["assignments"] if row["event"] == CLOSE}
    without = [member for member in MEMBERS if member not in group.dead and member not in closed]
    if "unstable" in group.done or not without:
        return None
    group.cell = CELL.model_copy(update={"partitions": (PARTITION, OTHER_PARTITION)})
    observations = group.tables["observations"]
    (drained,) = (row for row in observations if row["kind"] == ObservationKind.DRAIN_BEGUN)
    observations.append(drained | {"partition": OTHER_PARTITION})
    begun_ns = {OTHER_PARTITION: SECOND // 2, PARTITION: group.now_ns}
    group.now_ns += UNSETTLED_S * SECOND
    for partition, time_ns in begun_ns.items():
        same = {"partition": partition, "client": INTRUDER}
        group.tables["assignments"] += [
            {**same, "event": ASSIGN, "started_ns": time_ns + 1, "done_ns": time_ns + 2},
            {**same, "event": CLOSE, "started_ns": group.now_ns, "done_ns": group.now_ns + 1},
        ]
    return {"starved": 2 * len(without)}


SPOILERS: dict[str, Callable[[Group], dict[str, int] | None]] = {
    "unprocessed": unprocessed,
    "mistaken": mistaken,
    "reprocessed": reprocessed,
    "commit-regression": commit_regression,
    "commit-ahead": commit_ahead,
    "two-owners": two_owners,
    "orphaned": orphaned,
    "unstable": unstable,
    "starved": starved,
}
