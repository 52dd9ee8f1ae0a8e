"""What disks, tools and hands do to the files of a stored run: kinds of damage, each from a seed; and what a check then says.

A kind changes the files of a copy and says what it did, or returns None where the run has nothing that it could damage.
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.harness.errors import ProzessError
from prozess.harness.history.manifest import RECORDED, condition_of
from prozess.harness.recording.rows import PROOF_BYTES
from prozess.harness.report.reports import report_run
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import TABLES
from prozess.harness.verdict import AnomalyOutcome, TrialVerdict

Kind = Callable[[random.Random, RunDirectory, RunDirectory], str | None]
"""Seeded chance, the run to damage, another run to take files from."""
_SHAPES = ("[]", "{}", "null", "7", '"x"', "", '[{"step_number": "x"}]', '{"detail": 3}', "[" * 5000, '{"a": NaN}')


def copied(run: RunDirectory, path: Path) -> RunDirectory:
    """The same run elsewhere. Evidence is the same files, until one is replaced; what a check writes is its own."""
    mine = RunDirectory(path)
    mine.create()
    for folder in (run.rows, run.history, run.findings):
        if folder.is_dir():
            (path / folder.name).mkdir(exist_ok=True)
            for file in folder.iterdir():
                (shutil.copy if folder == run.findings else os.link)(file, path / folder.name / file.name)
    for file in {*run.path.glob("*.json*"), *_documents(run)}:
        shutil.copy(file, path / file.name)
    return mine


def judged(run: RunDirectory) -> TrialVerdict | str:
    """The verdict of `prozess check`, or what it says instead."""
    try:
        condition = condition_of(run)
        return judge_run(run, check_run(run, CheckOptions(engine="local"), condition), condition)
    except ProzessError as error:
        return str(error)


def reported(run: RunDirectory) -> str:
    """The first line of the summary that `prozess report` writes, or what it says instead."""
    try:
        report_run(run)
    except ProzessError as error:
        return str(error)
    return (run.path / "summary.md").read_text(encoding="utf-8").splitlines()[0]


def violations(verdict: TrialVerdict) -> set[tuple[int, str]]:
    """(cell, anomaly) of everything that is violated."""
    return {
        (cell.cell, name)
        for cell in verdict.cells
        for name, anomaly in cell.anomalies.items()
        if anomaly.outcome is AnomalyOutcome.VIOLATED
    }


# --- files of rows ------------------------------------------------------------------------------------------------------


def _rows(run: RunDirectory) -> list[Path]:
    return sorted(run.rows.glob("*.rows"))


def _tables(run: RunDirectory) -> list[Path]:
    return sorted(run.history.glob("*.parquet"))


def _documents(run: RunDirectory) -> list[Path]:
    return [run.path / name for name in RECORDED if (run.path / name).is_file()]


def _put(path: Path, content: bytes) -> None:
    """A new file in the place of the old one, which other copies may share."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def _flip(rng: random.Random, path: Path, begin: int, end: int) -> str | None:
    """A bit between these bytes."""
    if end <= begin:
        return None
    content, at = bytearray(path.read_bytes()), rng.randrange(begin, end)
    content[at] ^= 1 << rng.randrange(8)
    _put(path, bytes(content))
    return f"a bit of byte {at:,} of {path.name} is flipped"


def _one(rng: random.Random, found: Sequence[Path]) -> Path | None:
    return rng.choice(found) if found else None


