"""The proxy as the process that it is, between clients of this test and a server of this test, over loopback."""

import json
import random
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from prozess.clusters.messages.frames import PRODUCE
from prozess.clusters.messages.placing import MessageProxies
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.config.messages import schemas
from prozess.harness.config.messages.match import MessageMatch
from prozess.harness.config.messages.planned_names import MeantMessages
from prozess.harness.errors import HarnessFailed

LIMIT_S = 20.0
CLOCK = SystemClock()
LINK = ("clients", "broker-1")
END_TXN = 26


class Server:
    """Answers each request with its correlation id and an EndTxn answer without error, in order, as a broker does; a Produce
    request with acks=0 not at all. It keeps what it got."""

    def __init__(self):
        self.got = []
        self.raw = []
        self.echoes = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with suppress(OSError, schemas.UnreadableMessage), connection:
            if self.echoes:
                while data := connection.recv(65536):
                    self.raw.append(data)
                    connection.sendall(data)
                return
            while (message := received(connection)) is not None:
                self.got.append(message)
                head = schemas.request_head(message)
                if head.api == PRODUCE and schemas.request_body(message, head)["acks"] == 0:
                    continue
                connection.sendall(schemas.answer(END_TXN, 4, head.correlation, {"throttle_time": 0, "error_code": 0}))

    @property
    def correlations(self):
        return [schemas.request_head(message).correlation for message in self.got]


def received(connection):
    """The next message without its size; None at the end."""
    head = exactly(connection, 4)
    return None if head is None else exactly(connection, struct.unpack(">i", head)[0])


def exactly(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            return None
        data += more
    return data


class Proxied(MessageProxies):
    """A proxy process in front of one server, without namespaces and rules of iptables."""

    def __init__(self, upstream_port, log):
        super().__init__({}, log=log, clock=CLOCK)
        self.journal = []
        self.on_message = self.journal.append
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        told = {
            "fd": listener.fileno(),
            "opener": LINK[0],
            "server": LINK[1],
            "host": "127.0.0.1",
            "port": upstream_port,
        }
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "prozess.clusters.messages.proxy", str(theirs.fileno())]
        with theirs, listener:
            self._process = subprocess.Popen(
                [*command, json.dumps([{**told, "network": None}])], pass_fds=[theirs.fileno(), listener.fileno()]
            )
        self._control = ours
        threading.Thread(target=self._hear, args=(ours,), daemon=True).start()

    def do(self, action, rule="r", link=LINK, until=None, **match):
        """Arms a rule."""
        meant = MeantMessages(match=MessageMatch(**{"api": "EndTxn", **match})).wanted
        ending = MeantMessages(match=until).wanted if until is not None else None
        self.arm(rule, meant, action, link=link, until=ending)

    def told(self):
        """The journal so far: what the proxy says comes in order, so that its answer comes last."""
        self.look("r")
        return self.journal

    def await_look(self, rule="r", **wanted):
        def there():
            found = self.look(rule)
            return all(found[name] == value for name, value in wanted.items())

        wait_until(
            there, awaited=f"{rule}: {wanted}", timeout_s=LIMIT_S, clock=CLOCK, last_seen=lambda: str(self.look(rule))
        )

    @property
    def process(self):
        return self._process


@pytest.fixture
def server():
    found = Server()
    yield found
    found.listener.close()


@pytest.fixture
def proxy(server, tmp_path):
    found = Proxied(server.port, tmp_path / "log")
    yield found
    assert found.process.poll() is None, "the proxy has ended"
    found.close()


@pytest.fixture
def client(proxy):
    with socket.create_connection(proxy.address, LIMIT_S) as connection:
        yield connection


def ask(connection, correlation, *, transactional_id="x", epoch=0, committed=True, name="me"):
    body = {"transactional_id": transactional_id, "producer_id": 7, "producer_epoch": epoch, "committed": committed}
    connection.sendall(schemas.request(END_TXN, 4, correlation, name, body))


def send_without_acks(connection, correlation):
    """Sends a Produce request that no broker answers."""
    body = {"transactional_id": None, "acks": 0, "timeout": 1000, "topic_data": []}
    connection.sendall(schemas.request(PRODUCE, 9, correlation, "me", body))


