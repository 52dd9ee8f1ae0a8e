"""Thousands of damages to stored runs: python -m tests.fuzzing.damaged_runs [--cases 10000] [--seed 1] [RUN …].

Each case is a copy of a run with one damage of `tests.support.damages`, checked and judged again; every fiftieth is reported.
Beside the RUNs, of which each fifth case is, small ones of every kind that needs no cluster. Says for each kind what became
of its cases, and ends with 1 if a verdict was held, if anything was violated that the whole run does not have, or if there
was a traceback.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import TrialVerdict, Verdict
from tests.support.damages import KINDS, Kind, copied, judged, manifest_removed, reported, result_damaged, violations
from tests.support.stored_runs import MAKERS

REPORT_EVERY = 50
GIVEN_EVERY = 5
TOLD_EVERY = 250
WITHOUT_MANIFEST_EVERY = 100
"""Such a run is looked into, which takes as long as a check does."""


def one(
    rng: random.Random, number: int, given: Sequence[RunDirectory], small: Sequence[RunDirectory], folder: Path
) -> tuple[str, str, str]:
    """A case: (kind, what became of it, what was done)."""
    whole, other = rng.choice(given if given and number % GIVEN_EVERY == 0 else small), rng.choice([*given, *small])
    kinds: list[Kind] = [*KINDS, result_damaged]
    kind = manifest_removed if number % WITHOUT_MANIFEST_EVERY == 0 else rng.choice(kinds)
    shutil.rmtree(folder, ignore_errors=True)
    run = copied(whole, folder)
    what = kind(rng, run, other)
    while what is None:
        kind = rng.choice(kinds)
        what = kind(rng, run, other)
    what = f"{whole.path.name}: {what}"
    try:
        return kind.__name__, _became(kind, number, run, whole), what
    except Exception:  # noqa: BLE001 - a traceback is what is looked for
        traceback.print_exc()
        return kind.__name__, "TRACEBACK", what


def _became(kind: Kind, number: int, run: RunDirectory, whole: RunDirectory) -> str:
    if kind is result_damaged:
        return "unknown" if reported(run).startswith("# unknown") else "HELD IN THE REPORT"
    found = judged(run)
    if number % REPORT_EVERY == 0 and not isinstance(found, str) and not reported(run).startswith("# unknown"):
        return "NOT UNKNOWN IN THE REPORT"
    if isinstance(found, str):
        return "refused"
    if found.verdict is Verdict.VIOLATED:
        before = TrialVerdict.model_validate_json(whole.verdict.read_bytes())
        return "violated, as the whole run" if violations(found) <= violations(before) else "VIOLATED BY DAMAGE"
    named = "damaged: " in found.sentence or "no manifest.json" in found.sentence
    return found.verdict.value.upper() if found.verdict is Verdict.HELD else "unknown" if named else "UNKNOWN, UNNAMED"


def main() -> int:
    """All cases, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="run directories that were checked")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng, became = random.Random(arguments.seed), defaultdict[str, Counter[str]](Counter)
    with tempfile.TemporaryDirectory(prefix="prozess-", dir=_near(arguments.runs)) as folder:
        given = [RunDirectory(path.resolve()) for path in arguments.runs]
        small = [make(Path(folder) / str(number)) for number, make in enumerate(MAKERS.values())]
        for run in (*given, *small):
            _say(f"{run.path.name}: {json.loads(run.verdict.read_bytes())['verdict']}")
        for number in range(arguments.cases):
            kind, how, what = one(rng, number, given, small, Path(folder) / "case")
            became[kind][how] += 1
            if (number + 1) % TOLD_EVERY == 0:
                _say(f"{number + 1:,}: {dict(sum(became.values(), Counter[str]()))}")
            if how.isupper():
                _say(f"case {number}, {kind}: {how}: {what}")
    total = sum(became.values(), Counter[str]())
    for kind, counts in sorted(became.items()):
        _say(f"{kind:28} {', '.join(f'{how} {count:,}' for how, count in sorted(counts.items()))}")
    _say(f"{sum(total.values()):,} damages of {len(became)} kinds: {dict(total)}")
    return int(any(how.isupper() for how in total))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _near(runs: Sequence[Path]) -> Path | None:
    """Where files can be linked to those of the runs."""
    return runs[0].resolve().parent if runs else None


if __name__ == "__main__":
    sys.exit(main())
