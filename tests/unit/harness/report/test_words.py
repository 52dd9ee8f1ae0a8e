"""Words that the report, the terminal and the summary share."""

import pytest

from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.report.words import fault_name
from prozess.harness.verdict import FaultShown


def step(name, **parameters):
    return Step(
        name=name, at_s=1, do=FaultAction(kind="fault", fault="message", targets=("leader(0)",), parameters=parameters)
    )


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, "message broker-1"),
        ({"match": {"api": "Produce"}, "action": {"do": "hold"}}, "hold Produce at broker-1"),
        ({"match": {"api": "Fetch", "direction": "answer"}, "action": {"do": "lose"}}, "lose Fetch answer at broker-1"),
        ({"match": {}, "action": {"do": "lose"}}, "lose any message at broker-1"),
        (
            {"match": {"method": "org.apache.kafka.FileRecords#append"}, "action": {"do": "throw"}},
            "throw in FileRecords#append at broker-1",
        ),
    ],
)
def test_a_fault_of_single_messages_is_named_by_what_it_did_to_which(parameters, expected):
    shown = FaultShown(step="late", fault="message", nodes=("broker-1",), begin_s=1, end_s=2, effective=True)
    assert fault_name(shown, [step("late", **parameters)]) == expected
