"""What docs/extending.md adds: its package, installed as `pip install` does it, and a copy of prozess with the rest.

Each is a directory to be put on the path of a program."""

import re
import shutil
import subprocess
import sys
from itertools import takewhile

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


PACKAGES = ("checkers", "clusters", "harness", "nemesis", "spark_checkers", "workloads")
FILE_BLOCK = re.compile(r"```python\n# (\S+)\n(.*?)```", flags=re.DOTALL)


def blocks(kind):
    """(file, text) of each block of Python in the section about `kind`."""
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    return FILE_BLOCK.findall(page.partition(f"## A new {kind}\n")[2].partition("\n## ")[0])


def enter(file, entry):
    """Put an entry into a registry: its imports before those that are there, the rest around the line that `...` follows."""
    lines = entry.rstrip("\n").split("\n")
    imports = list(takewhile(lambda line: line.startswith("from "), lines))
    dots = next(number for number, line in enumerate(lines) if line.strip() == "...")
    opening = lines[dots - 1]
    functions = "\n".join(lines[len(imports) : dots - 1]).strip("\n")
    values = [line for line in lines[dots + 1 :] if line.strip(" ,") not in ("}", ")")]
    text = file.read_text(encoding="utf-8")
    assert text.count(f"\n{opening}\n") == 1, f"{file.name} has not exactly one line {opening!r}"
    before, after = text.split(f"\n{opening}\n")
    start = before.index("\nfrom prozess.") + 1
    before = "".join(f"{line}\n" for line in imports).join((before[:start], before[start:]))
    middle = f"{functions}\n\n\n{opening}" if functions else opening
    file.write_text("\n".join((before, middle, *values, after)), encoding="utf-8")


def extend(directory):
    """Make a copy of prozess in `directory`, and add to it everything that the page adds to prozess itself."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / "prozess" / package)
    for path in (path for path in (ROOT / "prozess").iterdir() if not path.is_symlink()):
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, directory / "prozess" / path.name)
    for kind in ("checker", "fault", "workload", "backend", "format of configuration files"):
        (new, text), (registry, entry) = blocks(kind)
        added, listed = (directory / "prozess" / name.removeprefix("prozess/") for name in (new, registry))
        assert not added.exists(), f"{new}: there is such a file already"
        added.write_text(text, encoding="utf-8")
        enter(listed, entry)
    return directory
