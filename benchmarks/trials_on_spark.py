"""How much faster many trials are with more workers of Spark, on the cores that are here.

    python benchmarks/trials_on_spark.py [--trials 8] [--workers 1 2 3]

Runs the smoke trial again and again: without Spark, one after the other, which is the floor; then with a standalone master
and so many workers, each of which runs one trial at a time with a cluster of its own in namespaces. Every one of them must be
held. CPU seconds are those of the whole machine (/proc/stat), since Spark's servers are no children of the command: let
nothing else run meanwhile.

A trial waits for elections and timeouts, too. Therefore two workers can be twice as fast as one on two cores, and three
may still be faster. The last line says what more workers with two cores each would take: the start of Spark and of the
campaign, which more workers do not shorten, and for each worker its share of the trials.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.support.servers.spark import standalone

TIMEOUT_S = 3600.0


def run(results: Path, trials: int, *options: str) -> tuple[float, float]:
    """Runs the smoke trial so many times. Returns the seconds and the CPU seconds of the machine that it took; each must be
    held."""
    command = [
        sys.executable,
        "-m",
        "prozess",
        "run",
        "smoke",
        "--rounds",
        str(trials),
        "--runs",
        str(results),
    ]
    began, busy = time.monotonic(), _busy_s()
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    took, cpu = time.monotonic() - began, _busy_s() - busy
    entries = [json.loads(line) for file in results.rglob("entries.jsonl") for line in file.read_text().splitlines()]
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert len(entries) == trials, f"{len(entries)} entries instead of {trials}"
    return took, cpu


def _busy_s() -> float:
    """CPU seconds that all cores of this machine were busy since it started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def main() -> int:
    """Measures each number of workers, and prints a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    asked = parser.parse_args()
    print(f"{asked.trials} trials, {os.cpu_count()} cores")
    print(f"{'workers':>9}{'seconds':>9}{'CPU s':>8}{'CPU s/trial':>13}{'cores busy':>12}{'times as fast as one':>22}")
    seconds: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="prozess-speed-") as folder:
        directory = Path(folder)
        (directory / "unseen").mkdir()
        for workers in [0, *asked.workers]:
            results = directory / f"results-{workers}"
            if workers:
                (directory / f"spark-{workers}").mkdir()
                with standalone(
                    directory / f"spark-{workers}", hidden=[directory / "unseen"], cores=(None,) * workers
                ) as master:
                    took, cpu = run(results, asked.trials, "--master", master, "--cores-per-trial", "1")
            else:
                took, cpu = run(results, asked.trials)
            seconds[workers] = took
            fast = f"{seconds[1] / took:.2f}" if workers and 1 in seconds else ""
            name = str(workers) if workers else "no Spark"
            print(
                f"{name:>9}{took:>9.1f}{cpu:>8.1f}{cpu / asked.trials:>13.1f}{cpu / took:>12.2f}{fast:>22}", flush=True
            )
    if 1 in seconds:
        each = seconds[0] / asked.trials
        fixed = max(0.0, seconds[1] - seconds[0])
        lines = [f"{w}: {fixed + math.ceil(asked.trials / w) * each:.0f} s" for w in (1, 2, 3, 6, 12)]
        print(
            f"by calculation, with two cores for each worker: {fixed:.1f} s + {each:.1f} s a trial: {', '.join(lines)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
