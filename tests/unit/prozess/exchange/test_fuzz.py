"""Garbage for everything that reads histories: a clear error, or a history that is never *held*; never a traceback.

PROZESS_FUZZ multiplies the number of cases (`make fuzz`).
"""

import os
import random
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.exchange.imported_run import ImportOptions, write_imported
from prozess.exchange.jepsen.edn import EdnError, read_edn, read_lines
from prozess.exchange.jepsen.history import read_jepsen
from prozess.exchange.synthetic.history import GenerateOptions, generate
from prozess.exchange.verifiable.events import read_verifiable
from prozess.harness.errors import BadInput, ProzessError
from prozess.harness.history.manifest import seal_recorded
from prozess.harness.history.reader import History
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import TABLES, ObservationKind
from prozess.harness.verdict import Verdict
from tests.support import garbage
from tests.support.edn_histories import edn
from tests.support.examples import ALL, examples

MORE = int(os.environ.get("PROZESS_FUZZ", "1"))
EACH = 50 if ALL else 20
"""Cases per example of hypothesis."""


def fuzz(count):
    """So many examples, and chance for each."""

    def decorate(test):
        quiet = settings(max_examples=examples(count) * MORE, deadline=None, suppress_health_check=list(HealthCheck))
        return quiet(given(seed=st.integers(0, 2**64))(test))

    return decorate


def error_of(work, *kinds):
    """The error of one of these kinds that came, or None. Any other is a traceback for somebody."""
    try:
        work()
    except kinds as error:
        return error
    return None


@fuzz(80)
def test_any_text_is_edn_or_an_error_of_edn(seed):
    rng = random.Random(seed)
    for _ in range(EACH):
        text = garbage.text(rng)
        error = error_of(lambda text=text: read_edn(text), EdnError)
        assert error is None or (error.what and error.column >= 1)


@fuzz(60)
def test_the_fast_reader_reads_what_the_whole_one_reads(seed):
    rng = random.Random(seed)
    for _ in range(EACH):
        value, prefix = edn(garbage.value(rng)), rng.choice(("#jepsen.history.Op", ""))
        line = f"{prefix}{{:index 7, :time 12, :type :ok, :process 3, :f :txn, :value {value}, :extra {value}}}"
        fast, whole = read_lines([line])[0], read_edn(line)
        assert fast is None or fast[2] == [whole[12], ":extra", whole[14]]


@fuzz(60)
def test_among_many_lines_the_fast_reader_takes_none_for_a_part_of_another(seed):
    rng = random.Random(seed)
    for _ in range(EACH):
        lines = []
        for number in range(rng.randrange(2, 9)):
            value = edn(garbage.value(rng)) if rng.random() < 0.7 else garbage.text(rng).replace("\n", " ")
            value = rng.choice((value, value, value[1:], value[:-1], f"{value}],[{value}", "{}", "[nil null]"))
            process = rng.choice((str(number), ":nemesis"))
            lines.append(f"{{:index {number}, :process {process}, :time 12, :type :ok, :f :txn, :value {value}}}")
        for line, fast in zip(lines, read_lines(lines), strict=True):
            wrong = error_of(lambda line=line: read_edn(line), EdnError)
            if fast is not None and wrong is None and ":nemesis" not in fast[1]:
                assert fast[2] == read_edn(line)[12:]


