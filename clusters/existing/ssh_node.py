"""One Kafka server of the ssh backend, on a machine of its own: the connection to the machine, its firewall, and the server.

The machine runs commands with a limit, as root where that is needed, and gives files by sftp. Its host key must be in the
known_hosts file that the trial names: a key that is not there, or another one, is refused.
"""

import posixpath
import re
import shlex
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from prozess.clusters.impairers import HasParts, Parts
from prozess.harness.clock import Clock, wait_until
from prozess.harness.config.existing_clusters import SshNodeOptions, SshOptions
from prozess.harness.errors import BadInput, ClusterFailed, HarnessFailed, NotReady
from prozess.harness.installation import of_an_extra
from prozess.harness.interfaces import Node, NodeState
from prozess.harness.processes import SHUTTING_DOWN, ProcessStatus, parse_stat
from prozess.harness.schema import Tristate

with of_an_extra("backend 'ssh'"):
    import paramiko

CONNECT_TIMEOUT_S = 15.0
_PATH = 'PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; export PATH; LC_ALL=C; export LC_ALL; '
"""A shell without login has no sbin on its PATH, and the words of tools are read here in English."""


class SshHost:
    """An ssh connection to one machine, opened when it is first needed and again if it broke. Safe from many threads."""

    def __init__(self, node: SshNodeOptions, options: SshOptions) -> None:
        self._node, self._options = node, options
        self._client: paramiko.SSHClient | None = None
        self._lock = threading.RLock()

    @property
    def where(self) -> str:
        """Returns the machine's name and address, for errors."""
        return f"{self._node.name} ({self._node.host}:{self._node.port})"

    def run(self, script: str, *, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a shell script there, as the user who logs in. The caller judges what it returns.

        HarnessFailed if it cannot be run, or does not end in time."""
        return self._execute("sh -s", script, timeout_s)

    def run_with_rights(self, script: str, *, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a shell script there by the trial's `sudo`. It is no argument, so that no pattern of `pgrep` finds it."""
        return self._execute(f"{self._options.sudo} sh -s".strip(), script, timeout_s)

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command there by the trial's `sudo`, as `RunAsRoot` says."""
        return self._execute(f"{_PATH}{self._options.sudo} {shlex.join(argv)}", text or "", None)

    def fetch(self, remote: str, into: Path) -> None:
        """Copies a file, or a directory with the files in it. OSError if it cannot be read."""
        with self._sftp() as sftp:
            if not stat.S_ISDIR(sftp.stat(remote).st_mode or 0):
                into.parent.mkdir(parents=True, exist_ok=True)
                sftp.get(remote, str(into))
                return
            into.mkdir(parents=True, exist_ok=True)
            for entry in sftp.listdir_attr(remote):
                if stat.S_ISREG(entry.st_mode or 0):
                    try:
                        sftp.get(posixpath.join(remote, entry.filename), str(into / entry.filename))
                    except FileNotFoundError:
                        continue  # rolled or deleted meanwhile

    def names_in(self, remote: str) -> list[str]:
        """The names in a directory. OSError if it cannot be read."""
        with self._sftp() as sftp:
            return [str(name) for name in sftp.listdir(remote)]

    def close(self) -> None:
        """Closes the connection. Safe to repeat; the next command opens it again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _execute(self, command: str, text: str, timeout_s: float | None) -> subprocess.CompletedProcess[str]:
        limit_s = self._options.command_timeout_s if timeout_s is None else timeout_s
        try:
            channel = self._transport().open_session(timeout=CONNECT_TIMEOUT_S)
            try:
                channel.settimeout(limit_s)
                channel.exec_command(command)
                channel.sendall(text.encode())
                channel.shutdown_write()
                # Not the end of its output: what it leaves running may hold on to that.
                if not channel.status_event.wait(limit_s):
                    raise TimeoutError
                code = channel.recv_exit_status()
                return subprocess.CompletedProcess(command, code, _received(channel), _received(channel, errors=True))
            finally:
                channel.close()
        except TimeoutError as error:
            raise HarnessFailed(f"{self.where}: {command!r} did not end within {limit_s:g} s.") from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            self.close()
            raise HarnessFailed(f"{self.where}: {command!r} could not be run: {error}.") from error

    @contextmanager
    def _sftp(self) -> Iterator[paramiko.SFTPClient]:
        try:
            client = paramiko.SFTPClient.from_transport(self._transport())
        except (paramiko.SSHException, EOFError) as error:
            raise HarnessFailed(f"{self.where}: no sftp: {error}.") from error
        assert client is not None
        try:
            yield client
        finally:
            client.close()

    def _transport(self) -> paramiko.Transport:
        with self._lock:
            transport = self._client.get_transport() if self._client is not None else None
            if transport is None or not transport.is_active():
                self.close()
                self._client = self._connect()
                transport = self._client.get_transport()
            assert transport is not None
            return transport

    def _connect(self) -> paramiko.SSHClient:
        known = Path(self._options.known_hosts).expanduser()
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            client.load_host_keys(str(known))
            client.connect(
                self._node.host,
                port=self._node.port,
                username=self._options.user,
                key_filename=None if self._options.key_file is None else str(Path(self._options.key_file).expanduser()),
                timeout=CONNECT_TIMEOUT_S,
                banner_timeout=CONNECT_TIMEOUT_S,
                auth_timeout=CONNECT_TIMEOUT_S,
            )
        except FileNotFoundError as error:
            client.close()
            raise BadInput(
                f"{self.where}: {error.filename} does not exist. Set ssh.known_hosts and ssh.key_file."
            ) from error
        except paramiko.BadHostKeyException as error:
            client.close()
            raise BadInput(
                f"{self.where} has another host key than {known} says: it may be another machine. If it was set up anew, "
                "put its new key there."
            ) from error
        except paramiko.AuthenticationException as error:
            client.close()
            raise BadInput(f"{self.where} refuses the login: {error}. Set ssh.user and ssh.key_file.") from error
        except (paramiko.SSHException, OSError) as error:
            client.close()
            if "not found in known_hosts" in str(error):
                raise BadInput(
                    f"The host key of {self.where} is not in {known}. Compare it with the machine's own, and put it there "
                    f"(`ssh-keyscan -p {self._node.port} {self._node.host}` prints it)."
                ) from error
            raise HarnessFailed(f"{self.where} cannot be reached: {error}.") from error
        return client


def _received(channel: paramiko.Channel, *, errors: bool = False) -> str:
    """The output that has come so far; all of it is there once the exit status is (RFC 4254, 6.10)."""
    ready = channel.recv_stderr_ready if errors else channel.recv_ready
    receive = channel.recv_stderr if errors else channel.recv
    found = b""
    channel.settimeout(0.5)
    while ready() or not channel.eof_received:
        try:
            if not (data := receive(65536)):
                break
        except TimeoutError:
            break
        found += data
    return str(found.decode(errors="replace"))


# Rules of one host's firewall that are ours: what drops a peer's packets, and what counts those that arrive.
#
# They are in a chain whose name says whose they are, jumped to before any other rule of INPUT, so that everything can
# be taken away without knowing what was put there. It needs no more of the host than to run `iptables` there as root.


CHAIN = "PROZESS"
PROBE_PORT = 9099
"""The port of the datagrams that are counted; nobody needs to listen there."""
_COUNT = re.compile(r"^\[(?P<packets>\d+):\d+\] -A " + CHAIN + r" (?P<rule>.*)$")


class RunAsRoot(Protocol):
    """Runs a command in the host's network, as root."""

    def __call__(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]: ...


class Firewall:
    """Our rules in the firewall of the host that `run_as_root` runs on. `name`: for errors."""

    def __init__(self, run_as_root: RunAsRoot, *, name: str) -> None:
        self._run, self._name = run_as_root, name

    def problem(self) -> str | None:
        """Returns why iptables cannot be used there; None if it can. Changes nothing."""
        done = self._run(["iptables", "-w", "10", "-S", "INPUT"])
        return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["iptables does not work"])[-1]

    def drop_from(self, address: str) -> None:
        """Drops what comes from that address, from now on. Safe to repeat."""
        self.ensure_chain()
        rule = ["-s", address, "-j", "DROP"]
        if not self._holds(["-C", CHAIN, *rule]):
            self._do(["-I", CHAIN, "1", *rule])

    def accept_from(self, address: str) -> None:
        """Undoes `drop_from`; safe when nothing is dropped."""
        self._delete(CHAIN, "-s", address, "-j", "DROP")

    def count_from(self, address: str) -> None:
        """Counts the datagrams of that address to the probe's port from now on, if no rule of ours drops them."""
        self.ensure_chain()
        self._do(["-A", CHAIN, *_counted(address)])

    def counted(self, address: str) -> int | None:
        """Returns how many came since `count_from`, or None if nobody counts, and stops counting."""
        done = self._run(["iptables-save", "-c", "-t", "filter"])
        found = None
        for line in done.stdout.splitlines():
            match = _COUNT.match(line)
            if match and f"{address}/32" in match["rule"] and f"--dport {PROBE_PORT}" in match["rule"]:
                found = int(match["packets"]) + (found or 0)
        self._delete(CHAIN, *_counted(address))
        return found

    def remove(self) -> None:
        """Takes away all our rules; safe when there are none."""
        self._delete("INPUT", "-j", CHAIN)
        if self._holds(["-S", CHAIN]):
            self._do(["-F", CHAIN])
            self._do(["-X", CHAIN])

    def ensure_chain(self) -> None:
        """Makes our chain if it is not there, and has it asked before all other rules. Safe to repeat."""
        if self._holds(["-C", "INPUT", "-j", CHAIN]):
            return
        if not self._holds(["-S", CHAIN]):
            self._do(["-N", CHAIN])
        self._do(["-I", "INPUT", "1", "-j", CHAIN])

    def _delete(self, chain: str, *rule: str) -> None:
        """Deletes every one of these rules, if there are any."""
        while self._holds(["-D", chain, *rule]):
            pass

    def _holds(self, arguments: Sequence[str]) -> bool:
        """Does iptables say yes? It exits with 1, or 2 in its nft variant, for no such rule or chain, and else for errors."""
        done = self._run(["iptables", "-w", "10", *arguments])
        if done.returncode not in (0, 1, 2):
            raise HarnessFailed(f"iptables on {self._name} failed: {done.stderr.strip()[-300:]}")
        return done.returncode == 0

    def _do(self, arguments: Sequence[str]) -> None:
        done = self._run(["iptables", "-w", "10", *arguments])
        if done.returncode:
            raise HarnessFailed(f"iptables {' '.join(arguments)} on {self._name} failed: {done.stderr.strip()[-300:]}")


