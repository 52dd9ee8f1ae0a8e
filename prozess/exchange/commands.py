"""Carries out the commands `import`, `export` and `generate`: options as texts in, files out, a line for the user back."""

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from prozess.exchange.imported_run import Imported, ImportOptions, new_directory, write_imported
from prozess.harness.config.configuration import IsolationLevel
from prozess.harness.errors import BadInput, HistoryUnreadable
from prozess.harness.inputs import refuse_unless_file
from prozess.harness.run_directory import RunDirectory

_YES_OR_NO = ("auto", "yes", "no")
_FAULTS = ("unstated", "none")


def import_options(
    settings: Mapping[str, Any],
    isolation: str,
    faults: str,
    kafka_version: str | None,
    decide: Sequence[str] = (),
    *,
    same_clock: bool = False,
) -> ImportOptions:
    """Returns the user's options about a history. BadInput for unknown words."""
    from prozess.harness.guarantees.table.cell_configuration import parse_version
    from prozess.harness.guarantees.verdict.judge import parse_decide

    _one_of("--isolation", isolation, get_args(IsolationLevel))
    _one_of("--faults", faults, _FAULTS)
    if kafka_version is not None and parse_version(kafka_version) is None:
        raise BadInput(f"--kafka-version {kafka_version!r} is not a version such as 4.1.0.")
    return ImportOptions(
        settings=settings,
        isolation=isolation,  # type: ignore[arg-type] # one of them
        faults=faults,  # type: ignore[arg-type]
        kafka_version=kafka_version,
        decide=parse_decide(decide),
        same_clock=same_clock,
    )


def import_jepsen(file: Path, out: Path, options: ImportOptions, *, transactions: str) -> str:
    """Makes a run of Jepsen's history, and returns a line that describes it."""
    from prozess.exchange.jepsen.history import read_jepsen

    _one_of("--transactions", transactions, _YES_OR_NO)
    refuse_unless_file(file, "the history.edn of a Jepsen test")
    return _imported(out, options, lambda: read_jepsen(file, transactions=transactions))  # type: ignore[arg-type]


def import_verifiable(files: Sequence[Path], out: Path, options: ImportOptions) -> str:
    """Makes a run of the output of verifiable clients, and returns a line that describes it."""
    from prozess.exchange.verifiable.events import read_verifiable

    return _imported(out, options, lambda: read_verifiable(files))


def _imported(out: Path, options: ImportOptions, read: Callable[[], Imported]) -> str:
    run = new_directory(out)
    try:
        imported = read()
        write_imported(run, imported, options, command=_command())
    except BaseException:
        _take_back(run)
        raise
    sends, reads = len(imported.sends), len(imported.reads)
    text = f"{sends:,} sends, {reads:,} reads, {len(imported.topics):,} partitions, {len(imported.clients):,} clients"
    notes = "".join(f"; {note}" for note in imported.notes)
    return f"{run.path}: {text}{notes}. Next: prozess check {shlex.quote(str(out))}"


def _take_back(run: RunDirectory) -> None:
    """Empties the directory again. A half-written run would look like a whole one."""
    for path in run.path.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _command() -> str:
    return shlex.join(["prozess", *sys.argv[1:]])


def _one_of(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise BadInput(f"{option} {value!r} is not known. Known: {', '.join(known)}.")


def generate_history(
    out: Path,
    *,
    rows: int,
    partitions: int,
    plant: str,
    workloads: Sequence[str],
    seed: int,
    transaction_records: int | None = None,
) -> str:
    """Generates a run, and returns a line that describes it."""
    from prozess.exchange.synthetic.history import GenerateOptions, generate
    from prozess.exchange.synthetic.plants import parse_plants

    if seed < 0:
        raise BadInput(f"--seed {seed} is negative. Give a number from 0.")
    planted = parse_plants(plant)
    options = GenerateOptions(
        rows=rows,
        partitions=partitions,
        planted=planted,
        kinds=tuple(workloads),
        seed=seed,
        transaction_records=transaction_records,
    )
    run = new_directory(out)
    try:
        manifest = generate(run, options, command=_command())
    except BaseException:
        _take_back(run)
        raise
    text = ", ".join(f"{name} {count:,}" for name, count in manifest["expected"].items()) or "nothing"
    return f"{run.path}: {manifest['rows']:,} rows; a check finds {text}. Next: prozess check {shlex.quote(str(out))}"


def export_jepsen(run_directory: Path, out: Path) -> str:
    """Writes a run's history as Jepsen would, and returns a line that describes it."""
    from prozess.exchange.jepsen.history import write_jepsen
    from prozess.harness.history.convert import ensure_history
    from prozess.harness.history.manifest import condition_of
    from prozess.harness.history.reader import History

    run = RunDirectory.existing(run_directory)
    if (condition := condition_of(run)).damaged:
        raise HistoryUnreadable(f"{run.path}: {condition.doubts[0]}. Such a history is not exported.")
    ensure_history(run)
    if out.exists():
        raise BadInput(f"--out {str(out)!r} is there already. Give another name, or remove it.")
    written = write_jepsen(History.open(run), out)
    return f"{out}: {written}"
