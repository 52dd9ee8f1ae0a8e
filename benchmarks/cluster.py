"""What a check takes on Spark's standalone cluster with 1, 2 and 4 workers, and what goes over the network.

    python benchmarks/cluster.py [--rows 100000000] [--partitions 256] [--workers 1 2 4] [--store] [--keep DIRECTORY]

Each worker has one executor with one core, and is pinned to one core of this machine, so four workers on two cores show what
more workers cost, and no speed-up. The history is on a disk that all see; with `--store` it is in an object store on this
machine, and no worker sees the driver's disk. Spark's event log says what each job sent: tasks to the executors, and results
to the driver. With `--store` the kernel counts what came out of the store (iptables, for root).

Every check is also seen to find what was planted. The floor is the same check by the local engine with one worker.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from prozess import spark as trial
from prozess.checkers.registry import select
from prozess.exchange.synthetic.history import GenerateOptions, generate
from prozess.harness.checking.kernels import check_locally
from prozess.harness.history.reader import History
from prozess.harness.run_directory import RunDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.servers.object_store import BUCKET, PLAIN_CHECKSUMS, ObjectStore, object_store
from tests.support.servers.spark import standalone

PLANTED = {"lost": 50}
CHECKS_TIMEOUT_S = 3_600


def cpu_s(folder: Path) -> float:
    """Returns the CPU seconds of the processes that work below this folder: executors, and Python in them."""
    used_s = 0.0
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it may end meanwhile
            if Path(process.cwd()).is_relative_to(folder):
                used_s += sum(process.cpu_times())
    return used_s


class FromStore:
    """How many bytes the kernel saw leave the port of the store."""

    def __init__(self, store: ObjectStore | None) -> None:
        port = store.endpoint.rpartition(":")[2] if store is not None and os.geteuid() == 0 else ""
        self._rule = ["OUTPUT", "-o", "lo", "-p", "tcp", "--sport", port] if port and shutil.which("iptables") else []

    def __enter__(self) -> "FromStore":
        if self._rule:
            subprocess.run(["iptables", "-I", *self._rule], check=True, timeout=20)
        return self

    def __exit__(self, *_: object) -> None:
        if self._rule:
            subprocess.run(["iptables", "-D", *self._rule], check=True, timeout=20)

    @property
    def sent_bytes(self) -> int | None:
        """Returns what left it so far. None if nobody counts."""
        if not self._rule:
            return None
        words = ["iptables", "-L", "OUTPUT", "-v", "-x", "-n"]
        lines = subprocess.run(words, check=True, timeout=20, capture_output=True, text=True).stdout.splitlines()
        (line,) = [line for line in lines if re.search(rf"spt:{self._rule[-1]}\b", line)]
        return int(line.split()[1])


def read_event_log(log: Path, after_job: int) -> list[dict[str, object]]:
    """Returns what Spark's event log says of each job after that one: its description, how many tasks it had, and the bytes
    of their results."""
    jobs: dict[int, dict[str, object]] = {}
    stages: dict[int, int] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart" and event["Job ID"] > after_job:
            description = event["Properties"].get("spark.job.description", "without a description")
            jobs[event["Job ID"]] = {"job": description, "tasks": 0, "result_bytes": 0}
            stages |= dict.fromkeys(event["Stage IDs"], event["Job ID"])
        elif event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in stages:
            job = jobs[stages[event["Stage ID"]]]
            job["tasks"] += 1
            job["result_bytes"] += event["Task Metrics"]["Result Size"]
    return list(jobs.values())


def session_at(master: str, folder: Path, store: ObjectStore | None) -> SparkSession:
    """Returns a session as a user makes one, which writes an event log into the folder."""
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    if store is not None:
        settings |= {f"spark.hadoop.{name}": value for name, value in store.settings.items()}
    return SparkSession.builder.master(master).appName("cluster").config(map=settings).getOrCreate()


def expect_planted(findings: Iterable[tuple[str, int]], path: Path) -> None:
    """Asserts that exactly what was planted was found."""
    found: Counter[str] = Counter()
    for anomaly, count in findings:
        found[anomaly] += count
    assert +found == Counter(json.loads((path / "source.json").read_text())["expected"]), found


def check_twice(path: Path, master: str, workers: int, work: Path, store: ObjectStore | None) -> dict[str, object]:
    """Returns what the second check took: the first one starts executors and their Python. For a process of its own."""
    run: Path | str = path if store is None else f"s3a://{BUCKET}/run"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = session_at(master, work, store)
    try:
        with FromStore(store) as counted:

            def check() -> None:
                trial.check(session, run, workers=workers)
                rows = trial.findings(session, run).groupBy("anomaly").sum("count").collect()
                expect_planted(((row[0], row[1]) for row in rows), path)

            check()
            last = max(session.sparkContext.statusTracker().getJobIdsForGroup(None))
            before_s, began_s, before_bytes = cpu_s(work / "work"), time.monotonic(), counted.sent_bytes
            trial.check(session, run, workers=workers)
            took_s, used_s = time.monotonic() - began_s, cpu_s(work / "work") - before_s
            came_bytes = None if before_bytes is None else (counted.sent_bytes or 0) - before_bytes
    finally:
        session.stop()
    (log,) = work.glob("app-*")
    return {"took_s": took_s, "used_s": used_s, "came_bytes": came_bytes, "jobs": read_event_log(log, last)}


def main() -> int:
    """Makes the history, and checks it on a cluster of each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--partitions", type=int, default=256)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        path = (asked.keep or Path(folder) / "history").resolve()
        if not (path / "source.json").is_file():
            run = RunDirectory(path)
            run.create()
            options = GenerateOptions(rows=asked.rows, partitions=asked.partitions, planted=PLANTED, seed=7)
            generate(run, options, command="benchmarks/cluster.py")
        stored = sum(file.stat().st_size for file in (path / "history").iterdir())
        print(f"{asked.rows:,} rows, {asked.partitions} partitions, {stored / 1e6:,.0f} MB of Parquet")
        began_s = time.monotonic()
        findings = check_locally(History.open(RunDirectory(path)), select(), workers=1)
        floor_s = time.monotonic() - began_s
        expect_planted(((f.anomaly, f.result.count) for f in findings), path)
        print(f"floor: the local engine with one worker, kernels alone: {floor_s:.1f} s, load {os.getloadavg()[0]:.1f}")
        store = None
        if asked.store:
            os.environ |= PLAIN_CHECKSUMS
            store = servers.enter_context(object_store(Path(folder)))
            store.put(path, "run")
        for workers in asked.workers:
            work = Path(folder) / f"cluster-{workers}"
            work.mkdir()
            cores = [number % (os.cpu_count() or 1) for number in range(workers)]
            hidden = [path] if store else ()
            with (
                standalone(work, cores=cores, hidden=hidden) as master,
                ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone,
            ):
                took = alone.submit(check_twice, path, master, workers, work, store).result(timeout=CHECKS_TIMEOUT_S)
            came = "" if took["came_bytes"] is None else f", {took['came_bytes'] / 1e6:,.0f} MB out of the store"
            print(
                f"{workers} workers: {took['took_s']:6.1f} s, {took['used_s']:6.1f} CPU s of executors{came}",
                flush=True,
            )
            for job in took["jobs"]:
                print(
                    f"    {job['tasks']:5} tasks, {job['result_bytes']:12,} bytes of results: {job['job']}", flush=True
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
