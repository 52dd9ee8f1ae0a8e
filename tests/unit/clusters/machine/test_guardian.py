"""A broker that the cluster was not ready for is started again; whoever ended on other grounds stays ended."""

from pathlib import Path

import pytest

from prozess.clusters.impairers import Parts
from prozess.clusters.local.cluster import LocalNode, ServerLaunch
from prozess.clusters.machine.processes import may_start_again, read_end
from prozess.clusters.machine.server_properties import Placement
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.interfaces import NodeState

CLOCK = SystemClock()
REFUSED = "ERROR Fatal error during KafkaServer startup. NodeExistsException: KeeperErrorCode = NodeExists"


def node_of(directory: Path, script: str, *, guarded: bool = True) -> LocalNode:
    """A node whose server is that shell script; it runs in `directory`."""
    placement = Placement(1, frozenset({"broker"}), "127.0.0.1", "127.0.0.1", 1, 1, 1, 1, directory / "data")
    launch = ServerLaunch(
        command=lambda: ["sh", "-c", script],
        log=directory / "server.log",
        working_directory=directory,
        record_pids=None,
        guarded=guarded,
    )
    return LocalNode(placement, launch, network=None, parts=Parts(), clock=CLOCK)


def started(directory: Path) -> int:
    """How often the server was started."""
    return (directory / "starts").read_text().count("start") if (directory / "starts").exists() else 0


def until(probe, awaited):
    wait_until(probe, awaited=awaited, timeout_s=30, clock=CLOCK)


TWICE_REFUSED = f"""echo start >> starts
[ $(grep -c start starts) -ge 3 ] && exec sleep 600
echo '{REFUSED}'; exit 1"""


def test_a_refused_server_is_started_again_until_it_stays(tmp_path):
    node = node_of(tmp_path, TWICE_REFUSED)
    try:
        node.start()
        until(lambda: started(tmp_path) == 3 and node.state() is NodeState.RUNNING, "the third start")
        assert node.died is None
        node.kill()
        assert node.state() is NodeState.STOPPED
        assert node.died is None, "it was meant to end"
    finally:
        node.close()
    assert started(tmp_path) == 3


@pytest.mark.parametrize(
    ("script", "guarded"),
    [
        ("echo start >> starts; echo OutOfMemoryError; exit 3", True),
        (f"echo start >> starts; echo '{REFUSED}'; exit 3", False),
    ],
)
def test_a_server_that_ended_on_other_grounds_or_is_not_guarded_stays_ended(tmp_path, script, guarded):
    node = node_of(tmp_path, script, guarded=guarded)
    try:
        node.start()
        until(lambda: node.died == 3, "the end to be noticed")
        assert started(tmp_path) == 1
    finally:
        node.close()


def test_a_refused_server_that_is_killed_meanwhile_is_not_started_again(tmp_path):
    node = node_of(tmp_path, f"echo start >> starts; echo '{REFUSED}'; exit 1")
    try:
        node.start()
        until(lambda: started(tmp_path) >= 1, "the first start")
        node.kill()
        count = started(tmp_path)
        until(lambda: node.state() is NodeState.STOPPED, "its end")
    finally:
        node.close()
    assert started(tmp_path) == count


def test_only_what_this_incarnation_logged_counts(tmp_path):
    log = tmp_path / "server.log"
    log.write_text(REFUSED)
    assert may_start_again(read_end(log, after=0))
    assert not may_start_again(read_end(log, after=log.stat().st_size))
    assert read_end(tmp_path / "none", after=0) == ""


def test_a_fatal_error_is_not_enough_to_be_started_again():
    assert not may_start_again("Fatal error during KafkaServer startup: KafkaException: Failed to acquire lock")
    assert not may_start_again("NodeExistsException, while running")
