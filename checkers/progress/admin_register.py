"""This kernel checks that the calls of administrators have an order in which each took effect at one moment."""

from collections.abc import Mapping

import numpy as np

from prozess.harness.columns import empty_rows
from prozess.harness.config.configuration import FIRST_CONTROLLER_ID
from prozess.harness.interfaces.checking import CellHistory, KernelResult
from prozess.harness.interfaces.witnesses import (
    ADMIN_LAG_NS,
    WITNESSES_MAX,
    AdminCase,
    join_witnesses,
    make_witnesses,
)
from prozess.harness.schema import ADMIN_OPERATIONS, NO_TOPIC, NONE, AdminOperation, Outcome

EVER, NEVER = np.int64(2**62), np.int64(-(2**62))


def not_linearizable(history: CellHistory) -> KernelResult:
    """The calls of administrators about one topic and setting took effect one after the other, each between its begin and its
    end.

    Source: Herlihy and Wing, Linearizability (1990); Gibbons and Korach, Testing Shared Memories (1997): where each value is
    set once, a register is linearizable if and only if no value was found before it was set, and no other value was there
    between two calls that show one. Kafka: KIP-631 (a controller answers what it changed once it is committed), KIP-590. An
    answer from a server's own copy of the metadata may be ADMIN_LAG_NS older than the call. A call whose end is not known
    may have taken effect at any time after its begin, or never.

    Counts answers. Judged: answers that say what was found. Witness: what was found at `end_ns`, when the call began, was
    of `other_ns` - `begin_ns` ago at most; another value had been there at `begin_ns`, and later than this one; `reader`: the
    broker whose copy was asked, NONE: the active controller, or another controller's copy; `sequence`: the value; `case`:
    AdminCase. It belongs to the cluster, so every cell shows it. O(n log n); the loop runs over topics and their settings.

    Example: 7 is set from 1 to 2 s, and 8 from 3 to 4 s. The controller answers 7 at 5 s: STALE. Broker 1 answers 7 at 5 s:
    its copy may be 10 s behind, no finding. It answers 7 at 15 s: STALE. Had the call that set 7 ended at 5 s, it would be
    AGAIN.
    """
    table = history.tables.get("admin_operations", empty_rows(ADMIN_OPERATIONS))
    found = (table["operation"] == AdminOperation.FOUND.value) & (table["outcome"] == Outcome.OK.value)
    registers = np.unique(np.stack([table["topic"], table["setting"]]), axis=1).T
    parts = []
    for topic, setting in registers.tolist():
        rows = np.flatnonzero((table["topic"] == topic) & (table["setting"] == setting))
        parts.append(_contradictions({name: values[rows] for name, values in table.items()}))
    witnesses = join_witnesses(parts)
    witnesses["partition"] = history.cell.partitions[0]
    order = np.argsort(witnesses["end_ns"], kind="stable")
    return KernelResult(witnesses[order][:WITNESSES_MAX], len(witnesses), judged=int(found.sum()))


