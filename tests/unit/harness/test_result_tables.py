"""The tables that a check makes have the columns that docs/tables.md says, and agree with the verdict."""

from collections import Counter
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from prozess.app.run import judge
from prozess.app.run.judge import judged_tables
from prozess.harness.checking.findings import findings_table, nested_table, schema_of
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.guarantees.facts.registry import FACTS as NAMED_FACTS
from prozess.harness.guarantees.table import TABLE
from prozess.harness.history.manifest import condition_of
from prozess.harness.interfaces.witnesses import WITNESSES_MAX
from prozess.harness.plan.plan import read_plan
from prozess.harness.result_tables import FINDINGS, RESULT_TABLES, WINDOWS, WITNESSES
from prozess.harness.schema import TABLES, Tristate
from tests.support.damages import copied, judged
from tests.support.stored_runs import generated_run, inputs_added_up, judgements
from tools.table_page import DOCUMENT, RUN_DOCUMENT, render, render_run_tables

EVERY_TABLE = TABLES | RESULT_TABLES


def test_the_pages_are_up_to_date():
    assert DOCUMENT.read_text(encoding="utf-8") == render(), "run python -m tools.table_page"
    assert RUN_DOCUMENT.read_text(encoding="utf-8") == render_run_tables(), "run python -m tools.table_page"


def test_the_page_names_every_table_and_column_with_its_type():
    page = render()
    for name, table in EVERY_TABLE.items():
        section = page.partition(f"\n### `{name}`\n")[2].partition("\n##")[0]
        for column in table.columns:
            kind = {"i4": "int32", "i8": "int64", "text": "string"}[column.kind]
            assert f"| `{column.name}` | {kind} | " in section, (name, column.name)


def test_no_two_tables_have_one_name():
    assert not TABLES.keys() & RESULT_TABLES.keys()


@pytest.mark.parametrize("table", RESULT_TABLES.values(), ids=lambda table: table.name)
def test_only_texts_may_be_null_and_each_says_what_null_means(table):
    for column in table.columns:
        assert column.optional == ("null:" in column.meaning)
        assert not column.optional or column.kind == "text"
    assert len(set(table.column_names)) == len(table.columns)


def test_entries_of_arrays_are_the_integers_without_the_number_of_the_finding():
    assert WITNESSES.entry.names == WITNESSES.column_names[2:]
    assert WITNESSES.entry.itemsize == sum({"i4": 4, "i8": 8}[c.kind] for c in WITNESSES.columns[2:])
    assert FINDINGS.entry.names == ("partition", "cell", "count", "judged")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    kinds = ("log", "transactions", "group")
    return generated_run(tmp_path_factory.mktemp("tables") / "run", *kinds, lost=3, duplicate=2, torn=2, reprocessed=2)


def made(run):
    return judged_tables(run, condition_of(run))


def rows_of(run):
    """Every table of a checked run."""
    nested = {table.name: nested_table(run, table) for table in (WITNESSES, WINDOWS)}
    return {"findings": findings_table(run)} | nested | dict(made(run))


def test_every_table_of_a_check_has_the_schema_that_it_says(run):
    tables = rows_of(run)
    assert tables.keys() == RESULT_TABLES.keys()
    for name, table in tables.items():
        assert table.schema.equals(schema_of(RESULT_TABLES[name])), name
        assert table.validate(full=True) is None
    assert tables["witnesses"].num_rows > 5


def test_inputs_add_up_to_what_the_verdict_counts_and_to_the_findings(run):
    verdict, inputs = judged(run), made(run)["verdict_inputs"].to_pylist()
    told, of_finding = judgements(verdict), Counter()
    for row in inputs:
        of_finding[row["finding"]] += row["count"]
    assert inputs_added_up(inputs) == told
    assert {key[2] for key in told} == {"forbidden"}
    found = {row["finding"]: row for row in findings_table(run).to_pylist()}
    assert {number: found[number]["count"] for number in of_finding} == of_finding
    assert all(found[row["finding"]]["anomaly"] == row["anomaly"] for row in inputs)
    left = [row for number, row in found.items() if number not in of_finding and row["count"]]
    assert all(row["anomaly"] not in TABLE for row in left), "only facts that nobody judges have witnesses and no row"


