"""Bandwidth: what a node sends to a peer, or to anybody, goes through a class of htb with a rate (tc-htb(8), tc-u32(8)).

The queue is on the node's device of the data network; what no filter takes passes unlimited (`default 0`).
"""

import json

from clusters.links import LinkEnd, Links
from harness.errors import HarnessFailed
from harness.impairments import Bandwidth
from harness.protocols import Node
from harness.schema import Tristate

MEASURE_S = 0.5
"""How long the bytes take that are sent to see the limit."""
SEEN_SHARE = 0.6
"""Of the time that a limited transfer must take: buffers on the way take some of it at once."""
BURST_MIN_BYTES = 3200
"""Two packets of 1500 bytes must pass at any rate."""
_CONNECT_S = 20.0
_ANYBODY = 0xFFFF


class LimitBandwidth:
    """`clusters.impairers.Impairer` of `Bandwidth`."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def impair(self, node: Node, impairment: Bandwidth) -> None:
        """HarnessFailed if another limit is on the same link."""
        end, number = self._links[node.name], self._number(impairment)
        device = _device(end)
        classes = _classes(end, device)
        if classes.get(number) == impairment.bytes_per_s:
            return
        if number in classes:
            raise HarnessFailed(f"{node.name}: this link has a limit already, of {classes[number]} bytes/s.")
        if not classes:
            _tc(end, "qdisc", "replace", "dev", device, "root", "handle", "1:", "htb", "default", "0")
        rate = f"{impairment.bytes_per_s}bps"  # of tc: bytes per second
        burst = str(_burst(impairment))
        limit = ["htb", "rate", rate, "ceil", rate, "burst", burst, "cburst", burst]
        _tc(end, "class", "add", "dev", device, "parent", "1:", "classid", f"1:{number:x}", *limit)
        to = f"{self._links[impairment.peer].address}/32" if impairment.peer else "0.0.0.0/0"
        match = ["protocol", "ip", "pref", str(number), "u32", "match", "ip", "dst", to, "flowid", f"1:{number:x}"]
        _tc(end, "filter", "add", "dev", device, "parent", "1:", *match)

    def repair(self, node: Node, impairment: Bandwidth) -> None:
        end, number = self._links[node.name], self._number(impairment)
        device = _device(end)
        classes = _classes(end, device)
        if classes.get(number) != impairment.bytes_per_s:
            return
        if len(classes) == 1:
            _tc(end, "qdisc", "del", "dev", device, "root")
            return
        _tc(end, "filter", "del", "dev", device, "parent", "1:", "pref", str(number))
        _tc(end, "class", "del", "dev", device, "classid", f"1:{number:x}")

    def impaired(self, node: Node, impairment: Bandwidth) -> tuple[Tristate, str]:
        """By how long a transfer takes; without its class nothing limits it."""
        end = self._links[node.name]
        classes = _classes(end, _device(end))
        if classes.get(self._number(impairment)) != impairment.bytes_per_s:
            return Tristate.NO, "the limit is gone"
        peers = [impairment.peer] if impairment.peer else [e.name for e in self._links.besides(node.name)]
        peer = next((p for p in peers if impairment.peer or self._number_of(p) not in classes), None)
        if peer is None:
            return Tristate.UNKNOWN, "every peer has a limit of its own"
        size = int(impairment.bytes_per_s * MEASURE_S) + 2 * _burst(impairment)
        took_s = self._links.transfer(node.name, peer, size, connect_s=_CONNECT_S, limit_s=2 * MEASURE_S)
        if took_s is None:  # others share the limit
            return Tristate.YES, f"{size} bytes to {peer} take more than {2 * MEASURE_S:g} s"
        seen = f"{size} bytes to {peer} took {took_s:.2f} s"
        return (Tristate.YES if took_s >= SEEN_SHARE * MEASURE_S else Tristate.NO), seen

    def _number(self, impairment: Bandwidth) -> int:
        """Of class and filter: from the peer's address, so that any process finds it; anybody's filter is asked last."""
        return _ANYBODY if impairment.peer is None else self._number_of(impairment.peer)

    def _number_of(self, peer: str) -> int:
        *_, third, fourth = map(int, self._links[peer].address.split("."))
        return (third << 8 | fourth) & 0x7FFF or 1


def _burst(impairment: Bandwidth) -> int:
    return max(impairment.bytes_per_s // 100, BURST_MIN_BYTES)


def _device(end: LinkEnd) -> str:
    """The device with the end's address."""
    told = _run(end, "ip", "-json", "-4", "address", "show")
    for device in json.loads(told):
        if any(address.get("local") == end.address for address in device.get("addr_info", ())):
            return str(device["ifname"])
    raise HarnessFailed(f"{end.name} has no device with the address {end.address}.")


def _classes(end: LinkEnd, device: str) -> dict[int, int]:
    """Number of each of our classes → bytes per second."""
    found = {}
    for line in _run(end, "tc", "class", "show", "dev", device).splitlines():
        words = line.split()
        if words[:2] == ["class", "htb"]:
            found[int(words[2].partition(":")[2], 16)] = _bytes_per_s(words[words.index("rate") + 1])
    return found


def _bytes_per_s(text: str) -> int:
    """`800Kbit` of tc: 100000 bytes per second."""
    units = {"Tbit": 10**12, "Gbit": 10**9, "Mbit": 10**6, "Kbit": 10**3, "bit": 1}
    unit = next(unit for unit in units if text.endswith(unit))
    return round(float(text.removesuffix(unit)) * units[unit] / 8)


def _tc(end: LinkEnd, *arguments: str) -> None:
    _run(end, "tc", *arguments)


def _run(end: LinkEnd, *argv: str) -> str:
    done = end.network.run_as_root(argv)
    if done.returncode:
        raise HarnessFailed(f"{' '.join(argv[:3])} of {end.name} refused: {done.stderr.strip()[-300:]}")
    return done.stdout