def answered(connection):
    """(correlation id, error code) of the next answer; None if the connection has ended."""
    try:
        message = received(connection)
    except ConnectionResetError:
        return None
    if message is None:
        return None
    return struct.unpack(">i", message[:4])[0], schemas.answer_body(message, END_TXN, 4)["error_code"]


def answers(connection, count):
    return [answered(connection)[0] for _ in range(count)]


def test_without_a_rule_everything_passes(client, server):
    for number in range(100):
        ask(client, number)
    assert answers(client, 100) == server.correlations == list(range(100))


def test_a_request_that_is_lost_ends_its_connection_and_never_arrives(client, server, proxy):
    proxy.do({"do": "lose", "connection": "close"}, nth=2)
    ask(client, 1)
    assert answered(client) == (1, 0)
    ask(client, 2)
    assert answered(client) is None
    assert server.correlations == [1]
    assert proxy.look("r")["acted"] == 1


def test_an_answer_that_is_lost_was_given(client, server, proxy):
    proxy.do({"do": "lose", "connection": "close"}, direction="answer")
    ask(client, 1)
    assert answered(client) is None
    assert server.correlations == [1]
    (entry,) = proxy.told()
    assert (entry["answer"], entry["did"], entry["client"], entry["errors"]) == (True, "lose", "me", [0])


def test_an_answer_that_is_lost_alone_leaves_the_connection(client, proxy):
    proxy.do({"do": "lose", "connection": "keep"}, direction="answer", nth=1)
    ask(client, 1)
    ask(client, 2)
    assert answered(client) == (2, 0)


def test_a_match_means_one_transaction_and_no_other(client, server, proxy):
    proxy.do({"do": "lose", "connection": "keep"}, transactional_id="y", producer_epoch=3, commit=False)
    ask(client, 1, transactional_id="y", epoch=3)
    ask(client, 2, transactional_id="y", epoch=3, committed=False)
    ask(client, 3, transactional_id="y", epoch=2, committed=False)
    ask(client, 4, transactional_id="x", epoch=3, committed=False)
    assert answers(client, 3) == server.correlations == [1, 3, 4]


def test_an_answer_is_meant_by_what_its_request_named(client, proxy):
    proxy.do({"do": "lose", "connection": "keep"}, direction="answer", transactional_id="y")
    ask(client, 1, transactional_id="y")
    ask(client, 2)
    assert answered(client) == (2, 0)


def test_a_message_that_is_held_holds_what_is_behind_it_until_the_rule_is_gone(client, server, proxy):
    proxy.do({"do": "hold"}, nth=2)
    for number in (1, 2, 3):
        ask(client, number)
    assert answered(client) == (1, 0)
    proxy.await_look(held=1)
    with socket.create_connection(proxy.address, LIMIT_S) as other:
        ask(other, 9)
        assert answered(other) == (9, 0)
    assert server.correlations == [1, 9]
    proxy.disarm("r", link=LINK, deliver=True)
    assert answers(client, 2) == [2, 3]
    assert [entry["did"] for entry in proxy.told()] == ["hold", "delivered"]
    proxy.disarm("r", link=LINK, deliver=True)


def test_a_message_that_is_held_arrives_after_its_client_has_gone(server, proxy):
    for ending in ("close", "reset"):
        proxy.do({"do": "hold"})
        with socket.create_connection(proxy.address, LIMIT_S) as gone:
            ask(gone, 5)
            proxy.await_look(held=1)
            if ending == "reset":
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert not server.correlations
        proxy.disarm("r", link=LINK, deliver=True)
        wait_until(lambda: server.correlations == [5], awaited="the late request", timeout_s=LIMIT_S, clock=CLOCK)
        server.got.clear()
    wait_until(lambda: proxy.look("r")["open"] == 0, awaited="no connection", timeout_s=LIMIT_S, clock=CLOCK)


def test_what_is_held_when_the_rule_ends_can_be_dropped(client, server, proxy):
    proxy.do({"do": "hold"})
    ask(client, 1)
    proxy.await_look(held=1)
    proxy.disarm("r", link=LINK, deliver=False)
    assert answered(client) is None
    assert server.correlations == []


