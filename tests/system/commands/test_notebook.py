"""The notebook of the documentation is carried out, cell by cell, and shows what is stored in it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import EXAMPLES

NOTEBOOK = EXAMPLES / "python" / "history.ipynb"
LIMIT_S = 240
KERNEL = """
import ast, contextlib, io, json, sys

space, reported = {"__name__": "__main__"}, []
for source in json.load(sys.stdin):
    tree, stated, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(stated):
        exec(compile(tree, "cell", "exec"), space)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), space)
    reported.append([stated.getvalue(), None if value is None else repr(value)])
json.dump(reported, sys.stdout)
"""
"""What Jupyter does with code: the cells share their names, and the value of the last expression is shown."""


@pytest.fixture(scope="module")
def cells():
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert notebook["nbformat"] == 4
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def carried_out(cells, tmp_path_factory):
    """What each cell printed, and the text of its value."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", KERNEL],
        input=json.dumps(["".join(cell["source"]) for cell in cells]),
        cwd=tmp_path_factory.mktemp("notebook"),
        env=environment | {"TMPDIR": str(tmp_path_factory.mktemp("runs"))},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def stored(cell):
    """What a cell of the notebook shows: what it printed, and the text of its value."""
    printed, value = "", None
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            printed += "".join(output["text"])
        else:
            value = "".join(output["data"]["text/plain"])
    return [printed, value]


def test_the_notebook_shows_what_its_cells_do(cells, carried_out):
    for number, (cell, done) in enumerate(zip(cells, carried_out, strict=True), 1):
        assert done == stored(cell), f"cell {number}: carry the notebook out again, and store it"


def test_its_cells_were_carried_out_in_their_order(cells):
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))


def test_it_finds_what_it_plants(carried_out):
    assert carried_out[0][0].startswith("violated\n")
    assert "lost  violated      5" in carried_out[1][1]
