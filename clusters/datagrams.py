"""Whether datagrams of one node arrive at another: a TCP connection cannot tell which way it fails.

Each node has a socket where its server listens, which works while the server is dead or paused.
"""

import socket
import threading
from collections.abc import Callable

from harness.schema import Tristate

PROBE_PORT = 9099
PROBE_TRIES, PROBE_TIMEOUT_S = 3, 0.1


class Probe:
    """The socket of one node. Safe from many threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._asked = 0

    def open(self, bind: Callable[[], socket.socket]) -> None:
        """`bind`: makes the socket, where the node is."""
        self.close()
        self._socket = bind()

    def close(self) -> None:
        """Safe to repeat."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def hears(self, source: "Probe", *, address: str, source_address: str) -> Tristate:
        """Does a datagram of `source` arrive at `address` now?"""
        with self._lock:
            ours, theirs = self._socket, source._socket
            if ours is None or theirs is None:
                return Tristate.UNKNOWN
            try:
                for _ in range(PROBE_TRIES):
                    self._asked += 1
                    asked = f"{source._name}>{self._name}:{self._asked}".encode()
                    theirs.sendto(asked, (address, ours.getsockname()[1]))
                    if _arrives(ours, asked, (source_address, theirs.getsockname()[1])):
                        return Tristate.YES
            except OSError:
                return Tristate.UNKNOWN  # not sent, or no socket any more: nothing was observed
            return Tristate.NO


def bound(address: str, port: int = PROBE_PORT) -> socket.socket:
    """A socket for datagrams there, in the network namespace of the thread that calls."""
    found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.settimeout(PROBE_TIMEOUT_S)
    found.bind((address, port))
    return found


def _arrives(ours: socket.socket, asked: bytes, sender: tuple[str, int]) -> bool:
    while True:
        try:
            told, address = ours.recvfrom(200)
        except TimeoutError:
            return False
        if told == asked and address == sender:  # else a late one of an earlier probe
            return True
