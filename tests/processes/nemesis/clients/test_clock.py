"""Clocks of clients: of real processes, seen in what they write to a mock Kafka; what would not be seen is refused."""

import ctypes
import os
import subprocess
import sys
import time

import pytest

from prozess.app.run.outside_sandbox import why_no_client_clocks
from prozess.clusters.disks.shim import client_shim, environment, set_clock
from prozess.harness.config.impairments import ClockShift, FullDisk
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.interfaces import FaultContext
from prozess.harness.plan.checks import check_parameters
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import Tristate
from prozess.nemesis.clients import ClientClock, ClientClockParameters, RestartClients
from prozess.nemesis.roles import TargetMissing
from tests.processes.nemesis.clients.test_clients import Place
from tests.support.log_workload import CLOCK, RESUME, bench

MINUTE = ClockShift(offset_ms=60_000)
# Seconds that waits take whose end is stated by the wall clock: C11's, which librdkafka uses.
WAIT = """
import ctypes, sys, time
class Time(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("n", ctypes.c_long)]
libc = ctypes.CDLL(None)
condition, mutex = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
libc.cnd_init(condition), libc.mtx_init(mutex, 1), libc.mtx_lock(mutex)
until = time.time_ns() + 300_000_000
begun = time.monotonic()
code = libc.cnd_timedwait(condition, mutex, ctypes.byref(Time(until // 10**9, until % 10**9)))
print(code, time.monotonic() - begun)
"""


@pytest.fixture(autouse=True)
def shim(need):
    need("shim")
    if client_shim().path is None:
        pytest.skip(client_shim().reason)


def plan(*, moves=True):
    do = {"kind": "fault", "fault": "client-clock", "targets": ["producers"], "parameters": {"offset_ms": 60_000}}
    document = {
        "name": "test",
        "title": "test",
        "topics": {"partitions": 2},
        "traffic": {"rate_hz": 50},
        "axes": {"producer.acks": ["1", "all"]},
        "steps": [{"name": "off", "do": do}] if moves else [],
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


def until(b, place, wanted, shift=MINUTE):
    last = ""

    def seen():
        nonlocal last
        found, last = place.impaired(shift)
        return found is wanted

    b.until(seen, f"{shift} to be {wanted.name}")
    return last


def producers(b):
    return [node for node in b.workload.nodes() if node.client_role == "producer"]


@pytest.mark.parametrize("offset_s", [0.0, 3600.0, -3600.0])
def test_waits_that_go_by_the_wall_clock_last_as_long_as_they_are_meant_to(tmp_path, offset_s):
    set_clock(tmp_path / "clock", offset_ns=round(offset_s * 1e9), drift_ppm=0, since_ns=0)
    told = subprocess.run(
        [sys.executable, "-c", WAIT],
        env={**os.environ, **environment(client_shim().path, clock=tmp_path / "clock")},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    code, took_s = told.stdout.split()
    assert int(code) == 4, "thrd_timedout"
    assert float(took_s) >= 0.25, "it did not return at once; nor, by the limit of this test, an hour late"


def test_a_producers_records_show_its_clock_and_nobody_elses(tmp_path):
    with bench(plan(), tmp_path) as b:
        b.workload.command(RESUME)
        moved, other = producers(b)[:2]
        until(b, moved, Tristate.NO)
        moved.impair(MINUTE)
        moved.impair(MINUTE)
        assert "stamped +" in until(b, moved, Tristate.YES)
        assert until(b, other, Tristate.NO)
        moved.kill()
        moved.start()
        assert until(b, moved, Tristate.YES), "a successor in the place has its clock"
        rows = b.rows("sends", moved.client)
        assert abs(int(rows["invoked_ns"].max()) - time.monotonic_ns()) < 30e9, "what is recorded is not moved"
        moved.repair(ClockShift(offset_ms=-60_000))
        assert moved.impaired(MINUTE)[0] is not Tristate.NO, "another fault's is not this one's to undo"
        moved.repair(MINUTE)
        moved.repair(MINUTE)
        until(b, moved, Tristate.NO)


def test_a_clock_that_drifts_is_seen_once_it_is_far_enough_off(tmp_path):
    drift = ClockShift(drift_ppm=-500_000)
    with bench(plan(), tmp_path) as b:
        b.workload.command(RESUME)
        place = producers(b)[0]
        place.impair(drift)
        assert "stamped -" in until(b, place, Tristate.YES, drift)
        place.repair(drift)
        until(b, place, Tristate.NO, drift)


def test_who_was_started_without_it_or_writes_nothing_cannot_be_moved(tmp_path):
    with bench(plan(moves=False), tmp_path) as b:
        place = producers(b)[0]
        with pytest.raises(ClusterFailed, match="cannot be impaired by 'clock'"):
            place.impair(MINUTE)
        assert place.impaired(MINUTE)[0] is Tristate.NO
        place.repair(MINUTE)
    with bench(plan(), tmp_path / "moved") as b:
        place = producers(b)[0]
        with pytest.raises(ClusterFailed, match="cannot be impaired by 'full-disk'"):
            place.impair(FullDisk())
        place.impair(MINUTE)
        assert place.impaired(MINUTE)[0] is Tristate.UNKNOWN, "it has sent nothing"
        place.kill()
        place.repair(MINUTE)
        assert place.impaired(MINUTE) == (
            Tristate.NO,
            "there is no process, and the next one starts with the true time",
        )


def test_who_stamps_no_records_is_no_target():
    parameters = ClientClockParameters(offset_ms=60_000.0)
    with pytest.raises(TargetMissing, match="m stamps no records"):
        ClientClock().undos(FaultContext(None, None, CLOCK, targets=(Place("m"),)), parameters)
    (undo,) = ClientClock().undos(FaultContext(None, None, CLOCK, targets=(Place("p", role="producer"),)), parameters)
    assert (undo.action, undo.node, undo.given["offset_ms"]) == ("repair", "p", 60_000.0)


@pytest.mark.parametrize("parameters", [{}, {"offset_ms": 2000}, {"offset_ms": 4e6}, {"drift_ppm": 1000}])
def test_what_would_not_be_seen_or_would_be_refused_by_brokers_is_bad_input(parameters):
    with pytest.raises(BadInput, match="client-clock"):
        check_parameters("client-clock", parameters, targets=["producers"], nodes=[])


def test_it_is_for_clients_alone_and_refused_where_waits_cannot_be_told_the_time(monkeypatch):
    with pytest.raises(BadInput, match=r"is for clients, and 'leader\(0\)' is none"):
        check_parameters("client-clock", {"offset_ms": 60_000}, targets=["leader(0)"], nodes=[])

    class Old:
        """A C library before glibc 2.30."""

        def __init__(self, name):
            assert name is None

    monkeypatch.setattr(ctypes, "CDLL", Old)
    assert why_no_client_clocks(ClientClock) == (
        "clocks of clients cannot be moved here: it takes glibc 2.30, whose waits can learn which clock is meant"
    )
    assert why_no_client_clocks(RestartClients) is None
