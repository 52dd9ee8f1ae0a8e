"""What `import prozess` gives is whole, lazy and typed, and pages and examples use nothing else."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from types import ModuleType
from typing import get_args

import pytest
from pydantic import BaseModel

import prozess
from prozess import extend, trials
from prozess.harness.plan.axes import text_of
from prozess.harness.plan.trial_files import known_trials, load_trial, parse_trial
from tests.support.paths import EXAMPLES, ROOT

PUBLIC = frozenset({"prozess", "prozess.extend", "prozess.spark", "prozess.trials"})
PACKAGES = ("checkers", "clusters", "harness", "nemesis", "spark_checkers", "workloads")
PRODUCTS = ("app", "campaigns", "exchange", "testing", "validation", "watch")
FACE = ROOT / "prozess" / "__init__.py"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
INDENTED = re.compile(r"^    ((?:from|import) prozess\b.*)$", re.MULTILINE)
WITHIN = re.compile(rf"# (?:{'|'.join((*PACKAGES, 'prozess'))})/\S+\n")
"""How a block begins that is a file of prozess itself, in docs/extending.md."""
OURS = {"extending.md"}
"""Pages with blocks of code that is added to prozess itself, which imports where things are."""


FROM_FACE = re.compile(r"from prozess import|prozess\.(?:extend|spark|trials)\b")
"""Where an import of what is for users may be: the syntax tree says, but takes longer."""


def for_type_checkers():
    """Name → module, as the imports for type checkers say it."""
    found = {}
    for statement in ast.parse(FACE.read_text("utf-8")).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for node in (node for node in statement.body if isinstance(node, ast.ImportFrom)):
                found |= {alias.name: node.module for alias in node.names}
    return found


def test_type_checkers_see_exactly_the_names_that_can_be_imported():
    told = {name: module for name, module in for_type_checkers().items() if name in prozess.__all__}
    places = {name: module for module, names in prozess._MODULE_OF.items() for name in names}
    assert told == places | dict.fromkeys(prozess._MODULES, "prozess")
    assert sorted(told) == sorted(prozess.__all__)


@pytest.mark.parametrize("name", prozess.__all__)
def test_every_public_name_is_there_and_is_explained(name):
    value = getattr(prozess, name)
    assert name in dir(prozess)
    if isinstance(value, type | ModuleType) or callable(value):
        assert value.__doc__


@pytest.mark.parametrize("name", extend.__all__)
def test_every_name_for_extensions_is_there(name):
    assert getattr(extend, name) is not None


def test_a_name_that_is_not_public_is_an_attribute_error_as_of_any_module():
    with pytest.raises(AttributeError, match="module 'prozess' has no attribute 'nothing'"):
        prozess.nothing  # noqa: B018 - what is looked at is the access


def loaded_by(script):
    """The modules that are there after a script."""
    tail = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\n{tail}"], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(done.stdout))


def test_import_prozess_imports_nothing_that_takes_long():
    loaded = loaded_by("import prozess")
    assert {name for name in loaded if name.startswith("prozess")} == {
        "prozess", "prozess.harness", "prozess.harness.plan", "prozess.harness.plan.catalogue",
    }  # fmt: skip
    assert not loaded & {"numpy", "pyarrow", "pydantic", "pandas", "pyspark", "typer", "importlib.metadata"}


def test_to_read_a_run_needs_neither_spark_nor_pandas_nor_the_client():
    loaded = loaded_by("import prozess; prozess.load; prozess.trials.trial")
    assert not loaded & {"pandas", "pyspark", "confluent_kafka", "docker", "paramiko", "scipy"}


def test_what_extensions_import_reads_no_registry():
    """A registry imports extensions while it is imported itself: so they must not import it."""
    loaded = loaded_by("import prozess; prozess.extend")
    assert not {name for name in loaded if name.startswith("prozess") and name.endswith("registry")}


def test_the_wheel_has_the_marker_of_a_typed_package_and_every_public_module():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    own = {path.relative_to(ROOT).as_posix() for path in (ROOT / "prozess").glob("*.py*") if path.is_file()}
    own.add("prozess/py.typed")
    assert (ROOT / "prozess" / "py.typed").is_file()
    assert own <= set(wheel["only-include"])


def test_the_version_is_said_in_one_place():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert prozess.__version__ == version
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == version, "CHANGELOG.md begins with another version"


def imported_modules(code):
    """Modules of ours that a text of Python imports. What is no whole program is looked at line by line."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        nodes = [node for line in code.splitlines() if re.match(r"\s*(from|import) ", line) for node in lines_of(line)]
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "prozess":
            names = {alias.name for alias in node.names}
            found |= {f"prozess.{name}" for name in names - set(prozess.__all__)}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name for name in found if name.partition(".")[0] == "prozess"}


