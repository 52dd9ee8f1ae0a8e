"""`manifest.json` proves that the files of a stored run are what they were when they were written. It is written last
and checked first.

It has the size and the SHA-256 of every file that a verdict rests on, and the number of rows of every table. The files
are in three parts: what was *recorded* (by the run stage, or by an import or a generator), the *history* that was made
of the rows, and what was *judged*. The manifest has a checksum of its own. A file that differs from the manifest, that
is missing, or that came later proves nothing any more: `Condition` names it, and whatever rests on it is unknown.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, ValidationError
from pydantic_core import from_json, to_json

from prozess.harness.errors import HistoryUnreadable, NotJudged, ProzessError
from prozess.harness.history.row_groups import NotClustered, row_ranges_of
from prozess.harness.plan.plan import Plan, parse_plan
from prozess.harness.recording.rows import damaged_rows, rows_in
from prozess.harness.run_directory import LostRows, RunDirectory, is_within, read_document, write_whole
from prozess.harness.schema import TABLES
from prozess.harness.values import Frozen

Part = Literal["recorded", "history", "judged"]
FORMAT: Final = 2
RECORDED = (
    "plan.json",
    "source.json",
    "planted.parquet",
    "clock.json",
    "dictionaries.json",
    "resolved.json",
    "versions.json",
    "cluster.json",
    "recovery.json",
    "limits.json",
    "hanging.json",
    "dead_clients.json",
    "application.json",
)
"""The files beside the rows that a verdict, a report or a replay rests on. A run has those of them that it came to
write."""
_PIECE_BYTES = 8 << 20
JUDGED = ("verdict.json", "impact.json")
NO_MANIFEST = "its run did not end in order: it has no manifest.json, which would prove that its files are whole"


class RowGroupProof(Frozen):
    """Describes what the row group of a partition was: so a damage costs only the partitions that it concerns. Partitions
    that share a row group have one each, with the same bytes."""

    partition: int
    begin: int = Field(ge=0)
    """Where it begins in the file, in bytes."""
    size: int = Field(gt=0)
    sha256: str


class FileProof(Frozen):
    """Describes what one file was when the manifest was written."""

    part: Part
    size: int = Field(ge=0)
    """The size in bytes."""
    sha256: str
    rows: int | None = None
    """How many rows a table has."""
    row_groups: tuple[RowGroupProof, ...] = ()
    """For a table that is clustered by partition: what each row group was."""
    rest: str = ""
    """For such a table: the SHA-256 of everything else, which is above all the footer."""


class Manifest(Frozen):
    """The whole of `manifest.json`."""

    format: Literal[2] = FORMAT
    files: dict[str, FileProof]
    """For each path within the run directory, what the file was."""
    damaged: dict[str, str] = Field(default_factory=dict)
    """Files of rows that were damaged when the manifest was written: path → what is wrong."""
    sha256: str = ""
    """The checksum of all the rest of the manifest."""

    def own_digest(self) -> str:
        """Returns what `sha256` must be."""
        return own_digest_of(self.model_dump_json().encode())


def own_digest_of(manifest: bytes) -> str:
    """Returns what `sha256` of a manifest must be: the digest of all the rest, without spaces. ValueError if it is no JSON
    object. (It is three times as fast as to validate the manifest and to write it again.)"""
    document = from_json(manifest)
    if not isinstance(document, dict):
        raise ValueError("a manifest is a JSON object")
    return hashlib.sha256(to_json({name: value for name, value in document.items() if name != "sha256"})).hexdigest()


@dataclass(frozen=True, slots=True)
class Condition:
    """Describes what is known about the files of a stored run."""

    sealed: bool
    """Whether there is a manifest. A run that was killed has none."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """For each damaged path within the run directory, what is wrong with it."""
    lost: tuple[LostRows, ...] = ()
    """The damaged rows, if all damage is in rows of known partitions; otherwise none."""

    @property
    def bounded(self) -> bool:
        """Returns whether files are damaged, and it is proven which partitions that concerns. All others are as they
        were written."""
        return bool(self.lost)

    @property
    def readable(self) -> bool:
        """Returns whether anything of the run may be read: of one whose damage is not bounded, no file means what it
        says."""
        return not self.damaged or self.bounded

    @property
    def whole(self) -> bool:
        """Returns whether everything that was asked about is there as it was written."""
        return self.sealed and not self.damaged

    @property
    def doubts(self) -> tuple[str, ...]:
        """A reason for each file that is damaged, or the reason that nothing is proven."""
        damage = [f"the evidence is damaged: {name} {why}" for name, why in self.damaged.items()]
        return tuple(damage or ([] if self.sealed else [NO_MANIFEST]))


WHOLE_HISTORY = Condition(sealed=True)


def seal_recorded(run: RunDirectory) -> None:
    """Writes a new manifest of everything that was recorded, and of a history that was made without rows. A run writes
    this last: what is written later counts as damage."""
    damaged = {f"rows/{name}": why for name, why in damaged_rows(run.rows).items()}
    imported = not any(run.rows.glob("*.rows"))
    files = [*_recorded(run), *(_tables(run) if imported else ())]
    _write(run, Manifest(files=_proofs(run, files), damaged=damaged))


def seal_history(run: RunDirectory) -> None:
    """Adds the tables of the history, which were made of proven rows. It does nothing for a run without a manifest."""
    _reseal(run, "history", _tables(run))


def seal_judged(run: RunDirectory) -> None:
    """Adds findings and verdict. It does nothing for a run without a manifest."""
    _reseal(run, "judged", _judged(run))


Stretch = tuple[str, int, int]
"""Bytes of a file: its path within the run directory, where they begin, and how many there are."""
Hashing = Callable[[Sequence[Stretch]], Sequence[str]]
"""Returns what `digests_of` does, maybe from elsewhere."""


def condition_of(
    run: RunDirectory, parts: Sequence[Part] = ("recorded", "history"), hashing: Hashing | None = None
) -> Condition:
    """Compares every file of these parts with the manifest. It reads all of them, at the speed of the disk or of
    SHA-256. `hashing`: hashes rows, and the row groups of tables that are clustered by partition, in the place of this
    process, which reads only what is left: footers, small tables, and what could not be read there.

    A history that is not in the manifest, because a check was killed while it was made, is no damage: it is made again.
    Either the rows or the history made of them may be removed as a whole: the other one proves as much.
    """
    if not run.manifest.is_file():
        found = {f"rows/{name}": why for name, why in damaged_rows(run.rows).items()}
        return Condition(sealed=False, damaged=found)
    try:
        manifest = read_manifest(run)
    except HistoryUnreadable as error:
        return Condition(sealed=True, damaged={run.manifest.name: str(error).partition(f"{run.manifest} ")[2]})
    wanted = {name: proof for name, proof in manifest.files.items() if proof.part in parts}
    if (spared := _removed_whole(run, manifest)) is not None:
        wanted = {name: proof for name, proof in wanted.items() if not name.startswith(spared)}
    differing = _compared(run, wanted, hashing)
    damaged = dict(manifest.damaged) | differing
    there = {"recorded": _recorded(run), "history": _tables(run), "judged": _judged(run)}
    known = {proof.part for proof in manifest.files.values()}
    for part in (part for part in parts if part in known):
        names = (_name(run, path) for path in there[part])
        damaged |= {
            name: "was added later: the manifest does not name it" for name in names if name not in manifest.files
        }
    damage = [_lost(run, name, wanted[name], why) for name, why in sorted(differing.items())]
    lost = tuple(one for one in damage if one is not None)
    return Condition(True, dict(sorted(damaged.items())), lost if len(lost) == len(damaged) else ())


def _lost(run: RunDirectory, name: str, proof: FileProof, why: str) -> LostRows | None:
    """Returns which rows of a file that differs are damaged. None: it is no table that is clustered by partition, so the
    damage may concern everything."""
    path = run.path / name
    if path.parent != run.history or not proof.rest:
        return None
    every = frozenset(group.partition for group in proof.row_groups)
    whole = LostRows(path.stem, every, whole=True, why=why)
    try:
        with _opened(run, path) as file:
            if file.size() != proof.size or _rest(file, proof.row_groups, proof.size) != proof.rest:
                return whole  # without the footer nobody can say where the values of a column are
            groups = {group.begin: group for group in proof.row_groups}
            spoiled = {at for at, g in groups.items() if _sha256(file, at, g.size) != g.sha256}
            damaged = {group.partition for group in proof.row_groups if group.begin in spoiled}
    except OSError:
        return whole
    return LostRows(path.stem, frozenset(damaged), whole=False, why=why)


SHARED_BYTES = 2 << 30
"""From so many bytes of rows and tables on tasks hash them: one process takes some seconds for these."""


def is_large(run: RunDirectory) -> bool:
    """Returns whether rows and tables are so large, by the manifest, that others should help to hash them."""
    try:
        files = read_manifest(run).files.items()
    except HistoryUnreadable:
        return False
    return sum(proof.size for name, proof in files if proof.rest or _are_rows(run, name)) >= SHARED_BYTES


def _are_rows(run: RunDirectory, name: str) -> bool:
    """Returns whether a file has rows, and others see it under the same path. Rows from an object store were copied here."""
    return run.tables is None and name.startswith("rows/")


def digests_of(run: RunDirectory, stretches: Sequence[Stretch]) -> list[str]:
    """Returns the SHA-256 of each of these stretches; nothing for one that cannot be read."""
    found = []
    for name, begin, size in stretches:
        try:
            with _opened(run, run.path / name) as file:
                found.append(_sha256(file, begin, size))
        except OSError:
            found.append("")
    return found


def _opened(run: RunDirectory, path: Path) -> pa.NativeFile:
    return pa.OSFile(str(path)) if run.tables is None else run.tables.open(path.name)


def _rest(file: pa.NativeFile, groups: Sequence[RowGroupProof], size: int) -> str:
    """Returns the SHA-256 of what is between the row groups, before and after them."""
    digest, at = hashlib.sha256(), 0
    for group in sorted(groups, key=lambda group: group.begin):
        digest.update(file.read_at(max(0, group.begin - at), at))
        at = group.begin + group.size
    digest.update(file.read_at(max(0, size - at), at))
    return digest.hexdigest()


def _sha256(file: pa.NativeFile, begin: int, size: int) -> str:
    digest = hashlib.sha256()
    for at in range(begin, begin + size, _PIECE_BYTES):
        digest.update(file.read_at(min(_PIECE_BYTES, begin + size - at), at))
    return digest.hexdigest()


def _removed_whole(run: RunDirectory, manifest: Manifest) -> str | None:
    """Returns the folder of which all files are gone while the other is there, rows or history, as names in the manifest
    begin. None: neither is gone."""
    folders = {"rows/": any(run.rows.glob("*.rows")), "history/": bool(_tables(run))}
    if any(not any(name.startswith(folder) for name in manifest.files) for folder in folders):
        return None
    gone = [folder for folder, there in folders.items() if not there]
    return gone[0] if len(gone) == 1 else None


@contextmanager
def naming_unproven(run: RunDirectory, condition: Condition) -> Iterator[None]:
    """A context in which an error is the fault of the files, if nothing proves them: it becomes HistoryUnreadable. If
    they are proven, an error is a mistake of prozess."""
    try:
        yield
    except ProzessError:
        raise
    except Exception as error:
        if condition.sealed:
            raise
        raise HistoryUnreadable(
            f"{run.path} cannot be read: {NO_MANIFEST}, and its files contradict one another or the format "
            f"({type(error).__name__}: {error}). Make the run again."
        ) from error


def refuse_damaged(run: RunDirectory, *paths: Path) -> None:
    """Raises HistoryUnreadable if one of these files is there and differs from the manifest. It does nothing for a run
    without a manifest, because nobody recorded what its files were."""
    if not run.manifest.is_file():
        return
    manifest = read_manifest(run)
    names = [_name(run, path) for path in paths]
    damaged = _compared(run, {name: manifest.files[name] for name in names if name in manifest.files})
    for name, why in damaged.items():
        raise HistoryUnreadable(f"{run.path / name} {why}. {_way_out(run, name)}.")


def is_intact(run: RunDirectory, path: Path) -> bool:
    """Returns whether the file is there, and as the manifest says, if there is one."""
    try:
        refuse_damaged(run, path)
    except HistoryUnreadable:
        return False
    return path.is_file()


def plan_of(run: RunDirectory, condition: Condition) -> Plan:
    """Returns the plan of a run. NotJudged if it cannot be read because it is damaged; otherwise BadInput or
    HistoryUnreadable."""
    try:
        text = read_document(run.plan)
        return parse_plan(text, source=str(run.plan))
    except (OSError, UnicodeDecodeError, ProzessError) as error:
        if run.plan.name not in condition.damaged:
            if isinstance(error, ProzessError):
                raise
            raise HistoryUnreadable(f"{run.plan} cannot be read: {error}.") from error
        raise NotJudged(
            f"{run.plan} {condition.damaged[run.plan.name]}, and everything rests on it: nothing of this run can be judged. "
            "Put back the file that was there, or make the run again."
        ) from error


def has_history(run: RunDirectory) -> bool:
    """Returns whether the history is there, and in the manifest."""
    return bool(_tables(run)) and any(proof.part == "history" for proof in read_manifest(run).files.values())


def read_manifest(run: RunDirectory) -> Manifest:
    """Returns the manifest. HistoryUnreadable if it is missing, is no manifest, or was changed."""
    try:
        content = read_document(run.manifest).encode()
        manifest = Manifest.model_validate_json(content)
    except OSError as error:
        raise HistoryUnreadable(f"{run.manifest} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or "the file"
        raise HistoryUnreadable(f"{run.manifest} is no manifest of this version: {where}: {problem['msg']}") from error
    if outside := [name for name in (*manifest.files, *manifest.damaged) if not is_within(name)]:
        raise HistoryUnreadable(
            f"{run.manifest} is no manifest: it names {outside[0]!a}, which is not in the run's directory"
        )
    if manifest.sha256 != own_digest_of(content):
        raise HistoryUnreadable(f"{run.manifest} has changed since it was written (its own SHA-256 differs)")
    return manifest


def _recorded(run: RunDirectory) -> list[Path]:
    named = (run.path / name for name in RECORDED)
    return [*(path for path in named if path.is_file()), *sorted(run.rows.glob("*.rows"))]


def _tables(run: RunDirectory) -> list[Path]:
    """The tables, as they would be named if they were in the run directory."""
    if run.tables is not None:
        return [run.history / name for name in run.tables.names()]
    return sorted(run.history.glob("*.parquet"))


def _judged(run: RunDirectory) -> list[Path]:
    named = (run.path / name for name in JUDGED)
    return [*(path for path in named if path.is_file()), *sorted(run.findings.glob("*.parquet"))]


def _way_out(run: RunDirectory, name: str) -> str:
    if name in JUDGED or name.startswith("findings/"):
        return f"`prozess check {run.path}` makes it again"
    return "Put back the file that was there, or make the run again"


def _part_of(run: RunDirectory, path: Path) -> Part:
    if path.parent == run.history:
        return "history"
    return "judged" if path.parent == run.findings or path.name in JUDGED else "recorded"


def _name(run: RunDirectory, path: Path) -> str:
    return path.relative_to(run.path).as_posix()


def _proofs(run: RunDirectory, paths: Iterable[Path]) -> dict[str, FileProof]:
    def prove(path: Path) -> FileProof:
        size, sha256 = _digest(path)
        proof = FileProof(part=_part_of(run, path), size=size, sha256=sha256)
        if path.suffix == ".rows":
            return proof.model_copy(update={"rows": rows_in(path)})
        if path.suffix != ".parquet":
            return proof
        footer = _footer(path)
        proof = proof.model_copy(update={"rows": int(footer.num_rows)})
        return _with_row_groups(path, footer, proof) if path.parent == run.history else proof

    found = list(paths)
    with _pool() as pool:
        return {_name(run, path): proof for path, proof in zip(found, pool.map(prove, found), strict=True)}


def _compared(run: RunDirectory, wanted: Mapping[str, FileProof], hashing: Hashing | None = None) -> dict[str, str]:
    stretches = _stretches(run, wanted) if hashing else {}
    found = hashing(list(stretches)) if hashing and stretches else ()
    hashed = list(zip(stretches.items(), found, strict=True))
    # What could not be read elsewhere may be readable here; if not, the error is the one that is found here.
    shared = {name for name, _, _ in stretches} - {name for ((name, _, _), _), digest in hashed if not digest}
    differing = {name for ((name, _, _), sha256), digest in hashed if sha256 != digest}

    def wrong(name: str) -> str | None:
        proof, path = wanted[name], run.path / name
        far = run.tables if path.parent == run.history else None
        try:
            if far is None and (size := path.stat().st_size) != proof.size:
                return f"has {size:,} bytes instead of {proof.size:,}"
            if name in shared and not proof.rest:
                path.open("rb").close()  # may it be read here, too?
                whole, other = name not in differing, False
            elif name in shared:
                with _opened(run, path) as file:
                    size = file.size()
                    # Row groups and the rest of such a table are all of its bytes.
                    whole = size == proof.size and _rest(file, proof.row_groups, size) == proof.rest
                whole, other = whole and name not in differing, size != proof.size
            else:
                size, sha256 = _digest(path) if far is None else far.digest(path.name)
                whole, other = sha256 == proof.sha256, size != proof.size
            if other:
                return f"has {size:,} bytes instead of {proof.size:,}"
            return None if whole else "has changed since it was written (its SHA-256 differs)"
        except FileNotFoundError:
            return "is missing"
        except OSError as error:
            return f"cannot be read ({error.strerror or str(error).splitlines()[0]})"

    with _pool() as pool:
        return {name: why for name, why in zip(wanted, pool.map(wrong, wanted), strict=True) if why is not None}


def _stretches(run: RunDirectory, wanted: Mapping[str, FileProof]) -> dict[Stretch, str]:
    """Returns what others can hash of these files, each with what its SHA-256 must be: row groups, or whole files."""
    found: dict[Stretch, str] = {}
    for name, proof in wanted.items():
        if proof.rest:
            found |= {(name, group.begin, group.size): group.sha256 for group in proof.row_groups}
        elif _are_rows(run, name):
            found[name, 0, proof.size] = proof.sha256
    return found


def _pool() -> ThreadPoolExecutor:
    """Returns a pool of threads, because hashing releases the interpreter's lock."""
    return ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="manifest")


