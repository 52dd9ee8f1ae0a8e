"""Writes docs/metadata-graph.md, which states of a partition followed which: `python -m tools.metadata_graph FOLDER …`."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from prozess.checkers.metadata.changes import changes_of
from prozess.checkers.metadata.graph import Edge, permitted, table_of, taken
from prozess.harness.errors import ProzessError
from prozess.harness.history.reader import History
from prozess.harness.run_directory import RunDirectory

DOCUMENT = Path(__file__).parents[1] / "docs" / "metadata-graph.md"
MARK, END = "<!-- the graph -->", "<!-- the end of the graph -->"


def edges_of(runs: Iterable[Path]) -> tuple[Counter[Edge], int]:
    """Returns how often one state followed another in these runs, and how many runs could be read."""
    counts, read = Counter[Edge](), 0
    for path in runs:
        try:
            history = History.open(RunDirectory(path))
            for cell in history.plan.cells:
                whole = history.cell_history(cell.cell)
                for partition in whole.partitions.values():
                    counts += taken(changes_of(partition.metadata, whole.tables["metadata"]))
        except (ProzessError, OSError) as error:
            sys.stdout.write(f"left out: {path}: {error}\n")
            continue
        read += 1
    return counts, read


def main(folders: Sequence[str]) -> None:
    """Writes the table into the page, between its marks."""
    if not folders or (missing := [folder for folder in folders if not Path(folder).is_dir()]):
        sys.exit(
            f"{missing[0]!r} is no directory" if folders else "usage: python -m tools.metadata_graph FOLDER OF RUNS …"
        )
    runs = sorted({manifest.parent for folder in folders for manifest in Path(folder).glob("**/manifest.json")})
    counts, read = edges_of(runs)
    graph = permitted()
    never = sum(not counts[edge] for edge in graph.edges)
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(MARK)
    _, _, after = rest.partition(END)
    shown = f"{read} runs, {counts.total():,} changes. {never} of {graph.number_of_edges()} edges were never taken.\n"
    DOCUMENT.write_text(f"{before}{MARK}\n\n{shown}\n{table_of(graph, counts)}\n{END}{after}", encoding="utf-8")
    sys.stdout.write(f"{read} runs; wrote {DOCUMENT}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