def test_a_message_is_held_for_a_time(client, proxy):
    proxy.do({"do": "hold", "seconds": 0.2})
    begun_ns = CLOCK.monotonic_ns()
    ask(client, 1)
    assert answered(client) == (1, 0)
    assert CLOCK.monotonic_ns() - begun_ns >= 0.2e9


def test_a_message_is_held_until_another_was_seen(client, server, proxy):
    proxy.do({"do": "hold"}, transactional_id="x", until=MessageMatch(api="EndTxn", transactional_id="y"))
    ask(client, 1)
    proxy.await_look(held=1)
    with socket.create_connection(proxy.address, LIMIT_S) as other:
        ask(other, 2, transactional_id="y")
        assert answered(other) == (2, 0)
    assert answered(client) == (1, 0)
    assert sorted(server.correlations) == [1, 2]


def test_a_message_is_held_until_the_next_one_behind_it_was_seen_and_is_then_refused(client, server, proxy):
    """So the refusal of the first comes when the second is in flight, however fast the client and the server are."""
    proxy.do({"do": "hold"}, rule="waits", nth=1, until=MessageMatch(api="EndTxn"))
    proxy.do({"do": "answer", "error": "CONCURRENT_TRANSACTIONS", "code": 51}, rule="refuses", nth=1, released=True)
    ask(client, 1)
    proxy.await_look("waits", held=1)
    ask(client, 2)
    assert [answered(client) for _ in range(2)] == [(1, 51), (2, 0)]
    assert server.correlations == [2]


def test_a_message_that_was_held_is_not_held_a_second_time_in_silence(client, server, proxy):
    """A step waits for a message and then holds such messages: the one that it waited for goes on."""
    proxy.do({"do": "wait"}, rule="before", link=None, nth=1)
    ask(client, 1)
    proxy.await_look("before", held=1)
    proxy.do({"do": "hold"}, rule="armed while it waits")
    proxy.disarm("before", link=None, deliver=True)
    assert answered(client) == (1, 0)
    assert proxy.look("armed while it waits")["matched"] == 0
    ask(client, 2)
    proxy.await_look("armed while it waits", held=1)
    assert server.correlations == [1]


def test_a_message_that_was_held_is_held_a_second_time_where_a_rule_asks_for_it(client, server, proxy):
    proxy.do({"do": "wait"}, rule="before", link=None, nth=1)
    ask(client, 1)
    proxy.await_look("before", held=1)
    proxy.do({"do": "hold"}, rule="again", released=True)
    proxy.disarm("before", link=None, deliver=True)
    proxy.await_look("again", held=1)
    assert not server.correlations
    proxy.disarm("again", link=LINK, deliver=True)
    assert answered(client) == (1, 0)


def test_the_next_message_after_one_that_another_rule_hit_is_held(client, server, proxy):
    proxy.do({"do": "record"}, rule="first", nth=2)
    proxy.do({"do": "hold"}, rule="next", nth=1, after="first")
    for number in (1, 2):
        ask(client, number)
        assert answered(client) == (number, 0)
    assert proxy.look("next")["matched"] == 0, "the message that was hit is not one after it"
    proxy.disarm("first", link=LINK, deliver=True)
    ask(client, 3)
    proxy.await_look("next", held=1, matched=1)
    assert server.correlations == [1, 2]
    proxy.disarm("next", link=LINK, deliver=True)
    assert answered(client) == (3, 0)


def test_a_wait_ends_with_the_next_message_after_one_that_another_rule_hit(client, server, proxy):
    proxy.do({"do": "hold"}, transactional_id="x", until=MessageMatch(api="EndTxn", transactional_id="y", after="hit"))
    proxy.do({"do": "record"}, rule="hit", transactional_id="z")
    ask(client, 1)
    proxy.await_look(held=1)
    with socket.create_connection(proxy.address, LIMIT_S) as other:
        for number, name in ((2, "y"), (3, "z")):
            ask(other, number, transactional_id=name)
            assert answered(other) == (number, 0)
        assert server.correlations == [2, 3]
        ask(other, 4, transactional_id="y")
        assert answered(other) == (4, 0)
    assert answered(client) == (1, 0)


