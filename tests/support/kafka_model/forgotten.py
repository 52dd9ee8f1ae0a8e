"""Acknowledgements that name no offset, as those of idempotent producers whose batch had been appended before, and a log that
begins late: what makes a record's offset unknown, and its absence from the log no proof."""

import random
from dataclasses import replace

import numpy as np

from prozess.harness.columns import of_clients
from prozess.harness.interfaces.checking import PartitionHistory
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import NONE, Isolation, Outcome, Role
from tests.support.kafka_model.partition import READERS


def forgotten(one: PartitionHistory, rng: random.Random, *, lose: bool) -> PartitionHistory:
    """The same, in which some acknowledgements name no offset, and what stands below some offset was deleted, mostly after a
    consumer had received it. If `lose` is set, some records are acknowledged that never stood anywhere."""
    one = dense(one, epoch=rng.choice((NONE, 0, 4))) if rng.random() < 0.8 else one
    sends = {name: values.copy() for name, values in one.sends.items()}
    role = of_clients(one.client_role, one.reads["client"], unknown=NONE)
    audit = np.flatnonzero((role == Role.AUDIT.value) & (one.reads["sender"] != SENTINEL_CLIENT))
    own = sends["client"] != SENTINEL_CLIENT
    acknowledged = np.flatnonzero(own & (sends["outcome"] == Outcome.OK.value) & (sends["transaction"] == NONE))
    sends["log_offset"][rng.sample(acknowledged.tolist(), min(len(acknowledged), rng.randrange(4)))] = NONE
    if lose:
        nowhere = own & (sends["outcome"] != Outcome.OK.value) & (sends["transaction"] == NONE)
        for row in rng.sample(np.flatnonzero(nowhere).tolist(), min(int(nowhere.sum()), rng.randrange(4))):
            sends["outcome"][row], sends["code"][row], sends["log_offset"][row] = Outcome.OK, 0, NONE
            sends["completed_ns"][row] = sends["invoked_ns"][row] + rng.randrange(1, 100)
    level = of_clients(one.client_isolation, one.reads["client"], unknown=NONE)
    of_log = audit[level[audit] == Isolation.READ_UNCOMMITTED.value]
    again = of_log if rng.random() < 0.8 else of_log[rng.randrange(3) :]
    again = again[: rng.randrange(len(again) + 1)] if rng.random() < 0.3 else again
    more = {name: values[again].copy() for name, values in one.reads.items()}
    more["client"][:], more["span"][:] = rng.choice(READERS), 3000
    offsets = one.reads["log_offset"][of_log]
    log_start = int(rng.choice(offsets.tolist())) if len(offsets) and rng.random() < 0.7 else one.log_start
    kept = np.ones(len(role), dtype=bool)
    kept[audit] = one.reads["log_offset"][audit] >= log_start
    both = {name: np.concatenate([values[kept], more[name]]) for name, values in one.reads.items()}
    order = np.argsort(both["client"], kind="stable")
    reads = {name: values[order] for name, values in both.items()}
    return replace(one, sends=sends, reads=reads, log_start=max(log_start, one.log_start))


def dense(one: PartitionHistory, *, epoch: int) -> PartitionHistory:
    """The same from offset 0 on and without gaps, all of it of one leader's epoch."""
    known = [values[values >= 0] for values in (one.sends["log_offset"], one.reads["log_offset"])]
    offsets = np.unique(np.concatenate([*known, np.array(list(one.audit_end.values()), dtype=np.int64)]))

    def moved(values: np.ndarray) -> np.ndarray:
        return np.where(values >= 0, np.searchsorted(offsets, values), values).astype(np.int64)

    reads = {**one.reads, "log_offset": moved(one.reads["log_offset"])}
    reads["leader_epoch"] = np.full_like(one.reads["leader_epoch"], epoch)
    return replace(
        one,
        sends={**one.sends, "log_offset": moved(one.sends["log_offset"])},
        reads=reads,
        audit_end={level: int(np.searchsorted(offsets, end)) for level, end in one.audit_end.items()},
        log_start=int(np.searchsorted(offsets, one.log_start)),
    )
