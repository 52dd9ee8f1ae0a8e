"""What a test says of its application: outputs compared as multisets, and sends that are one thing."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.interfaces.application import Contents, Record
from prozess.testing.expectations import (
    DOUBLED,
    MISSING,
    UNEXPECTED,
    UNORDERED,
    Expectation,
    judge_expectation,
    judge_identities,
)

THINGS = st.lists(st.sampled_from("abcd"), max_size=8)


def log(topic, values, **more):
    return Contents(
        tuple(
            Record(topic, 0, offset, None, value if value is None else value.encode(), **more)
            for offset, value in enumerate(values)
        )
    )


def judge(inputs, outputs, function=lambda record: record.value, **more):
    contents = {"in": log("in", inputs), "out": log("out", outputs)}
    return judge_expectation(Expectation("in", "out", function, **more), contents, lambda record: "…")


def counts(found):
    return {one.anomaly: one.count for one in found}


def test_a_copy_of_each_is_what_is_expected():
    assert judge("abc", "cab") == []


@given(inputs=THINGS, outputs=THINGS)
def test_what_is_found_makes_the_outputs_those_of_the_inputs(inputs, outputs):
    owed, there = Counter(inputs), Counter(outputs)
    expected = {
        MISSING: (owed - there).total(),
        DOUBLED: sum(max(0, count - owed[thing]) for thing, count in there.items() if thing in owed),
        UNEXPECTED: sum(count for thing, count in there.items() if thing not in owed),
    }
    assert counts(judge(inputs, outputs)) == {anomaly: count for anomaly, count in expected.items() if count}


@given(inputs=THINGS, outputs=THINGS)
def test_at_least_once_allows_more_of_what_is_owed_and_nothing_else(inputs, outputs):
    strict = counts(judge(inputs, outputs))
    strict.pop(DOUBLED, None)
    assert counts(judge(inputs, outputs, at_least_once=True)) == strict


def test_none_is_no_output_and_a_list_is_several():
    made = {"a": None, "b": ["x", "y"], "c": "z"}
    assert judge("abc", "xyz", lambda record: made[record.value.decode()]) == []
    assert counts(judge("abc", "xz", lambda record: made[record.value.decode()])) == {MISSING: 1}


def test_outputs_are_compared_by_identity_where_it_is_given():
    told = {"function": lambda record: int(record.value), "identity": lambda record: len(record.value)}
    assert judge(["1", "2"], ["x", "yy"], **told) == []
    (found,) = judge(["1", "3"], ["x"], **told)
    assert (found.anomaly, [w.text for w in found.witnesses]) == (MISSING, ["in/0, offset 1 (…): 3"])


def test_a_tombstone_is_an_output_like_another():
    assert counts(judge(["a"], ["a", None])) == {UNEXPECTED: 1}


@pytest.mark.parametrize(
    ("function", "identity", "said"),
    [
        (lambda record: 1 // 0, None, "function raised ZeroDivisionError: "),
        (lambda record: {"a": 1}, None, "Without identity=, which says what is compared"),
        (lambda record: "a", lambda record: record.nothing, "identity raised AttributeError"),
        (lambda record: [object()], lambda record: "a", "does not say what it is"),
    ],
)  # fmt: skip
def test_a_function_of_the_users_that_fails_makes_it_unknown_with_the_record(function, identity, said):
    (found,) = judge(["a"], ["a"], function, identity=identity)
    assert found.unknown
    assert said in found.reason


@pytest.mark.parametrize("short", ["in", "out"])
def test_a_topic_that_was_not_read_to_its_end_is_unknown(short):
    contents = {name: Contents((), "why" if name == short else "") for name in ("in", "out")}
    (found,) = judge_expectation(Expectation("in", "out", lambda r: None), contents, str)
    assert (found.unknown, found.reason) == (True, "cannot be judged: why")


# --- dead letters ---------------------------------------------------------------------------------------------------------


def test_dead_letters_are_told_in_their_own_words():
    made = judge("ab", "bc", lambda record: None if record.value == b"b" else record.value, dead_letters=True)
    assert {one.anomaly: one.reason for one in made} == {
        MISSING: "1 record of in failed, by what the test says, and left no dead letter in out.",
        UNEXPECTED: "out has 2 records that no failed record of in accounts for.",
    }
    assert {one.where for one in made} == {"in → out (dead letters)"}


# --- order by key ---------------------------------------------------------------------------------------------------------


def keyed(topic, *records):
    """Records of (partition, key, value), each at the next offset of its partition."""
    ends = Counter()
    made = []
    for partition, key, value in records:
        made.append(Record(topic, partition, ends[partition], key and key.encode(), value.encode()))
        ends[partition] += 1
    return Contents(tuple(made))


def judge_keyed(inputs, outputs, *, order="key", **more):
    contents = {"in": keyed("in", *inputs), "out": keyed("out", *outputs)}
    told = Expectation("in", "out", lambda record: record.value, order=order, **more)
    return judge_expectation(told, contents, lambda record: "…")


INPUT = [(0, "k", "a"), (0, "j", "b"), (0, "k", "c")]


def test_outputs_of_other_keys_may_overtake_and_those_of_one_may_not():
    assert judge_keyed(INPUT, [INPUT[1], INPUT[0], INPUT[2]]) == []
    (found,) = judge_keyed(INPUT, [INPUT[2], INPUT[1], INPUT[0]])
    assert (found.anomaly, found.count, found.fails) == (UNORDERED, 1, True)
    (witness,) = found.witnesses
    assert witness.text == "'k': in/0, offset 0 → out/0, offset 2, but in/0, offset 2 → out/0, offset 0"
    assert (witness.topic, witness.log_offset) == ("out", 2)


def test_an_output_in_another_partition_than_the_one_before_has_no_order():
    (found,) = judge_keyed(INPUT, [INPUT[0], INPUT[1], (1, "k", "c")])
    assert (found.anomaly, found.count) == (UNORDERED, 1)


def test_where_no_order_is_asked_for_it_is_shown_and_fails_nothing_and_other_keys_are_nobodys_business():
    (found,) = judge_keyed(INPUT, INPUT[::-1], order=None)
    assert (found.anomaly, found.fails) == (UNORDERED, False)
    assert judge_keyed(INPUT, [(p, f"of {k}", v) for p, k, v in INPUT[::-1]], order=None) == []


def test_records_without_a_key_and_of_different_partitions_have_no_order():
    assert judge_keyed([(0, None, "a"), (0, None, "b")], [(0, None, "b"), (0, None, "a")]) == []
    assert judge_keyed([(0, "k", "a"), (1, "k", "b")], [(0, "k", "b"), (0, "k", "a")]) == []


def test_the_first_of_several_outputs_counts_where_they_are_allowed():
    again = [INPUT[0], INPUT[2], INPUT[0], INPUT[2], INPUT[1]]
    assert judge_keyed(INPUT, again, at_least_once=True) == []


def test_outputs_that_cannot_be_told_apart_are_unknown_where_order_is_asked_for():
    same = [(0, "k", "a"), (0, "j", "a")]
    (found,) = judge_keyed(same, same)
    assert (found.anomaly, found.unknown) == (UNORDERED, True)
    (gap,) = judge_keyed(same, same, order=None)
    assert (gap.anomalies, gap.where) == ((UNORDERED,), "in → out")


@given(inputs=st.lists(st.tuples(st.just(0), st.sampled_from("kj"), st.sampled_from("ab")), max_size=6), data=st.data())
def test_order_is_what_sorting_by_key_shows(inputs, data):
    """Each key has values of its own here, so that equal outputs come from one key: some pairing is in order, or none is."""
    inputs = [(p, key, key + value) for p, key, value in inputs]
    outputs = data.draw(st.permutations(inputs))
    ordered = all([r for r in inputs if r[1] == key] == [r for r in outputs if r[1] == key] for key in "kj")
    assert (judge_keyed(inputs, outputs) == []) is ordered


# --- sends that are one thing ---------------------------------------------------------------------------------------------


def sent(*things, sender=1):
    """Records of one client; each (identity, sequence)."""
    return Contents(
        tuple(
            Record("t", 0, offset, None, b"", sender=sender, sequence=sequence, identity=identity)
            for offset, (identity, sequence) in enumerate(things)
        )
    )


def test_two_sends_of_one_identity_are_found_with_both():
    (found,) = judge_identities("t", sent((b"'p'", 0), (b"'q'", 1), (b"'p'", 2)), None)
    assert (found.anomaly, found.count, found.fails) == ("repeated", 1, True)
    (witness,) = found.witnesses
    assert witness.text == "'p': t/0, offset 0 (record 0 of client 1) and t/0, offset 2 (record 2 of client 1)"
    assert (witness.topic, witness.number, witness.log_offset) == ("t", 0, 2), "the one that was sent again"


def test_one_send_that_stands_there_twice_is_no_repetition_of_the_application():
    assert judge_identities("t", sent((b"'p'", 0), (b"'p'", 0)), None) == []


def test_records_without_an_identity_are_like_no_other():
    assert judge_identities("t", sent((None, 0), (None, 1)), None) == []
    assert judge_identities("t", log("t", "aa"), lambda record: None) == []


def test_the_tests_own_function_sees_records_of_everybody():
    (found,) = judge_identities("t", log("t", "aba"), lambda record: record.value)
    assert found.count == 1


def test_a_topic_that_was_not_read_to_its_end_says_nothing_of_repetitions():
    (found,) = judge_identities("t", Contents((), "why"), None)
    assert found.unknown
