"""Messages between the run stage and its clients: what is stated is what is heard, and nothing else is."""

from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.workloads import messages

SAID = {
    messages.Whole: st.integers(),
    messages.Key: st.integers(),
    messages.Number: st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False),
    messages.Flag: st.booleans(),
    messages.Text: st.text(st.characters()),
}
"""Type of a field → what may be stated in it. Words may be no unicode, and no number is infinite."""


def said(kind):
    """What may be stated in a field of this type."""
    inner = [said(one) for one in get_args(kind)] if get_origin(kind) in (list, dict, tuple) else []
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    made = {list: st.lists, dict: st.dictionaries, tuple: st.tuples}
    return made[get_origin(kind)](*inner) if inner else SAID[kind]


def hints(kind):
    """Name of each field of a message → its type."""
    return {name: hint for name, hint in get_type_hints(kind, include_extras=True).items() if name in kind.model_fields}


def made(kind):
    """Messages of one kind."""
    return st.builds(kind, **{name: said(hint) for name, hint in hints(kind).items()})


COMMANDS = st.one_of([made(command) for command in get_args(messages.Command)])
EVENTS = st.one_of([made(event) for event in get_args(get_args(messages.Event)[0])])


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
        b'{"event": "done", "number": "5"}',
        b'{"event": "done", "number": 5.0}',
        b'{"event": "done", "number": true}',
        b'{"event": "child", "session": 5, "speaks": 1}',
        b'{"event": "child", "session": 5, "speaks": "true"}',
        b'{"event": "ended", "code": 0, "reason": 5}',
        b'{"event": "draining", "at": {"3": [5, 0]}, "processed": 1}',
        b'{"event": "draining", "at": {"3": ["5", true]}, "processed": 1}',
        b'{"event": "draining", "at": {"3": [5]}, "processed": 1}',
        b'{"event": "audited", "complete": {" 3": 5}, "incomplete": {}}',
        b'{"event": "audited", "complete": {"03": 5}, "incomplete": {}}',
        b'{"event": "audited", "complete": {"3.0": 5}, "incomplete": {}}',
        b'{"event": "audited", "complete": {"true": 5}, "incomplete": {}}',
        b"[]",
        b"{",
    ],
)
def test_what_is_no_message_is_our_mistake_and_is_named(line):
    with pytest.raises(AssertionError) as raised:
        messages.event_of(line)
    assert repr(line) in str(raised.value)


@pytest.mark.parametrize("number", [b'"5"', b"true", b"null", b"[5]", b"Infinity", b"NaN"])
@pytest.mark.parametrize(
    "command", [b'{"do": "stall", "seconds": %s}', b'{"do": "send", "partitions": [%s], "count": 1}']
)
def test_what_only_looks_like_a_number_is_no_order(command, number):
    with pytest.raises(AssertionError):
        messages.order_of(b'{"number": 1, "command": %s}' % (command % number))
    assert messages.order_of(b'{"number": 1, "command": %s}' % (command % b"5")).number == 1


def lax(kind):
    """The types within a type that pydantic would convert."""
    if get_origin(kind) in (list, dict, tuple):
        return [found for inner in get_args(kind) for found in lax(inner)]
    return [kind] if kind in (int, float, bool, str) else []


@pytest.mark.parametrize("kind", messages.Message.__subclasses__(), ids=lambda kind: kind.__name__)
def test_no_field_of_a_message_is_read_laxly(kind):
    assert not {name: found for name, hint in hints(kind).items() if (found := lax(hint))}


def test_every_command_and_event_has_a_name_of_its_own():
    for kind, name in ((get_args(messages.Command), "do"), (get_args(get_args(messages.Event)[0]), "event")):
        names = [one.model_fields[name].default for one in kind]
        assert len(set(names)) == len(names) == len(kind)
