"""Packet loss: an iptables rule in the namespace of whoever receives, which drops each packet with a probability.

Only what is sent to the node's address on the data network counts; the observer comes to another address. See
iptables-extensions(8), `statistic`.
"""

import math
from collections.abc import Callable

from clusters.links import Links
from harness.errors import HarnessFailed
from harness.impairments import Loss
from harness.protocols import Node
from harness.schema import Tristate

IPTABLES = ("iptables", "-w", "10")
CHANCE_OF_NO_LOSS = 1e-9
"""Of a working rule, that all probes come through."""
PROBES_MIN, PROBES_MAX = 100, 3000
DEVIATIONS_MAX = 6.0
"""How far the share that is seen may be from the one asked for, in standard deviations of a binomial."""


class LosePackets:
    """`clusters.impairers.Impairer` of `Loss`."""

    def __init__(
        self, links: Links, *, chain: str = "INPUT", prepare: Callable[[str], None] = lambda name: None
    ) -> None:
        """`prepare`: sees to it that the node of that name has the chain."""
        self._links, self._chain, self._prepare = links, chain, prepare

    def impair(self, node: Node, impairment: Loss) -> None:
        self._prepare(node.name)
        if not self._there(node, impairment):
            self._iptables(node, "-A", impairment)

    def repair(self, node: Node, impairment: Loss) -> None:
        while self._there(node, impairment):
            self._iptables(node, "-D", impairment)

    def impaired(self, node: Node, impairment: Loss) -> tuple[Tristate, str]:
        """By datagrams that do not come; without the rule nothing is lost by it, whoever else may drop what."""
        source = impairment.source or self._links.besides(node.name)[0].name
        count = probes_for(impairment.share)
        lost = count - self._links.arrivals(source, node.name, count=count)
        seen = f"{lost} of {count} datagrams of {source} were lost"
        if not self._there(node, impairment):
            return Tristate.NO, f"{seen}, and the rule is gone"
        if not lost:
            return Tristate.NO, seen
        return (Tristate.YES if fits(lost, count, impairment.share) else Tristate.UNKNOWN), seen

    def _there(self, node: Node, impairment: Loss) -> bool:
        done = self._links[node.name].network.run_as_root([*IPTABLES, "-C", *self._rule(node, impairment)])
        if done.returncode not in (0, 1, 2):
            raise HarnessFailed(f"iptables of {node.name} does not say whether packets are lost: {done.stderr.strip()}")
        return done.returncode == 0

    def _iptables(self, node: Node, do: str, impairment: Loss) -> None:
        done = self._links[node.name].network.run_as_root([*IPTABLES, do, *self._rule(node, impairment)])
        if done.returncode:
            raise HarnessFailed(f"iptables of {node.name} refused {do} of a loss: {done.stderr.strip()[-300:]}")

    def _rule(self, node: Node, impairment: Loss) -> list[str]:
        source = ["-s", self._links[impairment.source].address] if impairment.source else []
        statistic = ["-m", "statistic", "--mode", "random", "--probability", f"{impairment.share:.6f}"]
        return [self._chain, "-d", self._links[node.name].address, *source, *statistic, "-j", "DROP"]


def probes_for(share: float) -> int:
    """How many datagrams show a loss of that share almost certainly."""
    wanted = math.ceil(math.log(CHANCE_OF_NO_LOSS) / math.log1p(-share))
    return min(max(wanted, PROBES_MIN), PROBES_MAX)


def fits(lost: int, count: int, share: float) -> bool:
    """Is so much lost what that share loses?"""
    return abs(lost - count * share) <= DEVIATIONS_MAX * math.sqrt(count * share * (1 - share)) + 1
