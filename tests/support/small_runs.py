"""A small run to write rows into: two cells of two partitions, not one row yet."""

from dataclasses import dataclass
from pathlib import Path

from prozess.harness.history.convert import History, write_history
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import RowWriter
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.schema import MISSING, NONE, TABLES

START_NS = 5_000_000_000
TRIAL = {
    "name": "small",
    "title": "two cells of two partitions",
    "base": {"topic.cleanup_policy": "delete"},
    "axes": {"producer.acks": ["1", "all"]},
    "topics": {"partitions": 2},
}


@dataclass
class Small:
    """A run without rows: partitions 0…3, clients 0 sentinel, 1 and 2 producers, 3 and 4 readers, 5 and 6 audits."""

    run: RunDirectory

    def send(self, client: int, rows: list[dict[str, int]]) -> None:
        self.write("sends", client, rows)

    def write(self, table: str, client: int, rows: list[dict[str, int]]) -> None:
        writer = RowWriter(self.run.rows, TABLES[table], client)
        for row in rows:
            writer.append(*(row.get(c.name, MISSING if c.unit == "ns" else NONE) for c in TABLES[table].columns))
        writer.close()

    def history(self) -> History:
        write_history(self.run)
        return History.open(self.run)


def make_small(path: Path, *, started: bool = True) -> Small:
    run = RunDirectory(path)
    run.create()
    run.plan.write_text(make_plan(parse_trial(TRIAL, source="test"), seed=1).model_dump_json(), encoding="utf-8")
    if started:
        write_json(run.clock, {"start_monotonic_ns": START_NS, "wall_minus_monotonic_ns": 0, "wall_error_ns": 0})
    return Small(run)
