"""The page of the trial file's keys is what the models say, and says it of each key."""

import tomllib

import pytest

from prozess.harness.plan.axes import SCOPE_MODELS
from prozess.harness.plan.trial import Trial, WorkloadSpec
from tests.support.paths import ROOT
from tools.trial_page import DOCUMENT, TABLES, keys, render


def test_the_page_is_made_from_the_models_as_they_are():
    assert DOCUMENT.read_text(encoding="utf-8") == render(), "run python -m tools.trial_page"


@pytest.mark.parametrize(
    "model", [*(model for _, model in TABLES), *SCOPE_MODELS.values()], ids=lambda one: one.__name__
)
def test_each_key_has_a_meaning_and_says_which_values_it_takes(model):
    for name, values, default, meaning in keys(model):
        assert meaning, f"{model.__name__}.{name} has no docstring"
        assert values not in ("", "any") or name in ("do", "after", "expect"), f"{model.__name__}.{name}: {values}"
        assert default


def test_every_key_of_the_shipped_trials_is_on_the_page():
    page = DOCUMENT.read_text(encoding="utf-8")
    files = sorted((ROOT / "trials").glob("*.toml"))
    assert len(files) > 50
    known = {name for model in (Trial, WorkloadSpec) for name, *_ in keys(model)} | {"workload", "matrix"}
    for path in files:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        assert content.keys() <= known, path.name
        settings = [*content.get("base", {}), *content.get("axes", {})]
        for setting in (name for name in settings if ".properties." not in name and not name.startswith("variant.")):
            assert f"`{setting}`" in page, f"{path.name}: {setting}"
