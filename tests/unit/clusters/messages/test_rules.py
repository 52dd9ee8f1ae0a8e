"""The rules of the message proxy in any order, on real connections, next to a small model of what each end must get."""

import json
import socket
import struct
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from prozess.clusters.messages.connections import Link, Upstream
from prozess.clusters.messages.proxy import MessageProxy
from prozess.harness.clock import NS_PER_S
from prozess.harness.config.messages import schemas
from tests.support.examples import examples
from tests.support.fake_cluster.messages_model import (
    END_TXN,
    HEARTBEAT,
    NO_ERROR,
    PRODUCE,
    REFUSED,
    ModelConnection,
    ModelProxy,
)

LIMIT_S = 5.0
VERSIONS = {PRODUCE: 9, HEARTBEAT: 3, END_TXN: 4}
BODIES = {
    PRODUCE: {"transactional_id": None, "acks": 0, "timeout": 1000, "topic_data": []},
    HEARTBEAT: {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None},
    END_TXN: {"transactional_id": "x", "producer_id": 7, "producer_epoch": 0, "committed": True},
}
LINKS = ("first", "second")
RULES = ("a", "b", "c")
ACTIONS = st.sampled_from(
    (
        {"do": "record"},
        {"do": "wait"},
        {"do": "hold"},
        {"do": "hold", "seconds": 10},
        {"do": "swap", "seconds": 10},
        {"do": "lose", "connection": "keep"},
        {"do": "lose", "connection": "close"},
        {"do": "twice"},
        {"do": "answer", "code": REFUSED},
        {"do": "close", "when": "before"},
        {"do": "close", "when": "after"},
        {"do": "truncate", "bytes": 6},
    )
)
APIS = st.sampled_from((frozenset({END_TXN}), frozenset({HEARTBEAT}), frozenset({HEARTBEAT, END_TXN})))
SENT_APIS = st.sampled_from((END_TXN, END_TXN, HEARTBEAT, HEARTBEAT, PRODUCE))


@dataclass
class Ends:
    """The two ends of a connection through the proxy, and what came out of it at each."""

    client: socket.socket
    server: socket.socket
    got: dict = field(default_factory=lambda: {"client": bytearray(), "server": bytearray()})
    rest: bytes = b""
    """The second half of an answer of which the server has sent the first."""
    before_rest: int = 0
    """How many answers the client had got before that one."""

    def read(self):
        for name, end in (("client", self.client), ("server", self.server)):
            with suppress(OSError):
                while data := end.recv(1 << 16):
                    self.got[name] += data

    def at_server(self):
        return [schemas.request_head(message).correlation for message in messages(self.got["server"])]

    def at_client(self, apis):
        found = []
        for message in messages(self.got["client"]):
            (correlation,) = struct.unpack(">i", message[:4])
            body = schemas.answer_body(message, apis[correlation], VERSIONS[apis[correlation]])
            found.append((correlation, body["error_code"]))
        return found


def messages(data):
    """The whole messages in these bytes, without their sizes."""
    at = 0
    while at + 4 <= len(data) and at + 4 + (size := struct.unpack_from(">i", data, at)[0]) <= len(data):
        yield bytes(data[at + 4 : at + 4 + size])
        at += 4 + size


