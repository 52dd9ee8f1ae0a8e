"""`prozess explain`: everything that a verdict can name is explained, with its source."""

import pytest

from prozess.app.explain import explain
from prozess.app.explain_tickets import ids_in
from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.exchange.commands import generate_history
from prozess.harness.config.impairments import Capability
from prozess.harness.errors import BadInput
from prozess.harness.guarantees.facts.registry import FACTS
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.known_defects import DEFECTS
from prozess.harness.plan import catalogue
from prozess.harness.plan.trial import SCENARIOS
from prozess.harness.report.words import MEANINGS
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import AnomalyOutcome
from prozess.nemesis.registry import fault_named
from tests.support.paths import ROOT

RULES = [(rule, guarantee) for guarantee in TABLE.values() for rule in guarantee.rules]


def flat(text):
    return " ".join(text.split())


@pytest.mark.parametrize("anomaly", TABLE)
def test_every_anomaly_is_explained_with_its_promise_its_source_and_every_rule(anomaly, capsys):
    explain(anomaly, sources=True)
    told, guarantee = flat(capsys.readouterr().out), TABLE[anomaly]
    assert guarantee.promise in told
    assert guarantee.source in told
    assert "forbidden" in told
    assert all(rule.id in told and rule.reason in told for rule in guarantee.rules)


@pytest.mark.parametrize("anomaly", TABLE)
def test_each_rule_of_an_anomaly_has_one_line_without_its_source(anomaly, capsys):
    explain(anomaly)
    lines, rules = capsys.readouterr().out.splitlines(), TABLE[anomaly].rules
    for number, rule in enumerate(rules, 1):
        (line,) = [line for line in lines if line.startswith(f"{number}. {rule.id}:")]
        assert line.endswith(", ".join(rule.when))
    assert not any(f"({rule.source})" in line for rule in rules for line in lines)


@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_that_a_rule_names_is_explained(fact, capsys):
    explain(fact)
    told = flat(capsys.readouterr().out)
    assert flat(FACTS[fact].meaning) in told or fact in TABLE


@pytest.mark.parametrize("need", Capability)
def test_what_a_fault_needs_is_said_in_words(need, capsys):
    fault = next((name for name in catalogue.FAULTS if need in fault_named(name).needs), None)
    assert fault is not None, need
    explain(fault)
    assert "needs a backend that can " in flat(capsys.readouterr().out)


@pytest.mark.parametrize(("rule", "guarantee"), RULES, ids=[rule.id for rule, _ in RULES])
def test_every_rule_is_explained_with_what_its_facts_mean(rule, guarantee, capsys):
    explain(rule.id)
    told = flat(capsys.readouterr().out)
    assert guarantee.promise in told
    assert told.count(" fact ") == len(rule.when)


NAMED = sorted(
    ids_in(f"{TABLE} {DEFECTS}").union(
        *(
            ids_in(path.read_text("utf-8"))
            for folder, pattern in (("trials", "*.toml"), ("docs", "*.md"))
            for path in (ROOT / folder).glob(pattern)
        )
    )
)
"""Every ticket and proposal that the table, a trial or a page names."""


@pytest.mark.parametrize("name", NAMED)
def test_every_ticket_and_proposal_that_is_named_anywhere_is_explained(name, capsys):
    explain(name)
    printed = flat(capsys.readouterr().out)
    assert printed.startswith(f"{name} ")
    assert " named by " in printed or " page " in printed
    assert (name in DEFECTS) == (" status " in printed and f"status {name}, " in printed)


def test_a_ticket_that_nothing_names_is_refused_with_near_ones():
    with pytest.raises(BadInput, match=r"no ticket that prozess knows.*Did you mean KAFKA-"):
        explain("KAFKA-15592")


@pytest.mark.parametrize(
    "word",
    [
        "control",
        "silent",
        "permitted",
        "acks",
        "min.insync",
        "enable.idempotence",
        "nemesis",
        "audit",
        "ISR",
    ],
)
def test_every_word_of_the_tables_is_explained_with_its_source(word, capsys):
    explain(word)
    told = flat(capsys.readouterr().out)
    assert told.startswith(word) or word in told.splitlines()[0]
    assert "source" in told or word == "permitted"


@pytest.mark.parametrize("outcome", AnomalyOutcome)
def test_every_outcome_is_explained_and_a_verdict_with_its_exit_code(outcome, capsys):
    explain(str(outcome))
    told = flat(capsys.readouterr().out)
    assert MEANINGS[outcome] in told
    assert ("Exit code" in told) == (outcome in ("held", "violated", "unknown"))


@pytest.mark.parametrize("fault", catalogue.FAULTS)
def test_every_fault_is_explained_with_its_parameters_and_what_it_may_do(fault, capsys):
    explain(fault)
    told = flat(capsys.readouterr().out)
    kind = catalogue.FAULTS.named(fault)
    assert all(f"parameter {name}" in told for name in kind.parameters_model.model_fields)
    assert " may " in told
    assert "do anything" not in told, "the guarantees must know what it does"


def test_what_is_only_counted_is_said_to_be_no_promise(capsys):
    explain("unseen")
    assert "No guarantee judges it" in flat(capsys.readouterr().out)


def test_a_name_that_nobody_knows_is_refused_with_the_nearest_ones():
    with pytest.raises(BadInput, match=r"lsot.*Did you mean lost"):
        explain("lsot")


def test_a_run_without_a_verdict_is_told_how_to_get_one(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(BadInput, match="prozess check"):
        explain(str(tmp_path))


def test_a_run_is_explained_as_its_report_tells_it_with_the_place_of_its_witnesses(tmp_path, capsys):
    out = tmp_path / "run"
    generate_history(out, rows=2000, partitions=2, plant="lost=3", workloads=["log"], seed=1)
    run = RunDirectory(out)
    judge_run(run, check_run(run, CheckOptions(engine="local")))
    explain(str(out))
    told = flat(capsys.readouterr().out)
    assert "✗ violated lost: 3 in 1 cell lost/forbidden" in told
    assert "report.html#w-0-lost" in told


def test_a_scenario_is_explained_with_the_trials_that_run_it(capsys):
    explain("B10")
    told = flat(capsys.readouterr().out)
    assert SCENARIOS["B10"] in told
    assert "`prozess plan power-loss`" in told


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("smoke", "is a trial.*prozess plan smoke"),
        ("runs/none", "is not a run directory: it does not exist"),
        ("tests", "is not a run directory: it has no plan.json"),
    ],
)
def test_what_is_no_word_of_the_table_is_told_for_what_it_is(subject, said, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(BadInput, match=said):
        explain(subject)
