"""Small histories as Jepsen writes them: operations in, a checked run out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.exchange.imported_run import ImportOptions, new_directory, write_imported
from prozess.exchange.jepsen.history import read_jepsen
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import TrialVerdict


def edn(value: Any) -> str:
    """A Python value as EDN: texts that begin with a colon are keywords."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value if value.startswith(":") else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{edn(k)} {edn(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(edn, value)) + "]"
    return str(value)


class Jepsen:
    """Writes operations one after the other."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, process: Any, kind: str, f: str, value: Any, **extra: Any) -> None:
        """One line, a microsecond after the one before."""
        number = len(self.lines)
        more = {f":{name.replace('_', '-')}": v for name, v in extra.items()}
        operation = {":index": number, ":time": 1000 * number, ":type": f":{kind}", ":process": process, ":f": f":{f}"}
        self.lines.append("#jepsen.history.Op" + edn(operation | {":value": value} | more))

    def send(self, process: int, key: Any, value: Any, offset: int | None = None, *, kind: str = "ok") -> None:
        """Invoked and completed; without an offset as it was invoked."""
        self.line(process, "invoke", "send", [[":send", key, value]])
        done = value if offset is None and kind != "ok" else [offset, value]
        self.line(process, kind, "send", [[":send", key, done]])

    def poll(self, process: int, shown: dict[Any, Sequence[Sequence[Any]]], *, kind: str = "ok", **extra: Any) -> None:
        """Invoked and completed."""
        self.line(process, "invoke", "poll", [[":poll"]])
        self.line(process, kind, "poll", [[":poll", shown]], **extra)

    def txn(self, process: int, asked: Sequence[Any], done: Sequence[Any], *, kind: str = "ok") -> None:
        """A transaction."""
        self.line(process, "invoke", "txn", asked)
        self.line(process, kind, "txn", done)

    def assign(self, process: int, keys: Sequence[Any], f: str = "assign", **extra: Any) -> None:
        """Assign, or subscribe."""
        self.line(process, "invoke", f, keys, **extra)
        self.line(process, "ok", f, keys, **extra)

    def assign_from_start(self, process: int, keys: Sequence[Any]) -> None:
        """Assign, and seek to the beginning."""
        self.assign(process, keys, **{"seek_to_beginning?": True})

    def write(self, path: Path) -> Path:
        path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        return path

    def found(self, folder: Path, **options: Any) -> dict[str, int]:
        """What is found in it: only what is there."""
        return found(self.checked(folder, **options)[1])

    def checked(self, folder: Path, *, transactions: Any = "auto", **options: Any) -> tuple[RunDirectory, TrialVerdict]:
        """Imported, checked and judged."""
        path = self.write(folder / "history.edn")
        run = new_directory(folder / "run")
        write_imported(run, read_jepsen(path, transactions=transactions), ImportOptions(**options), command="test")
        return run, judge_run(run, check_run(run, CheckOptions(engine="local")))


def found(verdict: TrialVerdict) -> dict[str, int]:
    """Anomaly or fact → count, only what is there."""
    return {name: count for name, count in verdict.findings.items() if count}