class RulesInAnyOrder(RuleBasedStateMachine):
    """A real proxy in this process, with a clock of the test. After every step each end has what the model says, once and in
    order, and rules and journal have counted what the model counts."""

    def __init__(self):
        super().__init__()
        self.model, self.ends, self.apis = ModelProxy(), [], {}
        self.listeners = {name: socket.create_server(("127.0.0.1", 0)) for name in LINKS}
        self.upstream = socket.create_server(("127.0.0.1", 0))
        port = self.upstream.getsockname()[1]
        upstreams = {
            listener.fileno(): Upstream(Link(name, "broker-1"), "127.0.0.1", port, None)
            for name, listener in self.listeners.items()
        }
        self.control, theirs = socket.socketpair()
        self.control.setblocking(False)
        self.addresses = {name: listener.getsockname() for name, listener in self.listeners.items()}
        self.proxy = MessageProxy(theirs, upstreams, now_ns=lambda: self.model.now_s * NS_PER_S)
        for listener in self.listeners.values():
            listener.detach()  # the proxy has it
        self.heard, self.journal, self.replies = bytearray(), Counter(), []

    @initialize()
    def first_connection(self):
        self.connect(LINKS[0])

    # What may happen

    @precondition(lambda self: len(self.ends) < 3)
    @rule(link=st.sampled_from(LINKS))
    def connect(self, link):
        client = socket.create_connection(self.addresses[link], LIMIT_S)
        self.upstream.settimeout(LIMIT_S)
        self.proxy.turn(1.0)
        server, _ = self.upstream.accept()
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.proxy.turn(0.0)
        self.ends.append(Ends(client, server))
        self.model.connections.append(ModelConnection(link))

    @precondition(lambda self: len(self.model.rules) < len(RULES))
    @rule(
        link=st.sampled_from((None, None, *LINKS)),
        apis=APIS,
        answer=st.sampled_from((False, False, True)),
        action=ACTIONS,
        nth=st.sampled_from((None, 1, 2)),
        released=st.booleans(),
        until=st.sampled_from((None, None, frozenset({END_TXN}), frozenset({PRODUCE}))),
    )
    def arm(self, link, apis, answer, action, nth, released, until):
        name = next(name for name in RULES if self.model.named(name) is None)
        until = until if action == {"do": "hold"} else None
        given = {"apis": apis, "answer": answer, "nth": nth, "released": released}
        self.obey(
            do="arm",
            rule=name,
            link=None if link is None else [link, "broker-1"],
            action=action,
            wanted={**given, "apis": sorted(apis)},
            until=None if until is None else {"apis": sorted(until), "answer": False},
        )
        self.model.arm(name, link, action=action, until=until, **given)

    @precondition(lambda self: self.model.rules)
    @rule(data=st.data(), link=st.sampled_from((None, *LINKS)))
    def arm_for_more(self, data, link):
        """A rule is armed again, for one more link or for every link."""
        one = data.draw(st.sampled_from(self.model.rules))
        wanted = {"apis": sorted(one.apis), "answer": one.answer}
        self.obey(
            do="arm", rule=one.name, link=link and [link, "broker-1"], action=one.action, wanted=wanted, until=None
        )
        self.model.arm(one.name, link)

    @precondition(lambda self: self.model.rules)
    @rule(data=st.data(), link=st.sampled_from((None, None, *LINKS)), deliver=st.booleans())
    def disarm_one(self, data, link, deliver):
        self.disarm(data.draw(st.sampled_from(self.model.rules)).name, link, deliver)

    def disarm(self, name, link, deliver):
        self.model.disarm(name, link, deliver)
        self.obey(do="disarm", rule=name, link=None if link is None else [link, "broker-1"], deliver=deliver)

    @precondition(lambda self: self.with_client())
    @rule(data=st.data(), apis=st.lists(SENT_APIS, min_size=1, max_size=6))
    def send(self, data, apis):
        """A client sends some requests with one call."""
        self.send_from(data.draw(st.sampled_from(self.with_client())), *apis)

    def send_from(self, number, *apis):
        connection, sent = self.model.connections[number], b""
        for api in apis:
            correlation = len(self.apis)
            self.apis[correlation] = api
            sent += schemas.request(api, VERSIONS[api], correlation, "me", BODIES[api])
            self.model.request(connection, correlation, api)
        connection.deliver()
        self.ends[number].client.sendall(sent)

    @precondition(lambda self: self.with_server())
    @rule(data=st.data(), count=st.integers(1, 4))
    def answer(self, data, count):
        """The server answers the next requests."""
        number = data.draw(st.sampled_from(self.with_server()))
        for _ in range(count):
            if number in self.with_server():
                self.answer_next(number)
                self.each_end_has_what_the_model_says()

    def answer_next(self, number):
        sent = self.ends[number].rest or self.answer_bytes(number)
        if not self.ends[number].rest:
            self.model.answer(self.model.connections[number])
        self.ends[number].rest = b""
        self.ends[number].server.sendall(sent)

    def answer_bytes(self, number):
        correlation = self.model.connections[number].unanswered[0]
        api = self.apis[correlation]
        return schemas.answer(api, VERSIONS[api], correlation, {"throttle_time": 0, "error_code": NO_ERROR})

    @precondition(lambda self: self.that_pass())
    @rule(data=st.data())
    def answer_in_part(self, data):
        """The server sends the first half of an answer that no rule wants to see, and the other half later."""
        self.answer_half(data.draw(st.sampled_from(self.that_pass())))

    def answer_half(self, number):
        sent = self.answer_bytes(number)
        self.ends[number].rest = sent[9:]
        self.ends[number].before_rest = len(self.model.connections[number].client_got)
        self.model.answer(self.model.connections[number], looked_at=False)
        self.ends[number].server.sendall(sent[:9])

    @precondition(lambda self: any(one.held for one in self.model.rules))
    @rule(seconds=st.sampled_from((1, 5, 10)))
    def pass_time(self, seconds):
        self.model.pass_time(seconds)

    @precondition(lambda self: self.with_client())
    @rule(data=st.data(), gently=st.booleans())
    def client_goes(self, data, gently):
        """A client ends its connection. What it has sent arrives all the same."""
        self.end_client(data.draw(st.sampled_from(self.with_client())), gently)

    def end_client(self, number, gently):
        connection, client = self.model.connections[number], self.ends[number].client
        if gently:
            client.shutdown(socket.SHUT_WR)
            connection.client = "ended"
        else:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            connection.reset_by_client()

    # Who may do so

    def with_client(self):
        return [n for n, one in enumerate(self.model.connections) if one.open and one.client == "open"]

    def with_server(self):
        return [
            n
            for n, one in enumerate(self.model.connections)
            if one.open and one.client != "reset" and (one.unanswered or self.ends[n].rest)
        ]

    def that_pass(self):
        """The connections whose next answer passes without being looked at."""
        found = []
        for number in self.with_server():
            connection = self.model.connections[number]
            if self.ends[number].rest or connection.answers:
                continue
            asked = connection.of(connection.unanswered[0])
            if asked is None or asked.partner or asked.again or connection.unanswered[0] in connection.seconds:
                continue
            behind = connection.asked[connection.asked.index(asked) + 1 :][:1]
            wanted = any(one.answer and asked.message.api in one.apis for one in self.model.rules)
            if not wanted and not (behind and behind[0].answer):
                found.append(number)
        return found

    # What is compared

    def obey(self, **command):
        self.control.sendall(json.dumps({"id": len(self.replies), **command}).encode() + b"\n")
        wanted = len(self.replies) + 1
        self.settle(lambda: len(self.replies) >= wanted)

    def settle(self, until):
        """Lets the proxy work until this holds, and until nothing more comes."""
        deadline, quiet = time.monotonic() + LIMIT_S, 0
        while quiet < 2 and time.monotonic() < deadline:
            assert self.proxy.turn(0.0)
            for ends in self.ends:
                ends.read()
            self.hear()
            quiet = quiet + 1 if until() else 0

    def hear(self):
        with suppress(BlockingIOError):
            self.heard += self.control.recv(1 << 20)
        while (end := self.heard.find(b"\n")) >= 0:
            line = json.loads(self.heard[:end])
            del self.heard[: end + 1]
            if line["kind"] == "reply":
                self.replies.append(line)
            else:
                self.journal[line["rule"], line["did"]] += 1

    def seen(self):
        return {
            "servers": [ends.at_server() for ends in self.ends],
            "clients": [
                ends.at_client(self.apis)
                for ends, connection in zip(self.ends, self.model.connections, strict=True)
                if connection.client != "reset"
            ],
            "journal": self.journal,
            "rules": {
                name: (found.matched, found.acted, len(found.held))
                for name in RULES
                if (found := self.proxy.rules.named(name)) is not None
            },
        }

    def modelled(self):
        connections = self.model.connections
        return {
            "servers": [one.server_got for one in connections],
            "clients": [
                one.client_got[: ends.before_rest] if ends.rest else one.client_got
                for one, ends in zip(connections, self.ends, strict=True)
                if one.client != "reset"
            ],
            "journal": self.model.journal,
            "rules": {one.name: (one.matched, one.acted, len(one.held)) for one in self.model.rules},
        }

    @invariant()
    def each_end_has_what_the_model_says(self):
        self.settle(lambda: self.seen() == self.modelled())
        assert self.seen() == self.modelled()

    def arm_for(self, *apis, do, answer=False, link=None, nth=None, released=False, until=None, **action):
        self.arm(link, frozenset(apis), answer, {"do": do, **action}, nth, released, until)

    def teardown(self):
        try:
            for name in RULES:
                self.disarm(name, None, True)
            while ready := self.with_server():
                for number in ready:
                    self.answer_next(number)
                self.each_end_has_what_the_model_says()
            for connection in self.model.connections:
                assert not connection.open or connection.client == "reset" or not connection.asked
        finally:
            self.control.close()
            self.proxy.turn(0.0)
            for ends in self.ends:
                ends.client.close()
                ends.server.close()
            self.proxy.close()
            self.upstream.close()


