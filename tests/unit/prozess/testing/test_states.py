"""A table is compared with the fold of its input, key by key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.interfaces.application import Contents, Record
from prozess.testing.expectations import StateExpectation
from prozess.testing.states import judge_state

PAYMENTS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9)), max_size=8)


def log(topic, records, *, partition=0, first=0):
    return tuple(
        Record(
            topic, partition, first + n, None if key is None else key.encode(), None if v is None else str(v).encode()
        )
        for n, (key, v) in enumerate(records)
    )


def total(state, record):
    return (state or 0) + int(record.value)


def judge(inputs, rows, *, fold=total, identity=lambda record: int(record.value), why="", **more):
    contents = {"in": Contents(inputs), "table": Contents(rows, why)}
    return judge_state(StateExpectation("in", "table", fold, identity=identity, **more), contents)


def sums(payments):
    """What a right application writes: the balance after each payment."""
    balances, rows = {}, []
    for key, amount in payments:
        balances[key] = balances.get(key, 0) + amount
        rows.append((key, balances[key]))
    return rows


@given(payments=PAYMENTS)
def test_the_balance_after_each_payment_is_right_and_so_is_what_compaction_leaves(payments):
    rows = log("table", sums(payments))
    assert judge(log("in", payments), rows) == []
    last = {record.key: record for record in rows}
    assert judge(log("in", payments), tuple(last.values())) == []


@given(payments=PAYMENTS.filter(bool), data=st.data())
def test_a_payment_that_is_counted_twice_or_not_at_all_is_found_with_its_account(payments, data):
    chosen = data.draw(st.integers(0, len(payments) - 1))
    counted = (
        payments[:chosen] + payments[chosen : chosen + 1] * data.draw(st.sampled_from([0, 2])) + payments[chosen + 1 :]
    )
    (found,) = judge(log("in", payments), log("table", sums(counted)))
    assert (found.anomaly, found.count, found.fails, found.unknown) == ("wrong-state", 1, True, False)
    assert found.witnesses[0].text.startswith(f"'{payments[chosen][0]}': the table has ")


def test_an_application_that_began_again_from_nothing_is_told_with_its_records():
    (found,) = judge(log("in", [("a", 5), ("a", 3)]), log("table", [("a", 5), ("a", 3)]))
    (witness,) = found.witnesses
    assert (
        witness.text
        == "'a': the table has 3 (table/0, offset 1), and its 2 records give 8 (the last is in/0, offset 1)"
    )
    assert (witness.topic, witness.log_offset) == ("table", 1)


def test_a_key_that_no_input_has_is_wrong_and_a_tombstone_is_nothing():
    assert judge((), log("table", [("a", 1), ("a", None)])) == []
    (found,) = judge((), log("table", [("a", 1)]))
    assert "no record of the input has this key" in found.witnesses[0].text
    assert judge(log("in", [("a", 1)]), (), fold=lambda state, record: None) == []
    (found,) = judge(log("in", [("a", 1)]), ())
    assert "the table has nothing, and its 1 record give 1" in found.witnesses[0].text


def test_a_key_of_the_tests_own_and_a_state_that_is_the_value():
    told = {"fold": lambda state, record: record.value, "identity": None, "key": lambda record: "x"}
    assert judge(log("in", [("a", 1), ("b", 2)]), log("table", [("x", 2)]), **told) == []


def test_several_partitions_are_in_order_only_where_that_does_not_matter():
    inputs = log("in", [("a", 1)]) + log("in", [("a", 2)], partition=1)
    rows = log("table", [("a", 3)])
    (found,) = judge(inputs, rows)
    assert found.unknown
    assert "any_order=True" in found.reason
    assert judge(inputs, rows, any_order=True) == []


@pytest.mark.parametrize(
    ("inputs", "rows", "more", "said"),
    [
        ([("a", 1)], [("a", 1)], {"why": "records were deleted"}, "records were deleted"),
        ([("a", "x")], [], {}, "fold raised ValueError"),
        ([("a", 1)], [("a", "x")], {}, "identity raised ValueError"),
        ([("a", 1)], [], {"identity": None}, "fold gave 1. Without identity="),
        ([(None, 1)], [], {}, "the key of in/0, offset 0 is None; give key="),
        ([("a", 1)], [], {"key": lambda record: record.nothing}, "key raised AttributeError"),
        ([], [(None, 1)], {}, "table/0, offset 0 has no key"),
    ],
)
def test_what_cannot_be_compared_is_unknown_with_the_reason(inputs, rows, more, said):
    (found,) = judge(log("in", inputs), log("table", rows), **more)
    assert found.unknown
    assert said in found.reason


def test_a_row_in_two_partitions_of_the_table_is_unknown():
    (found,) = judge(log("in", [("a", 1)]), log("table", [("a", 1)]) + log("table", [("a", 2)], partition=1))
    assert found.unknown
    assert "in several partitions of table" in found.reason
