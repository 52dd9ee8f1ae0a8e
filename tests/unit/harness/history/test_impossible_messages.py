"""Rows of `messages` that no proxy can have written: of another step, of other messages, of another deed or time."""

import numpy as np
import pytest

from prozess.harness.clock import NS_PER_S
from prozess.harness.config.messages.match import MessageMatch
from prozess.harness.history.impossible_messages import doubtful_messages
from prozess.harness.plan.schedule import FaultAction, MessagePassed, Step
from prozess.harness.schema import MESSAGES, MISSING, NONE

DID = ["record", "hold", "delivered", "wait", "answer", "not answered", "swapped"]
PRODUCE, END_TXN, FETCH = 0, 26, 1
NO_STEP, OTHER, UNDONE, EARLY = (
    "the step means no message",
    "the step means other messages",
    "the step does something else to messages",
    "something was done to it before its step",
)


def fault(name, do, **match):
    parameters = {"match": match, "action": {"do": do} | ({"error": "NOT_ENOUGH_REPLICAS"} if do == "answer" else {})}
    return Step(name=name, do=FaultAction(fault="message", targets=("brokers",), parameters=parameters))


STEPS = (
    fault("answers are recorded", "record", api="Produce", direction="answer", partition=0),
    Step(name="a commit comes", after=MessagePassed(match=MessageMatch(api="EndTxn", commit=True))),
    fault("a request waits", "hold", api=["Produce", "Fetch"]),
    fault("a request is refused", "answer", api="Produce", first_sequence=5),
    Step(name="nothing"),
)
AWAITED_S = (1, 2, 3, 4, 5)
FINE = [
    {"step": 0, "api": PRODUCE, "answer": 1, "partition": 0, "did": "record", "time_s": 2},
    {"step": 1, "api": END_TXN, "did": "wait", "time_s": 2},
    {"step": 1, "api": END_TXN, "did": "delivered", "time_s": 9},
    {"step": 2, "api": FETCH, "partition": 3, "did": "hold", "time_s": 3},
    {"step": 2, "api": PRODUCE, "partition": 1, "did": "hold", "time_s": 3},
    {"step": 2, "api": FETCH, "did": "delivered", "time_s": 4},
    {"step": 3, "api": PRODUCE, "partition": 1, "first_sequence": 5, "did": "answer", "time_s": 4},
    {"step": 3, "api": PRODUCE, "partition": 1, "first_sequence": 5, "did": "not answered", "time_s": 4},
]


def wrong(row, *, awaited_s=AWAITED_S):
    columns = {name: np.array([row.get(name, NONE)]) for name in MESSAGES.column_names}
    columns |= {
        "time_ns": np.array([row["time_s"] * NS_PER_S]),
        "did": np.array([DID.index(row["did"])]),
        "answer": np.array([row.get("answer", 0)]),
    }
    awaited_ns = np.array([MISSING if s is None else s * NS_PER_S for s in awaited_s])
    steps = {"step": np.arange(len(awaited_s)), "awaited_ns": awaited_ns}
    return {name for name, found in doubtful_messages(STEPS, columns, steps, DID).items() if found.any()}


@pytest.mark.parametrize("row", FINE, ids=lambda row: f"{row['step']}-{row['did']}")
def test_what_a_step_means_is_in_no_doubt(row):
    assert wrong(row) == set()


@pytest.mark.parametrize(
    ("number", "changed", "told"),
    [
        (0, {"step": 4}, NO_STEP),
        (0, {"step": 9}, NO_STEP),
        (0, {"step": NONE}, NO_STEP),
        (0, {"step": 2}, OTHER),
        (0, {"api": FETCH}, OTHER),
        (0, {"answer": 0}, OTHER),
        (0, {"partition": 1}, OTHER),
        (0, {"partition": NONE}, OTHER),
        (0, {"did": "swapped"}, UNDONE),
        (0, {"did": "delivered"}, UNDONE),
        (1, {"did": "record"}, UNDONE),
        (1, {"api": PRODUCE}, OTHER),
        (3, {"answer": 1}, OTHER),
        (3, {"did": "answer"}, UNDONE),
        (6, {"first_sequence": 6}, OTHER),
        (6, {"time_s": 1}, EARLY),
        (0, {"time_s": -3}, EARLY),
    ],
)
def test_a_row_that_its_step_cannot_have_is_named(number, changed, told):
    assert told in wrong(FINE[number] | changed)


def test_a_step_of_which_nothing_is_recorded_has_messages_from_the_begin_of_the_trial_on():
    assert wrong(FINE[6], awaited_s=(1, 2, 3)) == set()
    assert wrong(FINE[6], awaited_s=(1, 2, 3, None)) == set(), "it was never awaited"
    assert wrong(FINE[6] | {"time_s": -3}, awaited_s=(1, 2, 3, None)) == {EARLY}
