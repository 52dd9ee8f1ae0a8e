"""Which calls a trial means, and what is done to them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from prozess.harness.config.impairments import IMPAIRMENT, MethodRule
from prozess.harness.config.methods import CallNumbers, MethodAction, MethodMatch, MethodName, beyond_code, meant_calls

ACTION = TypeAdapter(MethodAction)
identifiers = st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$]{0,8}", fullmatch=True)
classes = st.lists(identifiers, min_size=1, max_size=4).map(".".join)
types = st.builds(lambda name, dimensions: name + "[]" * dimensions, classes, st.integers(0, 2))
method_names = st.builds(MethodName, classes, identifiers, st.none() | st.lists(types, max_size=4).map(tuple))


@given(method_names)
def test_a_name_is_read_as_it_is_written(name):
    assert MethodName.parse(str(name)) == name


@given(st.text(max_size=40))
def test_what_cannot_be_a_name_is_refused_with_the_rule(text):
    if re.fullmatch(r"[\w$.]+#[\w$]+(\([\w$., \[\]]*\))?", text, re.ASCII):
        return
    with pytest.raises(ValueError, match=r"give package\.Class#method"):
        MethodName.parse(text)


@pytest.mark.parametrize(
    ("given_text", "arguments"),
    [
        ("a.B#c", None),
        ("a.B#c()", ()),
        ("a.B$C#d(long,x.Y)", ("long", "x.Y")),
        ("a.B#c(byte[], int)", ("byte[]", "int")),
    ],
)
def test_arguments_tell_methods_apart(given_text, arguments):
    assert MethodName.parse(given_text).arguments == arguments


@pytest.mark.parametrize(
    ("match", "why"),
    [
        ({"method": "appendAsLeader"}, "names no method"),
        ({"method": "a.B#c", "at": "middle"}, "entry"),
        ({"method": "a.B#c", "nth": 0}, "greater than or equal to 1"),
        ({"method": "a.B#c", "nth": 2, "every": 2}, "leave out every and until"),
        ({"method": "a.B#c", "nth": 2, "until": 3}, "leave out every and until"),
        ({"method": "a.B#c", "naming": 'a"b'}, "without quotes"),
        ({"method": "a.B#c", "naming": ""}, "not empty"),
        ({"method": "a.B#c", "partition": -1}, "greater than or equal to 0"),
        ({"method": "a.B#c", "line": 12}, "Extra inputs"),
    ],
)
def test_a_match_that_cannot_be_is_refused(match, why):
    with pytest.raises(ValidationError, match=why):
        MethodMatch.model_validate(match)


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ({"do": "sleep"}, "delay"),
        ({"do": "delay"}, "seconds"),
        ({"do": "delay", "seconds": 0}, "greater than 0"),
        ({"do": "pause", "seconds": 601}, "less than or equal to 600"),
        ({"do": "pause", "until": {"method": "a.B#c", "nth": 2}}, "nth"),
        ({"do": "throw", "exception": "java.io.IOException()"}, "no name of a class"),
    ],
)
def test_an_action_that_cannot_be_is_refused(action, why):
    with pytest.raises(ValidationError, match=why):
        ACTION.validate_python(action)


def test_only_an_exception_is_what_kafkas_code_may_never_do():
    match = MethodMatch(method="a.b.Log#append")
    assert beyond_code(match, ACTION.validate_python({"do": "delay", "seconds": 3})) is None
    assert beyond_code(match, ACTION.validate_python({"do": "pause"})) is None
    thrown = ACTION.validate_python({"do": "throw", "exception": "java.io.IOException"})
    assert beyond_code(match, thrown) == "Log#append threw java.io.IOException"


@given(
    method_names,
    st.sampled_from(["entry", "exit"]),
    st.none() | st.integers(0, 3),
    st.one_of(
        st.builds(CallNumbers, nth=st.integers(1, 9)),
        st.builds(CallNumbers, every=st.none() | st.integers(1, 5), until=st.none() | st.integers(5, 9)),
    ),
    st.sampled_from(
        [
            {"do": "delay", "seconds": 0.5},
            {"do": "pause", "until": {"method": "a.B#c", "partition": 1}},
            {"do": "throw", "exception": "java.io.IOException"},
        ]
    ),
)
def test_a_rule_is_the_same_after_the_journal(name, at, partition, numbers, action):
    match = MethodMatch(method=str(name), at=at, partition=partition, **numbers.model_dump())
    assert match.numbers == numbers
    meant = meant_calls(match, {number: (f"topic-{number}", number) for number in range(4)})
    assert (meant.topic is None) is (partition is None)
    rule = MethodRule(rule="a step", meant=meant, numbers=numbers, action=ACTION.validate_python(action))
    assert IMPAIRMENT.validate_json(rule.model_dump_json()) == rule
