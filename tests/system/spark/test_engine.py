"""The Spark engine finds exactly what the local one finds, and Spark leaves the process and the machine as they were."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

import prozess
from prozess import spark as in_session
from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.checkers import registry
from prozess.checkers.registry import select
from prozess.exchange.commands import generate_history
from prozess.harness.checking.checker import PartitionChecker
from prozess.harness.checking.findings import read_findings
from prozess.harness.checking.kernels import Unit, check_locally
from prozess.harness.errors import BadInput, HarnessFailed, HistoryUnreadable, MissingTool
from prozess.harness.exit_codes import EXIT_CODES, ExitCode
from prozess.harness.history import manifest
from prozess.harness.history.convert import History, write_history
from prozess.harness.history.manifest import condition_of, read_manifest, seal_recorded
from prozess.harness.impact.cost import FaultTime, measure_locally
from prozess.harness.interfaces.checking import Finding
from prozess.harness.interfaces.witnesses import WITNESS
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import RowWriter
from prozess.harness.result_tables import RESULT_TABLES
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.schema import TABLES
from prozess.harness.verdict import Verdict
from prozess.spark_checkers.engine import check_with_spark, collect, hash_with_spark, measure_with_spark, tasks_of
from prozess.spark_checkers.oracle.second_opinion import second_opinion
from prozess.spark_checkers.session import send_modules, start_session
from tests.support.stored_runs import recorded_run

pytestmark = pytest.mark.spark

KERNELS = '''
import os
import sys
import numpy as np
from prozess.harness.interfaces.checking import KernelResult
from prozess.harness.interfaces.witnesses import make_witnesses, no_witnesses


def unread(history):
    """Acknowledged offsets that no reader was given."""
    sends, reads = history.sends, history.reads
    gone = ~np.isin(sends["log_offset"], reads["log_offset"])
    columns = {name: sends[name][gone] for name in ("sequence", "log_offset", "client", "partition", "outcome")}
    columns |= {"begin_ns": sends["invoked_ns"][gone], "end_ns": sends["completed_ns"][gone]}
    return KernelResult(make_witnesses(int(gone.sum()), columns), count=int(gone.sum()), judged=len(gone))


def process(history):
    """Not a fact of the history: who ran this."""
    witness = {"sequence": os.getpid(), "log_offset": int(sys.flags.safe_path)}
    return KernelResult(make_witnesses(1, witness), count=1, judged=1, incomplete="päid")


def dying(history):
    """It kills its process at the first attempt."""
    import signal

    try:
        os.close(os.open(MARK, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return process(history)
    os.kill(os.getpid(), signal.SIGKILL)


def failing(history):
    if history.partition % 2:
        raise OSError("partition is odd")
    return KernelResult(no_witnesses(), count=0, judged=0)
'''
NAMES = ("unread", "process", "dying", "failing")


@pytest.fixture(scope="module")
def session(tmp_path_factory, need):
    need("java")
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "kernels_for_spark.py").write_text(f"MARK = {str(folder / 'died')!r}\n{KERNELS}", encoding="utf-8")
    before = signal.getsignal(signal.SIGINT), os.environ.get("JAVA_HOME"), os.environ.get("PYSPARK_PYTHON")
    started = []
    thread = threading.Thread(target=lambda: started.append(start_session()))
    thread.start()
    thread.join()
    after = signal.getsignal(signal.SIGINT), os.environ.get("JAVA_HOME"), os.environ.get("PYSPARK_PYTHON")
    assert after == before
    (session,) = started
    assert start_session() is session
    assert signal.getsignal(signal.SIGINT) is before[0]
    send_modules(session, folder / "kernels_for_spark.py")
    sys.path.insert(0, str(folder))
    yield session
    sys.path.remove(str(folder))
    session.stop()


@pytest.fixture
def run(tmp_path, monkeypatch):
    """30 000 sends and reads of four clients over 8 partitions, offsets random: about a third is unread."""
    module = importlib.import_module("kernels_for_spark")
    checkers = {name: PartitionChecker(anomaly=name, kernel=getattr(module, name)) for name in NAMES}
    monkeypatch.setattr(registry, "CHECKERS", checkers)
    run = RunDirectory(tmp_path / "run")
    run.create()
    trial = parse_trial({"name": "small", "title": "", "topics": {"partitions": 8}}, source="test")
    run.plan.write_text(make_plan(trial, seed=1).model_dump_json())
    write_json(run.clock, {"start_monotonic_ns": 1_000})
    rng = np.random.default_rng(7)
    for table, clients in (("sends", (1, 2)), ("reads", (3, 4))):
        for client in clients:
            columns = {c.name: rng.integers(-5, 5_000, 15_000) for c in TABLES[table].columns}
            columns["partition"] = rng.integers(0, 8, 15_000) ** 2 // 8
            writer = RowWriter(run.rows, TABLES[table], client)
            writer.extend(columns)
            writer.close()
    write_history(run)
    return run


def facts(finding: Finding) -> tuple[str, int, int, int, str | None, bytes]:
    result = finding.result
    assert result.witnesses.dtype == WITNESS
    witnesses = result.witnesses.tobytes()
    return finding.anomaly, finding.partition, result.count, result.judged, result.incomplete, witnesses


def test_both_engines_find_the_same_bit_for_bit(run, session):
    anomalies = ["unread", "failing"]
    local = check_locally(History.open(run), select(anomalies), workers=2)
    assert sum(f.result.count for f in local) > 1_000
    for workers in (1, 2, 3):
        spark = check_with_spark(History.open(run), select(anomalies), workers=workers, session=session)
        assert [facts(f) for f in spark] == [facts(f) for f in local]


def test_the_kernels_run_in_processes_of_spark(run, session, monkeypatch):
    monkeypatch.setattr("prozess.spark_checkers.engine.ROWS_PER_TASK_MIN", 1)
    findings = check_with_spark(History.open(run), select(["process"]), workers=2, session=session)
    assert [f.partition for f in findings] == list(range(8))
    pids = {int(f.result.witnesses["sequence"][0]) for f in findings}
    assert os.getpid() not in pids
    assert {f.result.incomplete for f in findings} == {"päid"}
    safe = {int(f.result.witnesses["log_offset"][0]) for f in findings}
    assert safe == {1}, "a folder `harness` in the working directory would be taken for ours"


def test_an_unreadable_history_is_told_before_spark_is_asked(run, session):
    (run.history / "sends.parquet").unlink()
    with pytest.raises(HistoryUnreadable, match="table sends"):
        check_with_spark(History.open(run), select(["unread"]), workers=2, session=session)


def test_what_goes_wrong_in_spark_is_one_sentence(run, session, monkeypatch):
    units = [Unit(0, None, 1), Unit(10**9, None, 1), Unit(None, 10**9, 1)]
    monkeypatch.setattr("prozess.spark_checkers.engine.units_of", lambda *_, **__: (units, []))
    with pytest.raises(HarnessFailed, match=r"Spark could not check the history: .*--engine local"):
        check_with_spark(History.open(run), select(["process"]), workers=2, session=session)


def described(session):
    """The descriptions of the session's jobs, the newest first."""
    jobs = session.sparkContext._jsc.sc().statusStore().jobsList(None)
    known = [jobs.apply(number) for number in range(jobs.size())]
    told = {job.jobId(): job.description().get() for job in known if job.description().isDefined()}
    return [told[number] for number in sorted(told, reverse=True)]


