"""Makes administrators' calls while a cluster runs, and records how long each waited: to each broker alone, and to the active
controller through any broker."""

import threading
from collections.abc import Callable, Sequence
from functools import partial

from prozess.app.run.samplers import Beside
from prozess.clusters.protocol.admin import Admin
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.errors import HarnessFailed
from prozess.harness.interfaces import Cluster
from prozess.harness.plan.bounds import OUR_REQUEST_MS
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import NONE, ObservationKind

PERIOD_S = 1.0
"""The time between two calls, and between two attempts of one that was not answered."""
REQUEST_S = OUR_REQUEST_MS / 1000
"""How long one attempt waits for its answer, as clients of a trial do."""
LONG_NS = NS_PER_S
"""For calls that were answered sooner, the first one is written: it shows that such calls were made."""
JOIN_S = 1.0
"""How long the threads may take to end, all together. One that waits for an answer ends by itself later, and writes nothing
any more."""


class AdminCall:
    """One kind of call, made again and again by one thread. An attempt that gets no answer is made again, and the call lasts
    until one does.

    Example: attempts at 5 s and 16 s get no answer for 10 s each, and one at 27 s gets it at once: a call of 22 s.
    """

    def __init__(self, node: int, attempt: Callable[[], bool], recorder: Recorder, clock: Clock) -> None:
        self._node, self._attempt, self._recorder, self._clock = node, attempt, recorder, clock
        self._begun_ns: int | None = None
        self._lock, self._written, self._closed = threading.Lock(), False, False

    def once(self) -> None:
        """Makes one attempt, and writes the call if that ended it."""
        with self._lock:
            if self._begun_ns is None:
                self._begun_ns = self._clock.monotonic_ns()
        try:
            answered = self._attempt()
        except HarnessFailed:
            answered = True  # refused for good
        if not answered:
            return
        with self._lock:
            took_ns = self._clock.monotonic_ns() - self._begun_ns
            if not self._closed and (took_ns >= LONG_NS or not self._written):
                self._written = True
                self._write(ObservationKind.ADMIN_ANSWERED, took_ns)
            self._begun_ns = None

    def close(self) -> None:
        """Writes the call that is under way. Nothing is written afterwards."""
        with self._lock:
            if not self._closed and self._begun_ns is not None:
                self._write(ObservationKind.ADMIN_WAITED, self._clock.monotonic_ns() - self._begun_ns)
            self._closed = True

    def _write(self, kind: ObservationKind, lasted_ns: int) -> None:
        assert self._begun_ns is not None
        self._recorder.write("observations", time_ns=self._begun_ns, value=lasted_ns, kind=int(kind), node=self._node)


class AdminCalls(Beside):
    """A context in which such calls are made. None are made on a cluster of somebody else: nothing would be judged there."""

    def __init__(
        self, plan: Plan, cluster: Cluster, recorder: Recorder, clock: Clock, *, admin: Admin | None = None
    ) -> None:
        super().__init__(join_timeout_s=JOIN_S / (plan.variant.brokers + 1))
        self._calls: list[AdminCall] = []
        if plan.nodes_unread:
            return
        asked, brokers = admin or Admin(cluster), sorted(cluster.observer_servers)
        attempts: list[tuple[int, Callable[[], bool]]] = [
            (broker, partial(asked.answers, broker, timeout_s=REQUEST_S)) for broker in brokers
        ]
        attempts.append((NONE, partial(_ask_the_controller, asked, brokers)))
        for node, attempt in attempts:
            call = AdminCall(node, attempt, recorder, clock)
            self._calls.append(call)
            name = "controller" if node == NONE else str(node)
            self.run_beside(partial(self._repeat, call), f"admin-calls-{name}")

    def _repeat(self, call: AdminCall) -> None:
        while not self.stopping.wait(PERIOD_S):
            call.once()

    def closing(self) -> None:
        """Writes the calls that are under way."""
        for call in self._calls:
            call.close()


def _ask_the_controller(admin: Admin, brokers: Sequence[int]) -> bool:
    """Asks through one broker after the other, because a broker that is down or does not know the controller proves nothing
    about it.
    """
    return any(admin.controller_answers(broker, timeout_s=REQUEST_S) for broker in brokers)