def lines_of(line):
    return ast.walk(ast.parse(line.strip().removesuffix("(") if line.strip().endswith("(") else line.strip()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_import_public_names_alone(page):
    text = page.read_text("utf-8")
    blocks = [block for block in PYTHON.findall(text) if not WITHIN.match(block)]
    indented = [] if page.name in OURS else INDENTED.findall(text)
    inner = set().union(*map(imported_modules, [*blocks, *indented])) - PUBLIC
    assert not inner, "not public: name it in prozess/__init__.py or prozess/extend.py, or use another name"


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_examples_import_public_names_alone(path):
    assert imported_modules(path.read_text("utf-8")) <= PUBLIC


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_import_public_names_alone(path):
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert imported_modules("\n".join("".join(cell["source"]) for cell in cells)) <= PUBLIC


def test_no_package_of_prozess_imports_what_is_for_users():
    wrong = []
    for package in (*PACKAGES, *(f"prozess/{product}" for product in PRODUCTS)):
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text("utf-8")
            for node in ast.walk(ast.parse(text)) if FROM_FACE.search(text) else ():
                names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom | ast.Import) else set()
                module = getattr(node, "module", None)
                if (module == "prozess" and names - {*PACKAGES, *PRODUCTS, "command"}) or module in PUBLIC - {
                    "prozess"
                }:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong, f"{wrong}: import it from where it is."


# Trials in Python.

MODELS = {
    value.__wrapped__: name for name, value in vars(trials).items() if hasattr(value, "__wrapped__") and name[0] != "_"
}


def scopes_whole(builder, fields):
    """Report whether everything is given that has no default."""
    required = {name for name, field in builder.__wrapped__.model_fields.items() if field.is_required()}
    return required <= fields.keys()


def built(value):
    """The same value, built by the functions of prozess.trials."""
    if not isinstance(value, BaseModel):
        return tuple(map(built, value)) if isinstance(value, tuple) else value
    fields = {name: built(getattr(value, name)) for name in value.model_fields_set}
    if isinstance(value, trials.FaultAction):
        return trials.fault(fields["fault"], *fields["targets"], **fields.get("parameters", {}))
    if isinstance(value, trials.Step):
        return trials.step(**fields)
    if isinstance(value, trials.WorkloadSpec):
        scopes = {scope: getattr(trials, scope) for scope in trials._SCOPES.values()}
        given = {}
        for key, setting in fields.pop("base", {}).items():
            scope, _, name = key.partition(".")
            if name.startswith("properties."):
                given.setdefault(scope, {}).setdefault("properties", {})[name.removeprefix("properties.")] = setting
            else:
                given.setdefault(scope, {})[name] = setting
        partly = {key for key in given if not scopes_whole(scopes[key], given[key])}
        base = {f"{scope}.{key}": setting for scope in partly for key, setting in given.pop(scope).items()}
        settings = [scopes[scope](**own) for scope, own in given.items()]
        return trials.workload(settings=settings, base=base, **fields)
    return getattr(trials, MODELS[type(value)])(**{k: v for k, v in fields.items() if k not in ("kind", "condition")})


def as_written(trial):
    """A trial with the settings of its cells as their text, which is all that a plan has of them."""
    workloads = [
        one.model_copy(update={"base": {k: text_of(one.base[k]) for k in one.base}}) for one in trial.workloads
    ]
    return trial.model_copy(update={"workloads": workloads})


@pytest.mark.parametrize("name", sorted(known_trials()))
def test_every_trial_that_comes_with_prozess_can_be_built_in_python(name):
    wanted = load_trial(name)
    fields = {key: built(getattr(wanted, key)) for key in wanted.model_fields_set}
    workloads = fields.pop("workloads")
    made = trials.trial(fields.pop("name"), *workloads, **fields)
    assert as_written(made) == as_written(wanted)


def test_the_trial_of_the_python_page_equals_that_of_the_first_hour():
    (text,) = re.findall(
        r"```toml\n(name = \"mine\".*?)```", (ROOT / "docs" / "first-hour.md").read_text("utf-8"), re.DOTALL
    )
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    (code,) = (block for block in PYTHON.findall(page) if "mine = trials.trial(" in block)
    space = {}
    exec(code.partition("run = prozess.run(")[0], space)
    assert space["mine"] == parse_trial(tomllib.loads(text), source="first-hour.md")


def test_the_names_that_an_editor_completes_are_those_that_there_are():
    from prozess.harness.plan.workloads import registry as kinds
    from prozess.nemesis import registry as faults

    assert set(get_args(trials.FaultName)) == set(faults._FAULTS)
    assert set(get_args(trials.WorkloadName)) == set(kinds._OWN)


def test_a_mistake_in_a_trial_is_a_sentence_that_names_it():
    with pytest.raises(prozess.BadInput, match=r"topic: min_insync_replicas = 0: .*greater than or equal to 1"):
        trials.topic(min_insync_replicas=0)
    with pytest.raises(prozess.BadInput, match="topic: replicas is not known"):
        trials.topic(replicas=3)
    with pytest.raises(prozess.BadInput, match="elapsed: seconds is missing"):
        trials.elapsed()
    with pytest.raises(prozess.BadInput, match="fault 'kil' is not known"):
        trials.fault("kil", "leader(0)")
    with pytest.raises(prozess.BadInput, match="target 'the leader' is not a role"):
        trials.fault("kill", "the leader")
    with pytest.raises(prozess.BadInput, match=r"topic\.min_insync_replicas is given twice"):
        trials.workload(settings=[trials.topic(min_insync_replicas=2), trials.topic(min_insync_replicas=1)])
    with pytest.raises(prozess.BadInput, match="two steps are named 'a'"):
        trials.trial("twice", steps=[trials.step("a"), trials.step("a")])


def test_only_what_somebody_sets_is_a_setting():
    made = trials.workload(settings=[trials.producer(acks="1", properties={"linger.ms": "5"}), trials.topic()])
    assert made.base == {"producer.acks": "1", "producer.properties.linger.ms": "5"}


def test_overrides_of_a_trial_in_python_are_refused_and_those_of_a_name_count():
    with pytest.raises(prozess.BadInput, match="overrides change a trial by name or file"):
        prozess.plan(trials.trial("mine"), overrides={"traffic.rate_hz": 5})
    planned = prozess.plan("smoke", overrides={"traffic.rate_hz": 5}, isolation="signals")
    assert {client.traffic.rate_hz for client in planned.clients if client.role == "producer"} == {5}
