"""How clients log in: what is read, what is written down of it, and that nothing else ever is."""

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess import command
from prozess.clusters.existing.adoption import Kafka, adopt_plan, login_for, with_login
from prozess.clusters.protocol.login import WireLogin
from prozess.harness.clock import SystemClock
from prozess.harness.config.existing_clusters import (
    CLIENT_CONFIG,
    MAY_BE_WRITTEN,
    OF_LOGGING_IN,
    AttachOptions,
    Login,
    hidden,
    login_here,
    meanwhile,
    read_login,
    withheld,
)
from prozess.harness.config.known_properties import properties_of
from prozess.harness.errors import BadInput, ClusterFailed
from prozess.harness.exit_codes import ExitCode
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Isolation
from prozess.testing.recorded.client import RecordedLife

SECRET = "Z9-not-to-be-seen-Z9"
LIBRDKAFKA = sorted(properties_of("consumer", "librdkafka", ""))
OF_A_LOGIN = [name for name in LIBRDKAFKA if name.startswith(OF_LOGGING_IN)]
NEVER = sorted(
    {
        name
        for client in ("java", "librdkafka")
        for scope in ("producer", "consumer")
        for version in ("3.9.2", "4.4.0")
        for name in properties_of(scope, client, version)
    }
    - MAY_BE_WRITTEN
)
NAMES = st.sampled_from(NEVER) | st.from_regex(r"[a-z]{2,8}(\.[a-z]{2,8}){1,3}", fullmatch=True).filter(
    lambda name: name not in MAY_BE_WRITTEN
)
SECRETS = st.text("abcdefghijklmnopqrstuvwxyzABCDEF0123456789+/=", min_size=12, max_size=40)
EACH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    monkeypatch.delenv(CLIENT_CONFIG, raising=False)


def config(tmp_path: Path, **properties: str) -> Path:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{k.replace('_', '.')}={v}\n" for k, v in properties.items()), encoding="utf-8")
    return path


def bytes_under(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file())


def test_only_what_says_how_to_log_in_is_taken_and_placeholders_are_filled_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    path = config(tmp_path, security_protocol="SASL_SSL", sasl_password="${env:KAFKA_PASSWORD}", acks="1")
    login = read_login(path)
    assert login.properties == {"security.protocol": "SASL_SSL", "sasl.password": SECRET}
    assert login.writable == {"security.protocol": "SASL_SSL"}
    assert login.withheld == ("sasl.password",)
    assert SECRET not in repr(login)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("acks=1\n", "says nothing of how to log in"),
        (f"sasl.pasword={SECRET}\n", "sasl.pasword: librdkafka has no such property"),
        (f"sasl.jaas.config={SECRET}\n", "sasl.jaas.config: librdkafka has no such property"),
        ("sasl.password=${env:NOBODY_SET_THIS}\n", "'NOBODY_SET_THIS', which is not set"),
        (f"sasl.password={SECRET}\\u12\n", "without four hexadecimal digits"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_without_a_value(tmp_path, text, words):
    path = tmp_path / "client.properties"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as refused:
        read_login(path)
    assert words in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        read_login(tmp_path / "none")


def test_relative_locations_are_those_of_the_command_that_named_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_login(config(tmp_path, ssl_ca_location="ca.pem")).properties["ssl.ca.location"] == str(
        tmp_path / "ca.pem"
    )


def test_a_file_in_memory_serves_meanwhile_and_is_gone_then(tmp_path):
    with meanwhile({"sasl.password": SECRET, "security.protocol": "SASL_SSL"}) as login:
        assert login is not None
        assert login.properties["sasl.password"] == SECRET
        assert login_here() == login
    assert login_here() is None
    with meanwhile(None) as login:
        assert login is None


@EACH
@given(name=NAMES, secret=SECRETS, around=st.text(max_size=20))
def test_a_value_that_may_not_be_written_is_in_no_text_that_was_hidden(name, secret, around):
    login = Login({name: secret}, "f")
    assert secret not in login.hide(f"{around}{secret}{around}{secret}")
    assert secret not in repr(login)
    assert login.writable == {}


@EACH
@given(given_properties=st.dictionaries(NAMES, SECRETS, min_size=1, max_size=6))
def test_no_byte_of_a_recording_holds_the_value_of_a_property_that_may_not_be_written(
    tmp_path_factory, given_properties
):
    run = RunDirectory(tmp_path_factory.mktemp("run"))
    run.create()
    life = RecordedLife(run, "producer", {**given_properties, "acks": "all"}, isolation=Isolation.NOT_A_READER)
    life.end(issued=0)
    written = bytes_under(run.path)
    assert b'"acks": "all"' in written
    for secret in given_properties.values():
        assert secret.encode() not in written


@EACH
@given(scope=st.sampled_from(["producer", "group", "transaction", "copier"]), name=NAMES, secret=SECRETS)
def test_a_trial_that_sets_such_a_property_is_refused_and_nothing_shows_its_value(
    tmp_path_factory, capsys, scope, name, secret
):
    tmp_path = tmp_path_factory.mktemp("trial")
    workload = {"producer": "log", "group": "group", "transaction": "transactions", "copier": "exactly-once"}[scope]
    text = f'name = "t"\ntitle = "t"\nworkload = "{workload}"\nbase = {{ "{scope}.properties.{name}" = "{secret}" }}\n'
    (tmp_path / "t.toml").write_text(text, encoding="utf-8")
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["prozess", "run", str(tmp_path / "t.toml"), "--runs", str(tmp_path / "runs")])
        assert command.run() == ExitCode.BAD_INPUT
    said = capsys.readouterr()
    assert name in said.err
    assert secret not in said.err + said.out
    assert not (tmp_path / "runs").exists()


