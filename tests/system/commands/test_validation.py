"""`prozess validate` on a real cluster: what is predicted is provoked."""

import json

import pytest

from prozess.harness.exit_codes import ExitCode
from tests.support.command import REPEATED, Command

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module")
def document(request, need, tmp_path_factory):
    """What `prozess validate --json` says of a Java producer with acks=1, from one short trial."""
    need("java")
    need("namespaces")
    directory = tmp_path_factory.mktemp("validate")
    producer, topic, broker = (directory / f"{name}.properties" for name in ("producer", "topic", "server"))
    producer.write_text("acks=1\n")
    broker.write_text("broker.session.timeout.ms=4000\nbroker.heartbeat.interval.ms=500\n")
    topic.write_text("replication.factor=3\nmin.insync.replicas=2\n")
    repeated = request.config.stash.setdefault(REPEATED, [])
    for seed in ("1", "2", "3"):
        place = directory / seed
        place.mkdir()
        files = ["--producer", str(producer), "--topic", str(topic), "--broker", str(broker)]
        words = [*files, "--minutes", "0.5", "--seed", seed, "--json"]
        command = Command(["validate", *words], place)
        try:
            output = command.output(timeout_s=240)
            assert command.process.returncode in (ExitCode.HELD, ExitCode.UNKNOWN), command.errors
        finally:
            command.end()
        if command.process.returncode == ExitCode.HELD:
            break
        repeated.append(f"validate with seed {seed} was unknown")
    return json.loads(output)


def test_the_losses_that_acks_1_predicts_are_shown_with_a_witness_and_a_report(document):
    (lost,) = [of for of in document["provoked"] if of["rule"] == "lost/acks-1"]
    assert (lost["state"], lost["tries"]) == ("shown", 1)
    assert lost["count"] >= 10
    assert lost["witness"].startswith("record ")
    assert lost["report"].endswith("report.html")


def test_what_there_was_no_time_for_is_not_tried_and_the_conclusion_counts_all(document):
    states = [of["state"] for of in document["provoked"]]
    assert {of["rule"] for of in document["provoked"]} == {of["rule"] for of in document["weaknesses"]}
    for of in document["provoked"]:
        assert bool(of["why"]) == (of["state"] == "not tried"), of
    assert f"{states.count('shown')} of {len(states)} weaknesses shown" in document["conclusion"]
    assert document["conclusion"].startswith("held: ")
