"""Finds when a consumer group could not commit, and when a transactional.id could not end a transaction: what one sees of the
topics that brokers keep for themselves. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.schema import MISSING, NONE, Outcome

STANDSTILL_S = 5.0
"""Shorter gaps between two accepted commits are of no interest: members commit every few seconds."""
OFFSETS, TRANSACTIONS = "internal-offsets", "internal-transactions"
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Standstill:
    """A time in which nothing was committed. `end_s`: None = until the end of the trial."""

    of: str
    """Which topic of the brokers' own: the first part of its rules' ids."""
    who: str
    """For a person: "the group", "transactional.id number 1"."""
    begin_s: float
    end_s: float | None
    wanted_s: float | None = None
    """When somebody first asked for a commit meanwhile, or there was something to commit; None = never."""

    def wanted_before(self, end_s: float) -> bool:
        """Returns whether anything was to be committed by then: else it proves nothing that nothing was."""
        return self.wanted_s is not None and self.wanted_s <= end_s

    def sentence(self) -> str:
        """Returns a sentence for a person."""
        until = "the end" if self.end_s is None else f"{self.end_s:.1f} s"
        what = "committed no offset" if self.of == OFFSETS else "ended no transaction"
        return f"{self.who} {what} from {self.begin_s:.1f} s to {until}"


def of_group(commits: Columns, progressed_ns: np.ndarray) -> Iterator[Standstill]:
    """Yields the standstills of one group. `commits`: those of its members; `progressed_ns`: when its members processed
    something, which is to be committed then."""
    accepted = commits["completed_ns"][(commits["outcome"] == Outcome.OK) & (commits["completed_ns"] != MISSING)]
    wanted = np.concatenate([commits["invoked_ns"], progressed_ns])
    yield from _gaps(OFFSETS, "the group", accepted, wanted)


def of_transactions(transactions: Columns) -> Iterator[Standstill]:
    """Yields the standstills of each transactional.id of a cell. `transactions`: those of its clients."""
    each = transactions["transaction"] != NONE
    names = np.unique(transactions["transactional_id"][each]).tolist()
    for number, name in enumerate(names, start=1):
        mine = each & (transactions["transactional_id"] == name)
        done = mine & (transactions["outcome"] == Outcome.OK) & (transactions["completed_ns"] != MISSING)
        asked = np.concatenate([transactions["begun_ns"][mine], transactions["end_invoked_ns"][mine]])
        who = f"transactional.id number {number}"
        yield from _gaps(TRANSACTIONS, who, transactions["completed_ns"][done], asked)


def _gaps(of: str, who: str, accepted_ns: np.ndarray, wanted_ns: np.ndarray) -> Iterator[Standstill]:
    """Between one accepted commit and the next, and after the last; before the first nothing is known to have worked."""
    times = np.sort(accepted_ns)
    wanted = np.sort(wanted_ns[wanted_ns != MISSING])
    for index in np.flatnonzero(np.diff(times) >= STANDSTILL_S * NS_PER_S).tolist():
        yield _standstill(of, who, int(times[index]), int(times[index + 1]), wanted)
    if len(times) and len(wanted) and wanted[-1] > times[-1]:
        yield _standstill(of, who, int(times[-1]), None, wanted)


def _standstill(of: str, who: str, begin_ns: int, end_ns: int | None, wanted_ns: np.ndarray) -> Standstill:
    asked = wanted_ns[np.searchsorted(wanted_ns, begin_ns, side="right") :][:1]
    first_s = float(asked[0]) / NS_PER_S if len(asked) and (end_ns is None or asked[0] < end_ns) else None
    return Standstill(of, who, begin_ns / NS_PER_S, None if end_ns is None else end_ns / NS_PER_S, first_s)