@fuzz(60)
def test_any_lines_are_a_jepsen_history_or_bad_input(seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "h.edn"
        for _ in range(EACH):
            lines = [garbage.operation(rng, odd=0.05) for _ in range(rng.randrange(9))]
            lines += [garbage.text(rng)] * (rng.random() < 0.2)
            path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
            error = error_of(lambda: read_jepsen(path), BadInput)
            assert error is None or "h.edn" in str(error) or str(error).startswith("Lines")


@fuzz(40)
def test_any_lines_are_of_verifiable_clients_or_bad_input(seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "a.jsonl", Path(folder) / "b.jsonl"]
        for _ in range(EACH):
            for path in paths:
                lines = [rng.choice((garbage.event, garbage.event, garbage.text))(rng) for _ in range(rng.randrange(9))]
                path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
            error = error_of(lambda: read_verifiable(paths[: rng.randrange(1, 3)]), BadInput)
            assert error is None or str(error)


# --- whole runs: fewer, because each is checked and judged -------------------------------------------------------------


def judged(run):
    """The verdict, or what was stated instead."""
    try:
        return judge_run(run, check_run(run, CheckOptions(engine="local"))).verdict
    except ProzessError as error:
        return str(error)


@fuzz(10 if ALL else 4)
def test_no_imported_history_is_ever_held(seed):
    rng = random.Random(seed)
    for number in range(5):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "h.edn"
            lines = [garbage.operation(rng, odd=0.01) for _ in range(1 + number)]
            path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
            run = RunDirectory(Path(folder) / "run")
            run.create()

            def make(run=run, path=path):
                write_imported(run, read_jepsen(path), ImportOptions(), command="test")

            if error_of(make, BadInput) is None:
                assert judged(run) in (Verdict.UNKNOWN, Verdict.VIOLATED)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A history that is held."""
    run = RunDirectory(tmp_path_factory.mktemp("whole"))
    run.create()
    generate(run, GenerateOptions(rows=500, partitions=1, kinds=("log", "group")), command="test")
    assert judged(run) is Verdict.HELD
    return run


def copied(run, folder):
    """The same run; its tables are the same files until one is replaced."""
    mine = RunDirectory(Path(folder))
    mine.create()
    mine.history.mkdir()
    for path in (run.plan, run.clock, run.cluster, run.source, run.dictionaries):
        (mine.path / path.name).write_bytes(path.read_bytes())
    for path in run.history.iterdir():
        (mine.history / path.name).symlink_to(path)
    return mine


@fuzz(20)
def test_a_table_with_rotten_bytes_is_said_or_harmless(whole, seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        run = copied(whole, folder)
        path = run.history / f"{rng.choice(sorted(TABLES))}.parquet"
        content = bytearray(path.read_bytes())
        if rng.random() < 0.4:
            content = content[: rng.randrange(len(content))]
        for _ in range(rng.randrange(8)):
            content[rng.randrange(max(1, len(content))) : 1] = bytes([rng.randrange(256)])
        path.unlink()
        path.write_bytes(bytes(content))

        def read_everything():
            history = History.open(run)
            for table in TABLES:
                history.table(table)

        error = error_of(read_everything, ProzessError)
        assert error is None or str(error)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_that_is_missing_is_said(whole, tmp_path, name):
    run = copied(whole, tmp_path)
    (run.history / f"{name}.parquet").unlink()
    assert f"table {name}" in judged(run)


def rewrite(run, name, change):
    """Each row group of a table changed, and everything else as it was."""
    path = run.history / f"{name}.parquet"
    held = pq.ParquetFile(path)
    facts = {k.decode(): v.decode() for k, v in held.metadata.metadata.items() if k.startswith(b"prozess")}
    groups = [change(held.read_row_group(number)) for number in range(held.num_row_groups)]
    path.unlink()
    with pq.ParquetWriter(path, held.schema_arrow) as writer:
        for group in groups:
            writer.write_table(group)
        writer.add_key_value_metadata(facts | {"prozess.rows": str(sum(group.num_rows for group in groups))})
    seal_recorded(run)  # as if it had been so from the beginning


DECISIVE = [("sends", "outcome"), ("sends", "log_offset"), ("sends", "sequence"), ("reads", "log_offset")]
DECISIVE += [("reads", "sequence"), ("reads", "sender"), ("clients", "complete")]


@pytest.mark.parametrize("value", [-(2**31), -7, 2**31 - 1])
@pytest.mark.parametrize(("name", "column"), DECISIVE)
def test_absurd_numbers_are_never_held(whole, tmp_path, name, column, value):
    run = copied(whole, tmp_path)

    def spoiled(group):
        at = group.schema.get_field_index(column)
        field = group.schema.field(at)
        return group.set_column(at, field, pa.array(np.full(group.num_rows, value), field.type))

    rewrite(run, name, spoiled)
    assert judged(run) is not Verdict.HELD


def test_a_history_of_another_program_is_said(tmp_path):
    run = RunDirectory(tmp_path)
    run.create()
    run.plan.write_text('{"nodes": 3}', encoding="utf-8")
    assert "is not a plan of this version" in judged(run)


def test_an_empty_history_is_not_held(tmp_path):
    run = RunDirectory(tmp_path)
    run.create()
    generate(run, GenerateOptions(rows=500, partitions=1), command="test")
    for path in run.history.iterdir():
        path.unlink()
    assert judged(run) is Verdict.UNKNOWN
    assert "history/admin_operations.parquet is missing (and" in run.verdict.read_text(encoding="utf-8")
    run.manifest.unlink()
    assert "import or generate it" in judged(run)


@pytest.mark.parametrize("beyond", [1, 10**12], ids=["by one", "far"])
def test_an_audit_that_says_more_than_its_sentinel_shows_is_never_held(whole, tmp_path, beyond):
    run = copied(whole, tmp_path)

    def further(table):
        at, claims = table.schema.get_field_index("value"), table["kind"].to_numpy() == ObservationKind.AUDIT_COMPLETE
        values = pa.array(table["value"].to_numpy() + beyond * claims, table.schema.field(at).type)
        return table.set_column(at, table.schema.field(at), values)

    rewrite(run, "observations", further)
    verdict = judge_run(run, check_run(run, CheckOptions(engine="local")))
    assert verdict.verdict is Verdict.UNKNOWN
    assert "did not reach its sentinel" in verdict.model_dump_json()


def test_an_audit_of_which_the_sentinel_is_lost_is_never_held(whole, tmp_path):
    run = copied(whole, tmp_path)
    rewrite(run, "reads", lambda table: table.filter(pa.array(table["sender"].to_numpy() != SENTINEL_CLIENT)))
    assert judged(run) is Verdict.UNKNOWN