def test_a_plan_file_that_sets_such_a_property_is_refused_too(tmp_path, capsys, monkeypatch):
    plan = make_plan(parse_trial({"name": "t", "title": "t", "workload": "log"}, source="t"), seed=1)
    document = json.loads(plan.model_dump_json())
    document["cells"][0]["producer"]["properties"] = {"ssl.key.pem": SECRET}
    (tmp_path / "plan.json").write_text(json.dumps(document), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["prozess", "run", str(tmp_path / "plan.json"), "--runs", str(tmp_path / "runs")])
    assert command.run() == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert "ssl.key.pem" in said
    assert SECRET not in said


ATTACHED = {
    "name": "t",
    "title": "t",
    "workload": "log",
    "backend": "attach",
    "attach": {"bootstrap_servers": ["127.0.0.1:1"]},
}


@pytest.mark.parametrize("name", OF_A_LOGIN)
def test_whatever_librdkafka_or_we_say_of_a_login_its_value_is_not_in_it(tmp_path, monkeypatch, name):
    """Each property of a login with a value that cannot be meant: in no error, and in no plan that comes of it."""
    monkeypatch.setattr("prozess.clusters.existing.adoption.ASK_TIMEOUT_S", 0.05)
    base = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in (base | {name: SECRET}).items()), encoding="utf-8")
    monkeypatch.setenv(CLIENT_CONFIG, str(path))
    plan = make_plan(parse_trial(ATTACHED, source="t"), seed=1)
    texts, clock = [], SystemClock()
    for deed in (
        lambda: adopt_plan(plan, RunDirectory(tmp_path / "run"), clock=clock),
        lambda: WireLogin(read_login(path), clock),
        lambda: Kafka("127.0.0.1:1", clock, read_login(path)).describe(),
    ):
        try:
            deed()
        except (BadInput, ClusterFailed) as error:
            texts.append(str(error))
    texts.append(with_login(plan.attach, read_login(path)).model_dump_json())
    if name in MAY_BE_WRITTEN:  # a mechanism that nobody knows must be named
        return
    assert not [text for text in texts if SECRET in text]
    assert f'"{name}"' in texts[-1]


def test_whoever_has_a_plan_of_a_run_that_logged_in_is_told_what_is_missing(tmp_path, monkeypatch):
    login = Login({"security.protocol": "SASL_SSL", "sasl.password": SECRET}, "f")
    attach = with_login(AttachOptions(bootstrap_servers=("h:1",)), login)
    assert SECRET not in attach.model_dump_json()
    with pytest.raises(BadInput, match=r"sasl\.password, which are written nowhere.*--client-config"):
        login_for(attach)
    monkeypatch.setenv(CLIENT_CONFIG, str(config(tmp_path, sasl_password=SECRET)))
    found = login_for(attach)
    assert found is not None
    assert found.properties == {"sasl.password": SECRET}
    assert SECRET not in hidden(f"it stated {SECRET}")


def test_a_run_directory_is_its_owners_alone(tmp_path):
    run = RunDirectory(tmp_path / "run")
    previous = os.umask(0)
    try:
        run.create()
        run.plan.write_text("{}", encoding="utf-8")
        (run.logs / "tool").write_text("", encoding="utf-8")
        (run.logs / "tool").chmod(0o755)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    run.keep_private()
    assert stat.S_IMODE(run.plan.stat().st_mode) == 0o600
    assert stat.S_IMODE((run.logs / "tool").stat().st_mode) == 0o700
    assert stat.S_IMODE(run.rows.stat().st_mode) == 0o700


def test_every_known_way_to_hand_over_a_secret_is_withheld():
    for name in NEVER:
        assert withheld({name: "x"}) == (name,)
    for name in ("ssl.key.pem", "ssl.keystore.key", "sasl.oauthbearer.config", "sasl.jaas.config", "sasl.password"):
        assert name in NEVER