def _contradictions(table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the witnesses of one register."""
    value, begun_ns = table["value"], table["invoked_ns"]
    done = table["outcome"] == Outcome.OK.value
    found = (table["operation"] == AdminOperation.FOUND.value) & done
    lag_ns = np.where(table["node"] == NONE, 0, ADMIN_LAG_NS)
    # What an answer shows was true at some moment from `from_ns` to `to_ns`.
    from_ns, to_ns = np.where(found, begun_ns - lag_ns, begun_ns), np.where(done, table["completed_ns"], EVER)
    # A value that is there once is named by itself. The answer that there is none is named by its row, below them all.
    name = np.where(value == NO_TOPIC, -2 - np.arange(len(value)), value)
    names, of = np.unique(name, return_inverse=True)
    of = of.reshape(-1)
    first_end, last_begin, set_ns, set_until = (np.full(len(names), end) for end in (EVER, NEVER, EVER, NEVER))
    np.minimum.at(first_end, of, to_ns)
    np.maximum.at(last_begin, of, from_ns)
    sets = ~found
    np.minimum.at(set_ns, of[sets], begun_ns[sets])
    np.maximum.at(set_until, of[sets], to_ns[sets])
    # A call that was to make a topic, and got no answer, may have made the one that nobody else made.
    unknown = sets & (value == NONE)
    made_ns = int(begun_ns[unknown].min()) if unknown.any() else int(EVER)
    orphan = (names > NO_TOPIC) & (set_ns == EVER) & (made_ns <= first_end)
    set_ns[orphan], set_until[orphan] = made_ns, EVER
    # `low` to `first_end`: where each value certainly was, or at some moment of it. What is not certain shows nothing.
    certain = (names != NONE) & (first_end < EVER) & ((set_ns < EVER) | (names < NONE))
    low = np.minimum(last_begin, first_end)
    shown = np.flatnonzero(certain)[np.argsort(first_end[certain], kind="stable")]
    reached = np.maximum.accumulate(low[shown])
    answers = np.flatnonzero(found & (name > NONE))
    at = np.searchsorted(first_end[shown], from_ns[answers], side="left") - 1
    between_ns = np.where(at >= 0, reached[at], NEVER) if len(shown) else np.full(len(answers), NEVER)
    mine = of[answers]
    early = to_ns[answers] < set_ns[mine]
    unset = set_ns[mine] == EVER
    stale = (between_ns > first_end[mine]) & ~unset & ~early
    case = np.select(
        [unset, early, stale & (set_until[mine] >= between_ns), stale],
        [AdminCase.UNSET.value, AdminCase.EARLY.value, AdminCase.AGAIN.value, AdminCase.STALE.value],
    )
    since_ns, within_ns = begun_ns[answers].copy(), lag_ns[answers] * stale
    # The first in the order of ends that reaches as far is the value that was there last.
    since_ns[stale] = first_end[shown[np.searchsorted(reached, between_ns[stale], side="left")]]
    wrong = np.flatnonzero(case)
    gone, gone_ns = _there_no_more(table, names, first_end, set_ns, shown, reached, from_ns, to_ns)
    rows, begin_ns = np.append(answers[wrong], gone), np.append(since_ns[wrong], gone_ns)
    node = table["node"][rows]
    columns: dict[str, np.ndarray | int] = {
        "sequence": value[rows],
        "reader": np.where(node < FIRST_CONTROLLER_ID, node, NONE),
        "begin_ns": begin_ns,
        "end_ns": begun_ns[rows],
        "other_ns": begin_ns + np.append(within_ns[wrong], lag_ns[gone]),
        "case": np.append(case[wrong], np.full(len(gone), AdminCase.STALE.value)),
    }
    return make_witnesses(len(rows), columns)


def _there_no_more(
    table: Mapping[str, np.ndarray],
    names: np.ndarray,
    first_end: np.ndarray,
    set_ns: np.ndarray,
    shown: np.ndarray,
    reached: np.ndarray,
    from_ns: np.ndarray,
    to_ns: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the answers that there is some topic while there can have been none, and when that was known."""
    unknown = table["value"] == NONE
    sets = table["operation"] == AdminOperation.SET.value
    rows = np.flatnonzero(unknown & ~sets)
    if not len(rows) or not len(shown):
        return rows[:0], from_ns[:0]
    topics = np.flatnonzero((names > NO_TOPIC) & (set_ns < EVER))
    made_ns = np.append(set_ns[topics], table["invoked_ns"][unknown & sets])
    until_ns = np.append(first_end[topics], np.full(int((unknown & sets).sum()), EVER))
    order = np.argsort(made_ns, kind="stable")
    latest = np.append(NEVER, np.maximum.accumulate(until_ns[order]))
    latest = latest[np.searchsorted(made_ns[order], to_ns[rows], side="right")]
    at = np.searchsorted(first_end[shown], from_ns[rows], side="left") - 1
    between_ns = np.where(at >= 0, reached[at], NEVER)
    wrong = between_ns > latest
    return rows[wrong], first_end[shown[np.searchsorted(reached, between_ns[wrong], side="left")]]
