"""A cell with a delivery bound of 2 s, by hand: who sent and was given what, and who lived when. Times in seconds."""

import numpy as np

from prozess.checkers.reading.lateness import late
from prozess.harness.config.configuration import DeliveryBound
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import LateCase
from prozess.harness.plan.cell_work import PLAIN
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.schema import MISSING, NONE, Role
from tests.support.cells.evidence import ns
from tests.support.cells.partitions import OK, PARTITION, PRODUCER, READER, READER_COMMITTED, history, table
from tests.support.cells.transactions import CELL

BOUND = DeliveryBound(latency_s=2, window_s=1, recovery_s=5)
TRANSACTIONAL = CELL.model_copy(update={"partitions": (PARTITION,), "delivery_bound": BOUND})
LOG = TRANSACTIONAL.model_copy(update={"workload": "log", "work": PLAIN})
END_S = 100.0


def sent(*times: float | tuple[float, int], client=PRODUCER) -> list[tuple]:
    """Sends of one producer at these times, acknowledged 10 ms later at the next offset, or with another outcome."""
    rows = []
    for n, at in enumerate(times):
        at, outcome = at if isinstance(at, tuple) else (at, OK)
        when = {"invoked_ns": ns(at), "completed_ns": ns(at + 0.01)}
        rows.append((client, n, outcome, n if outcome == OK else NONE, when))
    return rows


def read(*times: tuple[int, float], reader=READER, client=PRODUCER) -> list[tuple]:
    """Records, each with when this reader was given it."""
    return [(reader, n, client, n, {"read_ns": ns(at)}) for n, at in times]


def lives(client, begin_s=-5.0, end_s=END_S, *, planned=None, killed=False, beats=None):
    """The row of a client, and its heartbeats."""
    told = {"client": client, "planned": client if planned is None else planned, "started_ns": ns(begin_s)}
    told |= {
        "ended_ns": MISSING if killed else ns(end_s),
        "complete": int(not killed),
        "exit_code": NONE if killed else 0,
    }
    hearts = np.arange(begin_s, end_s, 0.4) if beats is None else beats  # seldom, so that Spark can be shown many
    return told, [{"client": client, "time_ns": ns(t)} for t in hearts]


def cell(sends, reads, *, lived=None, kind=LOG, roles=None, positions=(), **more) -> CellHistory:
    """A cell of one partition. `roles`: planned client → role."""
    lived = [lives(PRODUCER), lives(READER)] if lived is None else lived
    made = history(sends, [(n, row[0], row[1]) for n, row in enumerate(sends)], reads, **more)
    roles = {READER: "reader"} if roles is None else roles
    members = {client for client, role in roles.items() if role == "member"}
    tables = {
        "clients": table(
            "clients", [told | ({"role": Role.MEMBER} if told["planned"] in members else {}) for told, _ in lived]
        ),
        "heartbeats": table("heartbeats", [beat for _, hearts in lived for beat in hearts]),
        "positions": table("positions", positions),
    }
    levels = {READER_COMMITTED: "read_committed"}
    clients = [
        PlannedClient(
            client=client,
            role=role,
            name=f"{role}-{client}",
            partitions=(PARTITION,),
            cell=0,
            isolation_level=levels.get(client, "read_uncommitted"),
        )
        for client, role in roles.items()
    ]
    return CellHistory(cell=kind, partitions={PARTITION: made}, tables=tables, clients=clients)


def found(history):
    """(sequence, case) of each witness, with what else must hold of them."""
    result = late(history)
    assert result.count == len(result.witnesses)
    assert result.count == int(result.windows["late"].sum() + result.windows["missing"].sum())
    return [(int(w["sequence"]), LateCase(int(w["case"]))) for w in result.witnesses]


def windows(history):
    """Second → (sent, acknowledged, delivered, late, missing)."""
    rows = late(history).windows
    names = ("sent", "acknowledged", "delivered", "late", "missing")
    return {int(row["number"]): tuple(int(row[name]) for name in names) for row in rows}
