"""The map of the evidence: its page is made of what is kept, what is held is explained, and a part of it is made again."""

import pytest

from prozess.harness.schema import TABLES
from tools.evidence import page
from tools.evidence.cases import FAILED, HELD, Bench
from tools.evidence.changes import WAYS
from tools.evidence.found import cases, generated, one, read
from tools.evidence.reasons import REASONS

AGAIN = {
    "sends": ("log_offset", "sequence"),
    "commits": ("log_offset", "partition"),
    "metadata": ("isr",),
    "transactions": ("begun_ns",),
}
"""Columns that a test changes again, in every way."""


@pytest.fixture(scope="module")
def found():
    return read()


def test_the_page_is_made_of_what_is_kept(found):
    assert page.DOCUMENT.read_text("utf-8") == page.render(found), "run `python -m tools.evidence --page`"


def test_every_column_of_every_table_that_a_generated_history_fills_was_changed(found):
    for table, columns in found["generated"].items():
        assert set(columns) == set(TABLES[table].column_names), table
    assert found["generated"].keys() >= {
        "sends",
        "reads",
        "processed",
        "transactions",
        "commits",
        "assignments",
        "positions",
    }


def test_every_table_has_rows_in_one_of_the_clean_histories(found):
    assert {table for tables in found.values() for table in tables} == set(TABLES)


def test_every_change_that_is_held_is_explained(found):
    unexplained = [(case.history, case.table, case.column, case.way) for case in page.unexplained(found)]
    assert unexplained == [], "say in tools/evidence/reasons.py why nobody notices it, or write what does"


def test_every_reason_is_for_something_that_is_held(found):
    held = {(case.table, case.column, case.way) for case in cases(found) if case.outcome == HELD}
    for reason in REASONS:
        assert set(reason.columns) <= set(TABLES[reason.table].column_names), reason
        for column in reason.columns:
            assert any((reason.table, column, way) in held for way in reason.ways), (reason.table, column, reason.why)


def test_no_kernel_fails_on_a_value_that_nothing_else_names(found):
    assert [case for case in cases(found) if case.outcome == FAILED] == []


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("map")
    return Bench(generated(folder / "clean"), folder / "changed", seed=1)


@pytest.mark.parametrize(("table", "column"), [(t, c) for t, columns in AGAIN.items() for c in columns])
def test_what_is_changed_again_becomes_what_the_map_says(bench, found, table, column):
    for way in WAYS:
        assert one(bench, table, column, way) == found["generated"][table][column][way], way
