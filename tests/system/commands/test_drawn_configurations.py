"""Trials of drawn configurations: no trial's violation is one that the prediction of the same configuration calls possible.

What is predicted as possible is permitted, by the same rule. A trial that is *violated* although its anomaly was predicted
cries wolf; one that is violated although its anomaly was promised has found something, and must be looked at."""

import json
import os
import random
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.validation.assumptions import Risks
from prozess.validation.command import ValidationInput, translate
from prozess.validation.prediction import Prediction

pytestmark = [pytest.mark.cluster, pytest.mark.long]
# Its cheaper neighbour is tests/unit/prozess/validation/test_promises.py: 300 drawn configurations, and no trial.

DRAWN = int(os.environ.get("PROZESS_DRAWN", "2"))
"""How many configurations are tried. Each takes about a minute."""
FIRST = int(os.environ.get("PROZESS_DRAWN_FIRST", "1"))
TOGETHER = 8
"""So many configurations of clients are cells of one trial, on brokers of one configuration: about two minutes."""
BLOCKS = 5
"""So many of the faults that `validate` makes, chosen by the number of the trial."""
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


def predictions(number: int, folder: Path) -> list[Prediction]:
    """The first configuration has Kafka's own clients, the others librdkafka's; the brokers of all are the same."""
    draw = random.Random(number)
    (folder / "server.properties").write_text(drawn(BROKER, draw), encoding="utf-8")
    found = []
    for each in range(TOGETHER):
        client = "librdkafka" if each else "java"
        files = {name: folder / f"{name}{each}.properties" for name in ("producer", "consumer")}
        for name, values in (("producer", PRODUCER), ("consumer", CONSUMER)):
            files[name].write_text(drawn(values, draw), encoding="utf-8")
        by_itself = "enable.auto.commit=true" in files["consumer"].read_text("utf-8")
        commits = draw.choice(["sync-after", "sync-before", "on-revoke"]) if client == "librdkafka" else "sync-after"
        given = ValidationInput(
            **files, broker=folder / "server.properties", client=client, kafka_defaults=True,
            commits=None if by_itself else commits,
        )  # fmt: skip
        found.append(Prediction(translate(given), True, Risks(), date(2026, 11, 1)))
    return found


@pytest.mark.parametrize("number", range(1000 + FIRST, 1000 + FIRST + DRAWN))
def test_no_cell_of_configurations_that_run_together_is_violated(number, tmp_path, need):
    need("java")
    made = predictions(number, tmp_path)
    trials = [one.parts.trial(control=one is made[-1]) for one in made]
    blocks, closing = made[0].parts.faults
    chosen = sorted(random.Random(number).sample(range(len(blocks)), min(BLOCKS, len(blocks))))
    document = trials[0].model_dump(mode="json", exclude_none=True)
    document["workloads"] = [w.model_dump(mode="json", exclude_none=True) for trial in trials for w in trial.workloads]
    steps = [*(step for block in chosen for step in blocks[block]), *closing]
    document["steps"] = [step.model_dump(mode="json", exclude_none=True) for step in steps]
    document["controls"] = []
    plan = make_plan(parse_trial(document, source="drawn"), seed=number)
    (tmp_path / "plan.json").write_text(plan.model_dump_json(exclude_none=True), encoding="utf-8")
    command = [sys.executable, "-m", "prozess", "run", "plan.json", "--runs", "runs", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode in (0, 1, 2), done.stderr
    (verdict,) = [json.loads(path.read_text("utf-8")) for path in (tmp_path / "runs").glob("*/verdict.json")]
    owners = [one for one, trial in zip(made, trials, strict=True) for _ in trial.workloads]
    for cell, owner in zip(verdict["cells"], owners, strict=True):
        possible = {weakness.guarantee.anomaly for weakness in owner.weaknesses}
        possible |= {name for concern in owner.concerns for name in concern.denies}
        violated = {n: seen["reason"] for n, seen in cell["anomalies"].items() if seen["outcome"] == "violated"}
        texts = {str(reading.path): Path(reading.path).read_text("utf-8") for reading in owner.parts.readings}
        assert not violated.keys() & possible, f"{texts}\n{violated}"
        assert not violated, f"promised, and violated: {texts}\n{violated}"
