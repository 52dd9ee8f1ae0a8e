"""Transactions that were still open when the audit was to begin, and what became of them: for a person."""

from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from harness.errors import HistoryUnreadable
from harness.open_transactions import HangingTransaction
from harness.run_directory import RunDirectory, read_json

_LIST = TypeAdapter(tuple[HangingTransaction, ...])
LEGEND = (
    "Still open after every transactional.id was fenced, so that the partition's last stable offset stood still (KIP-664). "
    "One that no coordinator knew was ended by the run, as an operator would have: its records are aborted."
)


def read_hanging(run: RunDirectory) -> Sequence[HangingTransaction]:
    """Of a run in which nobody looked, none. HistoryUnreadable if the file is torn."""
    if not run.hanging.exists():
        return ()
    try:
        return _LIST.validate_python(read_json(run.hanging))
    except ValidationError as error:
        raise HistoryUnreadable(
            f"{run.hanging} is no list of transactions. Make the run again, or put back the file."
        ) from error


def hanging_lines(found: Sequence[HangingTransaction]) -> list[str]:
    """Markdown; empty where none hung."""
    if not found:
        return []
    return ["", "## Hanging transactions", "", LEGEND, "", *(f"- {one.text}" for one in found)]
