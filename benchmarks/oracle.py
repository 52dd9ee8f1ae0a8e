"""What the second opinion costs (`prozess check --oracle`), on histories in which everything is planted.

    python benchmarks/oracle.py [--rows 20000 100000 1000000] [--imported 0] [--workers 2]

For each number of rows it makes a history, checks it with the local engine, starts Spark in a process of its own, and asks
for the second opinion there. `--imported`: also of a history of Jepsen's with so many operations. CPU seconds are those of
that process and of its virtual machine, with and without the start of Spark. Every history is also seen to agree.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from shapes import write

from prozess.app.run.check import CheckOptions, check_run
from prozess.exchange.imported_run import ImportOptions, new_directory, write_imported
from prozess.exchange.jepsen.history import read_jepsen
from prozess.exchange.synthetic.history import GenerateOptions, generate
from prozess.exchange.synthetic.plants import PLANTS
from prozess.harness.checking.findings import read_findings
from prozess.harness.run_directory import RunDirectory
from prozess.spark_checkers.oracle.second_opinion import second_opinion
from prozess.spark_checkers.session import start_session

EACH = {name: 1 if plant.per_partition == 1 else 3 for name, plant in PLANTS.items()}
"""How many of each anomaly are planted."""
SHAPE = "transactions"


def cpu_s() -> float:
    """Returns the CPU seconds of this process and of all that it started."""
    me = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in (me, *me.children(recursive=True)))


def ask(path: Path, workers: int) -> None:
    """Prints what the second opinion on a checked run costs. For a process of its own."""
    session = start_session(master=f"local[{workers}]")
    started_s, began_s = cpu_s(), time.monotonic()
    run = RunDirectory.existing(path)
    opinion = second_opinion(run, read_findings(run), workers=workers, session=session)
    took_s, used_s = time.monotonic() - began_s, cpu_s()
    load = os.getloadavg()[0]
    print(f"{took_s:8.1f} s {used_s - started_s:8.1f} CPU s {used_s:8.1f} with Spark's start   load {load:.0f}", end="")
    print("   they agree" if not opinion else f"   THEY DIFFER: {'; '.join(opinion)}", flush=True)
    session.stop()


def main() -> int:
    """Makes the histories, and measures each in a new process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[20_000, 100_000, 1_000_000])
    parser.add_argument("--imported", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.ask:
        ask(asked.ask, asked.workers)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for rows in asked.rows:
            run = new_directory(Path(folder) / str(rows))
            options = GenerateOptions(rows=rows, partitions=3 if rows < 50_000 else 4, planted=EACH, seed=7)
            generate(run, options, command="benchmark")
            runs.append((f"{rows:,} rows", run))
        if asked.imported:
            file, run = Path(folder) / "history.edn", new_directory(Path(folder) / "imported")
            write(SHAPE, asked.imported, file, 1)
            write_imported(run, read_jepsen(file), ImportOptions(), command="benchmark")
            runs.append((f"{asked.imported:,} operations", run))
        for name, run in runs:
            check_run(run, CheckOptions(engine="local"))
            print(f"{name:>20}", end="", flush=True)
            words = [sys.executable, __file__, "--ask", str(run.path), "--workers", str(asked.workers)]
            if code := subprocess.run(words, check=False).returncode:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
