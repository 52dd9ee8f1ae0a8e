"""Connections of a node on the data network: reset, or left half-open by an end that vanished. By ss(8), whose -K needs a
kernel with CONFIG_INET_DIAG_DESTROY.
"""

from collections.abc import Sequence

from clusters.links import LinkEnd, Links
from harness.clock import Clock, wait_until
from harness.errors import HarnessFailed, NotReady
from harness.impairments import ResetConnections, Vanish
from harness.protocols import Node

Connection = tuple[str, str]
"""(own, other) address and port."""
GONE_S = 3.0


class Reset:
    """`clusters.impairers.Harmer` of `ResetConnections`: the node's kernel aborts them, which tells the other side by RST."""

    def __init__(self, links: Links, clock: Clock) -> None:
        self._links, self._clock = links, clock

    def harm(self, node: Node, harm: ResetConnections) -> str:
        """HarnessFailed if there was none, or one of them goes on at either end."""
        end = self._links[node.name]
        others = [self._links[harm.peer]] if harm.peer else self._links.besides(node.name)
        open_before = {other.name: connections(end, other) for other in others}
        if not any(open_before.values()):
            raise HarnessFailed(
                f"{node.name} has no open connection with {harm.peer or 'anybody'} that could be reset."
            )
        for other in others:
            destroy(end, other)
        for other in others:
            self._await_gone(end, other, open_before[other.name])
        counts = ", ".join(f"{len(were)} with {name}" for name, were in sorted(open_before.items()) if were)
        return f"connections reset, seen to be gone at both ends: {counts}"

    def _await_gone(self, end: LinkEnd, other: LinkEnd, were: set[Connection]) -> None:
        mirrored = {(theirs, ours) for ours, theirs in were}
        try:
            wait_until(
                lambda: not (were & connections(end, other)) and not (mirrored & connections(other, end)),
                awaited=f"{len(were)} connections of {end.name} with {other.name} to be gone at both ends",
                timeout_s=GONE_S,
                clock=self._clock,
                last_seen=lambda: f"{len(mirrored & connections(other, end))} still open at {other.name}",
            )
        except NotReady as error:
            raise HarnessFailed(str(error)) from error


class Vanishing:
    """`clusters.impairers.Harmer` of `Vanish`: killed, and its kernel forgets its connections before it can say so."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def harm(self, node: Node, harm: Vanish) -> str:
        """HarnessFailed if nobody is left with a connection that goes nowhere."""
        end = self._links[node.name]
        node.kill()
        for other in self._links.besides(node.name):
            destroy(end, other)  # what would go on sending FIN
        counts = {other.name: len(connections(other, end)) for other in self._links.besides(node.name)}
        left = {name: count for name, count in sorted(counts.items()) if count}
        if not left:
            raise HarnessFailed(f"Nobody has an open connection to {node.name} left: each was told of its end.")
        return "connections half-open: " + ", ".join(f"{count} of {name}" for name, count in left.items())


def connections(end: LinkEnd, other: LinkEnd) -> set[Connection]:
    """Established ones between the two, as `end` sees them."""
    told = _ss(end, "-Htn", "state", "established", "src", end.address, "dst", other.address)
    return {(words[-2], words[-1]) for line in told.splitlines() if len(words := line.split()) >= 4}


def destroy(end: LinkEnd, other: LinkEnd, *, to_ports: Sequence[int] = ()) -> None:
    """Abort every connection between the two, in whatever state, at `end`; or only those that it opened to these ports."""
    between = ["-KHtn", "state", "connected", "src", end.address, "dst", other.address]
    for port in to_ports:
        _ss(end, *between, "dport", "=", f":{port}")
    if not to_ports:
        _ss(end, *between)


def _ss(end: LinkEnd, *arguments: str) -> str:
    done = end.network.run_as_root(["ss", *arguments])
    if done.returncode:
        raise HarnessFailed(f"ss of {end.name} refused: {done.stderr.strip()[-300:]}")
    return done.stdout
