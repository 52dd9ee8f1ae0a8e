"""How the SQL of the second opinion is read: sections, constants, cases, fragments, and from an archive."""

import json
import re
import subprocess
import sys
from importlib.resources import files

import pytest

from prozess.harness.interfaces.witnesses import GroupCase
from prozess.harness.recording.metrics import code_of
from prozess.harness.schema import NONE
from prozess.spark_checkers.oracle import texts
from prozess.spark_checkers.oracle.second_opinion import AUDITED, UNAUDITED
from prozess.spark_checkers.session import _archive

STORED = {
    file.name: file.read_text("utf-8") for file in files(texts.__package__).iterdir() if file.name.endswith(".sql")
}


def test_constants_cases_metrics_and_fragments_are_filled_in_the_innermost_first():
    assert texts.fill("{NONE} {GroupCase.CRASHED}") == f"{NONE} {int(GroupCase.CRASHED)}"
    assert texts.fill("{metric.quorum_leader}") == str(code_of("quorum_leader"))
    assert texts.fill("{cleaned(s; s.size = {NONE})}").count(f"s.size = {NONE}") == 1
    assert texts.fill("{cleaning(u)}").count("u.partition") == 2


def test_every_text_is_filled_and_has_no_comment():
    for questions in (AUDITED, UNAUDITED):
        for text in (*questions.queries.values(), *questions.views.values()):
            assert not re.search(r"[{}]|--", text)
            assert text.strip()


@pytest.mark.parametrize(
    "text",
    ["{cleaning(s; t)}", "{cleaned(s)}", "{nothing}", "{GroupCase.NOTHING}", "{Nothing.CRASHED}", "{metric.nothing}"],
)
def test_a_text_that_names_what_there_is_not_is_refused(text):
    with pytest.raises((AssertionError, KeyError)):
        texts.fill(text)


def test_every_file_says_what_it_is_about_and_is_read_and_every_fragment_is_used():
    assert {f"{name}.sql" for name in texts.FILES} == set(STORED)
    assert all(content.startswith("-- ") for content in STORED.values())
    everything = "".join(STORED.values())
    for name in re.findall(r"^--- fragment (\w+)", everything, re.MULTILINE):
        assert re.search(r"\{" + name + r"[(}]", everything), name


def test_the_texts_are_the_same_when_they_are_read_from_the_archive_for_workers(tmp_path):
    code = f"""
import json, sys
sys.path.insert(0, {str(_archive(tmp_path))!r})
from prozess.spark_checkers.oracle import texts
assert ".zip" in texts.__file__
print(json.dumps(dict(texts.texts_of("views", "log").views)))
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict(texts.texts_of("views", "log").views)
