"""What `plan` refuses, and `run` before it makes anything: versions, isolation, and faults that cannot be made here."""

import pytest

from prozess.app.conduct import conduct
from prozess.app.run.outside_sandbox import refuse_plan
from prozess.app.run_options import RunOptions
from prozess.harness.config.configuration import NEWEST_VERSION
from prozess.harness.errors import BadInput, UnsupportedFault
from prozess.harness.exit_codes import ExitCode
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import load_trial, parse_trial
from tests.unit.prozess.app.test_cli import called


def planned(*, variant=None, **fault):
    do = {"kind": "fault", "targets": ["leader(0)"], **fault}
    document = {"name": "x", "title": "", "variant": variant or {}, "steps": [{"name": "s", "do": do}] if fault else []}
    return make_plan(parse_trial(document, source="x"), seed=1)


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (planned(fault="partition"), r"Step 's' needs 'partition', which the local backend cannot do here: no network"),
        (planned(fault="latency", parameters={"latency_ms": 5}), "needs 'latency', which the local backend cannot"),
    ],
)
def test_a_fault_that_the_isolation_does_not_allow_is_refused(plan, says):
    with pytest.raises(UnsupportedFault, match=says):
        refuse_plan(plan, isolation="signals")
    refuse_plan(planned(fault="pause"), isolation="signals")


def test_a_version_that_is_not_run_and_a_level_that_is_none_are_refused():
    with pytest.raises(BadInput, match=r"2\.8\.0.*ready for production from 3\.3 on"):
        refuse_plan(planned(variant={"kafka_version": "2.8.0"}), isolation="signals")
    with pytest.raises(BadInput, match=r"versions of broker-2 = '3\.2\.3' has KRaft only as a preview"):
        refuse_plan(planned(variant={"versions": {"broker-2": "3.2.3"}}), isolation="signals")
    with pytest.raises(BadInput, match="--isolation 'some' is not known"):
        refuse_plan(planned(), isolation="some")


def test_a_version_that_nobody_knows_is_refused_where_nobody_can_be_asked(monkeypatch, tmp_path):
    monkeypatch.setenv("PROZESS_CACHE", str(tmp_path))
    monkeypatch.setenv("PROZESS_MAVEN_URL", "http://127.0.0.1:1/maven2")
    monkeypatch.setattr("prozess.clusters.install.repository.BACKOFF_S", 0)
    with pytest.raises(BadInput, match=r"PROZESS_MAVEN_URL was tried, .*cannot be reached.*nearest .*: 4\.\d+\.\d+\.$"):
        refuse_plan(planned(variant={"kafka_version": "99.0.0"}), isolation="signals")
    refuse_plan(planned(variant={"kafka_version": NEWEST_VERSION}), isolation="signals")


def test_what_is_refused_leaves_no_run_directory(tmp_path):
    options = RunOptions(tmp_path / "runs", "local", 1, "signals", quiet=True, as_json=False)
    with pytest.raises(UnsupportedFault):
        conduct(planned(fault="partition"), options)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("smoke", "--set", "variant.kafka_version=2.8.0"),
        ("smoke", "--set", "variant.kafka_version=4.3"),
        ("smoke", "--isolation", "nonsense"),
        ("network", "--isolation", "signals"),
    ],
)
def test_the_command_plan_refuses_what_run_would(monkeypatch, capsys, arguments):
    assert called(monkeypatch, "plan", *arguments) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err.count("\n") == 1


def test_the_command_plan_shows_what_can_be_run(monkeypatch, capsys):
    assert called(monkeypatch, "plan", "smoke", "--isolation", "signals") == 0
    assert load_trial("smoke").title in capsys.readouterr().out
