"""Makes the map and writes docs/evidence.md: `python -m tools.evidence [RUN …] [--tables NAME,…]`.

Without a RUN it changes a generated history, and keeps what it knows of recorded ones. Each RUN is the directory of a run
of which cells were held: that of `prozess run tools/evidence/recorded.toml` has rows in nearly every table.
"""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import TABLES
from prozess.harness.verdict import Verdict
from tools.evidence.cases import Bench
from tools.evidence.found import KEPT, Found, generated, merged, of_history, read, write
from tools.evidence.page import DOCUMENT, render

SEED = 1
_MEMORY = Path("/dev/shm")


def main() -> int:
    """Makes the map, keeps it, and writes the page. Ends with 1 if a history is not held before anything is changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", nargs="*", type=Path, help="directories of runs that were held; none: a generated history"
    )
    parser.add_argument(
        "--tables", default=",".join(TABLES), help="only these tables; the others stay as they are kept"
    )
    parser.add_argument("--kept", type=Path, default=KEPT, help="the file that has the map")
    parser.add_argument("--page", action="store_true", help="write the page from what is kept, and change nothing")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # kernels that fail are in the map
    found: Found = read(arguments.kept) if arguments.kept.exists() else {}
    tables = [] if arguments.page else [name for name in TABLES if name in arguments.tables.split(",")]
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        clean = [("recorded", RunDirectory(path.resolve())) for path in arguments.runs]
        if tables and not clean:
            clean = [("generated", generated(Path(folder) / "clean"))]
        for number, (history, run) in enumerate(clean):
            bench = Bench(run, Path(folder) / str(number), seed=SEED)
            if not bench.held or bench.clean.verdict is Verdict.VIOLATED:
                _say(f"{run.path} is not held before anything is changed: {bench.clean.sentence}")
                return 1
            _say(
                "".join(
                    f"left out, because it is not held: cell {n}\n"
                    for n in range(len(bench.plan.cells))
                    if n not in bench.held
                )
            )
            found[history] = merged(found.get(history, {}), of_history(bench, tables, _say))
    write(found, arguments.kept)
    DOCUMENT.write_text(render(found), encoding="utf-8")
    _say(f"wrote {arguments.kept} and {DOCUMENT}")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
