"""One machine as the ssh backend reaches it: commands with a limit, as root where that is needed, and files by sftp.

Its host key must be in the known_hosts file that the trial names: a key that is not there, or another one, is refused.
"""

import posixpath
import shlex
import stat
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paramiko

from harness.errors import BadInput, HarnessFailed
from harness.remote_options import SshNodeOptions, SshOptions

CONNECT_TIMEOUT_S = 15.0
_PATH = 'PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; export PATH; LC_ALL=C; export LC_ALL; '
"""A shell without login has no sbin; and what tools say is read here."""


class SshHost:
    """A connection, opened when it is first needed, and again if it broke. Safe from many threads."""

    def __init__(self, node: SshNodeOptions, options: SshOptions) -> None:
        self._node, self._options = node, options
        self._client: paramiko.SSHClient | None = None
        self._lock = threading.RLock()

    @property
    def where(self) -> str:
        """For errors."""
        return f"{self._node.name} ({self._node.host}:{self._node.port})"

    def run(self, script: str, *, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run a script of sh there, as who logs in. What it returns is the caller's to judge; HarnessFailed if it cannot be
        run, or does not end in time."""
        return self._execute("sh -s", script, timeout_s)

    def run_with_rights(self, script: str, *, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
        """The same, with the trial's `sudo` before it. The script is no argument: no pattern of `pgrep` finds it."""
        return self._execute(f"{self._options.sudo} sh -s".strip(), script, timeout_s)

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command there, with the trial's `sudo` before it: see `clusters.firewall.RunAsRoot`."""
        return self._execute(f"{_PATH}{self._options.sudo} {shlex.join(argv)}", text or "", None)

    def fetch(self, remote: str, into: Path) -> None:
        """Copy a file or a directory with the files in it. OSError if it cannot be read."""
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
        """What is in a directory. OSError if it cannot be read."""
        with self._sftp() as sftp:
            return [str(name) for name in sftp.listdir(remote)]

    def close(self) -> None:
        """Safe to repeat; what is asked afterwards opens it again."""
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
            raise BadInput(f"{self.where} does not let us in: {error}. Set ssh.user and ssh.key_file.") from error
        except (paramiko.SSHException, OSError) as error:
            client.close()
            if "not found in known_hosts" in str(error):
                raise BadInput(
                    f"The host key of {self.where} is not in {known}. Compare it with the machine's own, and put it there "
                    f"(`ssh-keyscan -p {self._node.port} {self._node.host}` says it)."
                ) from error
            raise HarnessFailed(f"{self.where} cannot be reached: {error}.") from error
        return client


def _received(channel: Any, *, errors: bool = False) -> str:  # noqa: ANN401 - paramiko.Channel
    """What has come so far; its exit status came after it (RFC 4254, 6.10: it is sent once the command ended)."""
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
