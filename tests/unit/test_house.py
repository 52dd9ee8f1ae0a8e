"""The shape of the house is held here: how full a folder is, what is named twice, who imports whom in a circle."""

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise

import networkx
import pytest

from tests.support.paths import ROOT

PACKAGES = ("checkers", "clusters", "harness", "nemesis", "spark_checkers", "workloads")
OTHER_CODE = ("benchmarks", "docs", "tests", "tools", "trials")

FILES_IN_A_FOLDER_MAX = 25
ALIKE = {
    "docs": "pages of the documentation: docs/index.md leads to each",
    "trials": "each is a trial that `prozess run` knows by name",
}
"""Folders that hold more, because all of their files are alike → what each of them is."""

BARE = re.compile(rf"^\s*(?:from|import)\b.*(?<![.\w])(?:{'|'.join(PACKAGES)})\b", re.MULTILINE)
"""Where an import that lacks `prozess.` may be: the syntax tree tells, but takes longer than all else here."""

SOURCE_FILES_MAX = 331 + sum(
    {
        "tests with pytest: what they did not judge, states that applications keep, transactions left open": 3,
        "healing, verified at its end": 1,
        "what a configuration forgets, or gives up, after a time": 1,
        "what servers say in their own logs: as rows, and as facts": 2,
        "files that people import, compressed or not": 1,
        "what is planted in made histories: members, and what is waited for in vain": 2,
        "shares of a matrix, trials as tasks of Spark, groups of cells": 3,
        "the tables that a check makes, and those that a verdict is made of": 2,
        "excerpts of servers' logs": 1,
        "runs listed, and two of them side by side": 2,
        "import prozess: runs as values and tables, entry points of other packages": 2,
        "blocks of the lines of Jepsen's histories, and what they say together": 2,
        "what verifiable clients printed: its lines, runs, consumers and gaps": 5,
        "messages to a webhook": 1,
        "prozess watch: clients, topic, cluster; outages, losses, promises; what it shows, posts and writes down": 19,
        "what lies beside a configuration file; Connect's and Streams' files": 2,
        "the first lines of validate, and the lines at which settings stand": 2,
        "resources of Confluent for Kubernetes": 1,
        "settings of .NET; files and variables inside of Kubernetes' manifests": 2,
        "Compose files: their resolution and their brokers; what images hold, and brokers that differ": 5,
        "versions of client libraries, what they do where nothing is set, and what later ones fixed": 4,
        "rows that become tables with Spark, and files joined by their footers": 2,
        "releases of Kafka": 1,
        "leader epochs along logs": 1,
        "row groups that small partitions share": 1,
        "what a process of its own tries in a namespace, without an import of ours": 1,
        "large partitions of groups and of transactions, in pieces": 4,
        "messages of Kafka's protocol: their proxy, what is done to them, the fault": 15,
        "the two audits of a partition, and what its replicas have by offset; batches in sequence": 3,
        "a partition's log, how stretches of reads stand in it, and who received what when": 3,
        "processes of a large check, and what the C library does with memory that it frees": 2,
        "promises of progress: kernels, bounds, peace, guarantees, SQL; limits of stages": 9,
        "calls of administrators: made in a run, and answered": 2,
        "when an application asks its clients, and what its readers are given then": 2,
        "which code another machine runs, who may write into a shared place of results, mistakes in trials, tickets": 4,
        "calls of a server's methods: class files, Byteman's rules and agents, the fault": 7,
        "groups that settle, leaders and controllers, how long a cluster was left in peace": 5,
        "the order of a log against time": 1,
        "tables that contradict one another, and what their rows are compared with": 3,
        "what must have come of a step: its values, what refuses them, what was seen": 3,
        "replicas in sync that lack what was committed": 1,
        "what read_committed was given past the last stable offset": 1,
        "runs that somebody sent: this machine's record, what a plan reaches; signals from the first import on; inputs": 4,
    }.values()
)
"""The goal is 330. A file more needs one fewer elsewhere, or a new subject here, and how many files it has."""

NO_MIRROR = {
    "support": "tests of tests/support, which mirrors nothing",
}
"""Folders of tests/unit that have no counterpart in the source → why."""


def files(folder):
    """Everything below a folder but what Python puts there."""
    return (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)


@cache
def modules():
    """Name of a module of the packages → (its file, its syntax tree)."""
    found = {}
    for package in PACKAGES:
        for path in files(package):
            if path.suffix == ".py":
                parts = path.relative_to(ROOT).with_suffix("").parts
                name = ".".join(("prozess", *(parts[:-1] if parts[-1] == "__init__" else parts)))
                found[name] = path, ast.parse(path.read_text("utf-8"))
    return found


def is_package(module):
    return modules()[module][0].name == "__init__.py"


def executed_on_import(statements):
    """Import statements that are executed when the module is: not those in functions or for type checkers."""
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            continue
        elif isinstance(statement, ast.If | ast.Try | ast.With | ast.ClassDef):
            bodies = [getattr(statement, part, []) for part in ("body", "orelse", "finalbody")]
            for body in bodies + [handler.body for handler in getattr(statement, "handlers", [])]:
                yield from executed_on_import(body)


