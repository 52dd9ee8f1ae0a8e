"""How fast a history is written and checked: rows → Parquet, the local engine, and Spark cold and warm, compared with a
plain scan.

    python benchmarks/checking.py [--rows 20000000] [--partitions 64] [--keep DIRECTORY] [--straight] [--engines spark]
                                  [--workers 1] [--times 0] [--workload group|transactions] [--transaction-records 3]
    python benchmarks/checking.py --growth 100000 1000000 10000000 [--workload log] [--engines local]
    python benchmarks/checking.py --divide 24 300 3000 10000 [--rows 1000000] [--engines local]
    python benchmarks/checking.py --by-kernel [--rows 20000000] [--partitions 64] [--workload log]

`--straight`: the history as the generator writes it, without the rows that it might have come from: for very many rows.
`--workload`: cells of another kind; 100 M rows have 20 M processing records. `--transaction-records`: of transactions with so
many records each, which read, too: 24 M rows have 2 M of three records.

`--growth`: only the command, for histories of these sizes, one after the other: CPU seconds, the plain scan, and by which
power of the rows both grow. Partitions grow with the rows, so that what a partition costs is seen, too. The exponent of
what is beyond the fixed cost is that of the last two sizes, with the smallest history's seconds subtracted.

`--divide`: only the command, for logs of so many rows in these numbers of partitions: what a partition more costs.

`--by-kernel`: the CPU seconds of each kernel, in one thread. What is read and indexed counts for the kernel that first asks
for it.

Makes a history with planted anomalies (PLANTED), so that every timed check is also seen to find exactly them. Everything is
measured in one go on one machine; the ratios say more than the seconds. Times are wall clock; cold is a fresh process from
its start to the findings, warm the best of three more in the same process. CPU seconds are of all processes, for one check.
The command is `prozess check --no-report` with the same engine, from the start of its process to its end: it also proves the
files, starts Python, measures what faults cost, judges, and writes.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq

from prozess.app.run.check import engine_named
from prozess.app.run_options import ENGINES, engine_name
from prozess.checkers.registry import CHECKERS, select
from prozess.exchange.synthetic.history import KINDS, GenerateOptions, generate
from prozess.harness.checking.checker import CheckerSet
from prozess.harness.checking.kernels import check_locally
from prozess.harness.history.convert import write_history
from prozess.harness.history.reader import History
from prozess.harness.plan.plan import parse_plan
from prozess.harness.recording.rows import RowWriter
from prozess.harness.run_directory import RunDirectory, read_json
from prozess.harness.schema import TABLES, Table
from prozess.spark_checkers.session import start_session

PLANTED = {
    "log": {"lost": 50},
    "group": {"unprocessed": 50, "reprocessed": 40, "commit-regression": 7, "commit-ahead": 5, "two-owners": 3},
    "transactions": {"torn": 50, "lost-transaction": 40, "zombie-write": 30, "aborted-read": 60, "early-read": 20},
    "compaction": {"compacted-away": 50, "tombstone-lost": 40},
}
SCANNED = {
    "sends": ["client", "sequence", "log_offset", "outcome", "invoked_ns", "completed_ns"],
    "reads": ["client", "sender", "sequence", "log_offset", "span", "read_ns"],
    "processed": ["client", "sender", "sequence", "log_offset", "done_ns"],
    "transactions": ["client", "transaction", "begun_ns", "end_invoked_ns", "outcome", "ended_by"],
}
EDGES = ("information-cycle", "write-cycle")
"""Anomalies whose `judged` counts dependencies: by reads, and by writes."""
LOOK_S = 0.2
"""How long to wait between two looks at memory, in seconds."""


def make(run: RunDirectory, options: GenerateOptions, *, straight: bool) -> int:
    """Generates a history, and the rows that it would have come from. Returns how many sends and reads it has."""
    run.create()
    generate(run, options, command=f"benchmarks/checking.py --rows {options.rows}")
    if straight:
        return _length(run)
    plan = parse_plan(run.plan.read_text(encoding="utf-8"), source="benchmark")
    # The rows are as if a trial had recorded them: a generated run has no rows to be written again from.
    run.plan.write_text(plan.model_copy(update={"origin": "trial"}).model_dump_json(), encoding="utf-8")
    history = History.open(run)
    for name, table in TABLES.items():
        if name not in ("partitions", "cells"):
            _back_to_rows(run, history, table)
    return _length(run)


def _length(run: RunDirectory) -> int:
    history = History.open(run)
    return history.rows("sends") + history.rows("reads")


def _back_to_rows(run: RunDirectory, history: History, table: Table) -> None:
    """Turns Parquet into the files that clients write, partition by partition, with a writer for each client."""
    file, writers = history.files[table.name], {}
    for row_ranges in file.row_ranges.values() if table.partitioned else [None]:
        columns = file.read(table.column_names, row_ranges)
        for client in np.unique(columns["client"]).tolist():
            writer = writers.setdefault(client, None) or RowWriter(run.rows, table, max(client, 0))
            writers[client] = writer
            mine = columns["client"] == client
            writer.extend({name: values[mine] for name, values in columns.items()})
    for writer in writers.values():
        writer.close()


def scan(run: RunDirectory) -> None:
    """Measures the floor: it decodes the columns that the kernels look at, a row group at a time, and does nothing with
    them."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for table, columns in SCANNED.items():
            path = run.history / f"{table}.parquet"
            footer = pq.read_metadata(path)
            groups = range(footer.num_row_groups)
            list(pool.map(partial(_scan_group, path, footer, columns), groups))


