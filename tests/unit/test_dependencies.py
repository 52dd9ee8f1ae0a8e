"""What is imported is declared, where a user would miss it, and what is declared is imported: pyproject.toml says what the
source says."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("harness", "clusters", "nemesis", "workloads", "checkers", "spark_checkers"),
    *(f"prozess/{product}" for product in ("app", "campaigns", "exchange", "testing", "validation", "watch")),
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

ALSO_BRINGS = {
    "jinja2": {"markupsafe"},
    "pydantic": {"pydantic_core"},
    "pyspark": {"py4j"},
    "pyspark[connect]": {"grpc", "grpc_status", "google", "zstandard"},
}
"""What comes with another package and is a part of its interface."""
LOADED_BY_THEM = {"pytest", "_pytest"}
"""Whoever loads the module that imports it has it: pytest its plugin."""


def name_of(requirement: str) -> str:
    """ "pandas>=2.2,<3" → "pandas"; an extra stays: "pyspark[connect]"."""
    found = re.match(r"[\w.-]+(\[[\w,-]+\])?", requirement)
    assert found, requirement
    return found[0].lower().replace("_", "-")


REQUIRED = {name_of(requirement) for requirement in PROJECT["dependencies"]}
OPTIONAL = {
    name_of(requirement)
    for extra, requirements in PROJECT["optional-dependencies"].items()
    if extra not in ("dev", "all", "fuzz")
    for requirement in requirements
}


def imported(tree: ast.AST) -> set[str]:
    """Top-level names of the modules that are imported anywhere below."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"prozess"}


@cache
def source() -> dict[str, set[str]]:
    """Module → the files of ours that import it. Not while tests are collected: every worker collects."""
    found: dict[str, set[str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for module in imported(ast.parse(path.read_text(encoding="utf-8"))):
                found.setdefault(module, set()).add(str(path.relative_to(ROOT)))
    return found


DISTRIBUTIONS = {
    module: {name.lower().replace("_", "-") for name in names} for module, names in packages_distributions().items()
}


def declared_by(module: str) -> set[str]:
    """Requirements that bring a module."""
    brought = {requirement for requirement, modules in ALSO_BRINGS.items() if module in modules}
    plain = {requirement for requirement in REQUIRED | OPTIONAL if requirement in DISTRIBUTIONS.get(module, {module})}
    return brought & (REQUIRED | OPTIONAL) | plain


def test_a_module_that_the_source_imports_is_declared() -> None:
    lacking = {
        module: sorted(files)[:3]
        for module, files in source().items()
        if module not in LOADED_BY_THEM and not declared_by(module)
    }
    assert not lacking, "imported, and not in pyproject.toml"


def test_what_is_required_is_imported_by_the_source() -> None:
    used = set().union(*map(declared_by, source()))
    unused = REQUIRED - used
    assert not unused, "nothing in the source imports it: it belongs to an extra, or nowhere"


def test_imports_in_functions_and_below_conditions_count_and_our_own_do_not() -> None:
    text = "import os\nfrom . import x\nif 1:\n  def f():\n    from a.b import c\n    import d.e, prozess.x\n"
    assert imported(ast.parse(text)) == {"a", "d"}
