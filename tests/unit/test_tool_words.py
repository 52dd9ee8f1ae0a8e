"""What is taken from a tool's words: the identity in a text, and the moment on the clock of the trial."""

import json

from hypothesis import given
from hypothesis import strategies as st

from harness.schema import NONE
from tests.unit.java_members import MS
from tests.unit.test_broken_tools import ANYTHING
from workloads.text_producer import text_identity, text_value
from workloads.verifiable_tool import Tool


@given(
    st.integers(0, 2**31 - 1), st.integers(0, 2**62 - 1), st.integers(0, 99), st.integers(0, 300), st.integers(0, 10**6)
)
def test_a_text_has_its_identity_and_no_other_text_has_one(client, order, account, size, spoil):
    text = text_value(client, order, account, size=size).decode()
    assert text_identity(text) == (client, order)
    at = spoil % len(text)
    spoilt = text[:at] + text[at + 1 :]
    assert text_identity(spoilt) == (NONE, NONE) or spoilt in {
        text_value(*text_identity(spoilt), account, size=len(spoilt)).decode() for account in range(100)
    }


@given(st.one_of(ANYTHING, st.dictionaries(st.sampled_from(["client", "order", "account"]), ANYTHING).map(json.dumps)))
def test_anything_else_has_none(value):
    assert text_identity(value) == (NONE, NONE)


@given(stamp=st.one_of(st.integers(), ANYTHING), read=st.integers(0, 10**6), since=st.integers(0, 10**6))
def test_a_moment_is_within_what_is_certain_whatever_the_tool_says(stamp, read, since):
    tool = Tool.__new__(Tool)
    tool.since_ns, tool.read_ns, tool._ahead_ns = min(since, read), max(since, read), 5 * MS
    low, high = tool.moment({"timestamp": stamp})
    assert tool.since_ns <= low <= high <= tool.read_ns


def test_a_moment_is_a_millisecond_of_the_wall_clock_on_the_clock_of_the_trial():
    tool = Tool.__new__(Tool)
    tool.since_ns, tool.read_ns, tool._ahead_ns = 0, 10**12, 5000 * MS
    assert tool.moment({"timestamp": 5007}) == (7 * MS, 8 * MS)
