"""SCRAM by the RFCs' own examples, and what a client must not take."""

import base64
import hashlib
import hmac
import http.server
import json
import threading
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.protocol.login import HASHES, Scram, ScramRefused, bearer_token
from prozess.harness.errors import BadInput, ClusterFailed

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=20)


def exchange():
    return Scram("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)


def test_the_example_of_rfc_7677_is_answered_as_it_says():
    scram = exchange()
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final(CHALLENGE) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    scram.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=somebodyElses,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        CHALLENGE.replace(b"4096", b"1"),
        CHALLENGE.replace(b"4096", b"900000000"),
        CHALLENGE.replace(b"4096", b"x"),
        CHALLENGE.replace(b"W22", b"!!!"),
        b"\xff",
        b"",
    ],
)
def test_a_challenge_that_is_none_to_ours_or_too_weak_is_refused(challenge):
    with pytest.raises(ScramRefused):
        exchange().final(challenge)


@pytest.mark.parametrize("outcome", [b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", b"v=", b"", b"e=invalid-proof"])
def test_a_server_that_does_not_know_the_password_is_refused(outcome):
    scram = exchange()
    scram.final(CHALLENGE)
    with pytest.raises(ScramRefused):
        scram.verify(outcome)


@given(
    mechanism=st.sampled_from(sorted(HASHES)),
    user=TEXT,
    password=TEXT,
    other=TEXT,
    salt=st.binary(min_size=1, max_size=32),
)
def test_a_server_takes_the_proof_of_who_knows_the_password_and_of_nobody_else(mechanism, user, password, other, salt):
    name = HASHES[mechanism]
    scram = Scram(mechanism, user, password, nonce="abc")
    bare = scram.first().decode().removeprefix("n,,")
    assert bare.split(",")[0].removeprefix("n=").replace("=2C", ",").replace("=3D", "=") == user
    challenge = f"r=abcdef,s={base64.b64encode(salt).decode()},i=4096"
    answer = scram.final(challenge.encode()).decode()
    without, proof = answer.split(",p=")
    message = f"{bare},{challenge},{without}".encode()

    def taken(known: str) -> bool:
        salted = hashlib.pbkdf2_hmac(name, known.encode(), salt, 4096)
        stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        signature = hmac.digest(stored, message, name)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        return hashlib.new(name, key).digest() == stored

    assert taken(password)
    assert taken(other) == (other == password)


# ----------------------------------------------------------------------------------------------------------------------
# Tokens for OAUTHBEARER: as librdkafka makes an unsecured one, and as an authorization server gives one.


UNSECURED = {"enable.sasl.oauthbearer.unsecure.jwt": "true"}


def decoded(part):
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_an_unsecured_token_says_who_we_are_and_until_when():
    config = 'principal=alice scope=a,b lifeSeconds=60 principalClaimName="name" scopeClaimName=roles'
    token, life_s = bearer_token({**UNSECURED, "sasl.oauthbearer.config": config}, wall_s=1000.5)
    head, claims, signature = token.split(".")
    assert decoded(head) == {"alg": "none"}
    assert decoded(claims) == {"name": "alice", "iat": 1000.5, "exp": 1060.5, "roles": ["a", "b"]}
    assert (signature, life_s) == ("", 60)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({}, "needs sasl.oauthbearer.method=oidc"),
        (UNSECURED, "must say principal=NAME"),
        ({"sasl.oauthbearer.method": "oidc"}, "needs sasl.oauthbearer.token.endpoint.url"),
        (
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd",
                "sasl.oauthbearer.client.id": "i",
            },
            "needs sasl.oauthbearer.token.endpoint.url",
        ),
    ],
)
def test_who_does_not_say_how_to_come_by_a_token_is_told_what_is_needed(properties, words):
    with pytest.raises(BadInput, match=words):
        bearer_token(properties, wall_s=0)


class Endpoint(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.asked = (self.headers["Authorization"], form)
        good = self.headers["Authorization"] == "Basic " + base64.b64encode(b"me:Secret-Z9").decode()
        body = json.dumps({"access_token": "T.O.K", "expires_in": 90} if good else {"error": "no"}).encode()
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing on the console of a test."""


@pytest.fixture
def endpoint():
    with http.server.HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def oidc(endpoint, secret):
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{endpoint.server_port}/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.scope": "kafka",
    }


def test_an_authorization_server_gives_a_token_for_our_secret(endpoint):
    assert bearer_token(oidc(endpoint, "Secret-Z9"), wall_s=0) == ("T.O.K", 90)
    assert endpoint.asked[1] == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


def test_one_that_refuses_is_told_without_the_secret(endpoint):
    with pytest.raises(ClusterFailed, match=r"gives no token \(it answers 401\)") as refused:
        bearer_token(oidc(endpoint, "Other-Z9"), wall_s=0)
    assert "Other-Z9" not in str(refused.value)


def test_one_that_is_not_there_is_told(endpoint):
    gone = oidc(endpoint, "x") | {"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"}
    with pytest.raises(ClusterFailed, match="gives no token"):
        bearer_token(gone, wall_s=0)
