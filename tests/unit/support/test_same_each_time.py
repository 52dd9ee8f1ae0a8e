"""Whoever runs the tests to see whether it works finds the same each time."""

import subprocess
import sys

from tests.support.paths import ROOT

DRAWS = """
import os, sys
os.environ.pop("PROZESS_FUZZ", None)
import tests.conftest
from hypothesis import given, strategies as st
drawn = []

@given(st.integers(), st.text(max_size=9))
def draw(number, word):
    drawn.append((number, word))

{first}
draw()
print(len(drawn), hash(str(drawn)))
"""


def drawn(first):
    command = [sys.executable, "-c", DRAWS.format(first=first)]
    environment = {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True)
    return made.stdout


def test_the_cases_of_a_property_do_not_depend_on_the_modules_that_other_tests_have_loaded():
    alone = drawn("")
    assert int(alone.split()[0]) >= 20
    assert (
        drawn("import prozess.harness.plan.plan, prozess.harness.config.configuration, prozess.checkers.log.losses")
        == alone
    )