def test_spark_shows_what_each_job_is_for_and_did_and_afterwards_the_session_describes_jobs_as_before(run, session):
    context = session.sparkContext
    context.setJobDescription("mine")
    try:
        found = check_with_spark(History.open(run), select(["unread"]), workers=2, session=session)
        session.range(3).count()
        newest = described(session)
    finally:
        context.setJobDescription(None)
    assert newest[0] == "mine"
    said = [description for description in newest if "prozess check" in description]
    witnesses = sum(finding.result.count for finding in found)
    begin, end = (
        f"prozess check {run.path.name}: done: checkers: partitions: 8, cells: 0, rows: 60,000, bytes: ",
        f", findings: 8, witnesses: {witnesses:,}, failed attempts: 0",
    )
    assert said[0].startswith(begin)
    assert said[0].endswith(end)
    read_bytes = int(said[0].removeprefix(begin).removesuffix(end).replace(",", ""))
    stored = {path.stem: path.stat().st_size for path in run.history.glob("*.parquet")}
    assert stored["sends"] / 20 < read_bytes < sum(stored.values()), "some columns of the tables, once"
    assert said[1] == f"prozess check {run.path.name}: checkers: 1, partitions: 8, cells: 0, rows: 60,000"


def test_a_task_whose_worker_was_killed_is_tried_again_and_nothing_is_counted_twice(run, session, monkeypatch):
    monkeypatch.setattr("prozess.spark_checkers.engine.ROWS_PER_TASK_MIN", 1)
    findings = check_with_spark(History.open(run), select(["dying"]), workers=2, session=session)
    assert [finding.partition for finding in findings] == list(range(8))
    assert {finding.result.incomplete for finding in findings} == {"päid"}
    done = next(description for description in described(session) if ": done: " in description)
    assert done.endswith(", findings: 8, witnesses: 8, failed attempts: 1")
    assert "partitions: 8, cells: 0, rows: 60,000, bytes: " in done


