"""What `__consumer_offsets` states of one consumer group: what the rules of the KIPs look at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prozess.harness.columns import once
from prozess.harness.interfaces.witnesses import GroupStateCase
from prozess.harness.schema import NONE, GroupRecord

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class GroupRule:
    """A rule that the records of one group must keep."""

    case: GroupStateCase
    source: str
    """The KIP or the part of Kafka with the words that say it."""
    broken: Callable[[Columns], tuple[NDArray[np.int64], NDArray[np.int64]]]
    """Returns the rows that break it, ascending, and of each the row that it contradicts, or itself."""


def rows_of_kind(rows: Columns, *kinds: GroupRecord) -> NDArray[np.int64]:
    """Returns the rows that state one of these, ascending."""
    return np.flatnonzero(np.isin(rows["kind"], kinds))


def last_before(rows: Columns, mine: np.ndarray, *kinds: GroupRecord) -> NDArray[np.int64]:
    """Returns for each of these rows the last one of these kinds in front of it; NONE: there is none."""
    others = np.append(NONE, rows_of_kind(rows, *kinds))
    return np.asarray(others[np.searchsorted(others, mine) - 1])


@dataclass(frozen=True, slots=True)
class ClassicRecords:
    """The records of a group of a classic protocol, in the order of the log. int64[n] each."""

    rows: NDArray[np.int64]
    """The row CLASSIC of each."""
    follows: NDArray[np.bool_]
    """bool: the one before it is of the same group, which was not deleted in between."""
    generation: NDArray[np.int64]
    protocol_type: NDArray[np.int64]
    protocol: NDArray[np.int64]
    """The protocol that was chosen; NONE: none."""
    leader: NDArray[np.int64]
    """The member that leads; NONE: none."""
    leading: NDArray[np.int64]
    """Which person leads (`member`); NONE: none, or none of the members."""
    members: NDArray[np.int64]
    """How many members it has."""
    member: NDArray[np.int64]
    """int64[m, 2]: the record of each member, and which person it is. A static member (KIP-345) is one whatever its id."""


def classic_records(rows: Columns) -> ClassicRecords:
    """Returns the records of a classic group, made once for all rules. Rows without a record are passed over."""
    return once(rows, ClassicRecords, lambda: _classic_records(rows))


def _classic_records(rows: Columns) -> ClassicRecords:
    own = rows_of_kind(rows, GroupRecord.CLASSIC)
    before = last_before(rows, own, GroupRecord.CLASSIC, GroupRecord.CLASSIC_GONE)
    protocol, leading = np.full((2, len(own)), NONE)
    at, chosen = _within(rows, own, GroupRecord.CLASSIC_PROTOCOL)
    protocol[at] = rows["name"][chosen]
    record, some = _within(rows, own, GroupRecord.CLASSIC_MEMBER)
    instance = rows["name"][some].astype(np.int64)
    person = np.where(instance == NONE, 2 * rows["member"][some].astype(np.int64), 2 * instance + 1)
    leads = rows["member"][some] == rows["member"][own[record]]
    leading[record[leads]] = person[leads]
    return ClassicRecords(
        rows=own,
        follows=np.isin(before, own),
        generation=rows["epoch"][own].astype(np.int64),
        protocol_type=rows["name"][own].astype(np.int64),
        protocol=protocol,
        leader=rows["member"][own].astype(np.int64),
        leading=leading,
        members=np.bincount(record, minlength=len(own)),
        member=np.stack([record, person], axis=1),
    )


def _within(rows: Columns, own: np.ndarray, kind: GroupRecord) -> tuple[np.ndarray, np.ndarray]:
    """Returns of each row of a kind the record that has it, and the row."""
    some = rows_of_kind(rows, kind)
    offset = rows["log_offset"]
    at = np.searchsorted(offset[own], offset[some])
    held = np.isin(offset[some], offset[own])
    return at[held], some[held]
