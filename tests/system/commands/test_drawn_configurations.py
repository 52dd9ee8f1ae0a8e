"""Trials of drawn configurations: no trial's violation is one that the prediction of the same configuration calls possible.

What is predicted as possible is permitted, by the same rule. A trial that is *violated* although its anomaly was predicted
cries wolf; one that is violated although its anomaly was promised has found something, and must be looked at."""

import json
import os
import random
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.long]
# Its cheaper neighbour is tests/unit/prozess/validation/test_promises.py: 300 drawn configurations, and no trial.

DRAWN = int(os.environ.get("PROZESS_DRAWN", "2"))
"""How many configurations are tried. Each takes about a minute."""
FIRST = int(os.environ.get("PROZESS_DRAWN_FIRST", "1"))
PRODUCER = {
    "acks": ["0", "1", "all"],
    "enable.idempotence": [None, "false"],
    "retries": [None, "0", "3"],
    "linger.ms": [None, "20"],
    "max.in.flight.requests.per.connection": [None, "1"],
}
CONSUMER = {
    "auto.offset.reset": ["earliest", "latest"],
    "enable.auto.commit": ["true", "false"],
    "isolation.level": [None, "read_committed"],
}
BROKER = {
    "default.replication.factor": ["2", "3"],
    "min.insync.replicas": ["1", "2"],
    "unclean.leader.election.enable": [None, "true"],
    "offsets.topic.replication.factor": ["1", "3"],
    "log.flush.interval.messages": [None, "1"],
}


def drawn(values: dict[str, list[str | None]], draw: random.Random) -> str:
    """The lines of a .properties file."""
    chosen = {name: draw.choice(some) for name, some in values.items()}
    return "".join(f"{name}={value}\n" for name, value in chosen.items() if value is not None)


@pytest.mark.parametrize("number", range(FIRST, FIRST + DRAWN))
def test_no_trial_is_violated_where_the_prediction_calls_it_possible(number, tmp_path, need):
    need("java")
    draw = random.Random(number)
    client = draw.choice(["java", "librdkafka"])
    consumer = CONSUMER | ({"max.poll.records": [None, "10"]} if client == "java" else {})
    for name, values in (("producer", PRODUCER), ("consumer", consumer), ("server", BROKER)):
        (tmp_path / f"{name}.properties").write_text(drawn(values, draw), encoding="utf-8")
    by_itself = "enable.auto.commit=true" in (tmp_path / "consumer.properties").read_text("utf-8")
    commits = () if by_itself else ("--commits", "sync-after")
    files = ("--producer", "producer.properties", "--consumer", "consumer.properties", "--broker", "server.properties")
    command = [sys.executable, "-m", "prozess", "validate", *files, "--client", client, "--kafka-defaults"]
    done = subprocess.run(
        [*command, *commits, "--minutes", "1", "--seed", str(number), "--json", "--runs", "runs"],
        cwd=tmp_path, capture_output=True, text=True, timeout=540, check=False,
    )  # fmt: skip
    texts = "\n".join(path.read_text("utf-8") for path in sorted(tmp_path.glob("*.properties")))
    assert done.returncode in (0, 1, 2), f"{client}\n{texts}\n{done.stderr}"
    found = json.loads(done.stdout)
    possible = {weakness["anomaly"] for weakness in found["weaknesses"]}
    possible |= {name for concern in found["availability"] for name in concern["anomalies"]}
    violated = {name: seen["reason"] for name, seen in found["observed"].items() if seen["outcome"] == "violated"}
    assert found["runs"], "no trial ran"
    assert not violated.keys() & possible, f"{client}\n{texts}\n{violated}"
    assert not violated, f"promised, and violated: {client}\n{texts}\n{violated}"
