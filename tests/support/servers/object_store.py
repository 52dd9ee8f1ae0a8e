"""A server with S3's protocol on this machine, for tests: S3Proxy over a folder. On loopback, on a port that the kernel
chooses; its jars are fetched once, and are what their lock says."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests
from filelock import FileLock
from pyarrow import fs

from prozess.clusters.install.locks import parse_lock
from prozess.clusters.install.repository import fetch_locked, repository_of
from prozess.clusters.install.tools import find_java
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.installation import make_cache
from tests.support.paths import ROOT

LOCKS = ROOT / "tests" / "support" / "data"
SERVER, CONNECTOR = "s3proxy-2.2.0.lock", "hadoop-aws-3.5.0.lock"
BUCKET = "runs"
ACCESS_KEY, SECRET_KEY = "somebody", "only-for-tests"
STARTS_TIMEOUT_S = 120.0
PLAIN_CHECKSUMS = {"AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_REQUIRED"}
"""The environment in which clients write to it: S3Proxy 2 does not know the checksums that AWS's clients send since 2025."""


@dataclass(frozen=True)
class ObjectStore:
    """A server that runs, with one empty bucket, and the folder in which it keeps it."""

    endpoint: str
    folder: Path

    @property
    def filesystem(self) -> fs.S3FileSystem:
        """The same server, for whoever is allowed in."""
        return fs.S3FileSystem(access_key=ACCESS_KEY, secret_key=SECRET_KEY, endpoint_override=self.endpoint)

    @property
    def environment(self) -> dict[str, str]:
        """What programs that know AWS are informed of it."""
        return PLAIN_CHECKSUMS | {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }

    @property
    def settings(self) -> dict[str, str]:
        """What Hadoop's s3a connector is informed of it."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.access.key": ACCESS_KEY,
            "fs.s3a.secret.key": SECRET_KEY,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        }

    def put(self, directory: Path, name: str) -> str:
        """Copies a run there, and returns its URI."""
        fs.copy_files(str(directory), f"{BUCKET}/{name}", destination_filesystem=self.filesystem)
        return f"s3a://{BUCKET}/{name}"


def jars(lock: str) -> list[Path]:
    """The jars of the server, or of Hadoop's connector to such servers, fetched if they are not in the cache."""
    locked = parse_lock((LOCKS / lock).read_text(encoding="utf-8"))
    directory = make_cache("test-servers", lock.removesuffix(".lock"))
    with FileLock(directory / "fetching", timeout=300):
        fetch_locked(locked, directory, repository_of(), what=lock.removesuffix(".lock"))
    return [directory / jar.coordinates.file_name for jar in locked]


@contextmanager
def object_store(directory: Path) -> Iterator[ObjectStore]:
    """Runs the server until the block is left."""
    folder, log, properties = directory / "buckets", directory / "s3.log", directory / "s3.properties"
    (folder / BUCKET).mkdir(parents=True)
    settings = {
        "s3proxy.endpoint": "http://127.0.0.1:0",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": ACCESS_KEY,
        "s3proxy.credential": SECRET_KEY,
        "s3proxy.ignore-unknown-headers": "true",
        "jclouds.provider": "filesystem",
        "jclouds.filesystem.basedir": str(folder),
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    path = ":".join(map(str, jars(SERVER)))
    words = [str(find_java().executable), "-XX:+UseSerialGC", "-Xmx256m", "-DLOG_LEVEL=info", "-cp", path]
    words += ["org.gaul.s3proxy.Main"]
    with log.open("wb") as output:
        server = subprocess.Popen([*words, "--properties", str(properties)], stdout=output, stderr=output)
    try:
        yield ObjectStore(_endpoint(server, log), folder)
    finally:
        server.kill()
        server.wait(timeout=20)


def _endpoint(server: "subprocess.Popen[bytes]", log: Path) -> str:
    def listening() -> str | None:
        text = log.read_text(errors="replace")
        assert server.poll() is None, f"S3Proxy ended with {server.returncode}: {text[-2000:]}"
        found = re.search(r"Started .*\{(127\.0\.0\.1:\d+)\}", text)
        return found[1] if found else None

    where = wait_until(listening, awaited="S3Proxy to listen", timeout_s=STARTS_TIMEOUT_S, clock=SystemClock())
    endpoint = f"http://{where}"
    assert requests.get(endpoint, timeout=60).status_code == 403, "whoever does not say who he is stays outside"
    return endpoint
