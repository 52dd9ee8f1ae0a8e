"""Waiting for a condition: it is looked at whatever the limit is, and a look that takes long is not repeated at once."""

import pytest

from prozess.harness.clock import REST_MAX_S, wait_until
from prozess.harness.errors import NotReady
from tests.support.clock import FakeClock


def looks(took_s, *, timeout_s=10.0, interval_s=0.02):
    """When each look at something that never happens began, in seconds; each takes `took_s`."""
    clock, begun = FakeClock(), []

    def probe():
        begun.append(clock.monotonic_ns() / 1e9)
        clock.sleep(took_s)

    with pytest.raises(NotReady, match="waited 10 s for rain; last seen: sun"):
        wait_until(
            probe, awaited="rain", timeout_s=timeout_s, clock=clock, last_seen=lambda: "sun", interval_s=interval_s
        )
    return [round(at - begun[0], 6) for at in begun]


def test_a_quick_look_is_taken_at_every_interval_and_once_after_the_limit():
    begun = looks(0.001)
    assert begun[1] == pytest.approx(0.021)
    assert begun[-2] < 10 <= begun[-1]


@pytest.mark.parametrize(("took_s", "rest_s"), [(0.05, 0.15), (0.08, 0.24), (2.0, REST_MAX_S)])
def test_one_that_takes_long_is_followed_by_a_rest_of_three_times_as_long_up_to_a_limit(took_s, rest_s):
    begun = looks(took_s)
    assert begun[1] == pytest.approx(took_s + rest_s)
    assert begun[-2] < 10 <= begun[-1]


def test_what_is_found_is_returned():
    assert wait_until(lambda: "rain", awaited="rain", timeout_s=0, clock=FakeClock()) == "rain"
