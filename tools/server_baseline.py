"""Writes what servers of clean runs complain of: `python -m tools.server_baseline RUNS…`, of runs of the trial `null`, or of
`tiered` without its steps (`--set 'steps=[]'`).

Each kind of cluster (`cluster_kinds`) gets `LEVEL template` → the most of them in a minute of any of its runs, those that the
file has from earlier runs among them. Runs with a fault, or that did not hold, are refused: a baseline must come from clean
runs.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

from prozess.harness import installation
from prozess.harness.plan.plan import read_plan
from prozess.harness.report.reports import read_verdict
from prozess.harness.report.server_complaints import BASELINE, cluster_kinds
from prozess.harness.report.server_logs import TrialTime, complaints_in
from prozess.harness.run_directory import RunDirectory

FILE = installation.SEARCH_PATH / "harness" / "config" / BASELINE
MINUTES_MIN = 0.5
"""A shorter run counts as one of this length, or a single line would look like many a minute."""


def main(paths: list[str]) -> int:
    """Reads the runs, and writes the file."""
    known = json.loads(FILE.read_text(encoding="utf-8"))["versions"] if FILE.is_file() else {}
    found: dict[str, dict[str, float]] = defaultdict(dict, {kind: dict(lines) for kind, lines in known.items()})
    runs: dict[str, int] = defaultdict(int)
    for path in map(Path, paths):
        run = RunDirectory(path)
        plan, verdict = read_plan(run), read_verdict(run)
        time = TrialTime.of(run)
        if time is None or verdict.faults or str(verdict.verdict) != "held":
            sys.stdout.write(f"left out: {path} is no clean run\n")
            continue
        (kind,) = cluster_kinds(plan.variant, plan.variant.kafka_versions)
        runs[kind] += 1
        totals: dict[str, int] = defaultdict(int)
        last_s = 0.0
        for name in plan.server_names.values():
            for one in complaints_in(run.logs / f"{name}.log", time):
                totals[f"{one.level} {one.kind}"] += one.count
                last_s = max(last_s, one.last_s or 0.0)
        for line, count in totals.items():
            rate = count / max(last_s / 60, MINUTES_MIN)
            found[kind][line] = round(max(rate, found[kind].get(line, 0.0)), 1)
    text = json.dumps({"versions": {v: dict(sorted(found[v].items())) for v in sorted(found)}}, indent=1)
    FILE.write_text(text + "\n", encoding="utf-8")
    for kind, number in runs.items():
        sys.stdout.write(f"{kind}: {number} runs, {len(found[kind])} templates\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