def test_a_message_that_is_lost_ends_the_wait_of_another_and_is_recorded_whatever_the_order_of_rules(client, proxy):
    with socket.create_connection(proxy.address, LIMIT_S) as other:
        proxy.do({"do": "lose", "connection": "close"}, rule="loses", transactional_id="y")
        proxy.do({"do": "hold"}, transactional_id="x", until=MessageMatch(api="EndTxn", transactional_id="y"))
        proxy.do({"do": "record"}, rule="looks", transactional_id="y")
        ask(client, 1)
        proxy.await_look(held=1)
        ask(other, 2, transactional_id="y")
        assert answered(other) is None
    assert answered(client) == (1, 0)
    assert sorted(entry["did"] for entry in proxy.told()) == ["delivered", "hold", "lose", "record"]


def test_which_message_ends_a_wait_is_counted_from_when_the_wait_begins(client, server, proxy):
    proxy.do({"do": "hold"}, transactional_id="x", until=MessageMatch(api="EndTxn", transactional_id="y", nth=2))
    with socket.create_connection(proxy.address, LIMIT_S) as other:
        for number in (1, 2, 3):
            ask(other, number, transactional_id="y")
            assert answered(other) == (number, 0)
        ask(client, 9)
        proxy.await_look(held=1)
        ask(other, 4, transactional_id="y")
        assert answered(other) == (4, 0)
        assert 9 not in server.correlations
        ask(other, 5, transactional_id="y")
        assert answered(other) == (5, 0)
    assert answered(client) == (9, 0)


def test_two_requests_of_one_connection_change_places_and_their_answers_do_not(client, server, proxy):
    proxy.do({"do": "swap", "seconds": 10}, nth=1)
    for number in (1, 2, 3):
        ask(client, number)
    assert answers(client, 3) == [1, 2, 3]
    assert server.correlations == [2, 1, 3]
    assert proxy.look("r")["acted"] == 1


def test_a_request_goes_behind_the_next_one_of_another_connection(client, server, proxy):
    proxy.do({"do": "swap", "seconds": 10}, nth=1)
    ask(client, 1)
    proxy.await_look(held=1)
    with socket.create_connection(proxy.address, LIMIT_S) as other:
        ask(other, 2)
        assert answered(other) == (2, 0)
    assert answered(client) == (1, 0)


def test_a_request_that_arrives_twice_is_answered_once(client, server, proxy):
    proxy.do({"do": "twice"}, nth=1)
    ask(client, 1)
    ask(client, 2)
    assert answers(client, 2) == [1, 2]
    assert server.correlations == [1, 1, 2]


def test_a_request_is_refused_in_the_brokers_place_and_in_turn(client, server, proxy):
    proxy.do({"do": "answer", "error": "CONCURRENT_TRANSACTIONS", "code": 51}, nth=2)
    for number in (1, 2, 3):
        ask(client, number)
    assert [answered(client) for _ in range(3)] == [(1, 0), (2, 51), (3, 0)]
    assert server.correlations == [1, 3]


@pytest.mark.parametrize("before", ["the rule", "nothing"])
def test_a_refusal_does_not_wait_for_the_answer_to_a_request_with_acks_0(client, server, proxy, before):
    if before == "the rule":
        send_without_acks(client, 1)
        wait_until(lambda: server.correlations == [1], awaited="the request", timeout_s=LIMIT_S, clock=CLOCK)
    proxy.do({"do": "answer", "error": "CONCURRENT_TRANSACTIONS", "code": 51})
    if before == "nothing":
        send_without_acks(client, 1)
    ask(client, 2)
    assert answered(client) == (2, 51)
    wait_until(lambda: server.correlations == [1], awaited="no refused request", timeout_s=LIMIT_S, clock=CLOCK)


def test_a_request_with_acks_0_is_refused_by_the_end_of_its_connection_as_brokers_do_it(client, server, proxy):
    proxy.do({"do": "answer", "error": "NOT_LEADER_OR_FOLLOWER", "code": 6}, api="Produce")
    send_without_acks(client, 1)
    assert answered(client) is None
    assert server.correlations == []
    assert proxy.look("r")["acted"] == 1


