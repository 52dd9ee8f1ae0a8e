"""One toxiproxy server out here, for one run of the attach backend, and its API (https://github.com/Shopify/toxiproxy).

On any free port: nothing else on this machine is ours. (The package toxiproxy-python knows no limits, and one server only.)
"""

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clusters.orphans import recording_command
from clusters.placements import first_port, free_ports
from clusters.toxiproxy import ensure_toxiproxy
from harness.clock import Clock, wait_until
from harness.errors import HarnessFailed

START_TIMEOUT_S = 20.0
ASK_TIMEOUT_S = 10.0


class Toxiproxy:
    """One server on 127.0.0.1, for one run. `pids`: where it is written down before it runs."""

    def __init__(self, *, pids: Path, log: Path, clock: Clock) -> None:
        server = ensure_toxiproxy()
        (port,) = free_ports(["127.0.0.1"], 1, first=first_port())
        self._api = f"http://127.0.0.1:{port}"
        with log.open("ab") as words:
            self._process = subprocess.Popen(
                recording_command([str(server), "-host", "127.0.0.1", "-port", str(port)], name="toxiproxy", into=pids),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env={**os.environ, "LOG_LEVEL": "error"},
                start_new_session=True,
            )
        try:
            wait_until(self._answers, awaited="toxiproxy", timeout_s=START_TIMEOUT_S, clock=clock, interval_s=0.02)
        except BaseException:
            self.close()
            raise

    def proxy(self, name: str, upstream: str) -> int:
        """A new proxy to `upstream`, HOST:PORT; the port on 127.0.0.1 where it listens."""
        made = self._ask(
            "POST", "/proxies", {"name": name, "listen": "127.0.0.1:0", "upstream": upstream, "enabled": True}
        )
        return int(str(made["listen"]).rpartition(":")[2])

    def enable(self, name: str, enabled: bool) -> None:
        """A disabled proxy has dropped its connections and takes none."""
        self._ask("POST", f"/proxies/{name}", {"enabled": enabled})

    def add(self, name: str, toxic: str, kind: str, *, stream: str, **attributes: float) -> None:
        """Safe to repeat: what is there under that name is changed."""
        wanted = {"name": toxic, "type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes}
        if toxic in self.toxics(name):
            self._ask("POST", f"/proxies/{name}/toxics/{toxic}", wanted)
        else:
            self._ask("POST", f"/proxies/{name}/toxics", wanted)

    def remove(self, name: str, toxic: str) -> None:
        """Safe when it is not there."""
        if toxic in self.toxics(name):
            self._ask("DELETE", f"/proxies/{name}/toxics/{toxic}")

    def toxics(self, name: str) -> Mapping[str, Mapping[str, Any]]:
        """Name → what the server says of it, of one proxy."""
        return {toxic["name"]: toxic for toxic in self._ask("GET", f"/proxies/{name}/toxics")}

    def close(self) -> None:
        """Safe to repeat."""
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise HarnessFailed(f"toxiproxy ended by itself ({self._process.returncode}).")
        try:
            self._ask("GET", "/version")
        except HarnessFailed:
            return False
        return True

    def _ask(self, method: str, path: str, value: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        request = urllib.request.Request(
            self._api + path,
            method=method,
            data=None if value is None else json.dumps(value).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "prozess"},
        )
        try:
            with urllib.request.urlopen(request, timeout=ASK_TIMEOUT_S) as answer:
                said = answer.read()
        except urllib.error.HTTPError as error:
            raise HarnessFailed(
                f"toxiproxy refuses {method} {path}: {error.read().decode(errors='replace')[:200]}"
            ) from error
        except OSError as error:
            raise HarnessFailed(f"toxiproxy does not answer {method} {path}: {error}.") from error
        try:
            return json.loads(said) if said else {}
        except ValueError:
            return said.decode(errors="replace")
