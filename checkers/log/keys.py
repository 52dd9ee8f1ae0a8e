"""This kernel checks that the records of one key go to one partition, where producers leave the choice to their library."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prozess.checkers.log.leadership import made_at_ns
from prozess.checkers.lookup import differs_from_previous, distinct
from prozess.harness.checking.checker import CellShare, Look
from prozess.harness.clock import NS_PER_S
from prozess.harness.columns import once
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, KeyCase, make_witnesses
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, Outcome

Columns = Mapping[str, np.ndarray]
FACTS = "keys"
EMPTY_KEY = 0
"""The id of the empty key (its crc32). Partitioners take it for a key or for none, as they like."""
_USED = ("client", "sequence", "key", "partition", "invoked_ns", "completed_ns", "log_offset")
_AGES = ("metadata.max.age.ms", "topic.metadata.refresh.interval.ms")
_DEFAULT_AGE_NS = 300 * NS_PER_S
"""How long a producer goes on with the partitions that it knows. [Kafka documentation, metadata.max.age.ms; librdkafka
CONFIGURATION, topic.metadata.refresh.interval.ms]"""


def split_key(history: CellHistory) -> KernelResult:
    """A producer sends all records of one key to one partition, as long as the topic has as many partitions.

    Source: Kafka documentation, producer, partitioner.class ("choose a partition based on a hash of the key"); librdkafka
    CONFIGURATION, partitioner. Judged are acknowledged records that have a key, for whose partition the library answers.
    Two records of one key that follow one another, by sequence in one producer and by acknowledgement in several, are in one
    partition.

    Example: one producer sends key k to partitions 1 1 3 1, and a partition was added between the second and the third. 1 → 3
    is a witness (ADDED), since it may learn of a new number once. 3 → 1 is another one (ONE_PRODUCER), and no new number
    explains it. If two producers send k to 1 and to 2, one after the other, that is TWO_PRODUCERS. Within the age of metadata
    after an addition the second may not have heard of it: ADDED. Witness: `client` sent `sequence` to `partition` at
    `begin_ns`, and `other_client` the record before it, `other_sequence`, at `other_ns`. O(n log n) for keys in two
    partitions, O(n) for the others.
    """
    sends, judged = history.known[FACTS] if FACTS in history.known else _known_here(history)
    added_ns, certain = _added(history)
    found = [
        _switches(sends, _in_order(sends, "client", "key", "sequence"), of_one=True),
        _switches(sends, _in_order(sends, "key", "completed_ns", "invoked_ns", "client", "sequence"), of_one=False),
    ]
    rows, before, case = (np.concatenate(parts) for parts in zip(*(part[:3] for part in found), strict=True))
    turn = np.concatenate([part[3] for part in found])
    if added_ns is not None:
        later = sends["completed_ns"][rows] >= added_ns
        one = case == KeyCase.ONE_PRODUCER
        explained = later & np.where(one, turn == 0, sends["invoked_ns"][rows] <= added_ns + _age_ns(history))
        case = np.where(explained, int(KeyCase.ADDED if certain else KeyCase.PERHAPS_ADDED), case)
    order = np.argsort(sends["invoked_ns"][rows], kind="stable")[:WITNESSES_MAX]
    shown, earlier = rows[order], before[order]
    columns: dict[str, np.ndarray | int] = {
        **{name: sends[name][shown] for name in ("client", "sequence", "partition", "log_offset")},
        "begin_ns": sends["invoked_ns"][shown],
        "end_ns": sends["completed_ns"][shown],
        "other_client": sends["client"][earlier],
        "other_sequence": sends["sequence"][earlier],
        "other_offset": sends["log_offset"][earlier],
        "other_ns": sends["invoked_ns"][earlier],
        "case": case[order],
    }
    return KernelResult(make_witnesses(len(shown), columns), count=len(rows), judged=judged)


def _in_order(sends: Columns, *by: str) -> np.ndarray:
    return np.lexsort([sends[name] for name in reversed(by)])


def _switches(
    sends: Columns, order: np.ndarray, *, of_one: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the rows whose key was in another partition just before, the rows before them, the case, and how many
    switches of the same producer and key came before.

    Example: sorted by producer and key, the partitions 1 1 3 | 2 2 have one switch: the third row."""
    key, partition, client = sends["key"][order], sends["partition"][order], sends["client"][order]
    same = (key[1:] == key[:-1]) & ((client[1:] == client[:-1]) == of_one)
    at = 1 + np.flatnonzero(same & (partition[1:] != partition[:-1]))
    # Switches of one producer and key stand together: a turn is counted from the first of them.
    first = differs_from_previous(key[at]) | differs_from_previous(client[at])
    numbers = np.arange(len(at))
    turn = numbers - np.maximum.accumulate(np.where(first, numbers, 0))
    case = KeyCase.ONE_PRODUCER if of_one else KeyCase.TWO_PRODUCERS
    return order[at], order[at - 1], np.full(len(at), int(case)), turn


