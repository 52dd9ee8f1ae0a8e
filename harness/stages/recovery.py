"""Whether a cluster came back after its faults: each undone, and every ISR seen whole. Where it did not, the run goes on to
its audit all the same, and what was seen is a fact of the run, by which it is judged: it cannot hold."""

from collections.abc import Callable

from harness.clock import Clock, wait_until
from harness.conditions import Snapshot, World, evaluate
from harness.errors import ClusterFailed, NotReady
from harness.run_directory import RunDirectory, write_json
from harness.schedule import IsrIs


def wait_whole(world: World, *, timeout_s: float, clock: Clock) -> None:
    """Healed means: every partition's ISR is all its replicas, on every broker's own view. NotReady with what lacks."""
    last = "nothing"

    def whole() -> bool:
        nonlocal last
        answer = evaluate(IsrIs(condition="isr"), world, Snapshot(clock.monotonic_ns(), {}))
        last = answer.seen
        return answer.holds

    wait_until(
        whole,
        awaited="every ISR whole on every broker's own view",
        timeout_s=timeout_s,
        clock=clock,
        last_seen=lambda: last,
        interval_s=0.1,
    )


class Recovery:
    """Notes in `recovery.json` of a run what was awaited of its cluster in vain. `emit`: tells the outer process."""

    def __init__(self, run: RunDirectory, emit: Callable[..., None]) -> None:
        self._run, self._emit = run, emit
        self._lacking: list[str] = []

    @property
    def failed(self) -> bool:
        """Something was awaited in vain."""
        return bool(self._lacking)

    def attempt(self, work: Callable[[], object]) -> None:
        """Do a part of the healing. If it fails, that is noted at once, and nothing is raised."""
        try:
            work()
        except (NotReady, ClusterFailed) as error:
            if str(error) not in self._lacking:
                self._lacking.append(str(error))
                self._emit("not-whole", text=str(error))
        write_json(self._run.recovery, self._lacking)
