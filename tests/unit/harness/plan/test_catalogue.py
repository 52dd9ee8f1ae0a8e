"""The catalogues of `harness` read the registries of other packages, whoever is imported first."""

import subprocess
import sys

import pytest

from prozess.harness.errors import BadInput
from prozess.harness.plan import catalogue
from prozess.nemesis.process import Kill
from prozess.nemesis.registry import FAULTS

LIMIT_S = 120


def test_a_catalogue_has_what_its_registry_has_now(monkeypatch):
    assert dict(catalogue.FAULTS) == FAULTS
    monkeypatch.setitem(FAULTS, "again", Kill)
    assert catalogue.FAULTS.named("again") is Kill


def test_a_name_that_nothing_has_is_refused_with_the_names_that_there_are():
    with pytest.raises(BadInput, match=r"^backend 'moon' is not known\. Known: attach, compose, local, ssh\.$"):
        catalogue.BACKENDS.named("moon")


@pytest.mark.parametrize(
    "first", ["prozess.harness.plan.catalogue", "prozess.harness.plan.plan", "prozess.clusters.registry"]
)
def test_catalogues_know_their_registries_whatever_is_imported_first(first):
    script = f"import sys, {first}\nassert 'prozess.nemesis.registry' not in sys.modules\n"
    script += "from prozess.harness.plan import catalogue\n"
    script += "assert catalogue.FAULTS and catalogue.BACKENDS and catalogue.CHECKERS"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=LIMIT_S)
