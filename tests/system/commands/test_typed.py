"""A type checker sees the public names as they are: what the page shows is accepted, and what is misspelt is not."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
LIMIT_S = 300
MISTAKES = """
import prozess
from prozess import trials

trials.topic(min_insync="2")
trials.producer(acks="2")
trials.workload(strength=5)
trials.step("a", trials.elapsed(seconds=5))
prozess.run("smoke", seeds=3)
prozess.nothing
run: int = prozess.load("runs/smoke-1")
"""


def checked(path):
    """What mypy says of a file of somebody who has prozess installed. The types of prozess itself come from its cache."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)]
    # On a busy machine mypy's own workers may not come up in time ("No status file found").
    alone = {**os.environ, "MYPY_NUM_WORKERS": "0"}
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [line.removeprefix(str(path)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("number", range(len(BLOCK.findall((ROOT / "docs" / "python.md").read_text("utf-8")))))
def test_the_code_of_the_page_is_typed(number, tmp_path):
    path = tmp_path / "block.py"
    path.write_text(BLOCK.findall((ROOT / "docs" / "python.md").read_text("utf-8"))[number], encoding="utf-8")
    assert checked(path) == []


def test_every_mistake_is_found_in_its_line(tmp_path):
    path = tmp_path / "mistakes.py"
    path.write_text(MISTAKES, encoding="utf-8")
    found = {int(line.split(":")[1]) for line in checked(path) if "error:" in line}
    lines = MISTAKES.splitlines()
    assert found == set(range(lines.index('trials.topic(min_insync="2")') + 1, len(lines) + 1))


def test_a_package_that_extends_prozess_is_typed(tmp_path):
    section = (ROOT / "docs" / "extending.md").read_text("utf-8").partition("## In a package of your own\n")[2]
    path = tmp_path / "acme_trials.py"
    path.write_text(BLOCK.findall(section)[0], encoding="utf-8")
    assert checked(path) == []