def _digest(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


def _with_row_groups(path: Path, footer: pq.FileMetaData, proof: FileProof) -> FileProof:
    """Adds what each row group is, if the table is clustered by partition."""
    table = TABLES.get(path.stem)
    if table is None or not table.partitioned:
        return proof
    try:
        row_ranges = row_ranges_of(footer, table)
    except NotClustered:
        return proof  # it is not what we write: then a damage concerns everything
    found = []
    with pa.OSFile(str(path)) as file:
        for number, of_group in groupby(row_ranges, lambda one: one.group):
            begin, end = _extent(footer.row_group(number))
            digest = _sha256(file, begin, end - begin)
            found += [
                RowGroupProof(partition=one.partition, begin=begin, size=end - begin, sha256=digest) for one in of_group
            ]
        return proof.model_copy(update={"row_groups": tuple(found), "rest": _rest(file, found, proof.size)})


def _extent(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """Returns where the pages of a row group begin and end in the file."""
    columns = [group.column(number) for number in range(group.num_columns)]
    begins = [min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in columns]
    return min(begins), max(begin + c.total_compressed_size for begin, c in zip(begins, columns, strict=True))


def _footer(path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise HistoryUnreadable(f"{path} cannot be read: {error}.") from error


def _reseal(run: RunDirectory, part: Part, paths: Iterable[Path]) -> None:
    if not run.manifest.is_file():
        return
    manifest = read_manifest(run)
    kept = {name: proof for name, proof in manifest.files.items() if proof.part != part}
    _write(run, manifest.model_copy(update={"files": kept | _proofs(run, paths)}))


def _write(run: RunDirectory, manifest: Manifest) -> None:
    manifest = manifest.model_copy(update={"sha256": manifest.own_digest()})
    # There may be a proof for each of thousands of row groups: json would take ten times as long.
    write_whole(run.manifest, manifest.model_dump_json(indent=1))
