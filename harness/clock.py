"""Clocks are passed as arguments: everything that waits takes a `Clock`. Only `SystemClock` touches the machine.

All times in a history are CLOCK_MONOTONIC nanoseconds: one clock for every process of a host, untouched by clock faults.
"""

import re
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from prozess.harness.errors import BadInput, NotReady

T = TypeVar("T")
NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """Monotonic time, wall time, and the only way to wait."""

    def monotonic_ns(self) -> int:
        """Returns CLOCK_MONOTONIC in nanoseconds."""
        ...

    def wall_ns(self) -> int:
        """Returns CLOCK_REALTIME, in nanoseconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Waits for `seconds`, and returns."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: TID251 - the one place that sleeps


RESTS, REST_MAX_S = 3, 0.3
"""How long `wait_until` rests between two probes: this many times as long as the last probe took, but at most so many
seconds."""


def wait_until(
    probe: Callable[[], T | None],
    *,
    awaited: str,
    timeout_s: float,
    clock: Clock,
    last_seen: Callable[[], str] = lambda: "nothing",
    interval_s: float = 0.05,
) -> T:
    """Calls `probe` until it returns something true, and returns that. Raises `NotReady` with what was last seen if the
    time runs out.

    `probe` is always called at least once, and once more after the deadline, so that a starved machine is not
    blamed on the cluster. One that takes long is called less often than every `interval_s`, so that looking does not
    keep what is awaited from happening.
    """
    deadline_ns = clock.monotonic_ns() + int(timeout_s * NS_PER_S)
    while True:
        asked_ns = clock.monotonic_ns()
        if found := probe():
            return found
        if asked_ns >= deadline_ns:
            raise NotReady(awaited=awaited, timeout_s=timeout_s, last_seen=last_seen())
        took_s = (clock.monotonic_ns() - asked_ns) / NS_PER_S
        clock.sleep(max(interval_s, min(REST_MAX_S, RESTS * took_s)))


_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> float:
    """Turns "90s", "30m", "8h" or "1h30m" into seconds. BadInput for anything else."""
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", text.strip()):
        raise BadInput(f"--for {text!r} is not a duration. Give one such as 90s, 30m, 8h or 1h30m.")
    return sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd])", text))


def measure_wall_offset(clock: Clock, *, tries: int = 50) -> tuple[int, int]:
    """Measures CLOCK_REALTIME − CLOCK_MONOTONIC. Returns (the difference, half the width of the tightest measurement),
    in nanoseconds."""
    best = (0, 2**62)
    for _ in range(tries):
        before, wall, after = clock.monotonic_ns(), clock.wall_ns(), clock.monotonic_ns()
        if after - before < 2 * best[1]:
            best = (wall - (before + after) // 2, (after - before + 1) // 2)
    return best