def _shortened(rng: random.Random, path: Path | None) -> str | None:
    if path is None or not (content := path.read_bytes()):
        return None
    kept = rng.choice((0, len(content) // 2, len(content) * 3 // 4, len(content) - 1, rng.randrange(len(content))))
    _put(path, content[:kept])
    return f"{path.name} is cut to {kept:,} of {len(content):,} bytes"


def _removed(path: Path | None) -> str | None:
    if path is None:
        return None
    path.unlink()
    return f"{path.name} is gone"


def _swapped(one: Path, other: Path) -> str | None:
    mine, theirs = one.read_bytes(), other.read_bytes()
    if mine == theirs:
        return None
    _put(one, theirs)
    if other.parent == one.parent:
        _put(other, mine)
    return f"{one.name} has what {other} had"


def rows_cut(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    return _shortened(rng, _one(rng, _rows(run)))


def sends_cut_by_a_quarter(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    path = _one(rng, sorted(run.rows.glob("sends.*.rows")))
    if path is None:
        return None
    content = path.read_bytes()
    _put(path, content[: len(content) * 3 // 4])
    return f"{path.name} is cut by a quarter"


def rows_appended(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    path = _one(rng, _rows(run))
    if path is None:
        return None
    _put(path, path.read_bytes() + rng.randbytes(rng.choice((1, 72, 4096))))
    return f"{path.name} is longer"


def rows_removed(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    return _removed(_one(rng, _rows(run)))


def client_removed(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    """Every file that one client wrote."""
    path = _one(rng, _rows(run))
    if path is None:
        return None
    client = path.name.split(".")[1]
    gone = [_removed(each) for each in _rows(run) if each.name.split(".")[1] == client]
    return f"{len(gone)} files of client {client} are gone"


def row_flipped(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    """A bit of a row that was written."""
    path = _one(rng, _rows(run))
    if path is None:
        return None
    used = np.flatnonzero(np.frombuffer(path.read_bytes()[:-PROOF_BYTES], dtype=np.uint8))
    return _flip(rng, path, int(used[0]), int(used[-1]) + 1) if len(used) else None


def rows_flipped_anywhere(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    path = _one(rng, _rows(run))
    return None if path is None else _flip(rng, path, 0, path.stat().st_size)


def proof_flipped(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    path = _one(rng, _rows(run))
    return None if path is None else _flip(rng, path, path.stat().st_size - PROOF_BYTES, path.stat().st_size)


def block_zeroed(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    """As a disk that lost a page."""
    path = _one(rng, _rows(run))
    if path is None:
        return None
    content = bytearray(path.read_bytes())
    used = np.flatnonzero(np.frombuffer(bytes(content), dtype=np.uint8))
    at = int(rng.choice(used.tolist())) // 4096 * 4096
    content[at : at + 4096] = bytes(len(content[at : at + 4096]))
    _put(path, bytes(content))
    return f"{path.name} has zeros from byte {at:,} on"


def rows_swapped(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    found = _rows(run)
    if len(found) < 2:
        return None
    one = rng.choice(found)
    alike = [path for path in found if path != one and path.name.split(".")[0] == one.name.split(".")[0]]
    return _swapped(one, rng.choice(alike or [path for path in found if path != one]))


def rows_of_another_run(rng: random.Random, run: RunDirectory, other: RunDirectory) -> str | None:
    path, theirs = _one(rng, _rows(run)), _one(rng, _rows(other))
    if path is None or theirs is None or path.read_bytes() == theirs.read_bytes():
        return None
    _put(path, theirs.read_bytes())
    return f"{path.name} is another run's {theirs.name}"


def rows_doubled(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    """Once more, as those of a client that never was, or over those of another one."""
    path = _one(rng, _rows(run))
    if path is None:
        return None
    table, client, segment, _end = path.name.split(".")
    again = path.with_name(f"{table}.{int(client) + rng.choice((1, 10_000))}.{segment}.rows")
    if again.exists() and again.read_bytes() == path.read_bytes():
        return None
    _put(again, path.read_bytes())
    return f"{again.name} is a copy of {path.name}"


# --- tables of the history ----------------------------------------------------------------------------------------------


def _footer(path: Path) -> int:
    """Where it begins: its length is in front of the last four bytes."""
    content = path.read_bytes()
    return max(0, len(content) - 8 - int.from_bytes(content[-8:-4], "little"))


def page_flipped(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    path = _one(rng, [table for table in _tables(run) if _footer(table) > 4])
    return None if path is None else _flip(rng, path, 4, _footer(path))


def footer_flipped(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    path = _one(rng, _tables(run))
    return None if path is None else _flip(rng, path, _footer(path), path.stat().st_size)


def table_cut(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    return _shortened(rng, _one(rng, _tables(run)))


def table_removed(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    return _removed(_one(rng, _tables(run))) if len(_tables(run)) > 1 else None


def table_of_another_run(rng: random.Random, run: RunDirectory, other: RunDirectory) -> str | None:
    """A whole and valid table, and not this run's."""
    path = _one(rng, [table for table in _tables(run) if (other.history / table.name).exists()])
    return None if path is None else _swapped(path, other.history / path.name)


def table_rewritten(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    """Valid in itself, with its footer, and with a row group missing, doubled, or cut short."""
    path = _one(rng, [table for table in _tables(run) if pq.read_metadata(table).num_rows])
    if path is None:
        return None
    with pq.ParquetFile(path) as held:
        facts = {k.decode(): v.decode() for k, v in (held.metadata.metadata or {}).items() if k.startswith(b"prozess")}
        schema, groups = held.schema_arrow, [held.read_row_group(n) for n in range(held.num_row_groups)]
    how, at = rng.choice(("without", "doubled", "short")), rng.randrange(len(groups))
    if how == "without":
        del groups[at]
    elif how == "doubled":
        groups.insert(at, groups[at])
    else:
        groups[at] = groups[at].slice(0, groups[at].num_rows // 2)
    path.unlink()
    with pq.ParquetWriter(path, schema) as writer:
        for group in groups:
            writer.write_table(group)
        writer.add_key_value_metadata(facts | {"prozess.rows": str(sum(group.num_rows for group in groups))})
    return f"{path.name} is written again, row group {at} {how}"


# --- documents ----------------------------------------------------------------------------------------------------------


def document_flipped(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    path = _one(rng, [each for each in _documents(run) if each.stat().st_size])
    return None if path is None else _flip(rng, path, 0, path.stat().st_size)


def document_cut(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    return _shortened(rng, _one(rng, _documents(run)))


def document_removed(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    return _removed(_one(rng, _documents(run)))


def document_of_another_shape(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    path, shape = _one(rng, _documents(run)), rng.choice(_SHAPES)
    if path is None or path.read_bytes().strip() == shape.encode():
        return None
    _put(path, shape.encode())
    return f"{path.name} is {shape[:20]!r}"


def document_of_another_run(rng: random.Random, run: RunDirectory, other: RunDirectory) -> str | None:
    path = _one(rng, [each for each in _documents(run) if (other.path / each.name).exists()])
    return None if path is None else _swapped(path, other.path / path.name)


def document_that_came_later(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    path = _one(rng, [run.path / name for name in RECORDED if not (run.path / name).exists()])
    if path is None:
        return None
    _put(path, rng.choice(("[]", "{}", '{"kafka_version": "0.8"}', '["the ISR is whole"]')).encode())
    return f"{path.name} was not there"


# --- the manifest itself ------------------------------------------------------------------------------------------------


def manifest_flipped(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    return _flip(rng, run.manifest, 0, run.manifest.stat().st_size)


def manifest_cut(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    return _shortened(rng, run.manifest)


def manifest_of_another_run(_: random.Random, run: RunDirectory, other: RunDirectory) -> str | None:
    return _swapped(run.manifest, other.manifest)


def manifest_without_a_file(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    """By hand: its own checksum is wrong then."""
    told = json.loads(run.manifest.read_bytes())
    name = rng.choice(sorted(told["files"]))
    del told["files"][name]
    _put(run.manifest, json.dumps(told).encode())
    return f"the manifest does not have {name}"


KINDS: tuple[Kind, ...] = (
    rows_cut, sends_cut_by_a_quarter, rows_appended, rows_removed, client_removed, row_flipped, rows_flipped_anywhere,
    proof_flipped, block_zeroed, rows_swapped, rows_of_another_run, rows_doubled, page_flipped, footer_flipped, table_cut,
    table_removed, table_of_another_run, table_rewritten, document_flipped, document_cut, document_removed,
    document_of_another_shape, document_of_another_run, document_that_came_later, manifest_flipped, manifest_cut,
    manifest_of_another_run, manifest_without_a_file,
)  # fmt: skip


# --- what nobody takes for evidence: it is made again by a check ------------------------------------------------------


def manifest_removed(_: random.Random, run: RunDirectory, __: RunDirectory) -> str | None:
    """As of a run that was killed."""
    return _removed(run.manifest)


def result_damaged(rng: random.Random, run: RunDirectory, _: RunDirectory) -> str | None:
    """Findings, impact or verdict: for `prozess report`."""
    path = _one(rng, [run.verdict, run.impact, *sorted(run.findings.glob("*.parquet"))])
    if path is None or not path.exists():
        return None
    how = rng.choice(("cut", "flip", "gone")) if path != run.verdict else rng.choice(("cut", "flip"))
    if how == "gone":
        return _removed(path)
    return _shortened(rng, path) if how == "cut" else _flip(rng, path, 0, path.stat().st_size)


# ----------------------------------------------------------------------------------------------------------------------
# Damage to histories, as disks do it.


def rot(run: RunDirectory, table: str, *, row_group: int, column: str) -> None:
    """Spoil a data page of a column that has to be decoded: one whose values differ."""
    path = run.history / f"{table}.parquet"
    chunk = pq.read_metadata(path).row_group(row_group).column(TABLES[table].column_names.index(column))
    assert chunk.statistics.min != chunk.statistics.max
    rotten = bytearray(path.read_bytes())
    rotten[chunk.data_page_offset + chunk.total_compressed_size - 20] ^= 0xFF
    path.write_bytes(rotten)
