"""Measures `prozess trends` over many runs, made up from real ones: CPU seconds of the whole process tree, memory, size of
the page.

    python benchmarks/trends.py [--runs 1000 10000] [--nights 100] RUN …

RUN: directories of real runs, which have a verdict. Each made-up run is one of these under another date; their verdicts,
findings and impacts are what they were. The floor is a plain read of the same files by one process; ratios to it are what to
compare.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

FILES = ("plan.json", "verdict.json", "impact.json", "manifest.json")
LOOK_S = 0.2
"""How long to wait between two looks at the processes, in seconds."""
FIRST = datetime(2026, 1, 1, 22, tzinfo=UTC)


def make_up(sources: list[Path], folder: Path, runs: int, nights: int) -> int:
    """Makes so many runs of links to the files of few, and returns the bytes of their files."""
    size = 0
    plans = [json.loads((source / "plan.json").read_text(encoding="utf-8")) for source in sources]
    for number in range(runs):
        source, plan = sources[number % len(sources)], plans[number % len(sources)]
        kept = folder.parent / f"source-{number % len(sources)}"
        if not kept.exists():
            shutil.copytree(source, kept, ignore=lambda _, names: [name for name in names if name not in FILES])
        night, within_night = divmod(number, -(-runs // nights))
        began = FIRST + timedelta(days=night, seconds=within_night)
        run = folder / f"{plan['trial']}-{number}-{began:%Y%m%dT%H%M%S}"
        run.mkdir(parents=True)
        for name in FILES:
            if (kept / name).is_file():
                os.link(kept / name, run / name)
                size += (run / name).stat().st_size
    return size


def floor_cpu_s(folder: Path) -> float:
    """Returns the CPU seconds that it takes to read the verdicts and impacts, and nothing more."""
    begin = time.process_time()
    for name in ("verdict.json", "impact.json"):
        for path in folder.glob(f"*/{name}"):
            path.read_bytes()
    return time.process_time() - begin


def watched(command: psutil.Process) -> tuple[float, float]:
    """Waits for a command to end. Returns the CPU seconds of all its processes, Spark's workers included, and the most memory
    that any of them had, in MB. What a process used after the last look is not counted."""
    cpu_s: dict[int, float] = {}
    most = 0
    while True:
        try:
            code = command.wait(LOOK_S)
        except psutil.TimeoutExpired:
            code = None
        with suppress(psutil.NoSuchProcess):
            for process in [command, *command.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    cpu_s[process.pid] = sum(process.cpu_times()[:2])
                    most = max(most, process.memory_info().rss)
        if code is not None:
            return sum(cpu_s.values()), most / 2**20


def main() -> int:
    """Measures each number of runs, and prints a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--runs", nargs="+", type=int, default=[1_000, 10_000])
    parser.add_argument("--nights", type=int, default=100)
    asked = parser.parse_args()
    print(f"{'runs':>9}{'MB':>9}{'CPU s':>9}{'floor':>9}{'ratio':>8}{'seconds':>9}{'most MB':>9}{'page kB':>9}")
    for runs in asked.runs:
        with tempfile.TemporaryDirectory(prefix="prozess-trends-") as folder:
            path = Path(folder) / "nights"
            size = make_up(asked.sources, path, runs, asked.nights)
            floor_s = floor_cpu_s(path)
            words = [
                sys.executable,
                "-m",
                "prozess",
                "trends",
                str(path),
                "--out",
                f"{folder}/trends.html",
            ]
            begin = time.monotonic()
            with subprocess.Popen(words, stdout=subprocess.DEVNULL) as command:
                cpu_s, most_mb = watched(psutil.Process(command.pid))
            took_s = time.monotonic() - begin
            if command.returncode:
                return int(command.returncode)
            page = (Path(folder) / "trends.html").stat().st_size
            print(
                f"{runs:>9,}{size / 1e6:>9,.0f}{cpu_s:>9.1f}{floor_s:>9.2f}{cpu_s / floor_s:>8.1f}{took_s:>9.1f}"
                f"{most_mb:>9,.0f}{page / 1e3:>9,.0f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
