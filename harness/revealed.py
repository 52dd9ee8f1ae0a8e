"""What acknowledgements and reads reveal of a log that nobody audited: the reads of two clients of the role AUDIT, derived.

At every offset that a consumer was given a record from, or that an acknowledged send was told, one record stands: the one
that was read last, else the one that was acknowledged. Whoever saw another one there is left for `offset-conflict`. Pure.
"""

from collections.abc import Mapping

import numpy as np

from harness.schema import NONE, READS, Isolation, Outcome, ReadFlag

REVEALED = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
"""One client for each: L(p) is what anybody saw, V(p) what read_committed consumers and confirmed commits show."""


def with_revealed(
    sends: Mapping[str, np.ndarray], reads: Mapping[str, np.ndarray], isolation: np.ndarray, *, first_id: int
) -> dict[str, np.ndarray]:
    """The reads of a partition and behind them those of the clients `first_id` (L(p)) and `first_id` + 1 (V(p)).

    `sends`, `reads`: columns of one partition, in the Parquet form. `isolation`: Isolation by client id. O(n log n).
    """
    whole = {name: np.asarray(reads[name]) for name in READS.column_names}
    level = np.full(len(whole["client"]), Isolation.NOT_A_READER)
    known = (whole["client"] >= 0) & (whole["client"] < len(isolation))
    level[known] = isolation[whole["client"][known]]
    given = (whole["log_offset"] != NONE) & ((whole["flags"] & ReadFlag.CORRUPT) == 0)
    committed = level == Isolation.READ_COMMITTED
    parts = [whole]
    for number, of_level in enumerate((given, given & committed)):
        parts.append(_revealed(sends, whole, np.flatnonzero(of_level), client=first_id + number))
    return {name: np.concatenate([part[name] for part in parts]) for name in READS.column_names}


def _revealed(
    sends: Mapping[str, np.ndarray], reads: Mapping[str, np.ndarray], rows: np.ndarray, *, client: int
) -> dict[str, np.ndarray]:
    """Rows of `reads`, ascending by offset, one per offset."""
    told = np.flatnonzero((sends["outcome"] == Outcome.OK) & (sends["log_offset"] != NONE))
    offset = np.concatenate([reads["log_offset"][rows], sends["log_offset"][told]])
    time_ns = np.concatenate([reads["read_ns"][rows], sends["completed_ns"][told]])
    by_read = np.arange(len(offset)) < len(rows)
    order = np.lexsort((time_ns, by_read, offset))
    last = np.append(offset[order][1:] != offset[order][:-1], True)[: len(order)]
    chosen = order[last]
    columns = {
        "read_ns": time_ns,
        "log_offset": offset,
        "sequence": np.concatenate([reads["sequence"][rows], sends["sequence"][told]]),
        "key": np.concatenate([reads["key"][rows], sends["key"][told]]),
        "sender": np.concatenate([reads["sender"][rows], sends["client"][told]]),
        "partition": np.concatenate([reads["partition"][rows], sends["partition"][told]]),
        "sent_partition": np.concatenate([reads["sent_partition"][rows], sends["partition"][told]]),
    }
    found = {name: values[chosen] for name, values in columns.items()}
    for name in READS.column_names:
        fixed = {"client": client, "span": 0, "flags": 0}.get(name, NONE)
        found.setdefault(name, np.full(len(chosen), fixed, dtype=np.asarray(reads[name]).dtype))
    return found
