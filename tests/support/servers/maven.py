"""A Maven repository on loopback, which can fail in the ways that real ones do."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from prozess.clusters.install.locks import Coordinates, LockedJar


class Served(http.server.ThreadingHTTPServer):
    """A Maven repository: path → content. `ends_after`: how many bytes of a body it sends before it breaks off."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.status: dict[str, int] = {}
        self.ends_after: dict[str, int] = {}
        self.resumes = True
        self.login: str | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/maven2"

    def lock(self, **jars: bytes) -> tuple[LockedJar, ...]:
        """Serve these jars, and say what they are."""
        locked = [self.add(Coordinates("org.example", name, "1.0"), content) for name, content in jars.items()]
        return tuple(sorted(locked, key=lambda jar: jar.coordinates.file_name))

    def add(self, coordinates: Coordinates, content: bytes) -> LockedJar:
        """Serve a jar, and say what it is."""
        folder = f"/maven2/{coordinates.group.replace('.', '/')}/{coordinates.artifact}/{coordinates.version}"
        self.content[f"{folder}/{coordinates.file_name}"] = content
        return LockedJar(coordinates, len(content), hashlib.sha256(content).hexdigest())


class Handler(http.server.BaseHTTPRequestHandler):
    server: Served

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        span = self.headers.get("Range")
        self.server.asked.append((name, span))
        content = self.server.content.get(self.path)
        refused = self.server.login is not None and self.headers.get("Authorization") != self.server.login
        status = self.server.status.get(name) or (401 if refused else 404 if content is None else 200)
        if status != 200 or content is None:
            self.send_response(status)
            self.send_header("WWW-Authenticate", 'Basic realm="of jars"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = int(span.removeprefix("bytes=").rstrip("-")) if span and self.server.resumes else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : start + self.server.ends_after.get(name, len(content))])
        self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Served]:
    """A repository that answers until the block ends."""
    with Served() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(timeout=10)
