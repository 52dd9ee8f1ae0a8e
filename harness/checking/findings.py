"""Findings as Arrow tables: in `findings/` of a run, and between Spark's tasks and the process that asked.

The columns of findings.parquet, witnesses.parquet and windows.parquet are in `prozess.harness.result_tables`. The number of a
finding is its row in findings.parquet, which therefore has no column for it.
"""

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from prozess.harness.errors import HistoryUnreadable, StorageFull
from prozess.harness.history.parquet import from_numpy, from_strings, to_numpy
from prozess.harness.interfaces.checking import Finding, KernelResult
from prozess.harness.interfaces.witnesses import BINNED
from prozess.harness.plan.plan import parse_plan
from prozess.harness.result_tables import FINDINGS, WINDOWS, WITNESSES, ResultTable
from prozess.harness.run_directory import RunDirectory, read_document, replacing
from prozess.harness.schema import FORMAT_VERSION, NONE

_ARROW = {"i4": pa.int32(), "i8": pa.int64(), "text": pa.string()}


def schema_of(table: ResultTable) -> pa.Schema:
    """Returns the names and types of a result's columns, as Arrow has them. Only texts may be null."""
    return pa.schema([pa.field(c.name, _ARROW[c.kind], nullable=c.optional) for c in table.columns])


_NESTED = {"witnesses": WITNESSES, "windows": WINDOWS}
"""The fields of KernelResult that are arrays, and the table of each."""
_MOVED = {name: table.entry for name, table in _NESTED.items()} | {"latencies": BINNED}
"""The arrays that are sent from task to task. Parts of a finding have latencies, too."""
_FINDINGS_FILE = pa.schema([field for field in schema_of(FINDINGS) if field.name != "finding"])
_FACTS = [field for field in _FINDINGS_FILE if field.name != "cell"]


def _fields(dtype: np.dtype) -> list[pa.Field]:
    return [pa.field(name, pa.from_numpy_dtype(dtype[name]), nullable=False) for name in dtype.names or ()]


FINDINGS_SCHEMA = pa.schema(
    [*_FACTS, *(pa.field(name, pa.list_(pa.struct(_fields(of))), nullable=False) for name, of in _MOVED.items())]
)
"""One row for each finding, with its arrays nested."""
_FEW_ROWS = 100_000
"""Fewer rows are read sooner than threads are asked to read them."""
_VERSION_KEY = b"prozess.format_version"


def findings_to_arrow(findings: Sequence[Finding]) -> pa.RecordBatch:
    """Returns the findings, in their order, as a batch in FINDINGS_SCHEMA."""
    nested = [_nested(findings, name) for name in _MOVED]
    return pa.record_batch([*_facts(findings).values(), *nested], schema=FINDINGS_SCHEMA)


def _nested(findings: Sequence[Finding], name: str) -> pa.Array:
    stacked, kind = _stack(findings, name), FINDINGS_SCHEMA.field(name).type
    structs = pa.StructArray.from_arrays(
        [from_numpy(stacked[column]) for column in stacked.dtype.names or ()],
        fields=_fields(stacked.dtype),
    )
    lengths = np.array([len(getattr(f.result, name)) for f in findings], dtype=np.int32)
    # The i-th list has the structs from offsets[i] to offsets[i + 1]. Example: lengths 2 0 3, offsets 0 2 2 5.
    offsets = np.concatenate((np.zeros(1, dtype=np.int32), np.cumsum(lengths, dtype=np.int32)))
    assert int(offsets[-1]) == len(structs), "each struct is in one list"
    return pa.ListArray.from_arrays(from_numpy(offsets), structs).cast(kind)


def findings_from_arrow(table: pa.Table) -> list[Finding]:
    """Returns the findings of a table in FINDINGS_SCHEMA (nullability aside), in its order."""
    found = []
    for batch in table.select(FINDINGS_SCHEMA.names).to_batches():
        facts = batch.drop_columns(list(_MOVED)).to_pylist()
        parts = [_unnested(batch.column(name), of) for name, of in _MOVED.items()]
        found += [_finding(fact, *arrays) for fact, *arrays in zip(facts, *parts, strict=True)]
    return found


