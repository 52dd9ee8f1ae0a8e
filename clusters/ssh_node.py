"""One Kafka server of the ssh backend: on a machine of its own, handled by commands that the trial gives."""

import shlex
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clusters.firewall import PROBE_PORT, Firewall
from clusters.impairers import HasParts, Parts
from clusters.ssh_host import SshHost
from harness.clock import Clock, wait_until
from harness.errors import BadInput, ClusterFailed
from harness.processes import ProcessStatus, parse_stat
from harness.protocols import Node, NodeState
from harness.remote_options import SshNodeOptions, SshOptions
from harness.schema import Tristate

SIGNAL_TIMEOUT_S = 30.0
START_TIMEOUT_S = 60.0
PROBES = 3
_INTERVAL_S = 0.1
_SEVERAL = 9
# A child that has not become another program yet is its parent once more: only the eldest count.
_SERVER = """
all=" $(pgrep -f -- {pattern} | tr '\\n' ' ') "
found=
for p in $all; do
    parent=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$p/status" 2>/dev/null) || continue
    case "$all" in *" $parent "*) continue ;; esac
    found="$found $p"
done
set -- $found
[ $# -le 1 ] || {{ echo "$@"; exit {several}; }}
for p; do {what}; done
true
"""
# Three, since any datagram may be lost. bash's own redirection: no tool of the machine is needed beyond it.
_SEND = "for i in 1 2 3; do bash -c 'printf probe > /dev/udp/{address}/{port}' || exit 3; done"


@dataclass(frozen=True, slots=True)
class _Server:
    """The server's process, as it was found."""

    pid: int
    states: str
    """The letter of each thread (proc(5))."""

    @property
    def paused(self) -> bool:
        """A group stop is complete only when every thread is in state T."""
        return bool(self.states) and set(self.states) <= set("Tt")


