"""Jepsen's Kafka histories (jepsen.tests.kafka; one operation per line of EDN) as a history of ours.

Lines of the usual kind are taken in blocks (`jepsen_blocks`, `jepsen_block_reader`), all others one by one (`jepsen_lines`,
`jepsen_reader`). What the history does not say is not known: see `harness.histories.imported`.
"""

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from harness.histories.edn import of_nemesis
from harness.histories.imported import Imported
from harness.histories.jepsen_block_reader import BlockReader
from harness.histories.jepsen_blocks import read_block
from harness.histories.jepsen_lines import chunks_of, operations
from harness.histories.jepsen_reader import Reader
from harness.histories.jepsen_tables import tables_of

LINES_LEAST = 64
"""Fewer lines are not tried as a block."""
PATIENCE = 16
"""After a chunk of which nothing could be taken as a block, that many are not tried."""


def read_jepsen(path: Path, *, transactions: Literal["auto", "yes", "no"] = "auto") -> Imported:
    """The history in a file. BadInput with the line, the value, the rule and the way out, if it is none of Jepsen's."""
    reader, wait = Reader(str(path)), 0
    with _no_collection():
        for first, lines in chunks_of(path):
            if wait:
                wait -= 1
                _take_each(reader, path, first, lines)
            elif not _take(reader, path, first, lines):
                wait = PATIENCE
    reader.end()
    return tables_of(reader.recorded, transactions=transactions, title=f"Jepsen's history {path.name}")


def _take(reader: Reader, path: Path, first: int, lines: list[str]) -> bool:
    """Takes lines, in blocks as large as can be. Was any of them a block?"""
    if len(lines) < LINES_LEAST:
        _take_each(reader, path, first, lines)
        return False
    if _take_block(reader, first, lines):
        return True
    middle = len(lines) // 2
    halves = [_take(reader, path, first, lines[:middle]), _take(reader, path, first + middle, lines[middle:])]
    return any(halves)


def _take_block(reader: Reader, first: int, lines: list[str]) -> bool:
    """All of these lines at once; False if that cannot be. What the nemesis did is left out."""
    if reader.clockless:
        return False
    chosen = [number for number, line in enumerate(lines) if not of_nemesis(line)]
    block = read_block([lines[number] for number in chosen]) if chosen else None
    if block is None or not BlockReader(reader, block, [first + number for number in chosen]).take():
        return False
    reader.clockless = False
    return True


def _take_each(reader: Reader, path: Path, first: int, lines: list[str]) -> None:
    for operation in operations(path, first, lines):
        reader.take(operation)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Values are lists in lists, and in no cycle: looking for cycles among them costs as much as reading them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
