"""Draining groups: after healing their members go on until everything is processed, or nothing moves any more."""

from collections.abc import Collection, Mapping, Sequence

from harness.clock import NS_PER_S, Clock
from workloads.processes import ClientProcess, ClientProcesses

SETTLED_S = 1.0
"""So long every partition must have had an owner that is at its end: a fetch is answered within 100 ms, and right after a
failover the end that a broker names may be an old one."""
END_S = 20.0
"""For members to leave their groups."""
INTERVAL_S = 0.02
Positions = Mapping[int, tuple[int, bool]]
"""Dense partition → (position, at the end), of those that have an owner."""


class Drain:
    """Follows what draining members say. `quiet_s`: give up when nothing has moved for so long."""

    def __init__(self, processes: ClientProcesses, clock: Clock, *, quiet_s: float) -> None:
        self._processes, self._clock, self._quiet_s = processes, clock, quiet_s

    def until_done(self, members: Sequence[ClientProcess], partitions: Collection[int], *, timeout_s: float) -> bool:
        """Tell the members to drain. True once each partition is read to its end by an owner and has been for SETTLED_S;
        False if nothing moved for `quiet_s`, or after `timeout_s`."""
        begun_ns = self._clock.monotonic_ns()
        self._processes.tell(members, "drain", quiet_s=self._quiet_s)
        said: dict[int, dict[int, tuple[int, bool]]] = {}
        done_ns = moved_ns = begun_ns
        before: tuple[Positions, int] = ({}, 0)
        while (now_ns := self._clock.monotonic_ns()) - begun_ns < timeout_s * NS_PER_S:
            processed = self._listen(members, said)
            now = (positions_of(said), processed)
            if now != before:
                before, moved_ns = now, now_ns
            if not set(partitions) <= set(now[0]) or not all(end for _, end in now[0].values()):
                done_ns = now_ns
            elif now_ns - done_ns >= SETTLED_S * NS_PER_S:
                return True
            if now_ns - moved_ns >= self._quiet_s * NS_PER_S or not any(m.running for m in members):
                return False
            self._clock.sleep(INTERVAL_S)
        return False

    def end(self, members: Sequence[ClientProcess]) -> None:
        """They leave their groups, with their last commits; what does not within END_S is killed."""
        for member in members:
            member.expected_to_end = True
        self._processes.tell(members, "stop")
        if not self._processes.wait(members, timeout_s=END_S):
            self._processes.end(members)

    def _listen(self, members: Sequence[ClientProcess], said: dict[int, dict[int, tuple[int, bool]]]) -> int:
        """Take the newest word of each member; what they processed in all."""
        self._processes.poll()
        processed = 0
        for member in members:
            told = [event for event in member.events if event["event"] == "draining"]
            if told:
                said[member.client] = {dense: (position, bool(end)) for dense, position, end in told[-1]["at"]}
                member.events[:] = [e for e in member.events if e["event"] != "draining"] + told[-1:]
                processed += int(told[-1]["processed"])
            if not member.running:
                said.pop(member.client, None)
        return processed


def positions_of(said: Mapping[int, Positions]) -> dict[int, tuple[int, bool]]:
    """What all members together say. Of a partition that two claim for a moment, the one that is further behind."""
    found: dict[int, tuple[int, bool]] = {}
    for positions in said.values():
        for partition, at in positions.items():
            found[partition] = min(at, found.get(partition, at))
    return found
