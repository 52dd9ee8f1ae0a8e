"""Changes that Kafka is asked for again until it accepts them: an undo comes when a controller may just be being elected."""

from collections.abc import Callable

from harness.clock import Clock, wait_until
from harness.errors import ClusterFailed


def until_accepted(ask: Callable[[], None], *, awaited: str, timeout_s: float, clock: Clock) -> None:
    """Call `ask` until it does not raise ClusterFailed; NotReady, with what it said last, after the limit."""
    last = "nothing"

    def accepted() -> bool:
        nonlocal last
        try:
            ask()
        except ClusterFailed as error:  # a controller that is just being elected
            last = str(error)
            return False
        return True

    wait_until(accepted, awaited=awaited, timeout_s=timeout_s, clock=clock, last_seen=lambda: last, interval_s=0.5)