RulesInAnyOrder.TestCase.settings = settings(
    max_examples=examples(500), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestRulesInAnyOrder = RulesInAnyOrder.TestCase


# What the machine above found, and what a reader of the rules suspected, one by one.


@pytest.fixture
def proxied():
    found = RulesInAnyOrder()
    found.connect(LINKS[0])
    yield found
    found.each_end_has_what_the_model_says()
    found.teardown()


def test_an_answer_of_the_proxys_own_does_not_wait_for_the_answer_to_a_request_that_was_lost(proxied):
    proxied.arm_for(HEARTBEAT, do="lose", connection="keep")
    proxied.arm_for(END_TXN, do="answer", code=REFUSED)
    proxied.send_from(0, HEARTBEAT, END_TXN)
    assert proxied.model.connections[0].client_got == [(1, REFUSED)]


def test_an_answer_of_the_proxys_own_is_not_put_into_the_middle_of_another_answer(proxied):
    proxied.arm_for(END_TXN, do="answer", code=REFUSED)
    proxied.send_from(0, HEARTBEAT)
    proxied.each_end_has_what_the_model_says()
    proxied.answer_half(0)
    proxied.send_from(0, END_TXN)
    proxied.each_end_has_what_the_model_says()
    proxied.answer_next(0)
    assert proxied.model.connections[0].client_got == [(0, NO_ERROR), (1, REFUSED)]


def test_answers_to_swapped_requests_keep_their_order_around_an_answer_of_the_proxys_own(proxied):
    proxied.arm_for(HEARTBEAT, do="swap", seconds=10)
    proxied.arm_for(END_TXN, do="answer", code=REFUSED)
    proxied.send_from(0, HEARTBEAT, END_TXN, HEARTBEAT, END_TXN)
    proxied.each_end_has_what_the_model_says()
    assert proxied.model.connections[0].server_got == [2, 0]
    proxied.answer_next(0)
    proxied.each_end_has_what_the_model_says()
    proxied.answer_next(0)
    expected = [(0, NO_ERROR), (1, REFUSED), (2, NO_ERROR), (3, REFUSED)]
    assert proxied.model.connections[0].client_got == expected


def test_rules_see_the_answers_to_swapped_requests(proxied):
    proxied.arm_for(HEARTBEAT, do="swap", seconds=10)
    proxied.arm_for(HEARTBEAT, do="record", answer=True)
    proxied.send_from(0, HEARTBEAT, HEARTBEAT)
    for _ in range(2):
        proxied.each_end_has_what_the_model_says()
        proxied.answer_next(0)
    assert proxied.model.named("b").matched == 2


def test_a_message_behind_one_that_ends_the_connection_is_asked_of_no_rule(proxied):
    proxied.arm_for(HEARTBEAT, do="close", when="before")
    proxied.arm_for(END_TXN, do="twice")
    proxied.send_from(0, HEARTBEAT, END_TXN)
    assert proxied.model.named("b").acted == 0


def test_an_answer_that_is_held_for_a_client_that_has_gone_is_not_called_delivered(proxied):
    proxied.arm_for(HEARTBEAT, do="hold", nth=2)
    proxied.arm_for(END_TXN, do="hold", answer=True)
    proxied.send_from(0, HEARTBEAT, END_TXN, HEARTBEAT)
    proxied.each_end_has_what_the_model_says()
    for _ in range(2):
        proxied.answer_next(0)
        proxied.each_end_has_what_the_model_says()
    proxied.end_client(0, gently=False)
    proxied.each_end_has_what_the_model_says()
    proxied.disarm("b", None, True)
    assert proxied.model.journal["b", "connection gone"] == 1


def test_a_rule_for_every_link_releases_all_when_it_is_disarmed_for_one(proxied):
    proxied.connect(LINKS[1])
    proxied.arm_for(HEARTBEAT, do="hold")
    for number in range(2):
        proxied.send_from(number, HEARTBEAT)
    proxied.each_end_has_what_the_model_says()
    proxied.disarm("a", LINKS[0], True)
    assert [one.server_got for one in proxied.model.connections] == [[0], [1]]


def test_a_rule_for_one_link_can_be_armed_for_every_link(proxied):
    proxied.arm_for(HEARTBEAT, do="lose", connection="keep", link=LINKS[1])
    proxied.obey(do="arm", rule="a", link=None, action={}, wanted={"apis": [], "answer": False}, until=None)
    proxied.model.arm("a", None)
    proxied.send_from(0, HEARTBEAT)
    assert proxied.model.connections[0].server_got == []
