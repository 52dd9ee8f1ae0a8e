"""Finds rows of `messages` that no proxy can have written. The plan says which messages a step means, and what it does to
them (`prozess.harness.history.contradictions`)."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.config.messages import names
from prozess.harness.config.messages.match import MessageMatch
from prozess.harness.history.client_lives import Columns, among
from prozess.harness.plan.schedule import MESSAGE_FAULT, FaultAction, MessagePassed, Step

BEFORE_NS = NS_PER_S
"""A proxy's clock may be so far behind that of the steps."""
_OF_HELD = frozenset({"delivered", "dropped", "connection gone"})
_ALSO: Mapping[str, frozenset[str]] = {
    "hold": _OF_HELD,
    "wait": _OF_HELD,
    "swap": _OF_HELD | {"swapped"},
    "answer": frozenset({"not answered"}),
}
"""What a proxy may do besides what it was asked to do, by that."""


def doubtful_messages(
    planned: Sequence[Step], rows: Columns, steps: Columns, did: Sequence[str]
) -> Mapping[str, np.ndarray]:
    """Returns, by what is wrong, which rows of `messages` cannot be: bool[rows]. The loop runs over the steps of the plan.

    `planned`: the steps of the plan. `steps`: the table of this name. `did`: the texts of its dictionary, by their code.
    Example: step 3 records the answers to Produce of partition 0. A row of step 3 that is of partition 1, or of a request, or
    was dropped, is in doubt, and so is a row of step 4, which means no message.
    """
    of = rows["step"]
    awaited_ns = dict(zip(steps["step"].tolist(), np.maximum(steps["awaited_ns"], 0).tolist(), strict=True))
    no_step, other, undone, early = (np.ones(len(of), dtype=bool) for _ in range(4))
    for number, step in enumerate(planned):
        mine = of == number
        for match, do in _meant(step):
            no_step &= ~mine
            other &= ~(mine & _matches(match, rows, _is_any_of(_OF_HELD, rows["did"], did)))
            undone &= ~(mine & _is_any_of({do} | _ALSO.get(do, frozenset()), rows["did"], did))
        early &= ~(mine & (rows["time_ns"] >= awaited_ns.get(number, 0) - BEFORE_NS))
    return {
        "the step means no message": no_step,
        "the step means other messages": other & ~no_step,
        "the step does something else to messages": undone & ~no_step,
        "something was done to it before its step": early & ~no_step,
    }


def _is_any_of(wanted: Collection[str], codes: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Returns which codes are those of these texts."""
    known = np.array([code for code, text in enumerate(texts) if text in wanted], dtype=np.int64)
    return among(codes.astype(np.int64), known)


def _meant(step: Step) -> Iterator[tuple[MessageMatch, str]]:
    """Yields which messages a step means, and what it does to them."""
    if isinstance(step.after, MessagePassed):
        yield step.after.match, "wait" if step.after.hold else "record"
    if isinstance(step.do, FaultAction) and step.do.fault == MESSAGE_FAULT:
        yield MessageMatch.model_validate(step.do.parameters["match"]), step.do.parameters["action"]["do"]


def _matches(match: MessageMatch, rows: Columns, after_holding: np.ndarray) -> np.ndarray:
    """Returns which rows may be of a message that is meant. `after_holding`: rows that say what became of a message that was
    held, which name no partition."""
    apis = np.array(sorted(names.api_keys()[api] for api in match.api), dtype=np.int64)
    fits = among(rows["api"].astype(np.int64), apis) & (rows["answer"] == int(match.direction == "answer"))
    for name in ("partition", "producer_epoch", "first_sequence"):
        if (wanted := getattr(match, name)) is not None:
            fits &= (rows[name] == wanted) | after_holding
    return np.asarray(fits)
