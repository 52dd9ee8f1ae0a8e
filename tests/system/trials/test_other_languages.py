"""A producer and a consumer on another client library, as programs of their own, while a leader of a cluster is killed."""

import json
from pathlib import Path

import numpy as np
import pytest

from prozess.harness.history.convert import History
from prozess.harness.schema import NONE, Isolation, Outcome
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]

LANGUAGES = Path(__file__).parents[3] / "docs" / "examples" / "languages"


def test_programs_on_aiokafka_are_recorded_and_judged_by_what_they_print(run_trial, need):
    need("java")
    need("namespaces")
    pytest.importorskip("aiokafka", reason="aiokafka is not installed: pip install 'prozess[aiokafka]'")
    text = (LANGUAGES / "aiokafka.toml").read_text(encoding="utf-8").replace("docs/examples/languages", str(LANGUAGES))
    finished = run_trial(text, "--engine", "local")
    verdict = finished.verdict
    assert verdict.verdict is Verdict.HELD, verdict.sentence
    for cell in verdict.cells:
        for anomaly in ("lost", "dirty-read", "skipped", "rewound"):
            assert cell.anomalies[anomaly].outcome is AnomalyOutcome.HELD, (cell.name, anomaly)
    history = History.open(finished.run)
    sends, reads, commits = (history.table(name) for name in ("sends", "reads", "commits"))
    programs = [c.client for c in history.plan.clients if c.reads_by_command]
    assert len(programs) == 2
    for program in programs:
        (cell,) = {c.cell for c in history.plan.clients if c.client == program}
        mine = np.isin(sends["partition"], history.plan.cells[cell].partitions)
        acknowledged = int(np.count_nonzero(mine & (sends["outcome"] == Outcome.OK)))
        own = reads["client"] == program
        assert len(np.unique(reads["log_offset"][own] * 10_000 + reads["partition"][own])) >= acknowledged > 300
        committed = commits["client"] == program
        assert np.count_nonzero(committed & (commits["outcome"] == Outcome.OK)) > 10
        assert set(commits["position"][committed].tolist()) == {NONE}
    clients = history.table("clients")
    assert set(clients["isolation"][np.isin(clients["client"], programs)].tolist()) == {Isolation.UNREPORTED}
    told = json.loads(finished.run.versions.read_text(encoding="utf-8"))["clients"]
    commands = {Path(one["command"][-1]).name for one in told if "command" in one}
    assert commands == {"aiokafka_producer.py", "aiokafka_consumer.py"}