def test_the_rule_that_permits_is_named_and_the_facts_say_why(tmp_path):
    run = generated_run(tmp_path / "run", "log", duplicate=3)
    plan = read_plan(run)
    base = plan.cells[0]
    weak = base.producer.model_copy(update={"enable_idempotence": False, "retries": "5"})
    cells = (base.model_copy(update={"producer": weak}),)
    run.plan.write_text(plan.model_copy(update={"cells": cells}).model_dump_json(), encoding="utf-8")
    run.manifest.unlink()  # which proves the plan that was there
    tables = {name: table.to_pylist() for name, table in made(run).items()}
    told = {(row["judgement"], row["rule"]) for row in tables["verdict_inputs"] if row["anomaly"] == "duplicate"}
    assert told == {("permitted", "duplicate/not-idempotent")}
    holds = {row["fact"]: row["holds"] for row in tables["facts"] if row["partition"] == base.partitions[0]}
    assert (holds["idempotent"], holds["retries"]) == (Tristate.NO, Tristate.YES)


def test_witnesses_that_were_counted_and_not_kept_are_unknown(run, monkeypatch):
    findings = judge.read_findings(run)
    place = next(n for n, finding in enumerate(findings) if finding.anomaly == "lost" and finding.result.count)
    more = replace(findings[place].result, count=findings[place].result.count + WITNESSES_MAX)
    findings[place] = replace(findings[place], result=more)
    monkeypatch.setattr(judge, "read_findings", lambda _: findings)
    rows = [row for row in made(run)["verdict_inputs"].to_pylist() if row["finding"] == place]
    assert sum(row["count"] for row in rows if row["judgement"] == "unknown") == WITNESSES_MAX
    assert sum(row["count"] for row in rows) == more.count


def test_facts_name_every_fact_in_every_partition_once(run):
    rows = made(run)["facts"].to_pylist()
    plan = read_plan(run)
    assert Counter((row["partition"], row["fact"]) for row in rows) == Counter(
        (planned.partition, name) for planned in plan.partitions for name in NAMED_FACTS
    )
    cells = {planned.partition: planned.cell for planned in plan.partitions}
    for row in rows:
        assert row["cell"] == cells[row["partition"]]
        assert row["about"] == ("events" if NAMED_FACTS[row["fact"]].of_configuration is None else "configuration")
        assert row["holds"] in (-1, 0, 1)
    of = {row["fact"]: row["holds"] for row in rows if row["cell"] == 0}
    assert (of["acks=0"], of["idempotent"]) == (Tristate.NO, Tristate.YES)


def test_of_cells_of_which_rows_are_damaged_nothing_is_told(run, tmp_path):
    mine = copied(run, tmp_path / "run")
    whole = made(mine)
    sends = mine.history / "sends.parquet"
    place = TABLES["sends"].column_names.index("partition")
    partition = pq.read_metadata(sends).row_group(0).column(place).statistics.min
    content = bytearray(sends.read_bytes())
    content[30] ^= 1  # of the first row group
    sends.unlink()
    sends.write_bytes(content)
    damaged = next(planned.cell for planned in read_plan(mine).partitions if planned.partition == partition)
    for name, left in made(mine).items():
        assert set(left["cell"].to_pylist()) == set(whole[name]["cell"].to_pylist()) - {damaged}
        assert damaged in whole[name]["cell"].to_pylist()


def test_findings_that_are_torn_are_named(run, tmp_path):
    mine = copied(run, tmp_path / "run")
    (mine.findings / "findings.parquet").write_bytes(b"PAR1")
    with pytest.raises(HistoryUnreadable, match=r"findings\.parquet is torn"):
        made(mine)
