"""The package of docs/extending.md, installed as `pip install` does it, to be put on the path of a program."""

import re
import subprocess
import sys

from tests.support.paths import ROOT

BLOCK = re.compile(r"```(toml|python)\n(.*?)```", flags=re.DOTALL)
LIMIT_S = 240


def install(project, place):
    """Write the package of the page into the directory `project`, and install it into `place`."""
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    section = page.partition("## In a package of your own\n")[2].partition("\n## ")[0]
    (metadata,) = [text for kind, text in BLOCK.findall(section) if kind == "toml"]
    (code,) = [text for kind, text in BLOCK.findall(section) if kind == "python"]
    (project / "pyproject.toml").write_text(metadata, encoding="utf-8")
    (project / "acme_trials.py").write_text(code, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*pip, "--target", str(place), str(project)], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert not done.returncode, done.stderr
    return place