def test_a_module_that_the_workers_lack_is_named_with_the_way_out(session):
    def work(numbers):
        yield pa.record_batch({"id": [*numbers]})
        importlib.import_module("somewhere_else")

    with pytest.raises(MissingTool, match=r"workers has no somewhere_else.*spark\.pyspark\.python"):
        collect(session, 1, work, pa.schema([("id", pa.int64())]))


def test_tasks_are_of_nearly_equal_rows_the_largest_first_and_always_the_same(monkeypatch):
    monkeypatch.setattr("prozess.spark_checkers.engine.ROWS_PER_TASK_MIN", 10)
    monkeypatch.setattr("prozess.spark_checkers.engine.UNIT_COST_ROWS", 1)
    rows = [5, 90, 0, 40, 35, 20, 0, 10]
    tasks = tasks_of(rows, tasks_max=2)
    assert sorted(number for task in tasks for number in task) == list(range(8))
    assert [sum(rows[number] for number in task) for task in tasks] in ([101, 99], [99, 101], [100, 100])
    assert tasks_of(rows, tasks_max=2) == tasks
    assert tasks_of(rows, tasks_max=100)[:6] == [[1], [3], [4], [5], [7], [0]]
    assert tasks_of([], tasks_max=4) == []
    monkeypatch.setattr("prozess.spark_checkers.engine.ROWS_PER_TASK_MIN", 10_000)
    assert [sorted(task) for task in tasks_of(rows, tasks_max=4)] == [list(range(8))]


@pytest.fixture
def generated(tmp_path):
    """One partition with four times as many rows as a piece may have, and small ones; everything planted is in it."""
    path = tmp_path / "generated"
    planted = "lost=4,duplicate=3,reordered=2,phantom=1,dirty-read=2,skipped=2,rewound=2,resurrected=1,time-travel=1"
    generate_history(path, rows=40_000, partitions=2, plant=planted, workloads=["log"], seed=5)
    return RunDirectory(path)


def test_a_partition_in_pieces_has_the_findings_that_it_has_as_a_whole_with_both_engines(generated, session):
    whole = check_locally(History.open(generated), select(), workers=1)
    assert sum(f.result.count for f in whole) >= 18
    limit = History.open(generated).rows_of(0) // 4
    in_pieces = check_locally(History.open(generated), select(), workers=2, rows_max=limit)
    assert [facts(f) for f in in_pieces] == [facts(f) for f in whole]
    in_spark = check_with_spark(History.open(generated), select(), workers=2, session=session, rows_max=limit)
    assert [facts(f) for f in in_spark] == [facts(f) for f in whole]


def test_a_cell_shared_out_by_partitions_has_the_findings_that_it_has_as_a_whole(tmp_path, session):
    planted = "torn=3,lost-transaction=2,aborted-read=4,early-read=2,unprocessed=2,commit-regression=2,two-owners=1"
    path = tmp_path / "cells"
    generate_history(path, rows=20_000, partitions=5, plant=planted, workloads=["transactions", "group"], seed=5)
    whole = check_locally(History.open(RunDirectory(path)), select(), workers=1)
    assert sum(f.result.count for f in whole) >= 16
    in_spark = check_with_spark(History.open(RunDirectory(path)), select(), workers=2, session=session, rows_max=2_000)
    assert [facts(f) for f in in_spark] == [facts(f) for f in whole]


