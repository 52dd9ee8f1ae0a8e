"""One toxiproxy server in the network namespace of one end, and what it is asked for, through the package toxiproxy-python.

The package speaks to 127.0.0.1:8474 and knows no time limits: it is used inside the namespace, where that address is the
namespace's own, in a thread that is waited for only so long.
"""

import os
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any, TypeVar

from toxiproxy import Toxiproxy
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from clusters.links import LinkEnd
from clusters.orphans import recording_command
from clusters.toxiproxy import toxiproxy_server
from harness.clock import Clock, wait_until
from harness.errors import HarnessFailed, MissingTool

T = TypeVar("T")
API = ("127.0.0.1", 8474)
ASK_S = 10.0
START_S = 15.0


class ToxiproxyServer:
    """Of one end; started when it is first needed."""

    def __init__(self, end: LinkEnd, *, log: Path, clock: Clock, record_pids: Path | None = None) -> None:
        """`record_pids`: where pid and start time go before it runs; None where the sandbox's end is its end."""
        self._end, self._log, self._clock, self._record_pids = end, log, clock, record_pids
        self._process: subprocess.Popen[bytes] | None = None

    def answers(self) -> bool:
        """Does one run there, whoever started it?"""
        return self._end.network.call(_listens)

    def start(self) -> None:
        """Safe where one runs. MissingTool if there is none; NotReady if it does not answer."""
        if self.answers():
            return
        program = toxiproxy_server()
        if program is None:
            raise MissingTool("toxiproxy is neither on PATH nor in the cache; `prozess doctor` says more.")
        self._process = self._end.network.call(lambda: self._fork(program))
        wait_until(
            self.answers,
            awaited=f"toxiproxy of {self._end.name} to answer",
            timeout_s=START_S,
            clock=self._clock,
            last_seen=lambda: f"its exit code is {self._process.poll() if self._process else None}",
        )

    def stop(self) -> None:
        """End the one that was started here. Safe to repeat."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def ask(self, question: Callable[[Any], T]) -> T:
        """What `question` returns of a `toxiproxy.Toxiproxy`. HarnessFailed if it cannot be asked."""
        pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toxiproxy")
        try:
            # The worker is born in the namespace, as its parent thread is there.
            return self._end.network.call(lambda: pool.submit(question, Toxiproxy()).result(ASK_S))
        except FutureTimeout as error:
            raise HarnessFailed(f"toxiproxy of {self._end.name} gave no answer within {ASK_S:g} s.") from error
        except (OSError, ValueError, KeyError, InvalidToxic, NotFound, ProxyExists) as error:
            raise HarnessFailed(f"toxiproxy of {self._end.name}: {type(error).__name__}: {error}.") from error
        finally:
            pool.shutdown(wait=False)

    def _fork(self, program: Path) -> subprocess.Popen[bytes]:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            command = [str(program), "-host", API[0], "-port", str(API[1])]
            if self._record_pids is not None:
                command = recording_command(command, name=f"toxiproxy of {self._end.name}", into=self._record_pids)
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "LOG_LEVEL": "error"},
                start_new_session=True,
            )


def _listens() -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(API) == 0
