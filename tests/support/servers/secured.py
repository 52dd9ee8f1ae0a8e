"""Somebody else's cluster that wants clients to log in: three nodes on loopback, with a listener for each way to do so.

SASL    SASL_SSL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER (Kafka's own handler of unsecured tokens)
MUTUAL  SSL: who has no certificate of the authority is not let in
BARE    SASL_PLAINTEXT: as SASL

python -m tests.support.servers.secured DIRECTORY     # until its standard input ends; client files are in DIRECTORY
"""

import datetime
import ipaddress
import os
import secrets
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from prozess.clusters.install.kafka_jars import class_path, ensure_jars
from prozess.clusters.install.tools import find_java
from prozess.clusters.machine.archives import FORMAT_TIMEOUT_S, JVM_ENVIRONMENT, archive_flags, class_data_archive
from prozess.clusters.machine.server_properties import HEAP, JVM_FLAGS
from prozess.clusters.machine.servers import first_port, free_ports
from prozess.harness.clock import SystemClock, wait_until

VERSION = "4.4.0"
START_S, STOP_S = 90.0, 60.0
NODES = (1, 2, 3)
LISTENERS = ("SASL", "MUTUAL", "BARE", "INNER", "CONTROLLER")
PROTOCOLS = "SASL:SASL_SSL,MUTUAL:SSL,BARE:SASL_PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER = "alice"


class Authority:
    """Signs certificates; all of it is written as PEM into `directory`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory, self._key = directory, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"prozess test {name}")])
        own = self._builder(self._name, self._key.public_key())
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = own.sign(self._key, hashes.SHA256())
        self.path = self._write(f"{name}.pem", self._pem(self._certificate))

    def issue(self, name: str, *, password: str | None = None) -> tuple[Path, Path]:
        """(certificate, key), for loopback."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        built = self._builder(subject, key.public_key()).add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
        certificate = built.sign(self._key, hashes.SHA256())
        cipher = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        return (
            self._write(f"{name}.pem", self._pem(certificate)),
            self._write(f"{name}.key", key.private_bytes(*form, cipher)),
        )

    def _builder(self, subject, public_key):
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    @staticmethod
    def _pem(certificate) -> bytes:
        return certificate.public_bytes(serialization.Encoding.PEM)

    def _write(self, name: str, content: bytes) -> Path:
        path = self._directory / name
        path.write_bytes(content)
        return path


