"""Logs in to brokers as librdkafka's properties say: by TLS, also with a client certificate, and by SASL.

SaslHandshake v1 names the mechanism, SaslAuthenticate v0 carries its messages (KIP-43, KIP-152). PLAIN is RFC 4616, SCRAM
RFC 5802, OAUTHBEARER RFC 7628. A broker that wants us to log in again (KIP-368) closes the connection: the next one does.
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import secrets
import socket
import ssl
import struct
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from prozess.clusters.protocol.client import Cursor, Request, string
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.config.existing_clusters import Login
from prozess.harness.errors import BadInput, ClusterFailed

# The client's side of SCRAM: RFC 5802, with SHA-256 (RFC 7677) or SHA-512, as Kafka has it (KIP-84). Pure.
#
# No channel binding; user names and passwords are UTF-8 as they are: Kafka prepares neither
# (`ScramFormatter.normalize`).


HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 1_000_000
"""The bounds of SCRAM's iterations: Kafka's least (`ScramMechanism.minIterations`), and a number that keeps nobody busy."""


class ScramRefused(ValueError):
    """An error: the server's words are not those of a server that knows the password."""


class Scram:
    """A SCRAM exchange: `first`, then `final` with the server's first message, then `verify` with its last."""

    def __init__(self, mechanism: str, username: str, password: str, *, nonce: str) -> None:
        """`nonce`: printable, no comma, never used before."""
        self._hash, self._password, self._nonce = HASHES[mechanism], password.encode(), nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """Returns SCRAM's client-first-message (RFC 5802)."""
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """Returns the client-final-message for a server-first-message. ScramRefused if that is none to ours."""
        document = _attributes(challenge)
        nonce = document.get("r", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramRefused("the server's nonce is not one to ours")
        try:
            salt, rounds = base64.b64decode(document.get("s", ""), validate=True), int(document.get("i", ""))
        except (binascii.Error, ValueError) as error:
            raise ScramRefused("the server's salt or iteration count cannot be read") from error
        if not salt or not ITERATIONS_MIN <= rounds <= ITERATIONS_MAX:
            raise ScramRefused(f"the server wants {rounds} iterations, and {len(salt)} bytes of salt")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, rounds)
        client_key = self._mac(salted, b"Client Key")
        without_proof = f"c=biws,r={nonce}"
        message = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        signature = self._mac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._mac(self._mac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, outcome: bytes) -> None:
        """Raises ScramRefused unless the server-final-message proves that the server knows the password, too."""
        document = _attributes(outcome)
        if "e" in document:
            raise ScramRefused(f"the server answers {document['e']}")
        given = document.get("v", "").encode()
        if not self._signature or not hmac.compare_digest(given, base64.b64encode(self._signature)):
            raise ScramRefused("the server does not prove that it knows the password")

    def _mac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)


def _attributes(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError as error:
        raise ScramRefused("the server's message is not UTF-8") from error
    return {part[0]: part[2:] for part in parts if part[1:2] == "="}


# A token for OAUTHBEARER, by the same properties as librdkafka's: an unsecured JWS that says who we are (KIP-255), or
# what an authorization server gives for our secret (`sasl.oauthbearer.method=oidc`, KIP-768, client credentials).


TOKEN_TIMEOUT_S = 10.0
UNSECURED_LIFE_S = 3600
_WORD = re.compile(r'(\w+)=("[^"]*"|\S*)')
_UNSECURED = "enable.sasl.oauthbearer.unsecure.jwt"
_OF_OIDC = "sasl.oauthbearer.client.credentials.client."


def bearer_token(properties: Mapping[str, str], *, wall_s: float) -> tuple[str, float]:
    """Gets a bearer token, and for how many seconds it is good.

    BadInput if the properties do not say how to get one; ClusterFailed if the authorization server does not give it."""
    if properties.get("sasl.oauthbearer.method", "default").lower() == "oidc":
        return _from_server(properties)
    if properties.get(_UNSECURED, "false").lower() != "true":
        raise BadInput(
            f"sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.method=oidc with a token endpoint, or {_UNSECURED}=true with "
            "sasl.oauthbearer.config."
        )
    return _unsecured(properties.get("sasl.oauthbearer.config", ""), wall_s)


def _unsecured(config: str, wall_s: float) -> tuple[str, float]:
    """An unsecured token, as librdkafka makes it (CONFIGURATION.md, sasl.oauthbearer.config)."""
    words = {name: value.strip('"') for name, value in _WORD.findall(config)}
    if not words.get("principal"):
        raise BadInput("sasl.oauthbearer.config: it must say principal=NAME for an unsecured token.")
    life_s = float(words.get("lifeSeconds", UNSECURED_LIFE_S))
    claims: dict[str, object] = {
        words.get("principalClaimName", "sub"): words["principal"],
        "iat": round(wall_s, 3),
        "exp": round(wall_s + life_s, 3),
    }
    if words.get("scope"):
        claims[words.get("scopeClaimName", "scope")] = words["scope"].split(",")
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}.", life_s


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()


