"""Messages are found in the bytes of a connection, however these are cut into pieces, and nothing is lost or changed."""

import struct
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.messages.frames import COLLECTED_MAX_BYTES, PRODUCE, Frame, Splitter
from prozess.harness.config.messages import schemas
from prozess.harness.config.messages.facts import BATCH_HEAD


def request(api, correlation, body=b""):
    return struct.pack(">ihhi", 8 + len(body), api, 1, correlation) + body


def cut(data, lengths):
    """The data in pieces of these lengths, again and again."""
    at, turn = 0, 0
    while at < len(data):
        yield data[at : at + lengths[turn % len(lengths)]]
        at += lengths[turn % len(lengths)]
        turn += 1


def passed(splitter, pieces):
    """All bytes that went on, and the frames that were wanted."""
    out, frames = b"", []
    for data in pieces:
        for piece in splitter.feed(data):
            frames += [piece.data] if isinstance(piece, Frame) else []
            out += piece.data if isinstance(piece, Frame) else bytes(piece)
    return out + splitter.rest(), frames


BODIES = st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=60)), max_size=12)
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=5)


@given(BODIES, LENGTHS, st.sets(st.integers(0, 4)))
def test_every_message_is_seen_once_and_those_that_are_wanted_are_whole(bodies, lengths, apis):
    messages = [request(api, number, body) for number, (api, body) in enumerate(bodies)]
    seen = []

    def look(api, _version, correlation, _unanswered):
        seen.append(correlation)
        return api in apis

    splitter = Splitter(answers=False, seen=look)
    splitter.would_want = lambda api, _version, _correlation: api in apis
    stream = b"".join(messages)
    out, frames = passed(splitter, cut(stream, lengths))
    assert out == stream
    assert frames == [message for message, (api, _) in zip(messages, bodies, strict=True) if api in apis]
    assert seen == list(range(len(messages)))
    assert not splitter.foreign


@given(st.binary(max_size=400), LENGTHS)
def test_whatever_comes_goes_on_unchanged(data, lengths):
    splitter = Splitter(answers=False, seen=lambda *_: True)
    splitter.would_want = lambda *_: True
    assert passed(splitter, cut(data, lengths))[0] == data


@given(st.lists(st.binary(max_size=60), max_size=12), LENGTHS)
def test_answers_are_known_by_their_correlation_id(bodies, lengths):
    messages = [struct.pack(">ii", 4 + len(body), number) + body for number, body in enumerate(bodies)]
    splitter = Splitter(answers=True, seen=lambda _api, _version, correlation, _unanswered: correlation % 2 == 0)
    splitter.would_want = lambda _api, _version, correlation: correlation % 2 == 0
    out, frames = passed(splitter, cut(b"".join(messages), lengths))
    assert (out, frames) == (b"".join(messages), messages[::2])


def test_bytes_that_are_no_message_end_the_search_and_go_on():
    splitter = Splitter(answers=False, seen=lambda *_: True)
    splitter.would_want = lambda *_: True
    stream = request(0, 1, b"x") + b"GET / HTTP/1.1\r\n\r\n"
    out, frames = passed(splitter, [stream, request(0, 2)])
    assert out == stream + request(0, 2)
    assert frames == [request(0, 1, b"x")]
    assert splitter.foreign


def test_a_message_that_is_too_large_to_be_kept_is_passed_on():
    splitter = Splitter(answers=False, seen=lambda *_: True)
    splitter.would_want = lambda *_: True
    head = struct.pack(">ihhi", COLLECTED_MAX_BYTES + 1, 1, 1, 5)
    assert [bytes(piece) for piece in splitter.feed(head)] == [head]
    assert splitter.feed(b"x" * 100) == [b"x" * 100]


def produce(version, correlation, acks, transactional_id=None, client="me"):
    """A Produce request with one batch, as a client sends it."""
    records = BATCH_HEAD.pack(0, BATCH_HEAD.size - 12, 0, 2, 0, 0, 0, 0, 0, 7, 0, 0, 1)
    data = [{"name": "t", "topic_id": UUID(int=1), "partition_data": [{"index": 0, "records": records}]}]
    body = {"transactional_id": transactional_id, "acks": acks, "timeout": 1000, "topic_data": data}
    return schemas.request(PRODUCE, version, correlation, client, body)


@given(
    st.lists(
        st.tuples(
            st.integers(3, 13),
            st.sampled_from([(0, None), (1, None), (-1, None), (-1, "x"), (-1, "")]),
            st.text(max_size=9),
        ),
        max_size=6,
    ),
    LENGTHS,
)
def test_a_produce_request_with_acks_0_is_known_as_one_that_nobody_answers(sent, lengths):
    messages = [
        produce(version, number, acks, transactional_id, client)
        for number, (version, (acks, transactional_id), client) in enumerate(sent)
    ]
    told = []

    def look(_api, _version, correlation, unanswered):
        told.append((correlation, unanswered))
        return False

    out, _ = passed(Splitter(answers=False, seen=look), cut(b"".join(messages), lengths))
    assert out == b"".join(messages)
    assert told == [(number, acks == 0) for number, (_, (acks, _), _) in enumerate(sent)]
