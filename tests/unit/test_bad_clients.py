"""Clients that cannot work: what can be known before anything runs is one sentence and exit code 254; the rest ends, and is
unknown."""

import sys
import tomllib

import pytest

from harness import cli
from harness.errors import ExitCode
from harness.planning import make_plan
from harness.schema import Isolation, Outcome
from harness.trial import known_trials, load_trial
from tests.unit.log_workload import bench, plan_of
from workloads.refusals import refuse_bad_clients

HEAD = """
name = "bad"
title = "bad"
"""


def run(monkeypatch, tmp_path, text: str) -> int:
    path = tmp_path / "bad.toml"
    path.write_text(HEAD + text, encoding="utf-8")
    tomllib.loads(path.read_text(encoding="utf-8"))
    monkeypatch.setattr(sys, "argv", ["prozess", "run", str(path), "--runs", str(tmp_path / "runs")])
    return cli._main()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('base = { "producer.properties.linger" = 5 }', 'No such configuration property: "linger"'),
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
        ('base = { "producer.client" = "java" }', "not a client that runs here yet"),
        ('base = { "producer.properties.compression.level" = "high" }', "Invalid value"),
        (
            'workload = "group"\nbase = { "group.protocol" = "consumer", "group.properties.session.timeout.ms" = 6000 }',
            "it is the brokers' to set (KIP-848)",
        ),
        ('workload = "group"\nbase = { "group.properties.isolation.level" = "x" }', "set group.isolation_level"),
        ('workload = "group"\nbase = { "group.properties.no.such.thing" = 1 }', 'property: "no.such.thing"'),
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
    refuse_bad_clients(make_plan(load_trial(name), seed=1))


def test_clients_of_a_cluster_that_nobody_reaches_end_in_time_and_claim_nothing(tmp_path):
    plan = plan_of(acks=["all"], rate_hz=50, delivery_timeout_ms=[1500])
    with bench(plan, tmp_path, before=lambda kafka: kafka.down()) as made:
        made.workload.command("resume_sends")
        made.until(lambda: made.total("info") >= 20, "sends given up")
        made.workload.finish_sends(timeout_s=6)
        sends = made.rows("sends", made.producer)
        audited = made.workload.audit(timeout_s=4)
        assert made.workload.dead_clients() == {}
    assert len(sends) >= 20
    assert (sends["outcome"] == Outcome.INFO).all()
    assert audited.complete == {}
    levels = (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED)
    assert set(audited.incomplete) == {(p.partition, level) for p in plan.partitions for level in levels}
    assert all(audited.incomplete.values())
