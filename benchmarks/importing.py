"""What it costs to import and to check histories of Jepsen's, as a user does it.

    python benchmarks/importing.py [--operations 100000] [--shapes plain rotating] [--seed 1]

For each shape of `benchmarks/shapes.py` it writes a history, and runs `prozess import` and `prozess check`. CPU seconds
are those of the whole process tree. The floor, from the same run, cuts the lines of the file and counts its words.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from shapes import SHAPES, write

PROZESS = (sys.executable, "-c", "from prozess.harness.app.cli import main; main()")


def cpu_s(who: int) -> float:
    """Returns the CPU seconds that were used so far."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def taken(work: Callable[[], object], who: int) -> float:
    """Returns the CPU seconds that this took."""
    before_s = cpu_s(who)
    work()
    return cpu_s(who) - before_s


def command(*arguments: str) -> None:
    """Runs `prozess`; its exit code is the verdict's, so only 0 to 3 are in order."""
    done = subprocess.run([*PROZESS, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode not in range(4):
        sys.exit(done.stderr.decode())


def words_of(path: Path) -> int:
    """Returns how many words a file has: the floor."""
    with path.open(encoding="utf-8") as file:
        return sum(len(line.split()) for line in file)


def main() -> int:
    """Writes histories, imports and checks them, and prints what that took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for shape in asked.shapes:
            path, run = Path(folder) / f"{shape}.edn", str(Path(folder) / shape)
            write(shape, asked.operations, path, asked.seed)
            floor_s = taken(lambda path=path: words_of(path), resource.RUSAGE_SELF)
            steps = (
                ("import", ("import", "jepsen", str(path), "--out", run)),
                ("check", ("check", run, "--engine", "local", "--no-report")),
            )
            told = []
            for name, arguments in steps:
                took_s = taken(lambda arguments=arguments: command(*arguments), resource.RUSAGE_CHILDREN)
                told.append(f"{name} {took_s:.2f} s ({took_s / floor_s:.0f} times the floor)")
            size_mb = path.stat().st_size / 1e6
            print(
                f"{shape}: {asked.operations:,} operations, {size_mb:.1f} MB; floor {floor_s:.2f} s; {'; '.join(told)}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
