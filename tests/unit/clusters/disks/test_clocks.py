"""What a JVM says of its clock decides, and not what was asked for: against an agent that answers as Jolokia does."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from prozess.clusters.disks.shim import OffBy, ShiftedClocks, clock_is, get_clock, set_clock
from prozess.clusters.files.metadata_log import read_moved_clocks
from prozess.harness.clock import SystemClock
from prozess.harness.config.impairments import ClockShift
from prozess.harness.errors import HarnessFailed
from prozess.harness.interfaces import NodeState
from prozess.harness.schema import Tristate

AHEAD = ClockShift(offset_ms=300_000)
BEHIND = ClockShift(offset_ms=-7_200_000)


class Node:
    name, node_id, observed = "broker-1", 1, NodeState.RUNNING

    def state(self):
        return self.observed


class Agent:
    """A JVM whose clock is where the file says, if it obeys."""

    def __init__(self, clock, *, broker=True):
        self.clock, self.broker, self.obeys = clock, broker, True
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                text = json.dumps([agent.answer(one) for one in asked]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def now_ms(self):
        off_ns = get_clock(self.clock, now_ns=time.monotonic_ns()) if self.obeys else 0
        return (time.time_ns() + off_ns) // 10**6

    def answer(self, asked):
        stamp = 1_700_000_000_000
        if asked["mbean"].startswith("java.lang"):
            return {"status": 200, "value": 5, "timestamp": self.now_ms() // 1000}
        if not self.broker:
            return {"status": 404}
        lag = asked["attribute"].endswith("lag-ms")
        return {"status": 200, "value": float(self.now_ms() - stamp if lag else stamp), "timestamp": 0}


@pytest.fixture(params=[True, False], ids=["broker", "controller"])
def agent(request, tmp_path):
    set_clock(tmp_path / "clock", offset_ns=0, drift_ppm=0, since_ns=0)
    found = Agent(tmp_path / "clock", broker=request.param)
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def clocks(agent):
    return ShiftedClocks(lambda name: agent.clock, lambda node: agent.server.server_address[:2], SystemClock())


def test_a_clock_is_off_as_asked_when_the_jvm_says_so_and_right_when_it_says_so(clocks):
    node = Node()
    assert clocks.impaired(node, AHEAD)[0] is Tristate.NO
    for shift in (AHEAD, BEHIND):
        clocks.impair(node, shift)
        clocks.impair(node, shift)
        assert clocks.impaired(node, shift)[0] is Tristate.YES
        clocks.repair(node, shift)
        clocks.repair(node, shift)
        assert clocks.impaired(node, shift)[0] is Tristate.NO


def test_a_jvm_that_does_not_move_with_its_file_is_no_effect(agent, clocks):
    agent.obeys = False
    clocks.impair(Node(), AHEAD)
    seen, said = clocks.impaired(Node(), AHEAD)
    assert seen is Tristate.UNKNOWN
    assert "not by +300.000 s" in said


def test_when_a_clock_was_off_is_written_down(agent, clocks):
    before_ns = time.monotonic_ns()
    for shift in (AHEAD, BEHIND):
        clocks.impair(Node(), shift)
        clocks.impair(Node(), shift)
    clocks.repair(Node(), BEHIND)
    ahead, behind = read_moved_clocks(agent.clock.parent)
    assert (ahead.offset_ns, behind.offset_ns) == (300 * 10**9, -7200 * 10**9)
    assert before_ns <= ahead.begin_ns <= ahead.end_ns == behind.begin_ns <= behind.end_ns <= time.monotonic_ns()


def test_a_drift_goes_on_from_where_it_began_however_often_it_is_asked_for(agent, clocks):
    drift = ClockShift(offset_ms=2000, drift_ppm=400_000)
    clocks.impair(Node(), drift)
    before = agent.clock.read_bytes()
    clocks.impair(Node(), drift)
    assert agent.clock.read_bytes() == before
    assert clocks.impaired(Node(), drift)[0] is Tristate.YES


def test_a_clock_that_drifts_while_the_answer_is_under_way_is_off_as_asked():
    """What the JVM says is of the moment in which it looked: the offset has grown until the answer is there."""
    told = OffBy(1_000, 1_400)
    assert not told.may_be(1_500)
    assert told.may_be_between(1_300, 1_500)
    assert told.may_be_between(1_500, 1_300)
    assert not told.may_be_between(1_401, 1_500)
    assert not told.may_be_between(0, 999)


def test_what_another_fault_made_of_the_clock_is_left_to_that_one(agent, clocks):
    clocks.impair(Node(), AHEAD)
    clocks.impair(Node(), BEHIND)
    clocks.repair(Node(), AHEAD)
    assert clock_is(agent.clock) == (-7200 * 10**9, 0)
    assert clocks.impaired(Node(), AHEAD)[0] is Tristate.NO
    clocks.repair(Node(), BEHIND)
    assert clock_is(agent.clock) == (0, 0)


def test_of_a_node_without_a_process_only_its_file_is_seen(clocks):
    node = Node()
    node.observed = NodeState.STOPPED
    clocks.impair(node, AHEAD)
    assert clocks.impaired(node, AHEAD)[0] is Tristate.UNKNOWN
    clocks.repair(node, AHEAD)
    assert clocks.impaired(node, AHEAD)[0] is Tristate.NO


def test_who_cannot_be_asked_or_moved_is_unknown_or_an_error(tmp_path, agent):
    silent = ShiftedClocks(lambda name: agent.clock, lambda node: None, SystemClock())
    assert silent.impaired(Node(), AHEAD)[0] is Tristate.UNKNOWN
    gone = ShiftedClocks(lambda name: tmp_path / "none", lambda node: None, SystemClock())
    with pytest.raises(HarnessFailed, match="started without the library"):
        gone.impair(Node(), AHEAD)
    gone.repair(Node(), AHEAD)
