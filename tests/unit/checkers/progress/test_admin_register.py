"""not-linearizable: answers to administrators that contradict one another, and answers that nearly do. Times in seconds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.progress.admin_register import not_linearizable
from prozess.harness.clock import NS_PER_S
from prozess.harness.columns import empty_rows
from prozess.harness.config.configuration import FIRST_CONTROLLER_ID
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import ADMIN_LAG_NS, AdminCase
from prozess.harness.schema import ADMIN_OPERATIONS, MISSING, NONE, AdminOperation, AdminSetting, Outcome
from tests.support.cells.partitions import PARTITION, history
from tests.unit.checkers.log.test_cluster import CELL

SET, FOUND = AdminOperation.SET, AdminOperation.FOUND
ABSENT = 0


def register(*operations):
    """(operation, value, begin, end[, node[, topic]]) of one setting; an end of None: no answer came."""
    rows = []
    for operation, value, begin_s, end_s, *where in operations:
        node, topic = (*where, *(NONE, 0)[len(where) :])
        rows.append(
            {
                "client": NONE,
                "invoked_ns": int(begin_s * NS_PER_S),
                "completed_ns": MISSING if end_s is None else int(end_s * NS_PER_S),
                "value": value,
                "topic": topic,
                "setting": int(AdminSetting.RETENTION),
                "operation": int(operation),
                "node": node,
                "outcome": int(Outcome.INFO if end_s is None else Outcome.OK),
            }
        )
    table = {
        name: np.array([row[name] for row in rows], dtype=values.dtype)
        for name, values in empty_rows(ADMIN_OPERATIONS).items()
    }
    return CellHistory(cell=CELL, partitions={PARTITION: history()}, tables={"admin_operations": table}, clients=())


def found_in(*operations):
    result = not_linearizable(register(*operations))
    return [(AdminCase(int(w["case"])), int(w["sequence"])) for w in result.witnesses]


SEVEN, EIGHT = (SET, 7, 1, 2), (SET, 8, 3, 4)


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([SEVEN, EIGHT, (FOUND, 7, 5, 6)], [(AdminCase.STALE, 7)]),
        ([SEVEN, EIGHT, (FOUND, 7, 3.5, 6)], []),
        ([SEVEN, EIGHT, (FOUND, 8, 3.5, 3.6), (FOUND, 7, 3.7, 6)], [(AdminCase.STALE, 7)]),
        ([SEVEN, EIGHT, (FOUND, 7, 5, 6, 1)], []),
        ([SEVEN, EIGHT, (FOUND, 7, 15, 16, 1)], [(AdminCase.STALE, 7)]),
        ([SEVEN, EIGHT, (FOUND, 7, 5, 6, FIRST_CONTROLLER_ID)], []),
        ([(SET, 7, 1, 5), EIGHT, (FOUND, 7, 1.5, 1.6), (FOUND, 7, 6, 7)], [(AdminCase.AGAIN, 7)]),
        ([(SET, 7, 1, None), EIGHT, (FOUND, 7, 6, 7)], []),
        ([(SET, 7, 1, None), EIGHT, (FOUND, 7, 6, 7), (FOUND, 8, 8, 9)], [(AdminCase.STALE, 8)]),
        ([SEVEN, (SET, 8, 3, None), (FOUND, 7, 100, 101)], []),
        ([SEVEN, (FOUND, 8, 1, 2), (SET, 8, 3, 4)], [(AdminCase.EARLY, 8)]),
        ([SEVEN, (FOUND, 8, 1, 3.5), (SET, 8, 3, 4)], []),
        ([SEVEN, (FOUND, 9, 3, 4)], [(AdminCase.UNSET, 9)]),
        ([SEVEN, (*EIGHT, NONE, 1), (FOUND, 7, 5, 6)], []),
        # A topic is made and deleted; a name without a topic.
        ([SEVEN, (FOUND, ABSENT, 3, 4), (FOUND, 7, 5, 6)], [(AdminCase.STALE, 7)]),
        ([SEVEN, (FOUND, 7, 3, 4), (SET, ABSENT, 3, 4), (FOUND, 7, 5, 6)], [(AdminCase.STALE, 7)]),
        ([SEVEN, (FOUND, 7, 3, 4), (SET, ABSENT, 3, 4), (FOUND, 7, 5, 6, 1)], []),
        ([SEVEN, (SET, ABSENT, 3, None), (FOUND, 7, 5, 6)], []),
        ([SEVEN, (SET, ABSENT, 3, 4), (FOUND, NONE, 5, 6)], [(AdminCase.STALE, NONE)]),
        ([SEVEN, (SET, ABSENT, 3, 4), (SET, 8, 4, 7), (FOUND, NONE, 5, 6)], []),
        ([SEVEN, (SET, ABSENT, 3, 4), (SET, NONE, 4, None), (FOUND, NONE, 5, 6), (FOUND, 9, 8, 9)], []),
    ],
)
def test_an_answer_that_contradicts_earlier_ones_is_found_and_one_that_may_be_true_is_not(operations, expected):
    assert found_in(*operations) == expected


def test_a_witness_names_the_broker_and_how_old_its_copy_might_have_been():
    (witness,) = not_linearizable(register(SEVEN, EIGHT, (FOUND, 7, 15, 16, 2))).witnesses
    assert (witness["reader"], witness["begin_ns"], witness["end_ns"]) == (2, 4 * NS_PER_S, 15 * NS_PER_S)
    assert witness["other_ns"] - witness["begin_ns"] == ADMIN_LAG_NS


def possible(operations):
    """Whether any order of all calls explains what was found: the definition, tried."""
    for order in itertools.permutations(operations):
        latest_begin = -1
        for _, _, begin_s, end_s in order:  # each at one moment between its begin and its end, one after the other
            latest_begin = max(latest_begin, begin_s)
            if latest_begin > end_s:
                break
        else:
            now = None
            for operation, value, _, _ in order:
                if operation is SET:
                    now = value
                elif now != value:
                    break
            else:
                return True
    return False


@given(st.data())
def test_calls_have_an_order_exactly_if_nothing_is_found(data):
    span = st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))
    writes = data.draw(st.lists(span, min_size=1, max_size=3))
    operations = [(SET, number + 1, *times) for number, times in enumerate(writes)]
    values = st.integers(1, len(writes))
    operations += [(FOUND, value, *times) for value, times in data.draw(st.lists(st.tuples(values, span), max_size=4))]
    assert (not_linearizable(register(*operations)).count == 0) == possible(operations)
