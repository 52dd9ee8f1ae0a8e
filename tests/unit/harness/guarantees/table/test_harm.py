from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.harm import HARM, harm_rank, worst_first
from prozess.nemesis.registry import FAULTS
from tools.guarantees_page import DOCS


def test_every_anomaly_has_one_rank_of_harm():
    ranked = [anomaly for anomalies in HARM.values() for anomaly in anomalies]
    assert sorted(ranked) == sorted(TABLE)


def test_records_that_are_gone_come_before_a_greater_number_of_dirty_reads():
    assert worst_first([("dirty-read", 1_140), ("lost", 570)]) == [("lost", 570), ("dirty-read", 1_140)]


def test_of_what_harms_alike_the_most_frequent_comes_first():
    assert harm_rank("lost") == harm_rank("skipped")
    assert worst_first([("lost", 1), ("late", 9), ("skipped", 2)]) == [("skipped", 2), ("lost", 1), ("late", 9)]


def test_the_page_of_guarantees_begins_with_a_table_that_fits_a_screen():
    lines = (DOCS / "guarantees.md").read_text("utf-8").splitlines()
    rows = [number for number, line in enumerate(lines) if line.startswith("| ")]
    assert rows[0] < 10
    assert len(HARM) + 2 <= 20
    assert all(f"`{anomaly}`" in "\n".join(lines[: rows[0] + len(HARM) + 2]) for anomaly in TABLE)


def test_the_page_of_faults_begins_with_a_table_that_names_every_fault():
    table, _, _ = (DOCS / "faults.md").read_text("utf-8").partition("\n## ")
    assert not [fault for fault in FAULTS if f"`{fault}`" not in table]
    assert len(table.splitlines()) < 30


def test_the_page_of_results_says_of_every_anomaly_what_it_means():
    page = (DOCS / "results.md").read_text("utf-8")
    assert not [anomaly for anomaly in TABLE if f"| `{anomaly}` |" not in page]