def test_what_faults_cost_is_the_same_with_both_engines(generated, session):
    history = History.open(generated)
    times = history.files["sends"].read(["invoked_ns"])["invoked_ns"]
    quarter = int(times.max()) // 4
    faults = [FaultTime(1, quarter, 2 * quarter, frozenset({1})), FaultTime(2, 3 * quarter, None)]
    local = measure_locally(History.open(generated), faults, workers=1)
    spark = measure_with_spark(History.open(generated), faults, workers=2, session=session)
    assert local.acknowledged.sum() > 0
    assert len(local.recoveries) == 2 * len(history.partitions)
    for name in ("acknowledged", "latencies", "windows", "recoveries"):
        assert np.array_equal(getattr(spark, name), getattr(local, name)), name


def test_an_empty_history_has_findings_that_judged_nothing(run, session):
    for rows in run.rows.iterdir():
        rows.unlink()
    write_history(run)
    assert History.open(run).rows("sends") == 0
    findings = check_with_spark(History.open(run), select(["unread"]), workers=2, session=session)
    assert [(f.partition, f.result.judged) for f in findings] == [(p, 0) for p in range(8)]


SCRIPT = """
import psutil
import pyarrow as pa
from prozess.spark_checkers.session import start_session
session = start_session(master="local[1]")
assert session.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3
scratch = session.conf.get("spark.local.dir")
assert session.sparkContext._jvm.System.getProperty("java.io.tmpdir") == scratch
family = psutil.Process().children(recursive=True)
assert len(family) >= 3, family  # the virtual machine, the daemon of the workers, a worker
assert any("spark.jsa" in mapped.path for mapped in family[0].memory_maps()), "it does without its class-data archive"
print(scratch, *(process.pid for process in family), flush=True)
"""


def living(pids: list[str]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(int(pid)))
    return found


@pytest.mark.long  # that sessions work, and end, is in each test here; the archive is made anew in this one
def test_spark_is_quiet_and_fast_by_an_archive_and_leaves_nothing_behind(need, tmp_path, tmp_path_factory):
    need("java")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | {"TMPDIR": str(tmp_path), "PROZESS_CACHE": str(tmp_path_factory.mktemp("cache"))},
    )
    assert (done.returncode, done.stderr) == (0, "")
    directory, *pids = done.stdout.split()
    _, left = psutil.wait_procs(living(pids), timeout=10)
    assert left == []
    assert Path(directory).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["java_home", "nowhere"])
def test_without_java_the_way_out_is_named(where, tmp_path):
    call = f"java_home={str(tmp_path)!r}" if where == "java_home" else ""
    script = "from prozess.spark_checkers.session import start_session\n"
    script += f"from prozess.harness.errors import {MissingTool.__name__}\n"
    script += f"try:\n    start_session({call})\nexcept MissingTool as error:\n    print(error)"
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=environment | {"PATH": str(tmp_path)},
    )
    assert "Spark needs Java 17 or newer" in done.stdout
    assert "--engine local" in done.stdout
    assert (str(tmp_path) in done.stdout) == (where == "java_home")


def test_a_master_that_is_none_is_named(need):
    need("java")
    script = "from prozess.spark_checkers.session import start_session\nstart_session(master='locl[2]')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert "BadInput: Spark refuses --master 'locl[2]'" in done.stderr.splitlines()[-1]
    assert "Give local[N]" in done.stderr.splitlines()[-1]