def _added(history: CellHistory) -> tuple[int | None, bool]:
    """Returns when partitions were added to the topic, as early as that may have been, and whether the controllers' log
    says so. None: none were."""
    late = history.cell.late_partitions
    if not late:
        return None, True
    here = [history.partitions[number] for number in late if number in history.partitions]
    made = [(made_at_ns(partition.metadata), partition.metadata_error_ns) for partition in here]
    times = [made_ns - error_ns for made_ns, error_ns in made if made_ns is not None]
    return (min(times), True) if times else (MISSING, False)


def _age_ns(history: CellHistory) -> int:
    """Returns how long the producers of a cell may not hear of new partitions."""
    ages = [
        int(producer.properties[name]) * (NS_PER_S // 1000)
        for client in history.clients
        if (producer := client.producer) is not None
        for name in _AGES
        if producer.properties.get(name, "").isdigit()
    ]
    return max(ages, default=_DEFAULT_AGE_NS)


# What is known of all partitions of a cell: first which keys are in two of them, then the records of these.


def gather(
    cells: Mapping[int, Sequence[CellShare]], each: Callable[[Sequence[Look]], Sequence[Any]], anomalies: Sequence[str]
) -> Mapping[int, tuple[Columns, int]]:
    """Returns the acknowledged records of keys that are in two partitions, and how many had a key, by two looks at each
    share of a cell. The result does not depend on `anomalies`."""
    looks = [share.look(cell, FACTS, "keys", ()) for cell, shares in cells.items() for share in shares]
    surveys: dict[int, list[tuple[int, np.ndarray, int]]] = {cell: [] for cell in cells}
    for one, (keys, count) in zip(looks, each(looks), strict=True):
        surveys[one.cell].append((one.partition, keys, count))
    split = {cell: _in_two_partitions(parts) for cell, parts in surveys.items()}
    looks = [
        share.look(cell, FACTS, "records", (split[cell],))
        for cell, shares in cells.items()
        if len(split[cell])
        for share in shares
    ]
    records: dict[int, list[Columns]] = {cell: [] for cell in cells}
    for one, columns in zip(looks, each(looks) if looks else (), strict=True):
        records[one.cell].append(columns)
    return {cell: (_joined(records[cell]), sum(count for _, _, count in parts)) for cell, parts in surveys.items()}


def look(history: CellHistory, stage: str, *arguments: np.ndarray) -> tuple[np.ndarray, int] | Columns:
    """Looks at the one partition that this cell has here, or at a part of it."""
    ((number, partition),) = history.partitions.items()
    rows = _keyed(partition)
    key = partition.sends["key"][rows]
    if stage == "keys":
        return distinct(key), len(rows)
    (wanted,) = arguments
    return _columns(number, partition, rows[np.isin(key, wanted)])


def _known_here(history: CellHistory) -> tuple[Columns, int]:
    """Returns the same of a cell that is here whole."""

    def each(looks: Sequence[Look]) -> list[tuple[np.ndarray, int] | Columns]:
        alone = (replace(history, partitions={one.partition: history.partitions[one.partition]}) for one in looks)
        return [look(here, one.stage, *one.arguments) for here, one in zip(alone, looks, strict=True)]

    cell = history.cell.cell
    return gather({cell: [CellShare(number, rows=0) for number in history.partitions]}, each, ())[cell]


def _keyed(partition: PartitionHistory) -> np.ndarray:
    """Returns the rows of acknowledged records with a key. Those of the sentinel go to every partition by its number."""

    def keyed() -> np.ndarray:
        sends = partition.sends
        chosen = (sends["key"] > EMPTY_KEY) & (sends["client"] != SENTINEL_CLIENT)
        return np.flatnonzero(chosen & (sends["outcome"] == Outcome.OK.value))

    return once(partition.sends, "keyed", keyed)


def _in_two_partitions(surveys: Sequence[tuple[int, np.ndarray, int]]) -> np.ndarray:
    """Returns the keys that are in two partitions. One partition may have several shares."""
    by_partition: dict[int, list[np.ndarray]] = {}
    for number, keys, _ in surveys:
        by_partition.setdefault(number, []).append(keys)
    every = [distinct(np.concatenate(parts)) for parts in by_partition.values()]
    keys, count = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *every]), return_counts=True)
    return keys[count > 1]


def _columns(number: int, partition: PartitionHistory, rows: np.ndarray) -> Columns:
    columns = {name: partition.sends[name][rows] for name in _USED if name != "partition"}
    return columns | {"partition": np.full(len(rows), number, dtype=np.int64)}


def _joined(parts: Sequence[Columns]) -> Columns:
    nothing = np.empty(0, dtype=np.int64)
    return {name: np.concatenate([nothing, *(part[name] for part in parts)]) for name in _USED}
