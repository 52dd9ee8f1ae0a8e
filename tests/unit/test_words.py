"""The words of the source are held here: how sentences begin, which words are gone, how long the glossary may be."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FINISHED: tuple[str, ...] = (
    "checkers",
    "clusters",
    "harness",
    "nemesis",
    "prozess/app",
    "prozess/campaigns",
    "prozess/exchange",
    "prozess/testing",
    "prozess/validation",
    "prozess/watch",
    "spark_checkers",
    "workloads",
)
"""Folders and modules whose words are plain. Whoever finishes another one adds it."""

RELATIVES = ("So", "Of", "As", "Who", "Whose", "That", "By")
"""Words with which no sentence begins: what follows them is half a sentence, or its order is turned round."""

HONEST = (
    r"As (?:of|in|with|for|a rule|long as|soon as|far as|Kafka|documented)\b",
    r"By (?:default|contrast|convention)\b",
    r"Of course\b",
    r"That (?:is|was|way|would|makes|means)\b",
    r"Who\b[^.]*\?",
)
"""Beginnings of whole sentences all the same."""

GONE = {
    "told": "reports, learns, is informed; a name says what is held",
    "untold": "unreported",
    "said": "stated, reported, written",
    "unsaid": "unreported",
    "telling": "describing",
    "teller": "writer",
    "scene": "context",
    "scenes": "contexts",
    "manieth": "nth",
    "circumstances": "inputs",
}
"""A word that is gone, alone or as a part of an identifier → what is written instead."""

GONE_NAMES = {
    "conduct_told": "conduct_and_notify",
    "Conducted": "TrialOutcome",
    "GivenToEach": "TrialOverrides",
    "ScheduleCircumstances": "ScheduleInputs",
    "looked_up": "planned_names",
    "_undoing": "_healing",
    "PartRows": "PartitionPartRows",
    "FilePart": "FileToJoin",
    "heal_what_was_killed": "heal_killed_runs",
    "beside_others": "concurrent_runs_note",
    "is_quiet_from_here": "schedule_finished",
    "counts_of_plain": "judged_when_plain",
    "but_in_pairs": "whole_cell_if_retry_topic",
    "kafka_told": "a noun of what Kafka reported",
}
"""An identifier that is gone → the one that took its place."""

GONE_FROM_NAMES = {"place": "index, slot, row, path", "places": "indices, slots, rows, paths"}
"""A word that is no part of an identifier any more, and stays in English: in place of, takes place."""

STORED: dict[str, str] = {}
"""Names with such a word that are in the files of runs, and keep their bytes → the file."""

SAYS_NOTHING = set(
    re.findall(
        r"\w+",
        """a all an and are as at be by do each for from has have how in is it its no not of on one or returns says the their
        these this those to was what where whether which who with""",
    )
)
"""Words that make no difference between a docstring and a name."""

GLOSSARY = ROOT / "docs" / "glossary.md"
ENTRIES_MAX = 30


def finished(suffix: str) -> list[Path]:
    """Returns the files with this suffix in what is finished."""
    found: list[Path] = []
    for name in FINISHED:
        path = ROOT / name
        assert path.exists(), f"FINISHED names {name}, and there is no such thing"
        found += [path] if path.is_file() else sorted(path.rglob(f"*{suffix}"))
    return [path for path in found if path.suffix == suffix]


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields line and text of every docstring, also of those that follow a field or a constant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and text of every comment; lines that have nothing but a comment, and follow one another, are one."""
    begin, last, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, alone = token.start[0], token.line.lstrip().startswith("#")
        if lines and (line != last + 1 or not alone):
            yield begin, "\n".join(lines)
            lines = []
        begin, last = begin if lines else line, line
        lines.append(token.string.lstrip("# "))
    if lines:
        yield begin, "\n".join(lines)


def prose(source: str) -> list[tuple[int, str]]:
    """Returns line and text of each docstring and comment of a module."""
    return [*docstrings(ast.parse(source)), *comments(source)]


