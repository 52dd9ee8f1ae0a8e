"""The readable form of a table: null for what is not there, timestamps, names in place of codes and ids.

The raw form has integers only, because kernels compare arrays. People ask questions in the readable form:

    raw        invoked_ns  completed_ns  key  outcome  partition
               5903419666  -2⁶³          -1   0        1
    readable   invoked_ns  invoked_at                  completed_ns  completed_at  key   outcome  partition  topic     number
               5903419666  2026-11-27 22:49:16.974…    null          null          null  info     1          cell-000  1

`readable_columns` says for each column what becomes of it. Here Arrow carries that out, and Spark does in
`prozess.spark_checkers.run_tables`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import pyarrow as pa

from prozess.harness.clock import NS_PER_S
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.codes import read_texts
from prozess.harness.recording.metrics import METRICS, MICRO
from prozess.harness.result_tables import ResultColumn
from prozess.harness.run_directory import RunDirectory, read_object
from prozess.harness.schema import (
    MISSING,
    NONE,
    Column,
    FaultPhase,
    Isolation,
    MetadataKind,
    MetadataSource,
    ObservationKind,
    Outcome,
    ReadFlag,
    Role,
    StepOutcome,
    Tristate,
)

Becomes = Literal[
    "as it is", "nullable", "time", "timestamp", "truth", "name", "names", "brokers", "millionths", "topic"
]
"""What becomes of a raw column. nullable: NONE is null. time: MISSING is null. name: of a code. names: of bits. brokers: the
ids in a mask. millionths: a metric's value, null where it is absent. topic: the topic, or the number, of a partition id."""
_CODES: dict[str, type[IntEnum]] = {
    code.__name__: code
    for code in (
        *(FaultPhase, Isolation, MetadataKind, MetadataSource, ObservationKind, Outcome, Role, StepOutcome, Tristate),
    )
}
_LISTED = re.compile(r"(?<!\S)(\d+) ([a-z]+)")
"""A code and its name, in a unit like `1 commit, 2 abort`."""
ABSENT: dict[Becomes, int] = {"nullable": NONE, "truth": NONE, "brokers": NONE, "time": MISSING, "timestamp": MISSING}
"""What a column becomes → the raw value that is null."""
_PLAIN: dict[str, tuple[Becomes, pa.DataType]] = {
    "0/1": ("truth", pa.bool_()),
    "broker mask": ("brokers", pa.list_(pa.int32())),
    # -1 is one of Kafka's error codes, UNKNOWN_SERVER_ERROR.
    "KafkaError code": ("as it is", pa.int32()),
    "error code": ("as it is", pa.int32()),
}
"""Unit → what a column of it becomes, and its type."""
_INTEGERS = {"i4": pa.int32(), "i8": pa.int64()}
MASK_BITS = 63
AT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class ReadableColumn:
    """One column of the readable form. `source`: the raw column that it is made of."""

    name: str
    type: pa.DataType
    meaning: str
    source: str
    becomes: Becomes
    codes: Mapping[int, str] = field(default_factory=dict)
    """Code, or bit → its name."""
    dictionary: str = ""
    """The dictionary of the run that has the names."""


@dataclass(frozen=True, slots=True)
class RunNames:
    """What the numbers of one run stand for."""

    began_wall_ns: int | pa.Array | None
    """The wall clock when the trial's clock began. None: nobody noted it, so no time has a timestamp. An array has it for
    each row, where a table has rows of several runs."""
    dictionaries: Mapping[str, Sequence[str]]
    partitions: Mapping[int, tuple[str, int]]
    """Partition id → topic, and Kafka's number of the partition."""

    @staticmethod
    def of(run: RunDirectory, plan: Plan) -> "RunNames":
        """Reads the names of a run. HistoryUnreadable if its files cannot be read."""
        noted = read_object(run.clock) if run.clock.exists() else {}
        dictionaries = read_texts(run.dictionaries) if run.dictionaries.exists() else {}
        return RunNames(
            wall_ns_of(noted), dictionaries, {p.partition: (p.topic_name, p.number) for p in plan.partitions}
        )


def wall_ns_of(clock: Mapping[str, object]) -> int | None:
    """Returns the wall clock (Unix time in ns) when the trial's clock began, of what `clock.json` says; None if nobody noted
    it: the time of a generated history begins with 0, and not in 1970. HistoryUnreadable if no clock has such a time."""
    start_ns, offset_ns = clock.get("start_monotonic_ns", 0), clock.get("wall_minus_monotonic_ns", 0)
    if not isinstance(start_ns, int) or not isinstance(offset_ns, int):
        raise HistoryUnreadable("clock.json does not say in whole nanoseconds when the trial's clock began.")
    wall_ns = start_ns + offset_ns
    if not 0 <= wall_ns < 2**62:
        raise HistoryUnreadable(f"clock.json says that the trial began {wall_ns / NS_PER_S:.0f} s after 1970.")
    return wall_ns or None


