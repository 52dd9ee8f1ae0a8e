"""Writes the tables of docs/versions.md: `python -m tools.versions_page RUNS…`.

One is made from runs of the campaign `versions`. RUNS are run directories, or directories that hold them. For several runs of
one trial on one cluster the newest counts, and what the table says of others stays as it is: those runs are gone. The other
table lists what releases of librdkafka fixed; without RUNS it alone is written."""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prozess.harness import installation
from prozess.harness.config.configuration import version_numbers
from prozess.harness.config.librdkafka_fixes import FIXES

DOCUMENT = installation.SEARCH_PATH / "docs" / "versions.md"
MARK = "<!-- Made from runs by `python -m tools.versions_page`. -->\n"
FIXES_MARK = "<!-- Made from harness/config/librdkafka_fixes.py by `python -m tools.versions_page`. -->\n"
FIXES_END = "<!-- The end of that table. -->\n"
TRIALS = ("smoke", "transactions", "groups")
_STAGES = ("prepare", "run", "check", "judge", "report")


_NOT_RUN = "not run"
_READY = re.compile(r"(\d+)(?:–(\d+))? s")
_SENTENCE = re.compile(
    r"^\* \*\*(?P<version>[\d.]+), (?P<mode>[\w-]+), `(?P<trial>\w+)`\.\*\* (?P<sentence>.*)$", re.MULTILINE
)
Cluster = tuple[str, str]
"""A release, and its metadata mode."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: of one cluster, what each trial showed, and how long it took until it was ready."""

    cells: Mapping[str, str]
    ready_s: tuple[float, ...] = ()
    sentences: Mapping[str, str] = field(default_factory=dict)
    """Trial → the verdict's sentence, where it did not hold."""

    def with_newer(self, newer: "Row") -> "Row":
        """Returns the row in which a newer run of a trial takes the place of an older one."""
        kept = {trial: sentence for trial, sentence in self.sentences.items() if trial not in newer.cells}
        return Row({**self.cells, **newer.cells}, (*self.ready_s, *newer.ready_s), {**kept, **newer.sentences})


@dataclass(frozen=True, slots=True)
class Shown:
    """What one run showed."""

    version: str
    mode: str
    trial: str
    verdict: str
    sentence: str
    controls: str
    ready_s: float
    seconds: float

    @property
    def cell(self) -> str:
        """Returns its cell of the table."""
        return f"{self.verdict}, {self.controls}, {self.seconds:.0f} s"


def runs_in(folders: Iterable[Path]) -> Iterator[Path]:
    """Yields the run directories that have a verdict, the oldest first."""
    found = {verdict.parent for folder in folders for verdict in folder.glob("**/verdict.json")}
    yield from sorted(found, key=lambda run: (run / "verdict.json").stat().st_mtime_ns)


def shown_by(run: Path) -> Shown:
    """Reads what a run showed."""
    verdict, plan, seconds = (_read(run / name) for name in ("verdict.json", "plan.json", "seconds.json"))
    controls = verdict["controls"]
    fired = sum(bool(control["fired_in"]) for control in controls)
    variant = plan["variant"]
    return Shown(
        version=variant["kafka_version"],
        mode=variant["metadata_mode"],
        trial=str(verdict["trial"]).removesuffix("-classic"),
        verdict=verdict["verdict"],
        sentence=verdict["sentence"],
        controls=f"{fired} of {len(controls)} controls fired",
        ready_s=seconds["run: cluster"],
        seconds=sum(seconds.get(stage, 0.0) for stage in _STAGES),
    )


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def rows_of(shown: Sequence[Shown]) -> dict[Cluster, Row]:
    """Returns the rows that these runs make, the oldest run first: of one trial on one cluster the newest counts."""
    newest = {(one.version, one.mode, one.trial): one for one in shown if one.trial in TRIALS}
    found: dict[Cluster, Row] = {}
    for one in newest.values():
        sentences = {} if one.verdict == "held" else {one.trial: one.sentence}
        row = Row({one.trial: one.cell}, (one.ready_s,), sentences)
        found[one.version, one.mode] = found.get((one.version, one.mode), Row({})).with_newer(row)
    return found


def rows_in(text: str) -> dict[Cluster, Row]:
    """Returns the rows of a table that stands: the inverse of `table`, but for the seconds in between."""
    sentences: dict[Cluster, dict[str, str]] = {}
    for found in _SENTENCE.finditer(text):
        sentences.setdefault((found["version"], found["mode"]), {})[found["trial"]] = found["sentence"]
    rows = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.strip("|").split("|")]
        if not line.startswith("| ") or len(parts) != len(TRIALS) + 3 or parts[0] == "release":
            continue
        version, mode, ready, *cells = parts
        seconds = _READY.fullmatch(ready)
        assert seconds is not None, line
        known = {trial: cell for trial, cell in zip(TRIALS, cells, strict=True) if cell != _NOT_RUN}
        rows[version, mode] = Row(
            known, tuple(float(s) for s in seconds.groups() if s), sentences.get((version, mode), {})
        )
    return rows


def table(rows: Mapping[Cluster, Row]) -> str:
    """Returns the table, and a sentence for each run that did not hold."""
    clusters = sorted(rows, key=lambda key: (version_numbers(key[0]), key[1] != "zookeeper"))
    lines = [
        f"| release | cluster | ready | {' | '.join(f'`{trial}`' for trial in TRIALS)} |",
        "|---|---|---|---|---|---|",
    ]
    found = []
    for version, mode in clusters:
        row = rows[version, mode]
        low, high = (f"{s:.0f}" for s in (min(row.ready_s), max(row.ready_s)))
        ready = f"{low} s" if low == high else f"{low}–{high} s"
        cells = (row.cells.get(trial, _NOT_RUN) for trial in TRIALS)
        lines.append(f"| {version} | {mode} | {ready} | {' | '.join(cells)} |")
        found += [f"* **{version}, {mode}, `{trial}`.** {row.sentences[trial]}" for trial in sorted(row.sentences)]
    return "\n".join([*lines, *([""] if found else []), *found]) + "\n"


def fixes_table() -> str:
    """Returns the table of what releases of librdkafka fixed."""
    lines = ["| fixed in | defect | since | touches | what happens |", "|---|---|---|---|---|"]
    for fix in FIXES:
        lines.append(f"| {fix.fixed} | {fix.id} | {fix.since or 'unknown'} | {fix.touches} | {fix.what} |")
    return "\n".join(lines) + "\n"


def main(folders: Sequence[str]) -> None:
    """Write the tables into the page, behind their marks."""
    if missing := [folder for folder in folders if not Path(folder).is_dir()]:
        sys.exit(f"{missing[0]!r} is no directory. Usage: python -m tools.versions_page [FOLDER OF RUNS …]")
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(FIXES_MARK)
    _, _, after = rest.partition(FIXES_END)
    text = f"{before}{FIXES_MARK}\n{fixes_table()}\n{FIXES_END}{after}"
    head, _, standing = text.partition(MARK)
    shown = [shown_by(run) for run in runs_in(map(Path, folders))]
    rows = rows_in(standing)
    for cluster, row in rows_of(shown).items():
        rows[cluster] = rows.get(cluster, Row({})).with_newer(row)
    DOCUMENT.write_text(head + MARK + "\n" + table(rows), encoding="utf-8")
    sys.stdout.write(f"{len(shown)} runs; wrote {DOCUMENT}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
