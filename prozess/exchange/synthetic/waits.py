"""Makes the planted waits of clients, brokers and controllers that get no answer: their rows and their witnesses. They happen
one after the other when all records are written, or belong to the whole cluster."""

from collections.abc import Sequence

import numpy as np

from prozess.exchange.synthetic.cells import (
    ABORT,
    BEFORE_NS,
    CALLBACK_NS,
    COMMIT,
    CONTROLLERS,
    FIRST_NS,
    HEARTBEAT_NS,
    NODES,
    SECOND_NS,
    SHORT_AFTER_NS,
    STALE_APART_NS,
    STALLED_FOR_NS,
    Columns,
    GeneratedCell,
    log_positions,
)
from prozess.exchange.synthetic.log import STEP_NS, VAIN_NS
from prozess.harness.interfaces.witnesses import make_witnesses
from prozess.harness.recording.metrics import MICRO, code_of
from prozess.harness.schema import (
    MISSING,
    NONE,
    RECORDER_CLIENT,
    AdminOperation,
    AdminSetting,
    MetadataKind,
    MetadataSource,
    ObservationKind,
    Outcome,
)

STALE_ANSWERS = 9
"""A controller answers so often, once a second, that it is active, and is replaced after the first time."""
INITIALISE = 0
"""Calls of a transaction coordinator that are planted to hang, in turn: this one, COMMIT and ABORT."""


def hanging_calls(cell: GeneratedCell) -> Columns:
    """Rows of `transactions` of the waiter: its instance, and calls that last for too long, in turn."""
    number, kind, called_ns = _hanging(cell)
    begun_ns = np.where(kind == INITIALISE, called_ns, called_ns - STEP_NS)
    completed_ns, initialised = called_ns + VAIN_NS, kind == INITIALISE
    length = len(kind) + 1
    return {
        "client": np.full(length, cell.waiter),
        "transactional_id": cell.waiter,
        "transaction": np.append(NONE, number),
        "begun_ns": np.append(-2_000_000, begun_ns),
        "end_invoked_ns": np.append(MISSING, np.where(initialised, MISSING, called_ns)),
        "completed_ns": np.append(-1_000_000, completed_ns),
        "initialised_ns": np.append(-1_000_000, np.where(initialised, completed_ns, -1_000_000)),
        "ended_by": np.append(NONE, np.where(initialised, NONE, kind)),
        "outcome": np.append(Outcome.OK, np.where(kind == ABORT, Outcome.FAIL, Outcome.OK)),
    }


def hung(cell: GeneratedCell) -> np.ndarray:
    """Returns the witnesses of `hanging`."""
    number, _, called_ns = _hanging(cell)
    columns: dict[str, np.ndarray | int] = {
        "partition": cell.partitions[0].partition,
        "client": cell.waiter,
        "sequence": number,
    }
    columns["begin_ns"] = called_ns
    return make_witnesses(len(number), columns)