def _unnested(nested: pa.ListArray, dtype: np.dtype) -> list[np.ndarray]:
    columns = {
        name: pa.chunked_array([c]) for name, c in zip(dtype.names or (), nested.flatten().flatten(), strict=True)
    }
    assert len({len(column) for column in columns.values()}) <= 1, "columns of one length"
    ends = np.cumsum(nested.value_lengths().to_numpy(zero_copy_only=False))
    return np.split(_from_columns(columns, dtype), ends)[:-1]


def write_findings(run: RunDirectory, findings: Sequence[Finding]) -> None:
    """Writes the files of `findings/` and replaces what is there. StorageFull if there is no room."""
    plan = parse_plan(read_document(run.plan), source=str(run.plan))
    cells = {planned.partition: planned.cell for planned in plan.partitions}
    facts = _facts(findings)
    columns = facts | {"cell": _integers([cells.get(f.partition, NONE) for f in findings], np.int32)}
    run.findings.mkdir(exist_ok=True)
    write_whole(run.findings / "findings.parquet", pa.table([columns[n] for n in _FINDINGS_FILE.names], _FINDINGS_FILE))
    for name, table in _NESTED.items():
        stacked = _stack(findings, name)
        numbers = np.repeat(np.arange(len(findings), dtype=np.int32), [len(getattr(f.result, name)) for f in findings])
        assert len(numbers) == len(stacked), f"{len(numbers)} numbers for {len(stacked)} rows of {name}"
        own = [from_numpy(stacked[column]) for column in stacked.dtype.names or ()]
        write_whole(
            run.findings / f"{name}.parquet",
            pa.table([from_numpy(numbers), facts["anomaly"].take(from_numpy(numbers)), *own], schema=schema_of(table)),
        )


def read_findings(run: RunDirectory) -> list[Finding]:
    """Returns what `write_findings` wrote, in the same order. HistoryUnreadable if a file is missing, torn or foreign."""
    facts = _read(run.findings / "findings.parquet", _FINDINGS_FILE)
    nested = [_read_nested(run, name, rows=facts.num_rows) for name in _NESTED]
    return [
        _finding(fact, *arrays) for fact, *arrays in zip(facts.drop_columns(["cell"]).to_pylist(), *nested, strict=True)
    ]


def findings_table(run: RunDirectory) -> pa.Table:
    """Returns the table `findings`, with the number of each row. HistoryUnreadable as in `read_findings`."""
    facts = _read(run.findings / "findings.parquet", _FINDINGS_FILE)
    return facts.add_column(
        0, schema_of(FINDINGS).field("finding"), from_numpy(np.arange(facts.num_rows, dtype=np.int32))
    )


def nested_table(run: RunDirectory, table: ResultTable) -> pa.Table:
    """Returns the table `witnesses` or `windows`. HistoryUnreadable as in `read_findings`."""
    return _read(run.findings / f"{table.name}.parquet", schema_of(table))


def nested_file(run: RunDirectory, table: ResultTable) -> pq.FileMetaData:
    """Returns the footer of the file of `witnesses` or `windows`. HistoryUnreadable as in `read_findings`."""
    with _opened(run.findings / f"{table.name}.parquet", schema_of(table)) as file:
        return file.metadata