def _counted(address: str) -> list[str]:
    return ["-s", f"{address}/32", "-p", "udp", "-m", "udp", "--dport", str(PROBE_PORT)]


# The server: handled by commands that the trial gives.


SIGNAL_TIMEOUT_S = 30.0
START_TIMEOUT_S = 60.0
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
    """The state of each thread as a letter (proc(5))."""
    shutting_down: bool = False
    """Has it the thread that a JVM has while it shuts down?"""

    @property
    def paused(self) -> bool:
        """Is every thread in state T? Only then is a group stop complete."""
        return bool(self.states) and set(self.states) <= set("Tt")


class SshNode(HasParts):
    """A Kafka server on a machine reached by ssh. Methods may be called from any thread."""

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
        """The directory here into which its files are fetched when the run ends."""
        return self._data

    @property
    def remote_data(self) -> str | None:
        """Its data directory there; None if the trial does not say."""
        directory = self._node.data_directory or self._options.data_directory
        return None if directory is None else self.filled(directory).rstrip("/")

    @property
    def os_pid(self) -> int | None:
        """The pid of the server on its own machine; None if it does not run."""
        found = self._server()
        return None if found is None else found.pid

    def state(self) -> NodeState:
        found = self._server()
        if found is None:
            return NodeState.STOPPED
        if found.paused:
            return NodeState.PAUSED
        return NodeState.STOPPING if found.shutting_down else NodeState.RUNNING

    def _server(self) -> _Server | None:
        what = 'cat "/proc/$p/stat"; cat "/proc/$p/task/"*/stat'
        found: list[ProcessStatus] = []
        for line in self._with_server(what).splitlines():
            with suppress(ValueError, IndexError):  # it ended while it was looked at
                found.append(parse_stat(line))
        if not found or found[0].state in "ZX":
            return None
        threads = found[1:]
        ending = any(thread.name == SHUTTING_DOWN for thread in threads)
        return _Server(found[0].identity.pid, "".join(thread.state for thread in threads), ending)

    def _with_server(self, what: str) -> str:
        """Runs `what` with the server's process as `$p`, if there is one, and returns what it prints.

        The process is found and handled in one script, so that its pid cannot become another's in between. ClusterFailed if
        the pattern matches several: nobody could say which one is meant."""
        script = _SERVER.format(pattern=shlex.quote(self._pattern), what="{ " + what + "; }", several=_SEVERAL)
        done = self.host.run_with_rights(script)
        if done.returncode == _SEVERAL:
            pids = done.stdout.split()
            raise ClusterFailed(
                f"{self.name}: pid_pattern {self._pattern!r} matches {len(pids)} processes there ({', '.join(pids)}). Make "
                "it match the server alone."
            )
        if done.returncode:
            raise ClusterFailed(f"{self.name}: its process cannot be inspected: {_last(done.stderr, done.stdout)}")
        return done.stdout

    @property
    def _pattern(self) -> str:
        return self.filled(self._node.pid_pattern or self._options.pid_pattern)

    def filled(self, command: str) -> str:
        """Returns a command with the node's own id, name and host filled in."""
        for key, value in (("{id}", str(self.node_id)), ("{name}", self.name), ("{host}", self._node.host)):
            command = command.replace(key, value)
        return command

    # Process

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
            try:
                done = self.host.run_with_rights(self.filled(command) + "\n", timeout_s=timeout_s)
            except HarnessFailed as error:
                if self.state() is NodeState.STOPPED:
                    return
                if not isinstance(error.__cause__, TimeoutError):
                    raise
                awaited = f"{self.name} to shut down by {command!r}"
                raise NotReady(awaited=awaited, timeout_s=timeout_s, last_seen=f"process {self.state()}") from error
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
        resumed = (NodeState.RUNNING, NodeState.STOPPING, NodeState.STOPPED)
        self._await(resumed, f"{self.name} to run again", SIGNAL_TIMEOUT_S)

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

    # Network

    def block(self, source: Node) -> None:
        self.firewall.drop_from(source.address)

    def unblock(self, source: Node) -> None:
        self.firewall.accept_from(source.address)

    def receives_from(self, source: Node) -> Tristate:
        """Sends datagrams from the source, and lets this node's firewall count them behind the rules that drop them."""
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
    return lines[-1] if lines else "it printed nothing"
