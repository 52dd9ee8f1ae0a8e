"""What it costs to import and to check histories of Jepsen's, as a user does it.

    python benchmarks/importing.py [--operations 100000] [--shapes plain rotating] [--seed 1]
    python benchmarks/importing.py --growth 10000 100000 1000000 [--shapes rotating]

For each shape of `benchmarks/shapes.py` it writes a history, and runs `prozess import` and `prozess check`. An operation is a
line: an invocation or a completion. CPU seconds are those of the whole process tree, MB the most memory that one process had.
The floor, from the same run, cuts the lines of the file and counts its words. Python keeps what it compiled, as with a user:
the first command is run twice, and the second run counts.

`--growth`: histories of these sizes, and by which power of the operations the seconds grow. The exponent of what is beyond
the fixed cost is that of the last two sizes, with the smallest history's seconds subtracted.
"""

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shapes import SHAPES, write

PROZESS = (sys.executable, "-c", "from prozess.command import main; main()")
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
MEASURED = ("import", "check")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took: CPU seconds of all its processes, and the most memory of one, in MB."""

    cpu_s: float
    memory_mb: float


def taken(work: Callable[[], object]) -> float:
    """Returns the CPU seconds that this took in this process."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def command(*arguments: str) -> Cost:
    """Runs `prozess`; its exit code is the verdict's, so only 0 to 3 are in order."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([*PROZESS, *arguments], stdout=subprocess.DEVNULL, stderr=errors, env=COMPILED)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in range(4):
            errors.seek(0)
            sys.exit(errors.read().decode())
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def words_of(path: Path) -> int:
    """Returns how many words a file has: the floor."""
    with path.open(encoding="utf-8") as file:
        return sum(len(line.split()) for line in file)


def measured(shape: str, operations: int, seed: int, *, warm: bool) -> list[float]:
    """Writes, imports and checks a history, prints what that took, and returns the CPU seconds of each command. `warm`: was
    a command run before?"""
    with tempfile.TemporaryDirectory() as folder:
        path, run = Path(folder) / "history.edn", str(Path(folder) / "run")
        write(shape, operations, path, seed)
        floor_s = taken(lambda: words_of(path))
        steps = {
            "import": ("import", "jepsen", str(path), "--out", run),
            "check": ("check", run, "--engine", "local", "--no-report"),
        }
        if not warm:
            command("import", "jepsen", str(path), "--out", str(Path(folder) / "first"))
        costs = {name: command(*steps[name]) for name in MEASURED}
        both_s = sum(cost.cpu_s for cost in costs.values())
        lines = [
            f"{name} {cost.cpu_s:.2f} s, {cost.cpu_s / floor_s:.1f} times the floor, {cost.memory_mb:,.0f} MB"
            for name, cost in costs.items()
        ]
        size_mb = path.stat().st_size / 1e6
        print(
            f"{shape}: {operations:,} operations, {size_mb:.1f} MB; floor {floor_s:.2f} s; {'; '.join(lines)}; "
            f"both {both_s:.2f} s",
            flush=True,
        )
    return [cost.cpu_s for cost in costs.values()] + [both_s]


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> str:
    """Returns the power of the size by which the seconds beyond those of the first size grow, from the last but one size to
    the last; `unknown`, if there are none."""
    before, after = (each - seconds[0] for each in seconds[-2:])
    return f"{math.log(after / before) / math.log(sizes[-1] / sizes[-2]):.2f}" if min(before, after) > 0 else "unknown"


def main() -> int:
    """Writes histories, imports and checks them, and prints what that took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--growth", nargs="+", type=int, metavar="OPERATIONS", help="at least three sizes, ascending")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    sizes = asked.growth or [asked.operations]
    if asked.growth and (len(sizes) < 3 or sorted(set(sizes)) != sizes):
        parser.error("--growth wants at least three sizes, ascending.")
    warm = False
    for shape in asked.shapes:
        seconds = []
        for size in sizes:
            seconds.append(measured(shape, size, asked.seed, warm=warm))
            warm = True
        if asked.growth:
            grown = zip((*MEASURED, "both"), zip(*seconds, strict=True), strict=True)
            print(f"{shape}: grows by the power of {', '.join(f'{n} {exponent(sizes, each)}' for n, each in grown)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
