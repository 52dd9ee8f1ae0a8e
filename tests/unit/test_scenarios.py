"""Scenarios have numbers; trials say which they run."""

from harness.report.terminal import show_scenarios
from harness.scenarios import SCENARIOS, covered
from harness.trial import known_trials, load_trial


def trials():
    return [load_trial(str(path)) for path in known_trials().values()]


def test_every_trial_names_scenarios_that_exist():
    assert {trial.name: set(trial.scenarios) - set(SCENARIOS) for trial in trials()} == {
        t.name: set() for t in trials()
    }


def test_scenarios_that_no_trial_runs_are_shown_as_such(capsys):
    found = covered(trials())
    assert list(found) == list(SCENARIOS)
    show_scenarios(trials())
    told = capsys.readouterr().out
    assert f"{sum(map(bool, found.values()))} of {len(SCENARIOS)} scenarios" in told
    show_scenarios([])
    assert told.count("none") <= capsys.readouterr().out.count("none") == len(SCENARIOS)