def test_in_a_given_session_a_run_has_the_findings_of_the_local_engine_and_its_configuration_stays_as_it_was(
    session, tmp_path, monkeypatch
):
    generate_history(tmp_path / "run", rows=4000, partitions=3, plant="lost=2,duplicate=1", workloads=["log"], seed=5)
    session.sql("SELECT 1").collect()  # at its first query Spark writes its warehouse as a URI
    before = dict(session.sparkContext.getConf().getAll()), session.conf.getAll
    verdict = in_session.check(session, tmp_path / "run")
    again = RunDirectory(tmp_path / "run")
    assert verdict.findings["lost"] == 2
    assert dict(session.sparkContext.getConf().getAll()) == before[0]
    assert session.conf.getAll == before[1]
    found = read_findings(again)
    check_run(again, CheckOptions(engine="local"))
    local = read_findings(again)
    assert [facts(f) for f in found] == [facts(f) for f in local]
    found, shown = in_session.findings(session, again.path), in_session.witnesses(session, str(again.path))
    assert found.where("anomaly = 'lost'").groupBy().sum("count").collect()[0][0] == 2
    joined = shown.withColumnRenamed("anomaly", "shown").join(found, "finding")
    assert joined.where("shown = anomaly").count() == shown.count() >= 3
    monkeypatch.setattr(in_session, "LARGE_ROWS", 0)  # as if there were very many
    by_tasks = in_session.witnesses(session, again.path)
    assert sorted(by_tasks.collect()) == sorted(shown.collect())
    assert [field.metadata for field in by_tasks.schema] == [field.metadata for field in shown.schema]
    asked = (in_session.facts, in_session.verdict_inputs, in_session.windows)
    frames = {ask.__name__: ask(session, again.path) for ask in asked} | {"findings": found, "witnesses": shown}
    for name, frame in frames.items():
        assert frame.columns == list(RESULT_TABLES[name].column_names)
        assert [field.nullable for field in frame.schema] == [c.optional for c in RESULT_TABLES[name].columns], name
        assert all(field.metadata["comment"] for field in frame.schema), name
    told = frames["verdict_inputs"].where("anomaly = 'lost'").groupBy("judgement").sum("count")
    assert [tuple(row) for row in told.collect()] == [("forbidden", 2)]
    opened = History.open(again)
    for table in TABLES:
        assert in_session.history(session, tmp_path / "run", table).count() == opened.rows(table), table
    (again.history / "deliveries.parquet").unlink()
    seal_recorded(again)  # as a version did that knew no such table
    for readable in (False, True):
        assert in_session.history(session, again.path, "deliveries", readable=readable).count() == 0
    assert second_opinion(again, read_findings(again), workers=1, session=session) == ()
    loaded = prozess.load(again.path)
    assert loaded.findings.to_spark(session).collect() == found.collect()
    assert loaded.history("sends").to_spark(session).count() == opened.rows("sends")
    assert loaded.outcomes.to_spark(session).where("anomaly = 'lost'").groupBy().sum("count").collect()[0][0] == 2
    assert loaded.cells.to_spark(session).columns == loaded.cells.to_arrow().column_names
    assert loaded.check(session=session).verdict.findings == verdict.findings


def test_of_damaged_rows_a_session_gets_no_findings_of_an_earlier_check_and_those_of_other_cells_again(
    session, tmp_path
):
    kinds = ["log", "transactions"]
    generate_history(tmp_path / "run", rows=4000, partitions=3, plant="lost=2", workloads=kinds, seed=5)
    assert in_session.check(session, tmp_path / "run").verdict is Verdict.VIOLATED
    run = RunDirectory(tmp_path / "run")
    damaged = run.history / "sends.parquet"
    concerned = History.open(run).plan.cells[1]
    groups = read_manifest(run).files["history/sends.parquet"].row_groups
    begin = next(group.begin for group in groups if group.partition == concerned.partitions[0])
    content = bytearray(damaged.read_bytes())
    content[begin + 30] ^= 1
    damaged.write_bytes(content)
    for asked in (in_session.findings, in_session.witnesses):
        with pytest.raises(HistoryUnreadable, match=r"was damaged after it was checked: .*sends\.parquet.*check again"):
            asked(session, run.path)
    verdict = in_session.check(session, run.path)
    assert verdict.verdict is Verdict.UNKNOWN
    assert [cell.verdict for cell in verdict.cells] == [Verdict.VIOLATED, Verdict.UNKNOWN]
    assert "sends.parquet has changed since it was written" in verdict.unknown_reasons[0]
    found = in_session.findings(session, run.path)
    assert found.where("anomaly = 'lost'").groupBy().sum("count").collect()[0][0] == 2
    assert {row.cell for row in found.where("incomplete is not null").collect()} == {1}
    assert found.where("incomplete is null and cell = 1").count() == 0
    assert found.where("incomplete like '%sends.parquet has changed%'").count() > 0
    check_run(run, CheckOptions(engine="local"))
    damaged_run = replace(run, lost=condition_of(run).lost)
    assert [facts(f) for f in read_findings(run)] == [
        facts(f) for f in check_with_spark(History.open(damaged_run), select(), workers=2, session=session)
    ]
    with pytest.raises(HistoryUnreadable, match=r"is damaged: .*sends\.parquet"):
        in_session.history(session, run.path, "sends")
    assert in_session.history(session, run.path, "reads").count() > 0


