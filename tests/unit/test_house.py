"""The shape of the house is held here: how full a folder is, what is named twice, who imports whom in a circle."""

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise

import networkx
import pytest

from tests.support.paths import ROOT

PACKAGES = ("checkers", "clusters", "harness", "nemesis", "prozess", "spark_checkers", "workloads")
OTHER_CODE = ("benchmarks", "docs", "tests", "tools", "trials")

FILES_IN_A_FOLDER_MAX = 25
ALIKE = {
    "clusters/install/locks": "each file says what the jars of one version are",
    "spark_checkers/oracle": "each .sql file has the texts of one subject; five modules fill them in, and ask them",
    "checkers/metadata": "each has the rules of one KIP, the records that these look at, or the kernel that asks them",
    "docs": "pages of the documentation: docs/index.md leads to each",
    "trials": "each is a trial that `prozess run` knows by name",
    "tests/support/data": "each is what a real server wrote, what Kafka's own tools say of it, or a lock of a server",
    "tests/system/trials": "each tests trials of one kind on real Kafka",
}
"""Folders that hold more, because all of their files are alike → what each of them is."""

LINKED = tuple(package for package in PACKAGES if package != "prozess")
"""The packages to which `prozess/` has links."""
BARE = re.compile(rf"^\s*(?:from|import)\b.*(?<![.\w])(?:{'|'.join(LINKED)})\b", re.MULTILINE)
"""Where an import that lacks `prozess.` may be: the syntax tree says, but takes longer than all else here."""

LINES_MAX = {
    "checkers": 16_335,
    "clusters": 22_040,
    "harness": 40_965,
    "nemesis": 5_060,
    "prozess": 1_060,
    "prozess/app": 7_300,
    "prozess/campaigns": 7_320,
    "prozess/exchange": 8_225,
    "prozess/testing": 7_240,
    "prozess/validation": 11_840,
    "prozess/watch": 2_700,
    "spark_checkers": 6_685,
    "workloads": 12_740,
}
"""Product or package → how many lines of source it may have. Whoever raises one says in docs/decisions.md what was bought."""

NO_MIRROR = {
    "support": "tests of tests/support, which mirrors nothing",
}
"""Folders of tests/unit that have no counterpart in the source → why."""


def files(folder):
    """Everything below a folder but what Python puts there. The links of `prozess/` are not followed: they lead to the other
    packages."""
    for path in sorted((ROOT / folder).iterdir()):
        if path.is_dir() and not path.is_symlink() and path.name != "__pycache__":
            yield from files(path)
        elif path.is_file():
            yield path


@cache
def modules():
    """Name of a module of the packages → (its file, its syntax tree)."""
    found = {}
    for package in PACKAGES:
        for path in files(package):
            if path.suffix == ".py":
                parts = path.relative_to(ROOT).with_suffix("").parts
                parts = parts[:-1] if parts[-1] == "__init__" else parts
                name = ".".join(parts if package == "prozess" else ("prozess", *parts))
                found[name] = path, ast.parse(path.read_text("utf-8"))
    return found


def is_package(module):
    return modules()[module][0].name == "__init__.py"


def imported_names(statement):
    """What a statement imports, with its whole name: `from a import b` is a.b if that is a module, else a."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    whole = [f"{statement.module}.{alias.name}" for alias in statement.names]
    return [name if name in modules() else statement.module for name in whole]


@cache
def imports():
    """A graph: module → module that it imports, also late, and also for type checkers alone."""
    graph = networkx.DiGraph()
    for module, (_, tree) in modules().items():
        for statement in ast.walk(tree):
            if isinstance(statement, ast.Import | ast.ImportFrom):
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


def test_no_two_members_of_an_enumeration_are_one():
    kinds = {"Enum", "IntEnum", "StrEnum", "IntFlag", "Flag"}
    found = [
        (f"{path.relative_to(ROOT)}:{node.lineno}", {d.id for d in node.decorator_list if isinstance(d, ast.Name)})
        for path, tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(isinstance(b, ast.Name) and b.id in kinds for b in node.bases)
    ]
    assert len(found) > 30
    assert not [where for where, names in found if "unique" not in names], (
        "two members with one number are one, and reports print the name of the first: put @unique on the class."
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
                    if any(name.split(".")[0] in LINKED for name in names):
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


def room_of(path):
    """A product of `prozess/` by its name, and each other package by its own: what has a cap of lines."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if parts[0] == "prozess" and len(parts) > 2 else parts[0]


def test_no_product_and_no_package_has_more_lines_than_its_cap():
    lines = Counter()
    for path in (*(path for path, _ in modules().values()), *ROOT.glob("spark_checkers/**/*.sql")):
        lines[room_of(path)] += len(path.read_text("utf-8").splitlines())
    assert lines.keys() == LINES_MAX.keys()
    over = {room: f"{number:,} of {LINES_MAX[room]:,}" for room, number in lines.items() if number > LINES_MAX[room]}
    assert not over, (
        f"{over}: say it with fewer lines, or raise LINES_MAX and write into docs/decisions.md what was bought for it."
    )


GROUND = (
    *(
        "config",
        "recording",
        "plan",
        "interfaces",
        "history",
        "checking",
        "guarantees",
        "impact",
        "report",
        "run_tables",
    ),
)
"""The folders of `harness`, each above those that it may import. The files beside them import none."""


def test_the_folders_of_the_ground_import_only_what_lies_below_them():
    def storey(module):
        parts = module.split(".")[2:]
        return GROUND.index(parts[0]) + 1 if parts and parts[0] in GROUND else 0

    climbs = [
        f"{module} imports {other}"
        for module, other in imports().edges
        if module.startswith("prozess.harness.")
        and other.startswith("prozess.harness.")
        and storey(other) > storey(module)
    ]
    assert not climbs, f"{climbs}: move what both need to the lower of the two."


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
