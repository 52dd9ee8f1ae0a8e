"""Finds transactions that an application began and never ended. Pure.

Until `transaction.timeout.ms` has passed their records hold back every reader at read_committed, and then they are aborted.
A transaction is over once it was committed or aborted, or once a later instance of its transactional.id was initialised: that
aborts it (KIP-98).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prozess.harness.interfaces.application import RegisteredTopic
from prozess.harness.schema import MISSING, NONE, Outcome
from prozess.harness.verdict import ApplicationWitness
from prozess.testing.expectations import OPEN_TRANSACTION, WITNESSES_MAX, ApplicationFinding, counted


@dataclass(frozen=True, slots=True)
class TransactionalClient:
    """The rows that one producer wrote. `whole`: it wrote them to their end."""

    client: int
    transactional_id: str
    transactions: np.ndarray
    sends: np.ndarray
    whole: bool


def open_transactions(
    clients: Sequence[TransactionalClient], topics: Sequence[RegisteredTopic], *, expected: bool
) -> list[ApplicationFinding]:
    """Returns a finding for each transactional.id that has an open transaction with records. `expected`: the test says that
    all are ended, so it fails by one that is not, and is unknown if nothing says."""
    names = {p: (topic.name, p - topic.first) for topic in topics for p in topic.partitions}
    newest: dict[str, int] = {}
    for one in clients:
        began = one.transactions["begun_ns"][_instances(one.transactions)]
        newest[one.transactional_id] = max(newest.get(one.transactional_id, 0), int(began.max(initial=0)))
    found: list[ApplicationFinding] = []
    for one in clients:
        rows = one.transactions
        left = (rows["transaction"] != NONE) & (rows["completed_ns"] == MISSING)
        left &= (rows["begun_ns"] > newest[one.transactional_id]) & np.isin(
            rows["transaction"], one.sends["transaction"]
        )
        where = f"transactional.id {one.transactional_id!r}"
        for row in rows[left]:
            asked = row["ended_by"] != NONE
            if one.whole and not asked:
                found.append(_finding(where, one, int(row["transaction"]), names, fails=expected))
            elif expected:
                why = "its end was asked for, and no answer was seen" if asked else "its process ended first"
                text = (
                    f"cannot be judged: transaction {int(row['transaction']) + 1} of client {one.client} is open; {why}"
                )
                found.append(ApplicationFinding(OPEN_TRANSACTION, where, 0, text, unknown=True))
    return found


def _instances(rows: np.ndarray) -> np.ndarray:
    """Returns the rows of instances whose init_transactions returned."""
    return np.asarray((rows["transaction"] == NONE) & (rows["outcome"] == Outcome.OK.value))


def _finding(
    where: str, one: TransactionalClient, number: int, names: Mapping[int, tuple[str, int]], *, fails: bool
) -> ApplicationFinding:
    sends = one.sends[one.sends["transaction"] == number]
    witnesses = []
    for send in sends[sends["log_offset"] >= 0][:WITNESSES_MAX]:
        topic, partition = names[int(send["partition"])]
        offset = int(send["log_offset"])
        text = f"{topic}/{partition}, offset {offset}: record {int(send['sequence'])} of client {one.client}"
        witnesses.append(ApplicationWitness(topic=topic, number=partition, log_offset=offset, text=text))
    reason = (
        f"Transaction {number + 1} of client {one.client}, with {counted(len(sends), 'record')}, was neither committed nor "
        "aborted when the test ended. Readers at read_committed wait at its first record until transaction.timeout.ms has "
        "passed, and never see its records."
    )
    return ApplicationFinding(OPEN_TRANSACTION, where, len(sends), reason, tuple(witnesses), fails=fails)
