"""Writes docs/metadata-graph.md, what followed what in Kafka's own logs: `python -m tools.metadata_graph FOLDER …`."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prozess.checkers.metadata.changes import changes_of
from prozess.checkers.metadata.graph import Edge, permitted, table_of, taken
from prozess.checkers.metadata.transaction_changes import records_of
from prozess.checkers.metadata.transaction_graph import states_permitted, states_taken
from prozess.harness.errors import ProzessError
from prozess.harness.history.reader import History
from prozess.harness.run_directory import RunDirectory

if TYPE_CHECKING:
    from networkx import DiGraph

DOCUMENT = Path(__file__).parents[1] / "docs" / "metadata-graph.md"
PARTITIONS, TRANSACTIONS = "the graph", "the graph of transactions"
"""What stands in the comments around each table."""


def edges_of(runs: Iterable[Path]) -> tuple[Counter[Edge], Counter[Edge], int]:
    """Returns how often one state of a partition followed another in these runs, the same of transactional.ids, and how many
    runs could be read."""
    partitions, transactions, read = Counter[Edge](), Counter[Edge](), 0
    for path in runs:
        try:
            history = History.open(RunDirectory(path))
            for cell in history.plan.cells:
                whole = history.cell_history(cell.cell)
                for partition in whole.partitions.values():
                    partitions += taken(changes_of(partition.metadata, whole.tables["metadata"]))
            transactions += states_taken(records_of(history.table("transaction_states")))
        except (ProzessError, OSError) as error:
            sys.stdout.write(f"left out: {path}: {error}\n")
            continue
        read += 1
    return partitions, transactions, read


def with_graph(page: str, name: str, graph: "DiGraph[str]", counts: Counter[Edge], read: int, of: str) -> str:
    """Returns the page with this graph between its comments."""
    never = sum(not counts[edge] for edge in graph.edges)
    shown = f"{read} runs, {counts.total():,} {of}. {never} of {graph.number_of_edges()} edges were never taken.\n"
    mark, end = f"<!-- {name} -->", f"<!-- the end of {name} -->"
    before, _, rest = page.partition(mark)
    _, found, after = rest.partition(end)
    assert found, f"the page has no {mark} … {end}"
    return f"{before}{mark}\n\n{shown}\n{table_of(graph, counts)}\n{end}{after}"


def main(folders: Sequence[str]) -> None:
    """Writes the tables into the page, between their comments."""
    if not folders or (missing := [folder for folder in folders if not Path(folder).is_dir()]):
        sys.exit(
            f"{missing[0]!r} is no directory" if folders else "usage: python -m tools.metadata_graph FOLDER OF RUNS …"
        )
    runs = sorted({manifest.parent for folder in folders for manifest in Path(folder).glob("**/manifest.json")})
    partitions, transactions, read = edges_of(runs)
    page = DOCUMENT.read_text(encoding="utf-8")
    page = with_graph(page, PARTITIONS, permitted(), partitions, read, "changes")
    page = with_graph(page, TRANSACTIONS, states_permitted(), transactions, read, "records")
    DOCUMENT.write_text(page, encoding="utf-8")
    sys.stdout.write(f"{read} runs; wrote {DOCUMENT}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
