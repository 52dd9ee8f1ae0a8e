"""How fast Jepsen's histories are read: operations (lines) and bytes per second of CPU.

    python benchmarks/importing.py [--operations 200000] [--seed 1]

Two histories: sends and polls of one micro-operation each, and transactions of several.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from prozess.harness.app.histories.jepsen.history import read_jepsen

PROCESSES, KEYS, POLL_MAX = 10, 8, 4


class Written:
    """A history while it is made: what each key holds, and how far each process has read it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self._lengths, self._read = rng, [0] * KEYS, dict[tuple[int, int], int]()

    def send(self) -> tuple[str, str]:
        """Returns a send as it is invoked, and as it completes."""
        key = self.rng.randrange(KEYS)
        self._lengths[key] += 1
        value = self._lengths[key] - 1
        return f"[:send {key} {value}]", f"[:send {key} [{2 * value} {value}]]"

    def poll(self, process: int, keys: int) -> tuple[str, str]:
        """Returns a poll of so many keys."""
        shown = []
        for key in sorted(self.rng.sample(range(KEYS), keys)):
            begin = self._read.get((process, key), 0)
            end = self._read[process, key] = min(self._lengths[key], begin + POLL_MAX)
            if end > begin:
                shown.append(f"{key} [{' '.join(f'[{2 * n} {n}]' for n in range(begin, end))}]")
        return "[:poll]", f"[:poll {{{', '.join(shown)}}}]"


def plain(made: Written, process: int) -> tuple[str, list[tuple[str, str]]]:
    """Returns one send or one poll."""
    sends = made.rng.random() < 0.5
    return ("send", [made.send()]) if sends else ("poll", [made.poll(process, 1)])


def transactions(made: Written, process: int) -> tuple[str, list[tuple[str, str]]]:
    """Returns a transaction of several sends and polls."""
    count = made.rng.randrange(1, 5)
    return "txn", [made.send() if made.rng.random() < 0.5 else made.poll(process, 2) for _ in range(count)]


def lines(kind: Callable[[Written, int], tuple[str, list[tuple[str, str]]]], count: int, seed: int) -> Iterator[str]:
    """Yields a history, line by line."""
    made = Written(random.Random(seed))
    for number in range(0, count, 2):
        process = made.rng.randrange(PROCESSES)
        f, micro = kind(made, process)
        for place, outcome in enumerate(("invoke", "ok")):
            value = " ".join(both[place] for both in micro)
            head = f":index {number + place}, :time {1000 * (number + place)}, :type :{outcome}, :process {process}"
            yield f"{{{head}, :f :{f}, :value [{value}]}}\n"


def main() -> int:
    """Writes histories, reads them, and prints how fast that was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kind in (plain, transactions):
            path = Path(folder) / f"{kind.__name__}.edn"
            path.write_text("".join(lines(kind, asked.operations, asked.seed)), encoding="utf-8")
            began_s = time.process_time()
            read_jepsen(path)
            took_s = time.process_time() - began_s
            size_mb = path.stat().st_size / 1e6
            speed = f"{asked.operations / took_s:,.0f} operations, {size_mb / took_s:.1f} MB per second of CPU"
            print(f"{kind.__name__}: {asked.operations:,} operations, {size_mb:.1f} MB; {speed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