def imported_names(statement):
    """What a statement imports, with its whole name: `from a import b` is a.b if that is a module, else a."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    whole = [f"{statement.module}.{alias.name}" for alias in statement.names]
    return [name if name in modules() else statement.module for name in whole]


@cache
def imports():
    """A graph: module → module that it imports while it is imported itself."""
    graph = networkx.DiGraph()
    for module, (_, tree) in modules().items():
        for statement in executed_on_import(tree.body):
            graph.add_edges_from((module, name) for name in imported_names(statement) if name in modules())
    graph.remove_edges_from([(module, module) for module in graph if graph.has_edge(module, module)])
    return graph


def circle(graph):
    """Some circle of a graph, as a sentence; None if there is none."""
    try:
        edges = networkx.find_cycle(graph)
    except networkx.NetworkXNoCycle:
        return None
    return " → ".join([edges[0][0], *(target for _, target in edges)])


def test_no_folder_is_fuller_than_a_reader_can_look_over():
    count = Counter(path.parent.relative_to(ROOT).as_posix() for top in (*PACKAGES, *OTHER_CODE) for path in files(top))
    full = {folder: number for folder, number in count.items() if number > FILES_IN_A_FOLDER_MAX}
    assert full.keys() <= ALIKE.keys(), (
        f"{[f'{f}: {n} files' for f, n in full.items() if f not in ALIKE]}: a folder holds {FILES_IN_A_FOLDER_MAX} files at "
        "most. Divide it by subject, or name it in ALIKE with what all of its files are."
    )
    assert full.keys() >= ALIKE.keys(), (
        f"{ALIKE.keys() - full.keys()} are not so full any more: take them out of ALIKE."
    )


def test_no_two_classes_have_one_name():
    places = defaultdict(list)
    for path, tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice, (
        f"{twice}: a class has a name of its own. Rename one, or make them one if they are the same thing."
    )


def test_no_modules_import_one_another_in_a_circle():
    found = circle(imports())
    assert found is None, f"{found}: modules do not import one another in a circle. Put what both need below both."


def package_imports(package):
    """A graph: a package within this one → another that it imports, with the modules that do."""
    graph, depth = networkx.DiGraph(), package.count(".") + 2
    for edge in imports().edges:
        ends = [".".join(module.split(".")[:depth]) for module in edge if module.startswith(f"{package}.")]
        if len(ends) == 2 and ends[0] != ends[1] and all(is_package(end) for end in ends):
            graph.add_edge(*ends, why=" imports ".join(edge))
    return graph


def test_no_packages_within_one_package_import_one_another_in_a_circle():
    for package in filter(is_package, modules()):
        graph = package_imports(package)
        found = circle(graph)
        assert found is None, (
            f"{found} ({'; '.join(graph.edges[step]['why'] for step in pairwise(found.split(' → ')))}): packages within "
            f"{package} do not import one another in a circle. Move the module that both need."
        )


def test_every_import_of_ours_begins_with_prozess():
    bare = []
    for top in (*PACKAGES, *OTHER_CODE):
        for path in files(top):
            if path.suffix == ".py" and BARE.search(text := path.read_text("utf-8")):
                for node in ast.walk(ast.parse(text)):
                    names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                    names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                    if any(name.split(".")[0] in PACKAGES for name in names):
                        bare.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not bare, f"{bare}: only the checkout has such a package. Write `prozess.` in front."


def test_every_package_says_in_a_sentence_what_it_holds():
    silent = []
    for name, (_, tree) in modules().items():
        if is_package(name):
            first = (ast.get_docstring(tree) or "").split("\n\n")[0]
            if len(first.split()) < 4 or not first.endswith("."):
                silent.append(name)
    assert not silent, f"{silent}: a package's __init__.py begins with a sentence that says what is in it."


def test_every_folder_with_modules_is_a_package():
    folders = {path.parent for path, _ in modules().values()}
    bare = sorted(str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").is_file())
    assert not bare, f"{bare}: a folder of modules has an __init__.py that says what it holds."


def test_there_are_no_more_files_than_there_were():
    count = len(modules())
    assert count <= SOURCE_FILES_MAX, (
        f"{count} source files, and {SOURCE_FILES_MAX} are enough: put what has one importer and under 60 lines into it, "
        "or raise SOURCE_FILES_MAX and say why."
    )


@pytest.mark.parametrize("kind", ["unit", "processes"])
def test_tests_are_where_their_subject_is(kind):
    tests = ROOT / "tests" / kind
    folders = {path.parent.relative_to(tests) for path in tests.rglob("*.py")}
    lost = sorted(
        str(folder)
        for folder in folders
        if not (ROOT / folder).is_dir()
        and not (ROOT / folder).with_suffix(".py").is_file()
        and folder.parts[0] not in NO_MIRROR
    )
    assert not lost, (
        f"tests/{kind}/{lost}: a folder of these tests is named as the package or the module that it tests. "
        "Move it, or name it in NO_MIRROR with the reason."
    )
