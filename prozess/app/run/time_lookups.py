"""Asks leaders for the first record since a time, once a second while a trial runs, and records what they answer.

The times are drawn between the begin of the trial and a second from now. After an answer the next question is for just that
record's timestamp, and the one after for a millisecond later: there an index is wrong first.
"""

import random
import threading
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from prozess.clusters.protocol.metrics import MetricsObserver
from prozess.clusters.protocol.requests import OffsetAnswers
from prozess.harness.clock import Clock
from prozess.harness.errors import HarnessFailed
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import NONE, ObservationKind

AT_ONCE = 16
"""How many partitions a broker is asked for at a time. The others have their turn in the seconds after."""
ANSWER_TIMEOUT_S = 3.0
AHEAD_MS = 1_000
NS_PER_MS = 1_000_000


class TimeLookups:
    """Looks up offsets by time in these partitions, (topic, number) → dense id. Brokers may be asked side by side."""

    def __init__(
        self,
        observer: MetricsObserver,
        partitions: Mapping[tuple[str, int], int],
        recorder: Recorder,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._observer, self._partitions, self._recorder, self._clock = observer, partitions, recorder, clock
        self._rng, self._began_ms = rng, clock.wall_ns() // NS_PER_MS
        self._keys = sorted(partitions)
        self._turn: dict[int, int] = {}
        self._next: dict[tuple[int, tuple[str, int]], list[int]] = {}
        """Broker, partition → the times to ask for next, the first one last."""
        self._lock = threading.Lock()

    def sample(self, node: int) -> None:
        """Asks one broker about the partitions whose turn it is. One that does not answer leaves no row."""
        if not self._keys:
            return
        with self._lock:
            first = self._turn.get(node, 0)
            self._turn[node] = (first + AT_ONCE) % len(self._keys)
            asked = {key: self._time_for((node, key)) for key in (*self._keys, *self._keys)[first : first + AT_ONCE]}
        asked_ns = self._clock.monotonic_ns()
        answers: OffsetAnswers | None = None
        with suppress(HarnessFailed):
            answers = self._observer.first_since(node, asked, timeout_s=ANSWER_TIMEOUT_S)
        found = {key: answer for key, answer in (answers or {}).items() if answer.error == 0}
        with self._lock:
            for key, answer in found.items():
                if answer.log_offset >= 0 and (node, key) not in self._next:
                    self._next[node, key] = [answer.timestamp_ms + 1, answer.timestamp_ms]
        rows = [
            (self._partitions[key], kind, value)
            for key, answer in found.items()
            for kind, value in (
                (int(ObservationKind.TIME_ASKED), asked[key]),
                (int(ObservationKind.TIME_FOUND), answer.log_offset if answer.log_offset >= 0 else NONE),
            )
        ]
        if rows:
            partition, kinds, values = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
            columns = {"value": values, "partition": partition, "kind": kinds}
            same = {name: np.full(len(rows), value) for name, value in (("time_ns", asked_ns), ("node", node))}
            self._recorder.extend("observations", columns | same)

    def _time_for(self, of: tuple[int, tuple[str, int]]) -> int:
        if wanted := self._next.get(of):
            return wanted.pop()
        self._next.pop(of, None)
        return self._rng.randrange(self._began_ms, self._clock.wall_ns() // NS_PER_MS + AHEAD_MS)
