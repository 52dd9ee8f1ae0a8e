"""What is known of each client: what was planned, then what it said itself."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.errors import HistoryUnreadable
from harness.plan import Plan
from harness.recorder import RECORDER_CLIENT
from harness.revealed import REVEALED
from harness.schema import MISSING, NONE, Isolation, Role, role_named

_LEVELS = {
    None: Isolation.NOT_A_READER,
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
    "read_committed": Isolation.READ_COMMITTED,
}
_ACKS = {"0": 0, "1": 1, "all": -1}
_TOLD = frozenset({"producer", "keyed-producer", "errors-producer"})
"""Roles that record a send before they make it, and end once all of them are answered."""
TIMEOUTS_LATE_NS = 2_000_000_000
"""librdkafka looks for what has timed out once a second; and a starved client a little later."""


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """Arrays indexed by client id, as `PartitionHistory` has them."""

    role: np.ndarray
    isolation: np.ndarray
    issued: np.ndarray
    acks: np.ndarray
    clock: np.ndarray
    told_ns: np.ndarray


def client_facts(plan: Plan, table: Mapping[str, np.ndarray]) -> ClientFacts:
    """From the plan and the table `clients`. Not the recorder's own id."""
    told = {name: values[table["client"] < RECORDER_CLIENT] for name, values in table.items()}
    ids = told["client"]
    if (ids < 0).any():
        raise HistoryUnreadable(
            f"table clients names client {int(ids.min())}. Ids are numbers from 0: make the history again."
        )
    size = 1 + max([int(ids.max(initial=-1)), *(planned.client for planned in plan.clients)], default=-1)
    role = np.zeros(size, dtype=np.int32)
    isolation = np.full(size, Isolation.NOT_A_READER, dtype=np.int32)
    issued = np.full(size, NONE, dtype=np.int64)
    acks = np.zeros(size, dtype=np.int32)
    for planned in plan.clients:
        role[planned.client] = role_named(planned.role)
        isolation[planned.client] = _LEVELS[planned.isolation_level]
        if planned.producer is not None:
            acks[planned.client] = _ACKS[planned.producer.acks]
    clock = np.full(size, NONE, dtype=np.int32)
    role[ids], isolation[ids], clock[ids] = told["role"], told["isolation"], told["clock"]
    # A client that took a planned one's place has its configuration.
    restarted = told["planned"] != NONE
    if (odd := (told["planned"] < NONE) | (told["planned"] >= size)).any():
        raise HistoryUnreadable(
            f"table clients says that client {int(ids[odd][0])} has the place of client {int(told['planned'][odd][0])}, and "
            "there is none. Make the history again."
        )
    acks[ids[restarted]] = acks[told["planned"][restarted]]
    # A client that did not close its files may have issued more than it could record: nothing is said of those.
    issued[ids] = np.where(told["complete"] == 1, told["issued"], NONE)
    issued[(role == Role.MEMBER) & ~_sending(plan, told, size)] = 0
    told_ns = _told_ns(plan, told, size)
    if not plan.audited:  # whoever reads L(p) and V(p) out of what others saw
        role = np.append(role, np.full(len(REVEALED), Role.AUDIT, dtype=np.int32))
        isolation = np.append(isolation, np.array(REVEALED, dtype=np.int32))
        issued, acks, clock = (
            np.append(array, np.zeros(len(REVEALED), array.dtype)) for array in (issued, acks, clock)
        )
    for array in (role, isolation, issued, acks, clock, told_ns):
        array.setflags(write=False)
    return ClientFacts(role, isolation, issued, acks, clock, told_ns)


def _sending(plan: Plan, told: Mapping[str, np.ndarray], size: int) -> np.ndarray:
    """bool[size]: may this client send records? A member does with a retry topic only."""
    sending = np.zeros(size, dtype=bool)
    sending[[c.client for c in plan.clients if c.producer is not None]] = True
    restarted = told["planned"] != NONE
    sending[told["client"][restarted]] = sending[told["planned"][restarted]]
    return sending


def _told_ns(plan: Plan, told: Mapping[str, np.ndarray], size: int) -> np.ndarray:
    """int64[size], as `PartitionHistory.client_told_ns`. Only a client that ended in order, by itself, heard all there was to
    hear: until the last delivery timeout before its end."""
    told_ns = np.full(size, MISSING, dtype=np.int64)
    timeout_ms = {c.client: c.producer.delivery_timeout_ms for c in plan.clients if c.role in _TOLD and c.producer}
    for client, planned, ended_ns, code, complete in zip(
        *(told[name].tolist() for name in ("client", "planned", "ended_ns", "exit_code", "complete")), strict=True
    ):
        if planned in timeout_ms and complete == 1 and code == 0 and ended_ns != MISSING:
            told_ns[client] = ended_ns - timeout_ms[planned] * 1_000_000 - TIMEOUTS_LATE_NS
    return told_ns