def test_of_a_run_whose_damage_may_concern_everything_a_session_gets_nothing(session, tmp_path):
    generate_history(tmp_path / "run", rows=4000, partitions=3, plant="lost=2", workloads=["log"], seed=5)
    assert in_session.check(session, tmp_path / "run").verdict is Verdict.VIOLATED
    (tmp_path / "run" / "history" / "clients.parquet").unlink()
    assert in_session.check(session, tmp_path / "run").verdict is Verdict.UNKNOWN
    for asked in (in_session.findings, in_session.witnesses, partial(in_session.history, table="sends")):
        with pytest.raises(HistoryUnreadable, match=r"is damaged: .*clients\.parquet"):
            asked(session, tmp_path / "run")


def test_tasks_prove_a_history_as_this_process_does(session, tmp_path, monkeypatch):
    run = RunDirectory(tmp_path / "run")
    generate_history(run.path, rows=20_000, partitions=3, plant="", workloads=["log"], seed=5)
    hashing = partial(hash_with_spark, run=run, workers=2, session=session)
    assert condition_of(run, hashing=hashing).whole
    monkeypatch.setattr(manifest, "SHARED_BYTES", 0)  # as if it were large
    assert in_session.check(session, run.path).verdict is Verdict.HELD
    path = run.history / "sends.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    condition = condition_of(run, hashing=hashing)
    assert condition == condition_of(run)
    assert condition.bounded
    assert in_session.check(session, run.path).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("damage", ["none", "a bit", "a byte less", "gone"])
def test_tasks_hash_rows_and_damage_is_what_this_process_finds(session, tmp_path, monkeypatch, damage):
    run = recorded_run(tmp_path / "run")
    path = max(run.rows.glob("sends.*.rows"))
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage != "none":
        path.write_bytes(content[:-1] + (bytes([content[-1] ^ 1]) if damage == "a bit" else b""))
    alone = condition_of(run)
    by_one_process = judge_run(run, check_run(run, CheckOptions(engine="local"), alone), alone)
    monkeypatch.setattr(manifest, "SHARED_BYTES", 0)  # as if it were large
    hashed_here, digest = [], manifest._digest
    monkeypatch.setattr(manifest, "_digest", lambda path: hashed_here.append(path.parent.name) or digest(path))
    assert condition_of(run, hashing=partial(hash_with_spark, run=run, workers=2, session=session)) == alone
    assert hashed_here
    assert "rows" not in hashed_here
    by_tasks = in_session.check(session, run.path)
    assert by_tasks.unknown_reasons == by_one_process.unknown_reasons
    assert (by_tasks.verdict, by_tasks.sentence) == (by_one_process.verdict, by_one_process.sentence)
    assert EXIT_CODES[by_tasks.verdict] is (ExitCode.HELD if damage == "none" else ExitCode.UNKNOWN)


def test_what_a_session_is_asked_for_that_is_not_there_is_refused_in_a_sentence(session, run, tmp_path):
    with pytest.raises(BadInput, match=r"has no table 'writes'\. Its tables are admin_operations, assignments"):
        in_session.history(session, run.path, "writes")
    with pytest.raises(BadInput, match="has not been checked yet"):
        in_session.witnesses(session, run.path)
    with pytest.raises(BadInput, match="is not a run directory"):
        in_session.check(session, tmp_path)
    with pytest.raises(BadInput, match="at least one task"):
        in_session.check(session, run.path, workers=0)
