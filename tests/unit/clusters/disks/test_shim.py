"""The preloaded library: it moves one process's wall clock, and writes down what was synced, whatever files are called."""

import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.disks.shim import (
    clock_is,
    environment,
    get_clock,
    identity_of,
    set_clock,
    shim_support,
    synced_sizes,
)

ASK = "import sys, time\nfor _ in sys.stdin: print(time.time_ns(), time.monotonic_ns(), flush=True)"


@pytest.fixture
def shim(need):
    need("shim")
    return shim_support().path


class Asked:
    """A shimmed process that says what time it is."""

    def __init__(self, shim, clock):
        self.clock = clock
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASK],
            env={**os.environ, **environment(shim, clock=clock)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def off_by_s(self):
        """How far its wall clock is off, between the least and the most it may be; its monotonic clock must be ours."""
        before_ns, wall_ns = time.monotonic_ns(), time.time_ns() - time.monotonic_ns()
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        stamped_ns, monotonic_ns = map(int, self.process.stdout.readline().split())
        assert before_ns <= monotonic_ns <= time.monotonic_ns()
        return (stamped_ns - monotonic_ns - wall_ns) / 1e9


@pytest.fixture
def asked(shim, tmp_path):
    set_clock(tmp_path / "clock", offset_ns=0, drift_ppm=0, since_ns=0)
    process = Asked(shim, tmp_path / "clock")
    yield process
    process.process.stdin.close()
    process.process.wait(10)
    process.process.stdout.close()


def test_the_clock_of_a_running_process_jumps_both_ways_and_comes_back(asked):
    assert asked.off_by_s() == pytest.approx(0, abs=0.05)
    for offset_s in (300.0, -7200.0, 90_000.5, 0.0):
        set_clock(asked.clock, offset_ns=round(offset_s * 1e9), drift_ppm=0, since_ns=0)
        assert asked.off_by_s() == pytest.approx(offset_s, abs=0.05)


@pytest.mark.parametrize("drift_ppm", [500_000, -500_000])
def test_a_clock_that_drifts_gains_with_the_time_that_passes(asked, drift_ppm):
    set_clock(asked.clock, offset_ns=0, drift_ppm=drift_ppm, since_ns=time.monotonic_ns() - 60 * 10**9)
    # A minute at half a second per second; and what has passed since.
    before_s = get_clock(asked.clock, now_ns=time.monotonic_ns()) / 1e9
    said_s = asked.off_by_s()
    after_s = get_clock(asked.clock, now_ns=time.monotonic_ns()) / 1e9
    assert abs(before_s) >= 30
    assert min(before_s, after_s) - 0.05 <= said_s <= max(before_s, after_s) + 0.05


@given(st.integers(-(2**60), 2**60), st.integers(-(10**6), 10**6), st.integers(0, 10**15))
def test_what_a_clock_is_off_by_is_what_was_set(tmp_path_factory, offset_ns, drift_ppm, since_ns):
    path = tmp_path_factory.mktemp("clock") / "clock"
    set_clock(path, offset_ns=offset_ns, drift_ppm=drift_ppm, since_ns=since_ns)
    assert clock_is(path) == (offset_ns, drift_ppm)
    assert get_clock(path, now_ns=since_ns) == offset_ns
    assert get_clock(path, now_ns=since_ns + 10**9) == pytest.approx(offset_ns + 1000 * drift_ppm, abs=2000)


def test_no_clock_file_is_no_shift(tmp_path):
    assert get_clock(tmp_path / "none", now_ns=5) == 0
    assert clock_is(tmp_path / "none") == (0, 0)


WRITE = """
import os
with open("a.log", "wb", buffering=0) as file:
    file.write(b"x" * 10)
    os.fsync(file.fileno())
    file.write(b"y" * 10)
os.rename("a.log", "b.log")
with open("never.log", "wb") as file:
    file.write(b"z" * 10)
with open("cut.log", "wb", buffering=0) as file:
    file.write(b"x" * 10)
    os.fdatasync(file.fileno())
    file.truncate(4)
    file.write(b"y" * 10)
try:
    os.fsync(1000)
except OSError as error:
    print(error.errno)
"""


def test_what_was_synced_of_a_file_is_known_under_any_name(shim, tmp_path):
    syncs = tmp_path / "syncs"
    done = subprocess.run(
        [sys.executable, "-c", WRITE],
        env={**os.environ, **environment(shim, syncs=syncs)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.strip() == "9", "errors are what they are"
    sizes = synced_sizes(syncs)
    assert sizes[identity_of(tmp_path / "b.log")] == 10
    assert identity_of(tmp_path / "never.log") not in sizes
    assert sizes[identity_of(tmp_path / "cut.log")] == 4


def test_a_torn_last_record_is_none(tmp_path):
    assert synced_sizes(tmp_path / "none") == {}
    path = tmp_path / "syncs"
    path.write_bytes(b"\0" * 8 + b"\1" + b"\0" * 31 + b"torn")
    assert synced_sizes(path) == {(1, 0, 0): 0}