def _from_server(properties: Mapping[str, str]) -> tuple[str, float]:
    def of_client(name: str) -> str:
        return properties.get(f"sasl.oauthbearer.client.{name}") or properties.get(_OF_OIDC + name, "")

    url = properties.get("sasl.oauthbearer.token.endpoint.url", "")
    if not url.startswith(("http://", "https://")) or not of_client("id"):
        raise BadInput(
            "sasl.oauthbearer.method=oidc needs sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.id and "
            "sasl.oauthbearer.client.secret."
        )
    form = {"grant_type": "client_credentials"}
    if scope := properties.get("sasl.oauthbearer.scope"):
        form["scope"] = scope
    secret = base64.b64encode(f"{of_client('id')}:{of_client('secret')}".encode()).decode()
    headers = {"Authorization": f"Basic {secret}", "Accept": "application/json"}
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), headers)
    trusted = ssl.create_default_context(
        cafile=properties.get("https.ca.location") or None, cadata=properties.get("https.ca.pem") or None
    )
    try:
        with urllib.request.urlopen(request, timeout=TOKEN_TIMEOUT_S, context=trusted) as answer:
            document = json.loads(answer.read(1 << 20))
        return str(document["access_token"]), float(document.get("expires_in", 60))
    except urllib.error.HTTPError as error:
        error.close()
        raise _no_token(f"it answers {error.code}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        # Not the error's own text: it may quote what was sent.
        raise _no_token(type(error).__name__) from None


def _no_token(why: str) -> ClusterFailed:
    return ClusterFailed(f"The token endpoint of sasl.oauthbearer.token.endpoint.url gives no token ({why}).")


MECHANISMS = ("PLAIN", *HASHES, "OAUTHBEARER")
_NOT_HERE = ("ssl.keystore.location", "ssl.crl.location", "ssl.engine.location", "ssl.providers")
_RENEWED = 0.5
"""The share of a token's life for which it is used before another is asked for."""


class WireLogin:
    """Logs in every connection that a client makes. Safe to use from many threads.

    BadInput for what librdkafka could do and this cannot: Kerberos, PKCS#12 key stores, revocation lists.
    """

    def __init__(self, login: Login, clock: Clock) -> None:
        self._login, self._clock = login, clock
        properties = login.properties
        protocol = properties.get("security.protocol", "plaintext").upper()
        if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise BadInput(
                f"{login.source}: security.protocol={protocol} is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL."
            )
        self._context = tls_context(properties, login.source) if protocol.endswith("SSL") else None
        self._mechanism = self._chosen(properties) if protocol.startswith("SASL") else None
        self._token, self._good_until_ns = "", -1
        self._lock = threading.Lock()

    def secured(self, connection: socket.socket, host: str) -> socket.socket:
        """Makes the TLS handshake, if TLS is wanted. ClusterFailed if the other side is not who it must be."""
        if self._context is None:
            return connection
        try:
            return self._context.wrap_socket(connection, server_hostname=host)
        except ssl.SSLError as error:
            if (refused := self.refused(error)) is not None:
                raise refused from error
            raise

    def refused(self, error: ssl.SSLError) -> ClusterFailed | None:
        """Returns the error if TLS refuses the connection; None if the broker merely went away."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return ClusterFailed(
                f"its certificate is not trusted: {error.verify_message}. Is ssl.ca.location in {self._login.source} right?"
            )
        reason = str(error.reason or "")
        if isinstance(error, ssl.SSLEOFError) or not reason or "EOF" in reason:
            return None
        return ClusterFailed(f"TLS fails: {reason.replace('_', ' ').lower()}. Is {self._login.source} meant for it?")

    def authenticate(self, ask: Callable[[Request[tuple[int, str, bytes]]], tuple[int, str, bytes]]) -> None:
        """Logs in over a connection. `ask`: sends one request and returns its answer. ClusterFailed if that is refused."""
        if self._mechanism is None:
            return
        error, offered, _ = ask(handshake_request(self._mechanism))
        if error:
            raise ClusterFailed(f"it does not take sasl.mechanism={self._mechanism}; it offers {offered or 'none'}.")

        def step(message: bytes) -> bytes:
            error, why, answer = ask(authenticate_request(message))
            if error:
                text = self._login.hide(why) or f"error code {error}"
                raise ClusterFailed(f"it refuses the login ({self._mechanism}): {text.rstrip('.')}.")
            return answer

        self._exchange(step)

    def _exchange(self, step: Callable[[bytes], bytes]) -> None:
        properties, mechanism = self._login.properties, self._mechanism
        user, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
        if mechanism == "PLAIN":
            step(f"\0{user}\0{password}".encode())
        elif mechanism == "OAUTHBEARER":
            answer = step(f"n,,\x01auth=Bearer {self._bearer()}\x01\x01".encode())
            if answer:
                raise ClusterFailed("it refuses the token (OAUTHBEARER).")
        else:
            assert mechanism is not None
            scram = Scram(mechanism, user, password, nonce=secrets.token_urlsafe(24))
            try:
                scram.verify(step(scram.final(step(scram.first()))))
            except ScramRefused as error:
                raise ClusterFailed(f"the login fails ({mechanism}): {error}.") from error

    def _bearer(self) -> str:
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            if now_ns >= self._good_until_ns:
                self._token, life_s = bearer_token(self._login.properties, wall_s=self._clock.wall_ns() / NS_PER_S)
                self._good_until_ns = now_ns + int(life_s * _RENEWED * NS_PER_S)
            return self._token

    def _chosen(self, properties: Mapping[str, str]) -> str:
        chosen = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI")).upper()
        if chosen not in MECHANISMS:
            raise BadInput(
                f"{self._login.source}: sasl.mechanism={chosen} cannot be used here. Known: {', '.join(MECHANISMS)}."
            )
        if chosen == "OAUTHBEARER":
            return chosen
        for name in ("sasl.username", "sasl.password"):
            if not properties.get(name):
                raise BadInput(f"{self._login.source}: sasl.mechanism={chosen} needs {name}, which is missing.")
        return chosen


def tls_context(properties: Mapping[str, str], source: str) -> ssl.SSLContext:
    """Returns the TLS context that librdkafka's properties want. BadInput, naming the property, for a file that cannot
    be used."""
    if lacking := [name for name in _NOT_HERE if properties.get(name)]:
        raise BadInput(
            f"{source}: {lacking[0]} cannot be used here: the observer's own connections take PEM alone. Convert a key store "
            "with `openssl pkcs12 -in STORE -out client.pem`, and give ssl.certificate.location and ssl.key.location."
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    verified = properties.get("enable.ssl.certificate.verification", "true").lower() != "false"
    named = properties.get("ssl.endpoint.identification.algorithm", "https").lower() not in ("none", "")
    context.check_hostname = verified and named
    context.verify_mode = ssl.CERT_REQUIRED if verified else ssl.CERT_NONE
    _trust(context, properties, source)
    _identify(context, properties, source)
    return context


def _trust(context: ssl.SSLContext, properties: Mapping[str, str], source: str) -> None:
    location, pem = properties.get("ssl.ca.location", ""), properties.get("ssl.ca.pem", "")
    try:
        if pem:
            context.load_verify_locations(cadata=pem)
        elif location not in ("", "probe"):
            folder = Path(location).is_dir()
            context.load_verify_locations(cafile=None if folder else location, capath=location if folder else None)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        what = "ssl.ca.pem" if pem else "ssl.ca.location"
        raise BadInput(f"{source}: {what} cannot be used ({_why(error)}). It must be certificates as PEM.") from None


def _identify(context: ssl.SSLContext, properties: Mapping[str, str], source: str) -> None:
    """Adds the client's certificate. PEM text goes through a file in memory, since `ssl` takes files alone."""
    held: list[int] = []

    def file_of(name: str) -> str | None:
        if location := properties.get(f"ssl.{name}.location"):
            return location
        if not (pem := properties.get(f"ssl.{name}.pem")):
            return None
        held.append(os.memfd_create("prozess"))
        os.write(held[-1], pem.encode())
        return f"/proc/self/fd/{held[-1]}"

    try:
        certificate, key = file_of("certificate"), file_of("key")
        if certificate is None:
            if key is not None:
                raise BadInput(f"{source}: there is a key, and no ssl.certificate.location or ssl.certificate.pem.")
            return
        context.load_cert_chain(certificate, key, properties.get("ssl.key.password", ""))
    except OSError as error:
        raise BadInput(
            f"{source}: the certificate or key of ssl.certificate.* and ssl.key.* cannot be used ({_why(error)}). Both must "
            "be PEM, the key one to the certificate, and ssl.key.password the key's."
        ) from None
    finally:
        for descriptor in held:
            with suppress(OSError):
                os.close(descriptor)


def _why(error: Exception) -> str:
    """Says what is wrong without the values that were given, which an error of `ssl` may quote."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or type(error).__name__)


def handshake_request(mechanism: str) -> Request[tuple[int, str, bytes]]:
    """Returns a SaslHandshake request, v1 → (error, the mechanisms that the broker offers, nothing)."""
    return Request(17, 1, string(mechanism), _handshake_answer)


def _handshake_answer(cursor: Cursor) -> tuple[int, str, bytes]:
    error = cursor.int16()
    return error, ", ".join(cursor.string() or "" for _ in range(cursor.int32())), b""


def authenticate_request(message: bytes) -> Request[tuple[int, str, bytes]]:
    """Returns a SaslAuthenticate request, v0 → (error, why, the server's message)."""
    return Request(36, 0, struct.pack(">i", len(message)) + message, _authenticate_answer)


def _authenticate_answer(cursor: Cursor) -> tuple[int, str, bytes]:
    error, why = cursor.int16(), cursor.string() or ""
    return error, why, cursor.take(max(0, cursor.int32()))


def wire_login(login: Login | None, clock: Clock) -> WireLogin | None:
    """Returns the login of a wire client; None for PLAINTEXT."""
    return None if login is None else WireLogin(login, clock)