def sentences(text: str) -> Iterator[str]:
    """Yields the sentences of a text, without paragraphs that are indented: those are figures and examples."""
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.!?])[)\"'`]*\s+|(?<=:)\s+(?=[A-Z])|\n\s*[-*] ", paragraph.strip()):
            yield " ".join(sentence.split())


def half_sentences(text: str) -> list[str]:
    """Returns the sentences that begin with a relative, and are no honest ones."""
    begins = re.compile(rf"(?:{'|'.join(RELATIVES)})\b")
    return [s for s in sentences(text) if begins.match(s) and not any(re.match(honest, s) for honest in HONEST)]


def words_in(name: str) -> list[str]:
    """ "_wasToldOf_it" → ["was", "told", "of", "it"]."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def gone_from_identifier(name: str) -> str:
    """Returns why an identifier must not be; empty if it may."""
    if name in STORED:
        return ""
    if name in GONE_NAMES:
        return GONE_NAMES[name]
    gone = GONE | GONE_FROM_NAMES
    return next((gone[word] for word in words_in(name) if word in gone), "")


def gone_from_text(text: str) -> dict[str, str]:
    """Returns the words of a text that are gone. Names in it count as identifiers."""
    found = {}
    for word in re.findall(r"[A-Za-z_]+", text):
        instead = gone_from_identifier(word) if "_" in word.strip("_") else GONE.get(word.lower(), GONE_NAMES.get(word))
        if instead:
            found[word] = instead
    return found


def stems(text: str) -> set[str]:
    """ "Heals the faults" → {"heal", "fault"}: without ends of words, and without what says nothing."""
    words = {word for name in re.findall(r"\w+", text) for word in words_in(name)} - SAYS_NOTHING
    return {re.sub(r"(?<=[a-z]{3})(?:ing|ies|es|ed|s|e|y)$", "", word) for word in words}


def repeats_its_name(name: str, docstring: str) -> bool:
    """Whether the first paragraph has no word that the name (with that of its class in front) does not have."""
    words = stems(docstring.split("\n\n")[0])
    return bool(words) and words <= stems(name)


def documented(node: ast.AST, owner: str = "") -> Iterator[tuple[int, str, str]]:
    """Yields line, name and docstring of each public class, function and method."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not inner.name.startswith("_"):
            if (docstring := ast.get_docstring(inner)) is not None:
                yield inner.lineno, f"{owner}{inner.name}", docstring
            if isinstance(inner, ast.ClassDef):
                yield from documented(inner, f"{inner.name} ")