def test_an_answer_is_replaced_by_an_error(client, server, proxy):
    proxy.do({"do": "answer", "error": "COORDINATOR_NOT_AVAILABLE", "code": 15}, direction="answer", error="NONE")
    ask(client, 1)
    assert answered(client) == (1, 15)
    assert server.correlations == [1]


@pytest.mark.parametrize(("when", "arrived"), [("before", []), ("after", [1])])
def test_a_connection_is_cut_before_or_after_a_message(client, server, proxy, when, arrived):
    proxy.do({"do": "close", "when": when})
    ask(client, 1)
    assert answered(client) is None
    wait_until(lambda: server.correlations == arrived, awaited=str(arrived), timeout_s=LIMIT_S, clock=CLOCK)


def test_a_message_that_is_truncated_ends_its_connection(client, server, proxy):
    proxy.do({"do": "truncate", "bytes": 6})
    ask(client, 1)
    assert answered(client) is None
    assert server.correlations == []


def test_a_rule_that_only_looks_on_lets_the_next_one_act(client, proxy):
    proxy.do({"do": "record"}, rule="looks")
    proxy.do({"do": "wait"}, rule="waits", link=None, nth=1)
    proxy.do({"do": "lose", "connection": "close"}, rule="loses", released=True)
    ask(client, 1)
    proxy.await_look("waits", held=1)
    assert proxy.look("loses")["acted"] == 0
    proxy.disarm("waits", link=None, deliver=True)
    assert answered(client) is None
    assert [entry["did"] for entry in proxy.told()] == ["record", "wait", "delivered", "lose"]


def test_a_rule_holds_for_the_links_that_it_was_armed_for(client, proxy):
    proxy.do({"do": "lose", "connection": "close"}, link=("broker-2", "broker-1"))
    ask(client, 1)
    assert answered(client) == (1, 0)
    assert proxy.look("r")["matched"] == 0


def test_a_version_without_a_schema_is_counted_and_passes(client, server, proxy):
    proxy.do({"do": "lose", "connection": "close"}, transactional_id="x")
    client.sendall(struct.pack(">ihhih", 12, END_TXN, 99, 1, 2) + b"me")
    assert struct.unpack(">i", received(client)[:4])[0] == 1
    found = proxy.look("r")
    assert (found["matched"], found["unread"]) == (0, 1)


def test_what_is_no_kafka_passes_both_ways(client, server, proxy):
    server.echoes = True
    proxy.do({"do": "lose", "connection": "close"})
    noise = random.Random(1)
    for length in (1, 3, 100, 100_000, 2_000_000):
        with socket.create_connection(proxy.address, LIMIT_S) as connection:
            data = b"\xff\xff\xff\xff" + noise.randbytes(length)
            threading.Thread(target=connection.sendall, args=(data,), daemon=True).start()
            assert exactly(connection, len(data)) == data


def test_garbage_never_ends_the_proxy(server, proxy):
    proxy.do({"do": "record"}, api=("Produce", "Fetch", "EndTxn", "JoinGroup"))
    noise = random.Random(2)
    for number in range(60):
        with suppress(OSError), socket.create_connection(proxy.address, LIMIT_S) as connection:
            size = noise.randrange(8, 200)
            head = struct.pack(">ihhi", size, noise.choice([0, 1, 11, 26]), noise.randrange(14), number)
            connection.sendall(head + noise.randbytes(noise.randrange(size)))
    with socket.create_connection(proxy.address, LIMIT_S) as connection:
        ask(connection, 1)
        assert answered(connection) == (1, 0)


def test_a_server_that_refuses_is_a_refusal_to_the_client(server, proxy):
    server.listener.shutdown(socket.SHUT_RDWR)  # a close alone would not end the accept
    server.listener.close()
    with socket.create_connection(proxy.address, LIMIT_S) as connection:
        assert answered(connection) is None


def test_the_proxy_ends_with_whoever_started_it(server, tmp_path):
    proxy = Proxied(server.port, tmp_path / "log")
    process = proxy.process
    proxy._control.shutdown(socket.SHUT_RDWR)
    assert process.wait(LIMIT_S) == 0
    with pytest.raises(HarnessFailed, match="The message proxy"):
        proxy.look("r")
    proxy.close()