def _scan_group(path: Path, footer: pq.FileMetaData, columns: Sequence[str], group: int) -> None:
    with pq.ParquetFile(path, metadata=footer, memory_map=True) as file:
        file.read_row_group(group, columns=list(columns), use_threads=False)


def seconds(work: Callable[[], object], times: int) -> tuple[float, float]:
    """Returns the best wall clock of `times` runs, and the mean CPU seconds of this process and its children."""
    taken, before = [], _cpu_s()
    for _ in range(times):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return min(taken), (_cpu_s() - before) / times


def _family() -> list[psutil.Process]:
    ours = psutil.Process()
    return [ours, *ours.children(recursive=True)]


def _cpu_s() -> float:
    return sum(sum(process.cpu_times()[:2]) for process in _family())


class Memory:
    """The most resident memory of all our processes together, at one moment, in MB. Pages that they share count more
    than once."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            with contextlib.suppress(psutil.Error):  # a process may end meanwhile
                self.peak_mb = max(self.peak_mb, sum(process.memory_info().rss for process in _family()) / 1e6)


def child(engine: str, path: Path, workers: int, times: int) -> None:
    """Runs in a fresh process: it checks once, says so, checks so many times more, and says how fast that was."""
    session = start_session(master=f"local[{workers}]") if engine == "spark" else None
    check, checkers = engine_named(engine_name(engine), workers=workers, session=session).check, select()

    expected, edges = Counter(read_json(RunDirectory(path).source)["expected"]), 0

    def work() -> None:
        nonlocal edges
        findings = check(History.open(RunDirectory(path)), checkers)
        failed = {f.result.incomplete for f in findings if "failed:" in (f.result.incomplete or "")}
        found: Counter[str] = Counter()
        for finding in findings:
            found[finding.anomaly] += finding.result.count
        assert (+found, failed) == (expected, set()), (found, expected, failed)
        edges = sum(f.result.judged for f in findings if f.anomaly in EDGES)

    with Memory() as memory:
        _, cpu = seconds(work, 1)
        print("cold", flush=True)
        warm, cpu = seconds(work, times) if times else (0.0, cpu)
    print(json.dumps({"warm": warm, "cpu": cpu, "peak_mb": memory.peak_mb, "edges": edges}), flush=True)


def measure(engine: str, path: Path, workers: int, times: int) -> tuple[float, dict[str, float]]:
    """Returns the cold seconds; and the warm seconds, CPU seconds and peak MB by name."""
    begin = time.perf_counter()
    command = [sys.executable, __file__, "--engine", engine, "--keep", str(path)]
    command += ["--workers", str(workers), "--times", str(times)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        cold = time.perf_counter() - begin
        rest = process.stdout.readline()
    assert (first, process.returncode) == ("cold", 0), f"{engine}: exit code {process.returncode}"
    return cold, json.loads(rest)


def command(engine: str, path: Path, workers: int) -> tuple[float, float, float]:
    """Runs `prozess check` as a person does. Returns the wall clock, the CPU seconds of all its processes, and the most
    memory of any of them in MB."""
    prozess = [sys.executable, "-c", "import sys; from prozess.command import main; sys.exit(main())"]
    asked = ["check", str(path), "--engine", engine, "--workers", str(workers), "--no-report"]
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        number = subprocess.Popen([*prozess, *asked], stdout=output, stderr=output).pid
        _, status, used = os.wait4(number, 0)  # of this process and those that it waited for, and of no others
        taken = time.perf_counter() - begin
        output.seek(0)
        # The verdict: anomalies were planted.
        code = os.waitstatus_to_exitcode(status)
        assert code in (1, 2), f"prozess check ended with {code}: {output.read().decode()}"
    return taken, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def by_kernel(run: RunDirectory, rows: int) -> None:
    """Prints how many CPU seconds each kernel took, and each kind of looks at partitions of a cell."""
    spent: Counter[str] = Counter()

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run_timed(*arguments: object) -> Any:  # noqa: ANN401 - of any kernel
            begin = time.thread_time()
            try:
                return work(*arguments)
            finally:
                spent[name] += time.thread_time() - begin

        return run_timed

    checkers = select()
    facts = {name: replace(facts, look=timed(f"looks: {name}", facts.look)) for name, facts in checkers.facts.items()}
    cell = [
        replace(
            checker,
            kernel=timed(name, checker.kernel),
            knows=None if checker.knows is None else facts[checker.knows.name],
        )
        for name, checker in checkers.cell.items()
    ]
    partition = [replace(checker, kernel=timed(name, checker.kernel)) for name, checker in checkers.partition.items()]
    made = {checker.anomaly: checker for checker in (*partition, *cell)}
    print(f"{rows:,} rows, {len(CHECKERS)} kernels, load {os.getloadavg()[0]:.1f} before\n")
    scan(run)
    _, floor = seconds(partial(scan, run), 1)
    _, whole = seconds(
        lambda: check_locally(
            History.open(run), CheckerSet.of([made[name] for name in checkers.order], checkers.pieces), workers=1
        ),
        1,
    )
    print(f"{'':<22}{'CPU s':>8}{'ns/row':>8}")
    for name, cpu in (("plain scan", floor), ("check", whole), *spent.most_common()):
        if cpu * 1e9 >= rows / 10:
            print(f"{name:<22}{cpu:8.2f}{cpu / rows * 1e9:8.1f}")


def report(run: RunDirectory, rows: int, engines: Sequence[str], workers: int, times: int) -> None:
    """Measures everything and prints the table."""
    plan = parse_plan(run.plan.read_text(encoding="utf-8"), source="benchmark")
    print(
        f"{rows:,} rows, {len(plan.partitions)} partitions, {workers} of {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f} before\n"
    )
    converted = seconds(lambda: write_history(run), 1) if plan.origin == "trial" else None
    scan(run)
    floor, floor_cpu = seconds(lambda: scan(run), 3)
    size = sum(file.stat().st_size for file in run.history.iterdir())
    print(f"{'':<22}{'s':>8}{'Mrows/s':>10}{'× scan':>8}{'CPU s':>8}{'Mrows/CPU s':>13}{'peak MB':>9}")
    if converted is not None:
        _line("rows → Parquet", rows, converted[0], floor, converted[1])
    _line("plain pyarrow scan", rows, floor, floor, floor_cpu)
    for engine in engines:
        cold, warm = measure(engine, run.path, workers, times)
        _line(f"{engine}, cold process", rows, cold, floor, None if times else warm["cpu"], warm["peak_mb"])
        if times:
            _line(f"{engine}, warm", rows, warm["warm"], floor, warm["cpu"], warm["peak_mb"])
        whole, cpu, peak_mb = command(engine, run.path, workers)
        _line(f"{engine}, the command", rows, whole, floor, cpu, peak_mb)
        if warm["edges"]:
            print(f"{warm['edges']:,.0f} dependencies between transactions")
    _count_things(run)
    print(f"\n{size / rows:.1f} bytes per row in Parquet; {len(CHECKERS)} kernels; load {os.getloadavg()[0]:.1f} after")


def _count_things(run: RunDirectory) -> None:
    history = History.open(run)
    for name in ("processed", "transactions"):
        if history.rows(name):
            print(f"{history.rows(name):,} rows of {name}")


GROWN = {"log": 300_000, "group": 300_000, "transactions": 500_000, "compaction": 300_000}
"""How many rows there are to a partition, while a history grows."""
FULL_ROWS = 4_000_000
"""Histories with fewer rows have fewer anomalies planted."""
PARTITIONS_STEP = 12
"""Partitions are a multiple of this, as transactions need it."""


def grow(sizes: Sequence[int], workload: str, engines: Sequence[str], workers: int, records: int | None) -> None:
    """Measures the command over histories of these sizes, and prints by which power of their rows it grows."""
    for engine in engines:
        print(f"\n{workload}, {engine}, {workers} workers, load {os.getloadavg()[0]:.1f} before")
        print(
            f"{'rows':>13}{'partitions':>12}{'scan, CPU s':>13}{'check, CPU s':>14}{'× scan':>8}{'exponent':>10}{'MB':>7}"
        )
        measured: list[tuple[int, float]] = []
        for size in sorted(sizes):
            partitions = PARTITIONS_STEP * max(1, round(size / GROWN[workload] / PARTITIONS_STEP))
            with tempfile.TemporaryDirectory(prefix="prozess-bench-") as folder:
                run = RunDirectory(Path(folder) / "run")
                options = GenerateOptions(
                    rows=size,
                    partitions=partitions,
                    planted={
                        name: -(-count * min(size, FULL_ROWS) // FULL_ROWS) for name, count in PLANTED[workload].items()
                    },
                    kinds=[workload],
                    seed=1,
                    transaction_records=records,
                )
                rows = make(run, options, straight=True)
                scan(run)
                _, floor_cpu = seconds(partial(scan, run), 1)
                _, cpu, peak_mb = command(engine, run.path, workers)
            exponent = ""
            if measured:
                fixed = measured[0][1] if len(measured) > 1 else 0.0
                before_rows, before_cpu = measured[-1]
                grown = (cpu - fixed) / max(before_cpu - fixed, 1e-2)
                exponent = f"{np.log(grown) / np.log(rows / before_rows):.2f}"
            measured.append((rows, cpu))
            text = f"{rows:>13,}{partitions:>12}{floor_cpu:>13.2f}{cpu:>14.2f}{cpu / floor_cpu:>8.0f}"
            print(f"{text}{exponent:>10}{peak_mb:>7.0f}", flush=True)


def divide(rows: int, numbers: Sequence[int], engines: Sequence[str], workers: int) -> None:
    """Measures the command over logs of so many rows in these numbers of partitions, and prints what a partition more costs
    than one of the smallest number."""
    for engine in engines:
        print(f"\nlog, {engine}, {workers} workers, load {os.getloadavg()[0]:.1f} before")
        print(f"{'rows':>13}{'partitions':>12}{'check, CPU s':>14}{'ms a partition':>16}{'MB':>7}")
        least: tuple[int, float] | None = None
        for partitions in sorted(numbers):
            with tempfile.TemporaryDirectory(prefix="prozess-bench-") as folder:
                run = RunDirectory(Path(folder) / "run")
                options = GenerateOptions(rows=rows, partitions=partitions, planted={"lost": 1}, kinds=["log"], seed=1)
                made = make(run, options, straight=True)
                _, cpu, peak_mb = command(engine, run.path, workers)
            least = least or (partitions, cpu)
            more = partitions - least[0]
            text = f"{made:>13,}{partitions:>12}{cpu:>14.2f}"
            print(f"{text}{(cpu - least[1]) / more * 1e3 if more else 0:>16.2f}{peak_mb:>7.0f}", flush=True)


def _line(
    what: str, rows: int, taken: float, floor: float, cpu: float | None = None, peak_mb: float | None = None
) -> None:
    line = f"{what:<22}{taken:8.2f}{rows / taken / 1e6:10.1f}{taken / floor:8.1f}"
    line += "" if cpu is None else f"{cpu:8.2f}{rows / max(cpu, 1e-3) / 1e6:13.1f}"
    print(line + ("" if peak_mb is None else f"{peak_mb:9.0f}"))


def main() -> None:
    """Runs the benchmark, or with --engine one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--keep", type=Path, help="use this directory (made if it is not there) and keep it")
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--workload", choices=KINDS, default="log", help="kind of the cell")
    parser.add_argument("--transaction-records", type=int, help="records per transaction, in transactions that read")
    parser.add_argument("--straight", action="store_true", help="no rows: only the history")
    parser.add_argument("--engines", nargs="+", choices=sorted(ENGINES), default=["local", "spark"])
    parser.add_argument("--engine", choices=sorted(ENGINES), help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=2, help="partitions, or pieces, at a time")
    parser.add_argument("--times", type=int, default=3, help="warm checks; 0: only the cold one, for very many rows")
    parser.add_argument("--by-kernel", action="store_true", help="only the CPU seconds of each kernel")
    parser.add_argument("--growth", nargs="+", type=int, metavar="ROWS", help="only the command, for these sizes")
    parser.add_argument(
        "--divide", nargs="+", type=int, metavar="PARTITIONS", help="only the command, for these numbers"
    )
    arguments = parser.parse_args()
    if arguments.divide:
        divide(arguments.rows, arguments.divide, arguments.engines, arguments.workers)
        return
    if arguments.growth:
        grow(
            arguments.growth,
            arguments.workload,
            arguments.engines,
            arguments.workers,
            arguments.transaction_records,
        )
        return
    if arguments.engine:
        child(arguments.engine, arguments.keep, arguments.workers, arguments.times)
        return
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="prozess-bench-")) / "run"
    try:
        run = RunDirectory(folder)
        if run.plan.exists():
            rows = _length(run)
        else:
            options = GenerateOptions(
                rows=arguments.rows,
                partitions=arguments.partitions,
                planted=PLANTED[arguments.workload],
                kinds=[arguments.workload],
                seed=1,
                transaction_records=arguments.transaction_records,
            )
            rows = make(run, options, straight=arguments.straight or arguments.by_kernel)
        if arguments.by_kernel:
            by_kernel(run, rows)
        else:
            report(run, rows, arguments.engines, arguments.workers, arguments.times)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder.parent, ignore_errors=True)


if __name__ == "__main__":
    main()
