"""What crosses the socket into the sandbox: what is stated is what is heard, and errors arrive as what they are."""

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.config.impairments import FrozenDisk, Wipe
from prozess.harness.errors import BadInput, ClusterFailed, HarnessFailed, HistoryUnreadable, MissingTool, NotReady
from prozess.harness.interfaces import Capability, NodeState
from prozess.harness.schema import Tristate
from tests.support.servers import host_messages as messages
from tests.support.servers.host_messages import Asked, FactsAnswer, NodeFacts, Told, decoded, encoded

WORDS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**31), 2**31)
SECONDS = st.floats(0, 1e6)
SERVERS = st.dictionaries(NUMBERS, st.tuples(WORDS, NUMBERS))
PLACES = st.just(Path("/run/a b/\u00fc"))
SAID = {
    "timeout_s": SECONDS,
    "into": PLACES,
    "impairment": st.just(FrozenDisk()),
    "harm": st.just(Wipe()),
    "isolation": st.sampled_from(["namespaces", "signals"]),
    "capabilities": st.dictionaries(st.sampled_from(Capability), WORDS),
    "lacks": st.dictionaries(st.sampled_from(Capability), WORDS),
    "nodes": st.dictionaries(WORDS, st.builds(NodeFacts, address=WORDS, data_directory=PLACES)),
    "description": st.dictionaries(WORDS, WORDS | NUMBERS | st.none() | st.lists(WORDS)),
    "state": st.sampled_from(NodeState),
    "os_pid": st.none() | NUMBERS,
    "seen": st.sampled_from(Tristate),
} | {f"{kind}_servers": SERVERS for kind in ("observer", "controller", "zookeeper", "metrics")}
"""Name of a field → what may be stated in it, unless that is one of its words."""
TAGS = ("ask", "answer", "do")


def made(kind):
    """Messages of one kind."""
    fields = {name: SAID.get(name, WORDS) for name in kind.model_fields if name not in TAGS}
    words = {
        name: st.sampled_from(get_args(kind.model_fields[name].annotation))
        for name in TAGS
        if name in kind.model_fields
    }
    return st.builds(kind, **fields, **words)


REQUESTS = get_args(messages.ClusterRequest) + get_args(messages.NodeRequest)
ANSWERS = get_args(messages.Answer) + get_args(messages.Failure)


@given(NUMBERS, st.one_of([made(kind) for kind in REQUESTS]))
def test_a_request_is_heard_as_it_was_said(number, request):
    line = encoded(Asked(number=number, request=request))
    assert line.count(b"\n") == 1
    assert decoded(Asked, line) == Asked(number=number, request=request)


@given(NUMBERS, st.one_of([made(kind) for kind in ANSWERS]))
def test_an_answer_is_heard_as_it_was_said(number, answer):
    line = encoded(Told(number=number, answer=answer))
    assert line.count(b"\n") == 1
    assert decoded(Told, line) == Told(number=number, answer=answer)


def test_every_request_and_every_answer_has_a_name_of_its_own():
    for kinds, tag in ((REQUESTS, "ask"), (ANSWERS, "answer")):
        assert len({kind.model_fields[tag].default for kind in kinds}) == len(kinds)


@pytest.mark.parametrize(
    "line",
    [
        b'{"number": "1", "request": {"ask": "setup"}}',
        b'{"number": 1.0, "request": {"ask": "setup"}}',
        b'{"number": 1, "request": {"ask": "unheard-of"}}',
        b'{"number": 1, "request": {"ask": "setup", "node": "broker-1"}}',
        b'{"number": 1, "request": {"ask": "state"}}',
        b'{"number": 1, "request": {"ask": "state", "node": 5}}',
        b'{"number": 1, "request": {"ask": "wait_ready", "timeout_s": "5"}}',
        b'{"number": 1, "request": {"ask": "server", "node": "broker-1", "do": "teardown"}}',
        b'{"number": 1, "request": {"ask": "impair", "node": "broker-1", "do": "impair", "impairment": {"kind": "bad"}}}',
        b"[]",
        b"{",
    ],
)
def test_what_is_no_request_is_our_mistake_and_is_named(line):
    with pytest.raises(AssertionError) as raised:
        decoded(Asked, line)
    assert repr(line) in str(raised.value)


def test_facts_of_the_wrong_kind_are_not_taken():
    facts = FactsAnswer(
        isolation="namespaces",
        capabilities={},
        lacks={},
        bootstrap_servers="a:1",
        observer_servers={1: ("a", 2)},
        controller_servers={},
        zookeeper_servers={},
        metrics_servers={},
        nodes={},
    )
    line = encoded(Told(number=0, answer=facts))
    for good, bad in ((b'["a",2]', b'["a","2"]'), (b'"1":', b'"one":'), (b'"namespaces"', b'"walls"')):
        assert line.count(good) == 1
        with pytest.raises(AssertionError):
            decoded(Told, line.replace(good, bad))


@pytest.mark.parametrize(
    "error",
    [
        NotReady(awaited="x", timeout_s=3, last_seen="y"),
        ClusterFailed("broker-1 ended"),
        MissingTool("no ip"),
        HistoryUnreadable("torn"),
        BadInput("no"),
    ],
)
def test_an_error_crosses_the_socket_as_what_it_is(error):
    told = decoded(Told, encoded(Told(number=1, answer=messages.failure_of(error))))
    back = messages.error_of(told.answer)
    assert type(back) is type(error)
    assert str(back) == str(error)


def test_a_foreign_error_crosses_as_a_failure_of_the_harness():
    back = messages.error_of(messages.failure_of(OSError("disk on fire")))
    assert type(back) is HarnessFailed
    assert "OSError: disk on fire" in str(back)


def test_a_kind_of_error_that_is_not_known_there_crosses_as_the_one_that_it_is_a_kind_of():
    class Special(ClusterFailed):
        """Known here alone."""

    assert type(messages.error_of(messages.failure_of(Special("no")))) is ClusterFailed


@pytest.mark.parametrize("error", [ClusterFailed("no such file: \udcff"), OSError("\udcff")])
def test_words_that_are_no_unicode_do_not_keep_an_error_from_crossing(error):
    back = messages.error_of(decoded(Told, encoded(Told(number=1, answer=messages.failure_of(error)))).answer)
    assert "\\udcff" in str(back)
