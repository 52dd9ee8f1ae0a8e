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


BLOCKS = BLOCK.findall((ROOT / "docs" / "python.md").read_text("utf-8"))


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """What mypy says of each file of somebody who has prozess installed, of all of them at once: to read the types of prozess
    from its cache takes longest."""
    section = (ROOT / "docs" / "extending.md").read_text("utf-8").partition("## In a package of your own\n")[2]
    texts = {f"block_{number}": text for number, text in enumerate(BLOCKS)}
    texts |= {"mistakes": MISTAKES, "acme_trials": BLOCK.findall(section)[0]}
    paths = {name: tmp_path_factory.mktemp("typed") / f"{name}.py" for name in texts}
    for name, path in paths.items():
        path.write_text(texts[name], encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *map(str, paths.values())]
    # On a busy machine mypy's own workers may not come up in time ("No status file found").
    alone = {**os.environ, "MYPY_NUM_WORKERS": "0"}
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    found = {name: [line for line in lines if line.startswith(f"{path}:")] for name, path in paths.items()}
    assert sum(map(len, found.values())) == len(lines), done.stdout
    return {name: [line.removeprefix(str(paths[name])) for line in own] for name, own in found.items()}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_code_of_the_page_is_typed(number, errors):
    assert errors[f"block_{number}"] == []


def test_every_mistake_is_found_in_its_line(errors):
    found = {int(line.split(":")[1]) for line in errors["mistakes"] if "error:" in line}
    lines = MISTAKES.splitlines()
    assert found == set(range(lines.index('trials.topic(min_insync="2")') + 1, len(lines) + 1))


def test_a_package_that_extends_prozess_is_typed(errors):
    assert errors["acme_trials"] == []
