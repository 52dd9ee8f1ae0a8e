"""How clients ended that cannot say so themselves: killed by a signal, or crashed."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from harness.schema import CLIENTS, NONE
from workloads.processes import ClientProcess


class Exits:
    """Completes what clients wrote of themselves, each once."""

    def __init__(self, rows: Path) -> None:
        self._rows = rows
        self._noted: set[int] = set()

    def note(self, processes: Iterable[ClientProcess]) -> None:
        """Complete `clients.exit_code` for those that could not do it themselves: killed by a signal, or crashed. Their
        `ended_ns` stays MISSING: nobody saw the moment."""
        for process in processes:
            path = self._rows / f"{CLIENTS.name}.{process.client}.0.rows"
            if process.running or process.client in self._noted or not path.exists():
                continue
            self._noted.add(process.client)
            row = np.memmap(path, dtype=CLIENTS.row_dtype, mode="r+", shape=(1,))
            if row["mark"][0] == 1 and row["exit_code"][0] == NONE:
                row["exit_code"][0] = process.exit_code
                row.flush()


def obituary(process: ClientProcess, last_words: str) -> str:
    """In words, of one that ended."""
    code = process.exit_code
    assert code is not None
    how = f"killed by signal {-code}" if code < 0 else f"exit {code}"
    if code < 0 and process.company:
        how += f", and with it the {process.company} that shared its process"
    return f"{how}: {last_words}"