class SecuredCluster:
    """A context: it runs, and every secret of it is drawn anew."""

    def __init__(self, directory: Path, *, more: str = "") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self._more = directory, more
        self.password, self.key_password = secrets.token_hex(12), secrets.token_hex(12)
        self.authority = Authority(directory)
        self.certificate, self.key = self.authority.issue("client", password=self.key_password)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        found = free_ports(["127.0.0.1"], len(NODES) * len(LISTENERS), first=first_port())
        self._ports = {
            node: dict(zip(LISTENERS, found[i * len(LISTENERS) :], strict=False)) for i, node in enumerate(NODES)
        }

    def servers(self, listener: str) -> str:
        return ",".join(f"localhost:{self._ports[node][listener]}" for node in NODES)

    def login(self, mechanism: str, *, listener: str = "SASL") -> dict[str, str]:
        """librdkafka's properties."""
        if listener == "MUTUAL":
            return {
                "security.protocol": "SSL",
                "ssl.ca.location": str(self.authority.path),
                "ssl.certificate.pem": self.certificate.read_text(),
                "ssl.key.pem": self.key.read_text(),
                "ssl.key.password": self.key_password,
            }
        found = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(self.authority.path)}
        if listener == "BARE":
            found = {"security.protocol": "SASL_PLAINTEXT"}
        found["sasl.mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            return found | {
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": f"principal={USER}-{self.password} scope=a,b",
            }
        return found | {"sasl.username": USER, "sasl.password": self.password}

    def file(self, mechanism: str, *, listener: str = "SASL", **changed: str) -> Path:
        """The same as a .properties file. `changed`: other values, `_` for `.`."""
        properties = self.login(mechanism, listener=listener) | {k.replace("_", "."): v for k, v in changed.items()}
        path = self.directory / f"{listener}-{mechanism}-{len(changed)}.properties"
        escaped = {name: value.replace("\n", "\\n") for name, value in properties.items()}
        path.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
        return path

    def __enter__(self) -> "SecuredCluster":
        jars, java = ensure_jars(VERSION), find_java()
        archive = class_data_archive(VERSION, "broker", java, jars)
        self._command = [str(java.executable), *JVM_FLAGS, *HEAP["broker"], *archive_flags(archive)]
        self._class_path = class_path(jars)
        try:
            with ThreadPoolExecutor(2) as threads:
                list(threads.map(self._format, NODES))
            for node in NODES:
                self.start(node)
            for node in NODES:
                self.await_started(node)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in list(self._processes):
            self.kill(node)

    def start(self, node: int) -> None:
        with self._log(node).open("ab") as log:
            self._processes[node] = subprocess.Popen(
                [*self._java(node), "kafka.Kafka", str(self._file(node))],
                cwd=self.directory, env={**os.environ, **JVM_ENVIRONMENT}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def await_started(self, node: int) -> None:
        def started() -> bool:
            assert self._processes[node].poll() is None, self._log(node).read_text()[-2000:]
            return "Kafka Server started" in self._log(node).read_text()

        wait_until(
            started,
            awaited=f"node {node} of the secured cluster",
            timeout_s=START_S,
            clock=SystemClock(),
            last_seen=lambda: self._log(node).read_text()[-500:],
        )

    def kill(self, node: int) -> None:
        process = self._processes.pop(node)
        process.kill()
        process.wait(timeout=10)
        self._log(node).write_text("")

    def stop(self, node: int) -> None:
        """Shuts a node down in order: a broker hands its leaderships over first."""
        process = self._processes.pop(node)
        process.terminate()
        process.wait(timeout=STOP_S)
        self._log(node).write_text("")

    def pause(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)

    def data(self, node: int) -> Path:
        """The node's log directory."""
        return self.directory / f"data-{node}"

    def _log(self, node: int) -> Path:
        return self.directory / f"server-{node}.log"

    def _file(self, node: int) -> Path:
        return self.directory / f"server-{node}.properties"

    def _java(self, node: int) -> list[str]:
        settings = self.directory / "log4j2.properties"
        settings.write_text(
            "status=error\nappender.out.type=Console\nappender.out.name=out\nappender.out.layout.type=PatternLayout\n"
            "appender.out.layout.pattern=[%d] %p %m (%c)%n\nrootLogger.level=INFO\nrootLogger.appenderRef.out.ref=out\n"
        )
        return [*self._command, f"-Dlog4j2.configurationFile={settings}", "-cp", self._class_path]

    def _format(self, node: int) -> None:
        self._file(node).write_text(self._properties(node))
        scram = [f"{m}=[name={USER},password={self.password}]" for m in MECHANISMS if m.startswith("SCRAM")]
        done = subprocess.run(
            [
                *self._java(node), "kafka.tools.StorageTool", "format", "-t", "cHJvemVzcy13YXJtLXVwMQ",
                "-c", str(self._file(node)), *(word for text in scram for word in ("--add-scram", text)),
            ],
            capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def _properties(self, node: int) -> str:
        certificate, key = self.authority.issue(f"node-{node}")
        store = self.directory / f"store-{node}.pem"
        store.write_bytes(key.read_bytes() + certificate.read_bytes())
        module = "org.apache.kafka.common.security"
        jaas = {
            "plain": f'{module}.plain.PlainLoginModule required user_{USER}="{self.password}"',
            "scram-sha-256": f"{module}.scram.ScramLoginModule required",
            "scram-sha-512": f"{module}.scram.ScramLoginModule required",
            "oauthbearer": f'{module}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker"',
        }
        lines = {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{self._ports[n]['CONTROLLER']}" for n in NODES),
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports[node].items()),
            "advertised.listeners": ",".join(
                f"{name}://localhost:{port}" for name, port in self._ports[node].items() if name != "CONTROLLER"
            ),
            "listener.security.protocol.map": PROTOCOLS,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INNER",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.path,
            "listener.name.mutual.ssl.client.auth": "required",
            **{f"listener.name.{n}.sasl.enabled.mechanisms": ",".join(MECHANISMS) for n in ("sasl", "bare")},
            **{f"listener.name.{n}.{m}.sasl.jaas.config": f"{j};" for n in ("sasl", "bare") for m, j in jaas.items()},
            "log.dirs": self.data(node),
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.num.partitions": 3,
            "group.initial.rebalance.delay.ms": 0,
            "broker.session.timeout.ms": 4000,
            "broker.heartbeat.interval.ms": 500,
            "log.cleaner.dedupe.buffer.size": 2097152,
            "num.network.threads": 2,
            "num.io.threads": 2,
            "background.threads": 2,
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items()) + self._more


if __name__ == "__main__":
    with SecuredCluster(Path(sys.argv[1])) as cluster:
        for mechanism in MECHANISMS:
            sys.stdout.write(f"{cluster.file(mechanism)} {cluster.servers('SASL')}\n")
        sys.stdout.write(f"{cluster.file('TLS', listener='MUTUAL')} {cluster.servers('MUTUAL')}\n")
        sys.stdout.write(f"{cluster.file('PLAIN', listener='BARE')} {cluster.servers('BARE')}\n")
        sys.stdout.flush()
        sys.stdin.read()
