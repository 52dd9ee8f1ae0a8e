"""The parts of links on real network namespaces: each is made twice, seen, and undone twice by one who never saw it made."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from prozess.clusters.links.support import refusals
from prozess.clusters.machine.sandbox import enter_command

LIMIT_S = 240


@pytest.fixture(scope="module")
def seen(tmp_path_factory, need):
    need("namespaces")
    need("toxiproxy")
    need("iptables")
    script = Path(__file__).with_name("links_in_the_sandbox.py")
    command = enter_command([sys.executable, str(script), str(tmp_path_factory.mktemp("logs"))])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return lambda what: [entry["seen"] for entry in said if entry["what"] == what]


def test_every_impairment_of_links_is_made_seen_and_undone(seen):
    assert [len(seen(kind)) for kind in ("loss", "bandwidth", "latency", "client-cut")] == [3, 3, 4, 2]
    assert all("were lost" in text for text in seen("loss"))


def test_two_limits_on_two_links_are_undone_one_by_one(seen):
    assert len(seen("the other limit stays")) == 1


def test_what_clients_send_to_a_node_is_narrow_and_nothing_else(seen):
    assert seen("one way alone") == [[False, True, True]]
    assert seen("the other node's limit stays") == [[True, False]]
    assert seen("the other way alone") == [[True, False]]
    assert seen("both are wide") == [[True, True]]


def test_connections_that_were_open_are_made_again_and_are_late(seen):
    assert seen("the old connection goes on") == [False]
    assert seen("late") == [True]
    assert seen("on time again") == [True]


def test_connections_that_are_open_become_late_and_nothing_of_it_is_left(seen):
    (told,) = seen("open connections are late")
    assert "1 connections of clients were late" in told
    assert seen("nothing of it is left") == [True]


def test_a_cut_of_a_link_that_is_late_cuts_it_each_way(seen):
    assert seen("late and cut to-node") == seen("late and cut from-node") == [False]


def test_a_second_latency_on_a_link_is_refused(seen):
    (text,) = seen("another latency on the same link")
    assert "late already" in text


def test_connections_are_reset_at_both_ends_and_it_is_refused_where_there_are_none(seen):
    counts = [
        re.fullmatch(r"connections reset, seen to be gone at both ends: (\d) with clients", t) for t in seen("reset")
    ]
    first, second = (int(count[1]) for count in counts)
    assert first >= 3, "one whose end a cut held up may still be open at the other side"
    assert second == 3
    assert seen("a reset connection goes on") == [False, False]
    assert "no open connection" in seen("nothing to reset")[0]


def test_a_node_that_vanished_leaves_connections_half_open_until_something_is_sent(seen):
    assert seen("vanished") == ["connections half-open: 3 of clients"]
    assert seen("half-open") == [3]
    assert seen("what is sent into nothing is answered") == [False]


def test_nothing_is_left(seen):
    assert seen("rules left") == seen("queues left") == [[]]
    assert seen("processes left") == [0]


def test_what_works_is_what_the_machine_was_seen_to_do(seen):
    assert seen("loss")
    assert dict(refusals()) == {}
