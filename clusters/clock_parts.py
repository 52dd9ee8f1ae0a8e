"""The wall clock of one running server, moved by its shim (`clusters.shim`), and seen to be where its JVM says it is.

What a JVM takes for now, it is asked over JMX: brokers of KRaft publish how old the last metadata record is by their own
clock, in milliseconds (kafka.server, `last-applied-record-lag-ms` + `last-applied-record-timestamp`); and every answer of the
metrics agent is stamped with the JVM's time, in seconds.
"""

import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusters.shim import clock_is, get_clock, set_clock
from clusters.stamps import write_down
from harness.clock import Clock
from harness.errors import HarnessFailed
from harness.impairments import ClockShift
from harness.jolokia import HEADERS, PATH
from harness.protocols import NodeState
from harness.schema import Tristate

ASK_TIMEOUT_S = 2.0
MS_NS, S_NS = 1_000_000, 1_000_000_000
_MBEAN = "kafka.server:type=broker-metadata-metrics"
_STAMP, _LAG = "last-applied-record-timestamp", "last-applied-record-lag-ms"
_READS = [
    {"type": "read", "mbean": "java.lang:type=Runtime", "attribute": "Uptime"},  # which every JVM has: for the stamp
    *({"type": "read", "mbean": _MBEAN, "attribute": name} for name in (_STAMP, _LAG, _STAMP)),
]


@dataclass(frozen=True, slots=True)
class OffBy:
    """By how much a clock is off: between the two, in ns."""

    least_ns: int
    most_ns: int

    def may_be(self, offset_ns: int) -> bool:
        """Could it be just that?"""
        return self.may_be_between(offset_ns, offset_ns)

    def may_be_between(self, one_ns: int, other_ns: int) -> bool:
        """Could it be any between these two, in either order?"""
        return min(one_ns, other_ns) <= self.most_ns and max(one_ns, other_ns) >= self.least_ns

    @property
    def text(self) -> str:
        """For a person."""
        middle_s, around_s = (self.least_ns + self.most_ns) / 2 / S_NS, (self.most_ns - self.least_ns) / 2 / S_NS
        return f"off by {middle_s:+.3f} s (± {around_s:.3f})"


class ShiftedClocks:
    """`clock_of`: a node's clock file, which its server has mapped. `agent_of`: (host, port) of its metrics agent."""

    def __init__(
        self,
        clock_of: Callable[[str], Path],
        agent_of: Callable[[Any], tuple[str, int] | None],
        clock: Clock,
    ) -> None:
        self._clock_of, self._agent_of, self._clock = clock_of, agent_of, clock

    def impair(self, node: Any, impairment: ClockShift) -> None:  # noqa: ANN401 - of its backend
        path, (offset_ns, drift_ppm) = self._clock_of(node.name), _wanted(impairment)
        if not path.exists():
            raise HarnessFailed(f"{node.name} was started without the library that moves its clock.")
        if clock_is(path) != (offset_ns, drift_ppm):
            self._set(path, offset_ns, drift_ppm)

    def repair(self, node: Any, impairment: ClockShift) -> None:  # noqa: ANN401
        """What another fault made of the clock since is that one's to undo."""
        path = self._clock_of(node.name)
        if path.exists() and clock_is(path) == _wanted(impairment):
            self._set(path, 0, 0)

    def _set(self, path: Path, offset_ns: int, drift_ppm: int) -> None:
        now_ns = self._clock.monotonic_ns()
        write_down(path.parent, at_ns=now_ns, offset_ns=offset_ns)
        set_clock(path, offset_ns=offset_ns, drift_ppm=drift_ppm, since_ns=now_ns)

    def impaired(self, node: Any, impairment: ClockShift) -> tuple[Tristate, str]:  # noqa: ANN401
        path = self._clock_of(node.name)
        asked = clock_is(path) == _wanted(impairment)
        if node.state() is NodeState.STOPPED:
            if asked:
                return Tristate.UNKNOWN, "there is no process whose clock could be looked at"
            return Tristate.NO, "there is no process, and the next one starts with another clock"
        before_ns = get_clock(path, now_ns=self._clock.monotonic_ns())
        off = self.off_by(node)
        if off is None:
            return Tristate.UNKNOWN, "its JVM did not say what time it is"
        wanted_ns = get_clock(path, now_ns=self._clock.monotonic_ns())  # one that drifts has gone on since it was asked
        if asked and off.may_be_between(before_ns, wanted_ns) and not off.may_be(0):
            return Tristate.YES, f"its JVM's clock is {off.text}"
        if not asked and (off.may_be(0) or wanted_ns):
            return Tristate.NO, f"its JVM's clock is {off.text}"
        return Tristate.UNKNOWN, f"its JVM's clock is {off.text}, and not by {wanted_ns / S_NS:+.3f} s"

    def off_by(self, node: Any) -> OffBy | None:  # noqa: ANN401
        """What the node's JVM says its clock is off by; None = it does not say."""
        agent = self._agent_of(node)
        if agent is None:
            return None
        before_ns = self._clock.wall_ns()
        answers = _ask(agent)
        after_ns = self._clock.wall_ns()
        if answers is None:
            return None
        now_ns, resolution_ns = _told(answers)
        return OffBy(now_ns - after_ns, now_ns + resolution_ns - before_ns)


def _wanted(impairment: ClockShift) -> tuple[int, int]:
    return round(impairment.offset_ms * MS_NS), round(impairment.drift_ppm)


def _ask(agent: tuple[str, int]) -> list[dict[str, Any]] | None:
    connection = http.client.HTTPConnection(*agent, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("POST", PATH, json.dumps(_READS), HEADERS)
        found = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    # An answer about an MBean that is not there has no stamp.
    stamped = isinstance(found, list) and len(found) == len(_READS) and isinstance(found[0].get("timestamp"), int)
    return found if stamped else None


def _told(answers: list[dict[str, Any]]) -> tuple[int, int]:
    """(what time it is at least, how much later it may be), ns. By the broker's own metric, unless a record was applied in
    between, or it is no broker of KRaft."""
    stamp, *told = answers
    before, lag, after = (one.get("value") for one in told)
    if isinstance(before, int | float) and before == after and before > 0 and isinstance(lag, int | float):
        return int(before + lag) * MS_NS, MS_NS
    return int(stamp["timestamp"]) * S_NS, S_NS
