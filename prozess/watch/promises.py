"""Judges the promises of progress that a watch can observe: a partition has a leader, a producer with pending records sends
them, a reader that is behind advances. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces import BrokerView, PartitionView
from prozess.harness.interfaces.witnesses import STALLED_NS
from prozess.harness.plan.bounds import Bounds
from prozess.watch.window import Sighting

APART_NS = 5 * NS_PER_S
"""Samples of the metadata that are further apart do not show what happened in between."""


@dataclass(slots=True)
class _Seen:
    """The state of a partition that all recent samples agree on."""

    state: tuple[int, int] | None = None
    """(leader, leader epoch) while every broker answers, all say the same, and every replica is in sync."""
    peace_since_ns: int = 0
    leaderless_since_ns: int | None = None
    sampled_ns: int = 0


class Promises:
    """Follows samples of the metadata, and finds the waits that nothing explains.

    Example: with a bound of 50 s, broker 2 leads a partition, and every replica is in sync from 10 s on. A send of 5 s that
    has no answer at 60 s is `stuck`. If the ISR shrinks for a moment at 30 s, it is so at 80 s.
    """

    def __init__(self, partitions: Sequence[int], *, bounds: Bounds | None = None) -> None:
        """`bounds`: by default those of Kafka's own timeouts, and of the watch's clients."""
        self._bounds = bounds or Bounds()
        self._seen = {number: _Seen() for number in partitions}
        self._reported: set[tuple[str, int, int]] = set()
        """(name, partition, since when) of what was reported."""

    def follow(self, partition: int) -> None:
        """Judges one more partition from now on."""
        self._seen[partition] = _Seen()

    def sampled(self, topic: str, views: Mapping[int, BrokerView | None], sampled_ns: int) -> None:
        """Takes a sample of each broker's view. `views`: None for a broker that does not answer."""
        for number, seen in self._seen.items():
            if sampled_ns - seen.sampled_ns > APART_NS:
                seen.state = seen.leaderless_since_ns = None
            seen.sampled_ns = sampled_ns
            answers = {None if view is None else view.get((topic, number)) for view in views.values()}
            state = _settled(answers)
            if state is None or state != seen.state:
                seen.state, seen.peace_since_ns = state, sampled_ns
            if not _nobody_leads_although_one_could(answers, views):
                seen.leaderless_since_ns = None
            elif seen.leaderless_since_ns is None:
                seen.leaderless_since_ns = sampled_ns

    def interrupted(self) -> None:
        """Forgets earlier samples: the watch itself was paused, or could not ask."""
        for seen in self._seen.values():
            seen.state = seen.leaderless_since_ns = None

    def check(self, unacknowledged: Mapping[int, int | None], unread: Mapping[int, int | None]) -> Iterator[Sighting]:
        """Yields each promise that is broken now, once. Both arguments are the time since which something is awaited; None if
        nothing is.
        """
        for number, seen in self._seen.items():
            limits = (
                ("stuck", unacknowledged.get(number), self._bounds.acknowledgement_ns, "no record was acknowledged"),
                ("stalled", unread.get(number), STALLED_NS, "nothing was read"),
            )
            for name, since_ns, bound_ns, what in limits:
                if since_ns is not None and seen.state is not None:
                    lasted_ns = seen.sampled_ns - max(since_ns, seen.peace_since_ns)
                    detail = (
                        f"{what} for {lasted_ns / NS_PER_S:.0f} s in which broker {seen.state[0]} led and every replica was "
                        f"in sync, and the bound is {bound_ns / NS_PER_S:.0f} s"
                    )
                    yield from self._once(name, number, since_ns, detail, broken=lasted_ns >= bound_ns)
            if (since_ns := seen.leaderless_since_ns) is not None:
                lasted_ns, bound_ns = seen.sampled_ns - since_ns, self._bounds.new_leader_ns
                detail = (
                    f"for {lasted_ns / NS_PER_S:.0f} s every broker that answers says that nobody leads, one of them is "
                    f"in sync, and the bound is {bound_ns / NS_PER_S:.0f} s"
                )
                yield from self._once("leaderless", number, since_ns, detail, broken=lasted_ns >= bound_ns)

    def _once(self, name: str, partition: int, since_ns: int, detail: str, *, broken: bool) -> Iterator[Sighting]:
        key = (name, partition, since_ns)
        if broken and key not in self._reported:
            self._reported = {old for old in self._reported if old[:2] != key[:2]} | {key}
            yield Sighting(partition, name, True, 1, detail)


def _settled(answers: set[PartitionView | None]) -> tuple[int, int] | None:
    """Returns (leader, leader epoch) if every broker says the same, and every replica is in sync."""
    if len(answers) != 1 or (view := next(iter(answers))) is None:
        return None
    return (view.leader, view.leader_epoch) if view.leader >= 0 and set(view.isr) == set(view.replicas) else None


def _nobody_leads_although_one_could(seen: set[PartitionView | None], views: Mapping[int, BrokerView | None]) -> bool:
    answers = [view for view in seen if view is not None]
    could = {broker for view in answers for broker in view.isr if views.get(broker) is not None}
    return bool(answers) and bool(could) and all(view.leader < 0 for view in answers)
