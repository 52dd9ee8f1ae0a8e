"""Clients that cannot work: what can be known before anything runs is one sentence and exit code 254."""

import sys
import tomllib

import pytest

from prozess import command
from prozess.app.wiring import TOOLBOX
from prozess.harness.exit_codes import ExitCode
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import known_trials, load_trial
from prozess.workloads.roles import refuse_bad_clients

HEAD = """
name = "bad"
title = "bad"
"""


def run(monkeypatch, tmp_path, text: str) -> int:
    path = tmp_path / "bad.toml"
    path.write_text(HEAD + text, encoding="utf-8")
    tomllib.loads(path.read_text(encoding="utf-8"))
    monkeypatch.setattr(sys, "argv", ["prozess", "run", str(path), "--runs", str(tmp_path / "runs")])
    return command.run()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('base = { "producer.properties.linger" = 5 }', "producer.properties.linger may not be set in a trial"),
        ('base = { "producer.properties.socket.timeout.ms" = 1 }', "outside allowed range"),
        (
            'base = { "producer.linger_ms" = 9000, "producer.delivery_timeout_ms" = 5000 }',
            "`message.timeout.ms` must be greater than `linger.ms`",
        ),
        (
            'base = { "producer.acks" = 1, "producer.enable_idempotence" = true }',
            "enable.idempotence=true needs acks=all, not acks=1",
        ),
        ('base = { "producer.properties.acks" = 1 }', "has a name of its own here: set producer.acks"),
        ('base = { "producer.properties.bootstrap.servers" = "localhost:1" }', "is set by prozess for every client"),
        ('base = { "producer.client" = "java" }', "use librdkafka, not producer.client=java"),
        ('base = { "producer.properties.compression.level" = "high" }', "Invalid value"),
        (
            'workload = "group"\nbase = { "group.protocol" = "consumer", "group.properties.session.timeout.ms" = 6000 }',
            "the brokers set it (KIP-848)",
        ),
        ('workload = "group"\nbase = { "group.properties.isolation.level" = "x" }', "set group.isolation_level"),
        (
            'workload = "group"\nbase = { "group.properties.no.such.thing" = 1 }',
            "properties.no.such.thing may not be set",
        ),
        (
            'workload = "group"\nbase = { "group.session_timeout_ms" = 9000, "group.max_poll_interval_ms" = 8000 }',
            "`max.poll.interval.ms`must be >= `session.timeout.ms`",
        ),
        (
            'workload = "transactions"\nbase = { "transaction.properties.transaction.timeout.ms" = 1 }',
            "set transaction.transaction_timeout_ms",
        ),
        ('workload = "errors"\nbase = { "provocation.error" = "nonsense" }', "provocation.error = 'nonsense'"),
        ('workload = "errors"', "provocation.error = {}: Field required"),
    ],
)
def test_a_client_that_cannot_be_is_refused_in_one_sentence_before_anything_runs(
    monkeypatch, capsys, tmp_path, text, words
):
    assert run(monkeypatch, tmp_path, text) == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert "Traceback" not in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", sorted(known_trials()))
def test_every_client_of_every_trial_that_ships_can_be_made(name):
    refuse_bad_clients(make_plan(load_trial(name), seed=1), toolbox=TOOLBOX)