@cache
def tree_of(path: Path) -> ast.Module:
    """Returns the syntax tree of a module."""
    return ast.parse(path.read_text("utf-8"))


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yields line and text of all strings and comments of a module, and all of another file."""
    source = path.read_text("utf-8")
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    yield from comments(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields line and name of everything that a module names."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            if isinstance(name := getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), name.rpartition(".")[2]


@cache
def entries() -> dict[str, str]:
    """Word of the glossary → where it is."""
    rows = [line.strip("|").split("|") for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("| **")]
    assert all(len(row) == 3 for row in rows), "a row of the glossary has a word, its meaning, and where it is"
    return {word.strip(" *"): where.strip() for word, _, where in rows}


@cache
def source_text() -> str:
    tops = ("checkers", "clusters", "harness", "nemesis", "prozess", "spark_checkers", "workloads")
    files = {path.resolve() for top in tops for suffix in ("py", "sql") for path in (ROOT / top).rglob(f"*.{suffix}")}
    return "\n".join(path.read_text("utf-8") for path in sorted(files)).lower()


def test_no_sentence_begins_with_a_relative() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {sentence}"
        for path in finished(".py")
        for line, text in prose(path.read_text("utf-8"))
        for sentence in half_sentences(text)
    ]
    assert not found, "\n".join(["write subject, verb, object, in this order:", *found])


def test_no_word_that_is_gone_comes_back() -> None:
    found = []
    for path in (*finished(".py"), *finished(".sql")):
        for line, text in texts_of(path):
            found += [f"{path.relative_to(ROOT)}:{line}: {word} → {new}" for word, new in gone_from_text(text).items()]
        if path.suffix == ".py":
            for line, name in identifiers(tree_of(path)):
                if instead := gone_from_identifier(name):
                    found.append(f"{path.relative_to(ROOT)}:{line}: {name} → {instead}")
    assert not found, "\n".join(found)


def test_no_docstring_says_only_what_its_name_says() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}: {docstring}"
        for path in finished(".py")
        for line, name, docstring in documented(tree_of(path))
        if repeats_its_name(name, docstring)
    ]
    assert not found, "\n".join(["say what it means, what it returns, in which unit, and how it fails:", *found])


@pytest.mark.parametrize(
    ("name", "docstring", "repeats"),
    [
        ("CampaignDirectory", "The directory of a campaign.", True),
        ("ActiveFault heal", "Heals the fault.", True),
        ("ActiveFault heal", "Heals the fault, as the end of its `with` does.", False),
        ("row_starts", "Returns where each row starts.\n\nOf a table.", True),
        ("row_starts", "Returns int64[k]: where each row starts.", False),
    ],
)
def test_docstrings_that_repeat_their_name_are_found(name: str, docstring: str, repeats: bool) -> None:
    assert repeats_its_name(name, docstring) is repeats


def test_what_is_stored_under_a_gone_word_is_still_there() -> None:
    assert [name for name in STORED if name.lower() not in source_text()] == []


def test_the_glossary_is_one_page() -> None:
    assert 10 <= len(entries()) <= ENTRIES_MAX


def test_each_word_of_the_glossary_is_in_the_source() -> None:
    lacking = [word for word in entries() if not re.search(rf"\b{re.escape(word.lower())}", source_text())]
    assert not lacking, "nothing in the source has the word: take it out of docs/glossary.md"


def test_each_file_that_the_glossary_names_exists() -> None:
    paths = {path for where in entries().values() for path in re.findall(r"`([\w./]+)`", where)}
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    assert all("`" in where for where in entries().values()), "each word has a file"


def test_the_glossary_is_reached_from_the_first_page_and_from_the_site() -> None:
    assert "(glossary.md)" in (ROOT / "docs" / "index.md").read_text("utf-8")
    assert "- glossary.md" in (ROOT / ".ci" / "mkdocs.yml").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Returns it. By topic.", ["By topic."]),
        ("Of every consumer.", ["Of every consumer."]),
        ("So long members are away,\nthat records pile up.", ["So long members are away, that records pile up."]),
        ("One thing\n\nWho asks, waits.", ["Who asks, waits."]),
        ("By default it waits. As of 3.7 it does not. That is late. Who leads?", []),
        ("A bystander. Official. Sole owner. Thatched. Assert it.", []),
    ],
)
def test_half_sentences_are_found(text: str, found: list[str]) -> None:
    assert half_sentences(text) == found


def test_comments_on_several_lines_are_read_as_one() -> None:
    source = "# It waits. Of\n# those that come.\nx = 1  # By key.\n# Late.\n"
    assert list(comments(source)) == [(1, "It waits. Of\nthose that come."), (3, "By key.\nLate.")]


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("told_ns", True),
        ("wasTold", True),
        ("StoryTeller", True),
        ("_place", True),
        ("replaced", False),
        ("threshold", False),
        ("scenario", False),
        ("placement", False),
        ("_undoing", True),
    ],
)
def test_words_that_are_gone_are_found_in_identifiers(name: str, gone: bool) -> None:
    assert bool(gone_from_identifier(name)) is gone


def test_in_prose_place_stays_english() -> None:
    assert gone_from_text("in place of a thing that was told to_its_place") == {
        "told": GONE["told"],
        "to_its_place": GONE_FROM_NAMES["place"],
    }
