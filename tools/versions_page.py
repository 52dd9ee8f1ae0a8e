"""Writes the table of docs/versions.md from the runs of the campaign `versions`: `python -m tools.versions_page RUNS…`.

RUNS are run directories, or directories that hold them. Of several runs of one trial on one cluster the newest counts."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prozess.harness import installation
from prozess.harness.config.configuration import version_numbers

DOCUMENT = installation.SEARCH_PATH / "docs" / "versions.md"
MARK = "<!-- Made from runs by `python -m tools.versions_page`. -->\n"
TRIALS = ("smoke", "transactions", "groups")
_STAGES = ("prepare", "run", "check", "judge", "report")


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


def runs_in(places: Iterable[Path]) -> Iterator[Path]:
    """Yields the run directories that have a verdict, the oldest first."""
    found = {verdict.parent for place in places for verdict in place.glob("**/verdict.json")}
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


def table(shown: Sequence[Shown]) -> str:
    """Returns the table, and a sentence for each run that did not hold."""
    newest = {(one.version, one.mode, one.trial): one for one in shown if one.trial in TRIALS}
    clusters = sorted({key[:2] for key in newest}, key=lambda key: (version_numbers(key[0]), key[1] != "zookeeper"))
    lines = [
        f"| release | cluster | ready | {' | '.join(f'`{trial}`' for trial in TRIALS)} |",
        "|---|---|---|---|---|---|",
    ]
    for version, mode in clusters:
        of_cluster = [newest.get((version, mode, trial)) for trial in TRIALS]
        ready_s = [one.ready_s for one in of_cluster if one is not None]
        ready = f"{min(ready_s):.0f} s" if min(ready_s) == max(ready_s) else f"{min(ready_s):.0f}–{max(ready_s):.0f} s"
        cells = ("not run" if one is None else one.cell for one in of_cluster)
        lines.append(f"| {version} | {mode} | {ready} | {' | '.join(cells)} |")
    others = [one for one in newest.values() if one.verdict != "held"]
    others.sort(key=lambda one: (version_numbers(one.version), one.mode, one.trial))
    told = [f"* **{one.version}, {one.mode}, `{one.trial}`.** {one.sentence}" for one in others]
    return "\n".join([*lines, *([""] if told else []), *told]) + "\n"


def main(places: Sequence[str]) -> None:
    """Write the table into the page, behind the mark."""
    head, _, _ = DOCUMENT.read_text(encoding="utf-8").partition(MARK)
    shown = [shown_by(run) for run in runs_in(map(Path, places))]
    DOCUMENT.write_text(head + MARK + "\n" + table(shown), encoding="utf-8")
    sys.stdout.write(f"{len(shown)} runs; wrote {DOCUMENT}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