def readable_columns(columns: Iterable[Column | ResultColumn], *, named: bool) -> tuple[ReadableColumn, ...]:
    """Returns the columns of the readable form. `named`: whether it has topic and number of each partition id, too."""
    listed = list(columns)
    own = {column.name for column in listed}
    made = (made for column in listed for made in _readable(column))
    return tuple(one for one in made if one.becomes != "topic" or (named and one.name not in own))


def _readable(column: Column | ResultColumn) -> Iterator[ReadableColumn]:
    """Yields what becomes of a column, by its unit."""
    unit = column.unit
    meaning = f"{column.meaning} ({unit})".replace("MISSING", "null").replace("NONE", "null").strip()
    if column.kind == "text":
        yield ReadableColumn(column.name, pa.string(), meaning, column.name, "as it is")
        return

    def made(
        becomes: Becomes, kind: pa.DataType = _INTEGERS[column.kind], name: str = column.name, codes: Mapping[int, str] = {},
        dictionary: str = "",
    ) -> ReadableColumn:  # fmt: skip
        return ReadableColumn(name, kind, meaning, column.name, becomes, codes, dictionary)

    if unit == "ns":
        yield made("time")
        yield made("timestamp", AT, f"{column.name.removesuffix('_ns')}_at")
    elif (codes := _codes_in(unit)) is not None:
        yield made("name", pa.string(), codes=codes)
    elif unit.startswith("dictionary"):
        yield made("name", pa.string(), dictionary=unit.split("`")[1])
    elif unit == "ReadFlag bits":
        yield made("names", pa.list_(pa.string()), codes={flag.value: _spelt(flag) for flag in ReadFlag})
    elif unit.startswith("1e-6"):
        yield made("millionths", pa.float64(), column.name.removesuffix("_micro"))
    else:
        yield made(*_PLAIN.get(unit, ("nullable", _INTEGERS[column.kind])))
    if unit == "partition id" and column.name == "partition":
        yield ReadableColumn("topic", pa.string(), "topic of `partition`", "partition", "topic")
        yield ReadableColumn("number", pa.int32(), "Kafka's number of `partition`", "partition", "topic")


def _codes_in(unit: str) -> dict[int, str] | None:
    """Returns code → name, if a unit names an enumeration or lists them like `1 commit, 2 abort`."""
    if unit in _CODES:
        return {member.value: _spelt(member) for member in _CODES[unit]}
    listed = _LISTED.findall(unit.partition(";")[0])
    return {int(code): name for code, name in listed} or None


def _spelt(member: IntEnum) -> str:
    return member.name.lower().replace("_", " ")


def readable(table: pa.Table, columns: Sequence[ReadableColumn], names: RunNames) -> pa.Table:
    """Returns a raw table in its readable form. A code without a name becomes its number as text."""
    made = [_values(table, c, names).cast(c.type) for c in columns]
    fields = [pa.field(c.name, c.type, metadata={"comment": c.meaning}) for c in columns]
    return pa.table(made, schema=pa.schema(fields))


def _values(table: pa.Table, column: ReadableColumn, names: RunNames) -> pa.Array:
    import pyarrow.compute as pc

    raw = table.column(column.source).combine_chunks()
    if (absent := ABSENT.get(column.becomes)) is not None:
        raw = pc.if_else(pc.equal(raw, absent), pa.scalar(None, raw.type), raw)
    match column.becomes:
        case "timestamp":
            if names.began_wall_ns is None:
                return pa.nulls(len(raw), AT)
            return pc.divide(pc.add(raw, names.began_wall_ns), 1000).cast(AT)
        case "truth":
            return pc.equal(raw, 1)
        case "millionths":
            there = pc.equal(table.column("absent").combine_chunks(), 0)
            return pc.divide(pc.if_else(there, raw, pa.scalar(None, raw.type)).cast(pa.float64()), float(MICRO))
        case "topic" | "name" | "names" | "brokers":
            values = [value for value in raw.unique().to_pylist() if value is not None]
            indices = pc.index_in(raw, value_set=pa.array(values, raw.type))
            return pa.array([_meaning(value, column, names) for value in values], column.type).take(indices)
        case _:
            return raw


def _meaning(value: int, column: ReadableColumn, names: RunNames) -> object:
    """Returns what one code, mask or id stands for; None: nothing that is known. A code without a name is itself, as text."""
    match column.becomes:
        case "topic":
            return names.partitions.get(value, (None, None))[column.name == "number"]
        case "names":
            return [name for bit, name in column.codes.items() if value & bit]
        case "brokers":
            return [number for number in range(MASK_BITS) if value >> number & 1]
        case _:
            return names_of(column, names).get(value, None if value == NONE else str(value))


def names_of(column: ReadableColumn, names: RunNames) -> Mapping[int, str]:
    """Returns code → name of a column with codes."""
    fixed = {metric.code: metric.name for metric in METRICS} if column.dictionary == "metric" else column.codes
    return {**fixed, **dict(enumerate(names.dictionaries.get(column.dictionary, ())))} if column.dictionary else fixed
