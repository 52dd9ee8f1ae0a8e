"""Where the files of a run are. Every stage reads its input here and writes its output here; each can be repeated alone.

plan.json          stage plan: enough to run it again
rows/              stage run: rows as the clients wrote them (harness.rows); survive any SIGKILL
source.json        only of a history that was imported or generated: the command, and what was planted
clock.json         {"start_monotonic_ns", "wall_minus_monotonic_ns", "wall_error_ns"}: the trial's clock, from the
                   moment it started; missing = it never did
dictionaries.json  name → list of texts, for the columns that hold dictionary codes
journal.jsonl      undo journal of the nemesis
lasting.json       while the run has something in a cluster that was there before it (clusters.lasting): as it was found
resolved.json      what the roles of each fault resolved to, and when
versions.json      versions of everything that the run depended on (harness.versions)
compose.yaml       only of the compose backend; written before anything is made: the run may have left something in the engine
cluster.json       facts about the cluster (Cluster.describe)
events.jsonl       progress of the run stage, one JSON object per line
recovery.json      list of what was awaited in vain of the cluster when it was healed (harness.stages.recovery); missing = it
                   was not come so far
hanging.json       list of the transactions that were still open when the audit was to begin, and what became of them
                   (harness.stages.hanging); missing = nobody looked
logs/              server logs of the nodes, output of the clients
history/           Parquet, one file per table (harness.history); partitioned tables have one row group per partition
findings/          stage check: findings.parquet, witnesses.parquet, windows.parquet
impact.json        stage check: what each fault cost the clients (harness.impact)
verdict.json       stage judge
report.html, junit.xml, summary.md    stage report
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import BadInput, HistoryUnreadable


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """One run's directory. Paths only; creating is `create`."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def rows(self) -> Path:
        return self.path / "rows"

    @property
    def clock(self) -> Path:
        return self.path / "clock.json"

    @property
    def dictionaries(self) -> Path:
        return self.path / "dictionaries.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def resolved(self) -> Path:
        return self.path / "resolved.json"

    @property
    def lasting(self) -> Path:
        return self.path / "lasting.json"

    @property
    def versions(self) -> Path:
        return self.path / "versions.json"

    @property
    def compose(self) -> Path:
        return self.path / "compose.yaml"

    @property
    def cluster(self) -> Path:
        return self.path / "cluster.json"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def recovery(self) -> Path:
        return self.path / "recovery.json"

    @property
    def hanging(self) -> Path:
        return self.path / "hanging.json"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def nodes(self) -> Path:
        """Data directories of local nodes while they run."""
        return self.path / "nodes"

    @property
    def source(self) -> Path:
        """Of a history that was imported or generated: {"command", …}, what made it out of what."""
        return self.path / "source.json"

    @property
    def history(self) -> Path:
        return self.path / "history"

    @property
    def findings(self) -> Path:
        return self.path / "findings"

    @property
    def impact(self) -> Path:
        return self.path / "impact.json"

    @property
    def verdict(self) -> Path:
        return self.path / "verdict.json"

    def create(self) -> None:
        """Make the directories a run writes into."""
        for directory in (self.path, self.rows, self.logs, self.nodes):
            directory.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def existing(path: Path) -> "RunDirectory":
        """A directory that some run left. BadInput if it is none."""
        run = RunDirectory(path.resolve())
        if not run.plan.is_file():
            raise BadInput(f"{str(path)!r} is not a run directory: it has no plan.json. Give a directory under runs/.")
        return run


def write_json(path: Path, value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write atomically: a reader sees the old file or the new one, whole."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")
    part.replace(path)


def read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """The value in a file of a run. HistoryUnreadable, naming the file, if it is missing or torn."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HistoryUnreadable(f"{path} is missing or not readable as JSON: {error}.") from error


def read_object(path: Path) -> dict[str, Any]:
    """As `read_json`, of a file that holds an object; HistoryUnreadable if it holds anything else."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise HistoryUnreadable(
            f"{path} holds no JSON object. Make the run again, or put back the file that was there."
        )
    return value