def _hanging(cell: GeneratedCell) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the number of the transaction of each call (NONE: it has none), what was called, and when."""
    turn = np.arange(cell.planted.get("hanging", 0))
    kind = np.array([INITIALISE, COMMIT, ABORT])[turn % 3]
    number = np.where(kind == INITIALISE, NONE, np.cumsum(kind != INITIALISE) - 1)
    return number, kind, cell.waited_ns(turn)


def admin_calls(unanswered: int) -> Columns:
    """Returns the first call of an administrator to each broker, and to the active controller, and those that are planted to
    be answered too late."""
    first, (node, begin_ns) = np.array([*NODES, NONE]), _late_calls(unanswered)
    length = len(first) + unanswered
    return {
        "client": np.full(length, NONE),
        "time_ns": np.append(FIRST_NS + np.arange(len(first)), begin_ns),
        "value": np.append(np.full(len(first), CALLBACK_NS), np.full(unanswered, VAIN_NS)),
        "partition": NONE,
        "kind": ObservationKind.ADMIN_ANSWERED,
        "node": np.append(first, node),
    }


def admin_operations(contradicted: int) -> Columns:
    """Returns what administrators set and found: a value that each call found, and those that the active controller found
    again, as is planted, after another one had been set."""
    turn = np.arange(UNCONTRADICTED + contradicted)
    earlier, contradicts = FIRST_VALUE + 2 * turn, turn >= UNCONTRADICTED
    value = np.stack([earlier, earlier + contradicts, earlier], axis=1)
    begun_ns = turn[:, None] * STEP_NS + np.arange(3) * 2 * ADMIN_NS
    kept = np.stack([turn >= 0, contradicts, turn >= 0], axis=1)
    length = int(kept.sum())
    return {
        "client": np.full(length, NONE),
        "invoked_ns": begun_ns[kept],
        "completed_ns": begun_ns[kept] + ADMIN_NS,
        "value": value[kept],
        "topic": 0,
        "setting": AdminSetting.RETENTION,
        "operation": np.broadcast_to([AdminOperation.SET, AdminOperation.SET, AdminOperation.FOUND], kept.shape)[kept],
        "node": NONE,
        "outcome": Outcome.OK,
    }


FIRST_VALUE = 3_600_000
"""The first value that administrators set."""
UNCONTRADICTED = 6
"""The number of values that are found as they were set."""
ADMIN_NS = STEP_NS // 10
"""How long each of their calls takes."""


def contradictions(cell: GeneratedCell, contradicted: int) -> np.ndarray:
    """Returns the witnesses of `not-linearizable`, which each cell shows."""
    turn = UNCONTRADICTED + np.arange(contradicted)
    columns: dict[str, np.ndarray | int] = {
        "partition": cell.partitions[0].partition,
        "sequence": FIRST_VALUE + 2 * turn,
        "begin_ns": turn * STEP_NS + 3 * ADMIN_NS,
    }
    return make_witnesses(contradicted, columns)


def late_calls(cell: GeneratedCell, unanswered: int) -> np.ndarray:
    """Returns the witnesses of `unanswered`, which each cell shows."""
    node, begin_ns = _late_calls(unanswered)
    columns: dict[str, np.ndarray | int] = {
        "partition": cell.partitions[0].partition,
        "reader": node,
        "begin_ns": begin_ns,
    }
    return make_witnesses(unanswered, columns)


def _late_calls(unanswered: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns whom each call asks, the active controller and a broker in turn, and when."""
    turn = np.arange(unanswered)
    node = np.where(turn % 2 == 0, NONE, np.array(NODES)[turn // 2 % len(NODES)])
    return node, (turn + 1) * STEP_NS


def controllers(two: int, stale: int) -> Columns:
    """Returns who became the active controller: one in epoch 1, two in each epoch that was planted so, and one in each of the
    two epochs that a controller that does not give way takes."""
    epochs = np.concatenate([[1], np.repeat(np.arange(2, two + 2), 2)])
    node = np.concatenate([[CONTROLLERS[0]], np.tile(CONTROLLERS, two)])
    since_ns = FIRST_NS + np.arange(len(node))
    epoch, claimed_ns = _stale(two, stale)
    epochs = np.concatenate([epochs, np.stack([epoch, epoch + 1], axis=1).ravel()])
    since_ns = np.concatenate([since_ns, np.stack([claimed_ns, claimed_ns + SECOND_NS], axis=1).ravel()])
    node = np.concatenate([node, np.tile(CONTROLLERS, stale)])
    return {
        "client": np.full(len(node), NONE),
        "time_ns": since_ns,
        "log_position": log_positions(since_ns),
        "kind": MetadataKind.CONTROLLER,
        "source": MetadataSource.CONTROLLER_LOG,
        "node": node,
        "leader_epoch": epochs,
    }


def stable_offsets(cell: GeneratedCell) -> list[Columns]:
    """Rows of `metrics`: in turn a leader answers twice that its last stable offset is the same, below its high watermark.
    Each time it is a greater one than the last."""
    names, after_ns = ("last_stable_offset", "high_watermark"), np.array([0, 0, STALLED_FOR_NS, STALLED_FOR_NS])
    rows = []
    for partition in cell.partitions:
        turn = np.repeat(np.arange(cell.counts["unstable-offset"][partition.rank]), len(after_ns))
        above = np.arange(len(turn)) % 2  # the high watermark
        columns: Columns = {
            "client": np.full(len(turn), NONE),
            "time_ns": cell.waited_ns(turn) + np.resize(after_ns, len(turn)),
            "value_micro": (turn + above) * MICRO,
            "metric": np.array([code_of(name) for name in names])[above],
            "node": NODES[0],
            "partition": partition.partition,
            "absent": 0,
        }
        rows.append(columns)
    return rows


def quorum_answers(two: int, stale: int) -> Columns:
    """Rows of `metrics`: a controller that does not give way answers that it is active, and at last that another one is."""
    epoch, claimed_ns = _stale(two, stale)
    answer = np.tile(np.arange(STALE_ANSWERS + 1), stale)
    epoch, time_ns = np.repeat(epoch, STALE_ANSWERS + 1), np.repeat(claimed_ns, STALE_ANSWERS + 1) + answer * SECOND_NS
    gave_way = answer == STALE_ANSWERS
    leader = np.where(gave_way, CONTROLLERS[1], CONTROLLERS[0])
    length = 2 * len(answer)
    return {
        "client": np.full(length, NONE),
        "time_ns": np.repeat(time_ns, 2),
        "value_micro": np.stack([leader, epoch + gave_way], axis=1).ravel() * MICRO,
        "metric": np.tile([code_of("quorum_leader"), code_of("quorum_epoch")], len(answer)),
        "node": CONTROLLERS[0],
        "partition": NONE,
        "absent": 0,
    }


def stale_controllers(cell: GeneratedCell, two: int, stale: int) -> np.ndarray:
    """Returns the witnesses of `stale-controller`, which each cell shows."""
    epoch, claimed_ns = _stale(two, stale)
    columns: dict[str, np.ndarray | int] = {
        "partition": cell.partitions[0].partition,
        "reader": CONTROLLERS[0],
        "sequence": epoch,
    }
    return make_witnesses(stale, columns | {"begin_ns": claimed_ns + SECOND_NS})


def _stale(two: int, stale: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns in which epoch a controller does not give way, behind those with two, and when it became active."""
    number = np.arange(stale)
    return two + 2 + 2 * number, number * STALE_APART_NS


def brokers() -> Columns:
    """Rows of `metadata`: each broker registers, and takes part."""
    kinds = np.tile([MetadataKind.BROKER_REGISTERED, MetadataKind.BROKER_UNFENCED], len(NODES))
    time_ns = BEFORE_NS + np.arange(len(kinds))
    return {
        "client": np.full(len(kinds), NONE),
        "time_ns": time_ns,
        "log_position": log_positions(time_ns),
        "kind": kinds,
        "source": MetadataSource.CONTROLLER_LOG,
        "node": np.repeat(NODES, 2),
    }


def own_heartbeats(cells: Sequence[GeneratedCell]) -> Columns:
    """Rows of `heartbeats` of the process that observes."""
    time_ns = np.arange(FIRST_NS, max(cell.audit_ns for cell in cells) + 4 * SHORT_AFTER_NS, HEARTBEAT_NS)
    return {"client": np.full(len(time_ns), RECORDER_CLIENT), "time_ns": time_ns}