def result_table(table: ResultTable, values: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Returns a result as an Arrow table, of the values of each of its columns."""
    made = [
        from_strings(values[c.name]) if c.kind == "text" else _integers(values[c.name], np.dtype(c.kind))
        for c in table.columns
    ]
    return pa.table(made, schema=schema_of(table))


def read_windows(run: RunDirectory) -> dict[int, np.ndarray]:
    """Returns the windows (dtype WINDOW) of every cell that has some. HistoryUnreadable as in `read_findings`."""
    facts = _read(run.findings / "findings.parquet", _FINDINGS_FILE)
    parts = _read_nested(run, "windows", rows=facts.num_rows)
    return {cell: part for cell, part in zip(facts.column("cell").to_pylist(), parts, strict=True) if len(part)}


def _read_nested(run: RunDirectory, name: str, *, rows: int) -> list[np.ndarray]:
    """Returns, for each row of findings.parquet, its array of this name."""
    dtype = _NESTED[name].entry
    table = _read(run.findings / f"{name}.parquet", schema_of(_NESTED[name]))
    values = _from_columns({column: table.column(column) for column in dtype.names or ()}, dtype)
    # The column ascends: the rows of finding n are from the first that is not less than n to the first above it.
    bounds = np.searchsorted(to_numpy(table.column("finding")), np.arange(rows + 1))
    return [values[bounds[n] : bounds[n + 1]] for n in range(rows)]


def _facts(findings: Sequence[Finding]) -> dict[str, pa.Array]:
    return {
        "anomaly": from_strings([f.anomaly for f in findings]),
        "partition": _integers([f.partition for f in findings], np.int32),
        "count": _integers([f.result.count for f in findings], np.int64),
        "judged": _integers([f.result.judged for f in findings], np.int64),
        "incomplete": from_strings([f.result.incomplete for f in findings]),
    }


def _integers(values: Sequence[int], kind: type | np.dtype) -> pa.Array:
    return from_numpy(np.array(values, dtype=kind))


def _stack(findings: Sequence[Finding], name: str) -> np.ndarray:
    # Most are empty. NumPy asks for each part, field by field, what type both have in common, unless it is reported.
    parts = [part for f in findings if len(part := getattr(f.result, name))]
    return np.concatenate([np.empty(0, dtype=_MOVED[name]), *parts], dtype=_MOVED[name])


def _from_columns(columns: dict[str, pa.ChunkedArray], dtype: np.dtype) -> np.ndarray:
    assert columns.keys() == set(dtype.names or ()), columns.keys()
    made = np.empty(len(next(iter(columns.values()))), dtype=dtype)
    for name, values in columns.items():
        made[name] = to_numpy(values)
    return made


def _finding(fact: dict[str, object], witnesses: np.ndarray, *others: np.ndarray) -> Finding:
    """Returns the finding of a row. `others` are its windows, and its latencies if it has some."""
    count, judged, incomplete = fact["count"], fact["judged"], fact["incomplete"]
    anomaly, partition = fact["anomaly"], fact["partition"]
    assert isinstance(count, int)
    assert isinstance(judged, int)
    assert isinstance(partition, int)
    assert incomplete is None or isinstance(incomplete, str)
    return Finding(str(anomaly), partition, KernelResult(witnesses, count, judged, incomplete, *others))


def write_whole(path: Path, table: pa.Table) -> None:
    """Writes a table as a Parquet file, which appears when it is whole. StorageFull if there is no room."""
    table = table.replace_schema_metadata({_VERSION_KEY: str(FORMAT_VERSION).encode()})
    try:
        with replacing(path, writer=os.getpid()) as part:
            pq.write_table(table, part, compression="zstd", compression_level=1)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StorageFull(f"{path}: no room left. Free space there and try again.") from error
        raise


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    with _opened(path, schema) as file:
        return file.read(use_threads=file.metadata.num_rows > _FEW_ROWS)


@contextmanager
def _opened(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetFile]:
    """A context with a file of these columns. HistoryUnreadable if it is missing, torn or foreign, also while it is read."""
    hint = "Check the run again to write it."
    try:
        # Not read_table: it imports pyarrow.dataset, and that pandas, half a second.
        with pq.ParquetFile(path, memory_map=True) as file:
            found = file.schema_arrow
            version = (found.metadata or {}).get(_VERSION_KEY, b"none").decode()
            if version != str(FORMAT_VERSION):
                raise HistoryUnreadable(
                    f"{path} has format version {version}; this prozess reads {FORMAT_VERSION}. {hint}"
                )
            if found.names != schema.names or found.types != schema.types:
                raise HistoryUnreadable(f"{path} does not have the columns {', '.join(schema.names)}. {hint}")
            yield file
    except FileNotFoundError as error:
        raise HistoryUnreadable(f"{path} is missing. {hint}") from error
    except (OSError, pa.ArrowException) as error:
        raise HistoryUnreadable(f"{path} is torn or no Parquet ({str(error).splitlines()[0]}). {hint}") from error