class SshNode(HasParts):
    """`harness.protocols.Node`. Methods may be called from any thread."""

    def __init__(
        self, node: SshNodeOptions, options: SshOptions, data: Path, *, host: SshHost, parts: Parts, clock: Clock
    ) -> None:
        self._node, self._options, self._data = node, options, data
        self._parts, self._clock = parts, clock
        self.host = host
        self.firewall = Firewall(host.run_as_root, name=host.where)

    @property
    def name(self) -> str:
        return self._node.name

    @property
    def node_id(self) -> int:
        return self._node.id

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(self._node.roles)

    @property
    def address(self) -> str:
        try:
            return socket.gethostbyname(self._node.address or self._node.host)
        except OSError as error:
            raise BadInput(
                f"{self.name}: {self._node.address or self._node.host!r} has no address: {error}."
            ) from error

    @property
    def data_directory(self) -> Path:
        """Here, where its files are fetched to when the run ends."""
        return self._data

    @property
    def remote_data(self) -> str | None:
        """Its data directory there; None = the trial does not say."""
        directory = self._node.data_directory or self._options.data_directory
        return None if directory is None else self.filled(directory).rstrip("/")

    @property
    def os_pid(self) -> int | None:
        """On its own machine."""
        found = self._server()
        return None if found is None else found.pid

    def state(self) -> NodeState:
        found = self._server()
        if found is None:
            return NodeState.STOPPED
        return NodeState.PAUSED if found.paused else NodeState.RUNNING

    def _server(self) -> _Server | None:
        what = 'cat "/proc/$p/stat"; cat "/proc/$p/task/"*/stat'
        found: list[ProcessStatus] = []
        for line in self._with_server(what).splitlines():
            with suppress(ValueError, IndexError):  # it ended while it was looked at
                found.append(parse_stat(line))
        if not found or found[0].state in "ZX":
            return None
        return _Server(found[0].identity.pid, "".join(thread.state for thread in found[1:]))

    def _with_server(self, what: str) -> str:
        """Do it with the server's process, `$p`, if there is one; what that said. Found and handled in one script: there is
        no time in which the pid could become another's. ClusterFailed if the pattern matches several: nobody could tell
        which one is meant."""
        script = _SERVER.format(pattern=shlex.quote(self._pattern), what="{ " + what + "; }", several=_SEVERAL)
        done = self.host.run_with_rights(script)
        if done.returncode == _SEVERAL:
            pids = done.stdout.split()
            raise ClusterFailed(
                f"{self.name}: pid_pattern {self._pattern!r} matches {len(pids)} processes there ({', '.join(pids)}). Make "
                "it match the server alone."
            )
        if done.returncode:
            raise ClusterFailed(f"{self.name}: its process cannot be looked at: {_last(done.stderr, done.stdout)}")
        return done.stdout

    @property
    def _pattern(self) -> str:
        return self.filled(self._node.pid_pattern or self._options.pid_pattern)

    def filled(self, command: str) -> str:
        """With the node's own id, name and host."""
        for key, value in (("{id}", str(self.node_id)), ("{name}", self.name), ("{host}", self._node.host)):
            command = command.replace(key, value)
        return command

    # --- process ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.state() is not NodeState.STOPPED:
            return
        command = self.filled(self._node.start or self._options.start)
        done = self.host.run_with_rights(command + "\n")
        if done.returncode:
            raise ClusterFailed(
                f"{self.name}: {command!r} failed ({done.returncode}): {_last(done.stderr, done.stdout)}"
            )
        self._await((NodeState.RUNNING, NodeState.PAUSED), f"{self.name} to run after {command!r}", START_TIMEOUT_S)

    def kill(self) -> None:
        self._signal("KILL")
        self._await((NodeState.STOPPED,), f"{self.name} to be gone after SIGKILL", SIGNAL_TIMEOUT_S)

    def stop(self, *, timeout_s: float) -> None:
        if self.state() is NodeState.STOPPED:
            return
        command = self._node.stop or self._options.stop
        if command is None:
            self._signal("TERM")
        else:
            done = self.host.run_with_rights(self.filled(command) + "\n", timeout_s=timeout_s)
            if done.returncode:
                raise ClusterFailed(f"{self.name}: {command!r} failed: {_last(done.stderr, done.stdout)}")
        self._await((NodeState.STOPPED,), f"{self.name} to shut down", timeout_s)

    def pause(self) -> None:
        self._signal("STOP")
        self._await(
            (NodeState.PAUSED, NodeState.STOPPED), f"every thread of {self.name} to be stopped", SIGNAL_TIMEOUT_S
        )

    def resume(self) -> None:
        self._signal("CONT")
        self._await((NodeState.RUNNING, NodeState.STOPPED), f"{self.name} to run again", SIGNAL_TIMEOUT_S)

    def _signal(self, name: str) -> None:
        self._with_server(f'kill -s {name} "$p"')

    def _await(self, wanted: Sequence[NodeState], awaited: str, timeout_s: float) -> None:
        last = "nothing"

        def reached() -> bool:
            nonlocal last
            last = self.state()
            return last in wanted

        wait_until(
            reached,
            awaited=awaited,
            timeout_s=timeout_s,
            clock=self._clock,
            last_seen=lambda: f"process {last}",
            interval_s=_INTERVAL_S,
        )

    # --- network ----------------------------------------------------------------------------------------------------

    def block(self, source: Node) -> None:
        self.firewall.drop_from(source.address)

    def unblock(self, source: Node) -> None:
        self.firewall.accept_from(source.address)

    def receives_from(self, source: Node) -> Tristate:
        """Datagrams are sent there by hand, and counted here by the firewall, behind the rules that drop them."""
        assert isinstance(source, SshNode), source
        self.firewall.count_from(source.address)
        try:
            sent = source.host.run(_SEND.format(address=self.address, port=PROBE_PORT))
        finally:
            counted = self.firewall.counted(source.address)
        if counted is None or (sent.returncode and not counted):
            return Tristate.UNKNOWN  # not sent, or not counted: nothing was observed
        return Tristate.YES if counted else Tristate.NO


def _last(*texts: str) -> str:
    lines = [line for text in texts for line in text.strip().splitlines()]
    return lines[-1] if lines else "it said nothing"
