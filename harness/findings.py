"""Findings as Arrow tables: in `findings/` of a run, and between Spark's tasks and whoever asked.

findings.parquet    one row per anomaly and partition: anomaly, partition, cell, count, judged, incomplete (null = complete)
witnesses.parquet   one row per witness: finding (row number in findings.parquet), anomaly, and the columns of WITNESS
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import HistoryUnreadable, StorageFull
from harness.plan import parse_plan
from harness.protocols import Finding, KernelResult
from harness.run_directory import RunDirectory
from harness.schema import FORMAT_VERSION, NONE
from harness.witnesses import WITNESS

_WITNESS_FIELDS = [(name, pa.from_numpy_dtype(WITNESS[name])) for name in WITNESS.names or ()]
_WITNESS_TYPE = pa.struct([pa.field(name, kind, nullable=False) for name, kind in _WITNESS_FIELDS])
_FACTS = [
    pa.field("anomaly", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("count", pa.int64(), nullable=False),
    pa.field("judged", pa.int64(), nullable=False),
    pa.field("incomplete", pa.string()),
]
FINDINGS_SCHEMA = pa.schema([*_FACTS, pa.field("witnesses", pa.list_(_WITNESS_TYPE), nullable=False)])
"""One row per finding, its witnesses nested."""
_FINDINGS_FILE = pa.schema([*_FACTS[:2], pa.field("cell", pa.int32(), nullable=False), *_FACTS[2:]])
_WITNESSES_FILE = pa.schema(
    [
        pa.field("finding", pa.int32(), nullable=False),
        _FACTS[0],
        *(pa.field(name, kind, nullable=False) for name, kind in _WITNESS_FIELDS),
    ]
)
_VERSION_KEY = b"prozess.format_version"


def findings_to_arrow(findings: Sequence[Finding]) -> pa.RecordBatch:
    """Findings in their order, in FINDINGS_SCHEMA."""
    witnesses = _stack(findings)
    structs = pa.StructArray.from_arrays(
        [pa.array(np.ascontiguousarray(witnesses[name])) for name, _ in _WITNESS_FIELDS], fields=list(_WITNESS_TYPE)
    )
    lengths = np.array([len(f.result.witnesses) for f in findings], dtype=np.int32)
    offsets = np.concatenate((np.zeros(1, dtype=np.int32), np.cumsum(lengths, dtype=np.int32)))
    nested = pa.ListArray.from_arrays(pa.array(offsets), structs).cast(FINDINGS_SCHEMA.field("witnesses").type)
    return pa.record_batch([*_facts(findings).values(), nested], schema=FINDINGS_SCHEMA)


def findings_from_arrow(table: pa.Table) -> list[Finding]:
    """The findings of a table in FINDINGS_SCHEMA (nullability aside), in its order."""
    found = []
    for batch in table.select(FINDINGS_SCHEMA.names).to_batches():
        nested = batch.column("witnesses")
        witnesses = _from_columns(dict(zip(_WITNESS_TYPE.names, nested.flatten().flatten(), strict=True)))
        ends = np.cumsum(nested.value_lengths().to_numpy(zero_copy_only=False))
        facts = batch.drop_columns(["witnesses"]).to_pylist()
        found += [_finding(fact, part) for fact, part in zip(facts, np.split(witnesses, ends)[:-1], strict=True)]
    return found


def write_findings(run: RunDirectory, findings: Sequence[Finding]) -> None:
    """Write both files of `findings/`, replacing what is there. StorageFull if there is no room."""
    plan = parse_plan(run.plan.read_text(encoding="utf-8"), source=str(run.plan))
    cells = {planned.partition: planned.cell for planned in plan.partitions}
    facts = _facts(findings)
    columns = facts | {"cell": pa.array([cells.get(f.partition, NONE) for f in findings], pa.int32())}
    witnesses = _stack(findings)
    numbers = np.repeat(np.arange(len(findings), dtype=np.int32), [len(f.result.witnesses) for f in findings])
    run.findings.mkdir(exist_ok=True)
    _write(run.findings / "findings.parquet", pa.table([columns[n] for n in _FINDINGS_FILE.names], _FINDINGS_FILE))
    _write(
        run.findings / "witnesses.parquet",
        pa.table(
            [
                pa.array(numbers),
                facts["anomaly"].take(pa.array(numbers)),
                *(pa.array(np.ascontiguousarray(witnesses[name])) for name, _ in _WITNESS_FIELDS),
            ],
            schema=_WITNESSES_FILE,
        ),
    )


def read_findings(run: RunDirectory) -> list[Finding]:
    """What `write_findings` wrote, in the same order. HistoryUnreadable if a file is missing, torn or foreign."""
    facts = _read(run.findings / "findings.parquet", _FINDINGS_FILE)
    shown = _read(run.findings / "witnesses.parquet", _WITNESSES_FILE)
    witnesses = _from_columns({name: shown.column(name).combine_chunks() for name, _ in _WITNESS_FIELDS})
    bounds = np.searchsorted(shown.column("finding").to_numpy(), np.arange(facts.num_rows + 1))
    rows = facts.drop_columns(["cell"]).to_pylist()
    return [_finding(row, witnesses[bounds[n] : bounds[n + 1]]) for n, row in enumerate(rows)]


def _facts(findings: Sequence[Finding]) -> dict[str, pa.Array]:
    return {
        "anomaly": pa.array([f.anomaly for f in findings], pa.string()),
        "partition": pa.array([f.partition for f in findings], pa.int32()),
        "count": pa.array([f.result.count for f in findings], pa.int64()),
        "judged": pa.array([f.result.judged for f in findings], pa.int64()),
        "incomplete": pa.array([f.result.incomplete for f in findings], pa.string()),
    }


def _stack(findings: Sequence[Finding]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=WITNESS), *(f.result.witnesses for f in findings)])


def _from_columns(columns: dict[str, pa.Array]) -> np.ndarray:
    made = np.empty(len(next(iter(columns.values()))), dtype=WITNESS)
    for name, values in columns.items():
        made[name] = values.to_numpy(zero_copy_only=False)
    return made


def _finding(fact: dict[str, object], witnesses: np.ndarray) -> Finding:
    count, judged, incomplete = fact["count"], fact["judged"], fact["incomplete"]
    anomaly, partition = fact["anomaly"], fact["partition"]
    assert isinstance(count, int)
    assert isinstance(judged, int)
    assert isinstance(partition, int)
    assert incomplete is None or isinstance(incomplete, str)
    return Finding(str(anomaly), partition, KernelResult(witnesses, count, judged, incomplete))


def _write(path: Path, table: pa.Table) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        table = table.replace_schema_metadata({_VERSION_KEY: str(FORMAT_VERSION).encode()})
        pq.write_table(table, part, compression="zstd", compression_level=1)
        part.replace(path)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StorageFull(f"{path}: no room left for the findings. Free space there and check again.") from error
        raise
    finally:
        part.unlink(missing_ok=True)


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    hint = "Check the run again to write it."
    try:
        table = pq.read_table(path, partitioning=None, memory_map=True)
    except FileNotFoundError as error:
        raise HistoryUnreadable(f"{path} is missing. {hint}") from error
    except (OSError, pa.ArrowException) as error:
        raise HistoryUnreadable(f"{path} is torn or no Parquet ({str(error).splitlines()[0]}). {hint}") from error
    version = (table.schema.metadata or {}).get(_VERSION_KEY, b"none").decode()
    if version != str(FORMAT_VERSION):
        raise HistoryUnreadable(f"{path} has format version {version}; this prozess reads {FORMAT_VERSION}. {hint}")
    if table.schema.names != schema.names or table.schema.types != schema.types:
        raise HistoryUnreadable(f"{path} does not have the columns {', '.join(schema.names)}. {hint}")
    return table
