"""Messages between the run stage and its clients: what is said is what is heard, and nothing else is."""

from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.workloads import messages

COMMANDS = st.one_of([st.builds(command) for command in get_args(messages.Command)])
EVENTS = st.one_of([st.builds(event) for event in get_args(get_args(messages.Event)[0])])


@given(st.integers(), COMMANDS)
def test_a_command_is_heard_as_it_was_said(number, command):
    order = messages.Order(number=number, command=command)
    assert messages.order_of(messages.encoded(order)) == order


@given(EVENTS)
def test_an_event_is_heard_as_it_was_said(event):
    assert messages.event_of(messages.encoded(event)) == event


def test_words_that_are_no_unicode_are_heard_too():
    ended = messages.EndedEvent(code=1, reason="no such file: \udcff")
    assert messages.event_of(messages.encoded(ended)) == ended


@pytest.mark.parametrize(
    "line",
    [
        b'{"event": "unheard-of"}',
        b'{"event": "ready", "os_pid": 1}',
        b'{"event": "done"}',
        b'{"event": "done", "number": "one"}',
        b'{"event": "ended", "code": 0, "reason": 5}',
        b"[]",
        b"{",
    ],
)
def test_what_is_no_message_is_our_mistake_and_is_named(line):
    with pytest.raises(AssertionError) as raised:
        messages.event_of(line)
    assert repr(line) in str(raised.value)


def test_every_command_and_event_has_a_name_of_its_own():
    for kind, name in ((get_args(messages.Command), "do"), (get_args(get_args(messages.Event)[0]), "event")):
        names = [field.default for one in kind for field in fields(one) if field.name == name]
        assert len(set(names)) == len(names) == len(kind)
