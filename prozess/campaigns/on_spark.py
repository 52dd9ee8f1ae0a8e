"""Runs many trials at once, each as a task of Spark: one trial an executor, each with a cluster of its own.

What came of a trial is in one location that all machines can write to, a directory that they share or an object store:

runs/NAME/           the run, as `prozess run` leaves it
entries/N-T.json     trial N is over: its attempts. It is written last, so that a run is there whole, or does not count
begun/N.json         trial N was begun, where and when
jobs/N.json          what is to be run as trial N
plans/N.json         the plan of trial N
owners/ID.json       the command that works here (`prozess.campaigns.shared_results`)

A task that Spark begins again, because a machine was lost, runs its trial from the start. If another task ended the same
trial meanwhile, the first entry counts.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pydantic import ValidationError

from prozess.app.run_options import refuse_without_spark
from prozess.app.run_process import END_TIMEOUT_S, StopRequest, listening, run_while
from prozess.campaigns.campaign_plan import CAMPAIGN_FILE, Campaign, CampaignDirectory
from prozess.campaigns.engine import JobDirectory, Keep, RunningJob, TrialAttempt, TrialEngine, TrialJob, tidy
from prozess.campaigns.shared_results import SharedResults, owned
from prozess.harness.clock import NS_PER_S, SystemClock
from prozess.harness.code_identity import code_identity, refuse_other_code, trials_identity
from prozess.harness.errors import BadInput, HarnessFailed, MissingTool, NotReady
from prozess.harness.history.store import location_of
from prozess.harness.plan.plan import Plan
from prozess.harness.printable import printable
from prozess.harness.values import Frozen

LOOK_S = 2.0
"""How often the command looks for trials that are over."""
AT_ONCE_MAX = 256
"""How many trials one job of Spark has: their plans are written before it begins."""
_SCRATCH = "prozess-trial-"
_ABANDONED_S = 3600.0
"""A scratch directory without a trial is abandoned when it is older than this: a task writes its first file at once."""
_CHECKSUMS = ("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION")
"""What AWS's client reads from the environment alone: stores that are not AWS's may need it, on the workers, too."""
_IDENTITY_TIMEOUT_S = 120.0
_PRINT_IDENTITY = """
import json
from prozess.harness.code_identity import code_identity, trials_identity
print(json.dumps({**code_identity(), "trials": trials_identity()}))
"""
_SUMMARY = ("plan.json", "verdict.json", "impact.json", "manifest.json", "seconds.json")
"""The files of a run that tables of many runs read."""


OnAttempt = Callable[[TrialAttempt, str], None]
"""Gets the last attempt at each trial that is over, and the name of the machine where it ran."""


class FinishedTrial(Frozen):
    """The file entries/N-T.json: all attempts at one trial, of which the last one counts."""

    attempts: tuple[TrialAttempt, ...]
    host: str


class BegunTrial(Frozen):
    """The file begun/N.json: where a trial was begun last, and when (Unix time)."""

    host: str
    began_s: float


@dataclass(frozen=True)
class SparkTrials:
    """The settings with which trials run on a Spark cluster."""

    results: SharedResults
    keep: Keep
    retries: int
    """How often a trial is tried again if prozess itself failed."""
    timeout_s: float
    code: Mapping[str, str]
    """The identity of the prozess that runs the command. Every worker must have the same one installed."""

    @staticmethod
    def of(campaign: Campaign, results: SharedResults) -> "SparkTrials":
        """Returns the settings for the trials of a campaign, with the installed prozess."""
        code = {**code_identity(), "trials": trials_identity()}
        return SparkTrials(results, campaign.keep, campaign.retries, campaign.trial_timeout_s, code)

    def run_here(self, number: int) -> None:
        """Runs one trial on this machine, which is a worker of Spark's, unless it is over. Copies the run, and then its
        entry, to the shared location. HarnessFailed if these cannot be written."""
        if any(name.startswith(f"{number:06}-") for name in self.results.names("entries")):
            return
        self._refuse_other_installation()
        clock, host = SystemClock(), socket.gethostname()
        began_s = clock.wall_ns() / NS_PER_S
        self.results.write(f"begun/{number:06}.json", BegunTrial(host=host, began_s=began_s).model_dump_json().encode())
        job = TrialJob.model_validate_json(self.results.read(f"jobs/{number:06}.json") or b"")
        remove_abandoned_trials(Path(tempfile.gettempdir()), now_s=began_s)
        scratch = JobDirectory(Path(tempfile.mkdtemp(prefix=_SCRATCH)))
        # The command of a trial that ends, in order, with the task that began it.
        words = (*run_while(os.getpid()), "--engine", "local", "--trust")
        engine = TrialEngine(scratch, clock, StopRequest(), words, self.timeout_s)
        try:
            scratch.runs.mkdir()
            plan = scratch.path / f"{number:06}.json"
            plan.write_bytes(self.results.read(f"plans/{number:06}.json") or b"")
            attempts: list[TrialAttempt] = []
            while len(attempts) <= self.retries and (not attempts or attempts[-1].failed):
                again = job.model_copy(update={"attempt": len(attempts)})
                done = engine.run(TrialJob(number=number, attempt=again.attempt, trial=str(plan), seed=job.seed))
                attempts.append(done.model_copy(update={"job": again}))
            for attempt in attempts:
                tidy(scratch.runs, attempt, self.keep)
                if attempt.run is not None:
                    self.results.send(scratch.runs / attempt.run, f"runs/{attempt.run}")
            entry = FinishedTrial(attempts=tuple(attempts), host=host)
            self.results.write(f"entries/{number:06}-{time.time_ns()}.json", entry.model_dump_json().encode())
        finally:
            shutil.rmtree(scratch.path, ignore_errors=True)

    def _refuse_other_installation(self) -> None:
        """Raises MissingTool unless the same prozess is installed here. What Spark sent along serves the task alone: a trial
        is a process of its own, and needs its clients, locks and pages as files."""
        found = subprocess.run(
            [sys.executable, "-P", "-c", _PRINT_IDENTITY],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_IDENTITY_TIMEOUT_S,
            check=False,
        )
        try:
            installed: dict[str, str] = json.loads(found.stdout)
        except ValueError as error:
            words = (found.stderr.strip().splitlines() or ["nothing"])[-1]
            raise MissingTool(
                f"{socket.gethostname()} cannot run trials: {sys.executable} there has no prozess that this command knows "
                f"({printable(words)}). Install the same prozess for the Python of every worker."
            ) from error
        refuse_other_code(self.code, installed)


def remove_abandoned_trials(parent: Path, *, now_s: float) -> None:
    """Removes what tasks left whose worker was killed. A trial that still runs there ends first: it heals, and nobody waits
    for its verdict."""
    for path in parent.glob(f"{_SCRATCH}*"):
        directory = JobDirectory(path)
        with suppress(OSError, ValidationError):
            if not directory.running.exists():
                if now_s - path.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(path, ignore_errors=True)
                continue
            left = RunningJob.model_validate_json(directory.running.read_bytes())
            if not left.runs(left.owner) and not left.runs(left.process):
                shutil.rmtree(path, ignore_errors=True)


def run_on_spark(
    trials: SparkTrials,
    jobs: Sequence[TrialJob],
    *,
    master: str,
    cores: int,
    plan_of: Callable[[TrialJob], Plan],
    on_attempt: OnAttempt,
) -> bool:
    """Runs all jobs that have no entry yet on the cluster of this master, and returns whether all are over: false if somebody
    interrupted. BadInput if another command works on the same location.

    `cores`: how many cores of an executor a trial has; an executor has as many, so that it runs one trial at a time.
    `plan_of` returns the plan of a job. `on_attempt` gets each trial that is over. Raises what `start_session` raises, and
    HarnessFailed if Spark gives a trial up.
    """
    refuse_without_spark("--master")
    with owned(trials.results) as ownership:
        from prozess.spark_checkers.session import start_session

        view = _View(trials.results, on_attempt, len(jobs))
        view.look()
        pending = [job for job in jobs if job.number not in view.over]
        if not pending:
            return True
        settings = {"spark.executor.cores": str(cores), "spark.task.cpus": str(cores), "spark.speculation": "false"}
        settings |= {f"spark.executorEnv.{name}": os.environ[name] for name in _CHECKSUMS if name in os.environ}
        session = start_session(master=master, settings=settings)
        try:
            with listening() as stop:
                for begin in range(0, len(pending), AT_ONCE_MAX):
                    wave = pending[begin : begin + AT_ONCE_MAX]
                    for job in wave:
                        trials.results.write(f"jobs/{job.number:06}.json", job.model_dump_json().encode())
                        plan = plan_of(job).model_dump_json().encode()
                        trials.results.write(f"plans/{job.number:06}.json", plan)
                    ownership.ensure()
                    _run_wave(trials, [job.number for job in wave], session, view, stop)
                    if stop.asked:
                        return False
        finally:
            session.stop()
        ownership.ensure()
        _remove_unnoted(trials.results)
        return True


def _remove_unnoted(results: SharedResults) -> None:
    """Removes the runs that no entry names: their tasks were lost while the run was copied, or another task ended first."""
    noted = {attempt.run for trial in read_entries(results).values() for attempt in trial.attempts}
    for name in results.folders("runs"):
        if name not in noted:
            results.remove(f"runs/{name}")


@dataclass
class _View:
    """The state of all trials, as the command last read it."""

    results: SharedResults
    on_attempt: OnAttempt
    planned: int

    def __post_init__(self) -> None:
        self.over: dict[int, FinishedTrial] = {}
        self._last = ""

    def look(self) -> None:
        """Reports the trials that ended since the last look, and prints the status line if it has changed."""
        new = {n: trial for n, trial in read_entries(self.results, self.over).items() if n not in self.over}
        self.over |= new
        for number in sorted(new):
            self.on_attempt(new[number].attempts[-1], new[number].host)
        running = [name.removesuffix(".json") for name in self.results.names("begun")]
        numbers = [str(int(n)) for n in running if n.isdigit() and int(n) not in self.over]
        line = f"{len(self.over)} of {self.planned} trials are over"
        if numbers:
            line += f"; trials {', '.join(numbers)} run" if len(numbers) > 1 else f"; trial {numbers[0]} runs"
        if line != self._last:
            self._last = line
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


def _run_wave(trials: SparkTrials, numbers: Sequence[int], session: object, view: _View, stop: StopRequest) -> None:
    """Runs one job of Spark, with a task for each of these trials. Waits until all are over, or somebody interrupts.
    HarnessFailed if Spark gives up."""
    from prozess.spark_checkers.session import SparkSession, last_line, map_numbers

    assert isinstance(session, SparkSession)
    failed: list[Exception] = []
    ended = threading.Event()
    schema = pa.schema([("number", pa.int64())])

    def work(mine: Iterator[int]) -> Iterator[pa.RecordBatch]:
        for position in mine:
            trials.run_here(numbers[position])
            yield pa.RecordBatch.from_pydict({"number": [numbers[position]]}, schema)

    def wait() -> None:
        try:
            map_numbers(session, len(numbers), work, schema, tasks=len(numbers)).toArrow()
        except Exception as error:  # noqa: BLE001 - handed to the thread that waits
            failed.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=wait, name="trials-on-spark", daemon=True)
    thread.start()
    while not ended.wait(LOOK_S) and not stop.asked:
        view.look()
    if stop.asked:
        session.sparkContext.cancelAllJobs()
        if not ended.wait(END_TIMEOUT_S):
            raise NotReady(awaited="the end of Spark's tasks", timeout_s=END_TIMEOUT_S, last_seen="some still run")
    view.look()
    if failed and not stop.asked:
        missing = [number for number in numbers if number not in view.over]
        raise HarnessFailed(
            f"Spark gave up: {printable(last_line(failed[0]))}. {len(missing)} of these trials are not over. The same "
            "command continues with them."
        )


def read_entries(results: SharedResults, known: Mapping[int, object] | None = None) -> dict[int, FinishedTrial]:
    """Returns number → what came of the trial, without the trials that are `known`. For two entries for one trial the first
    one counts. An entry that is torn is not there: its task is run again."""
    found: dict[int, FinishedTrial] = {}
    for name in results.names("entries"):
        number = int(name.partition("-")[0]) if name.partition("-")[0].isdigit() else -1
        if number < 0 or number in found or number in (known or {}):
            continue
        with suppress(ValidationError):
            found[number] = FinishedTrial.model_validate_json(results.read(f"entries/{name}") or b"")
    return found


@contextmanager
def opened_results(results: Path | str) -> Iterator[CampaignDirectory]:
    """A context in which the results of a campaign or a matrix can be read as those of one machine, wherever they are.

    For a directory, the entries become lines of its entries.jsonl. For a URI, the small files are copied to a directory here,
    and pages that are written into that are copied back. BadInput if nothing was begun there.
    """
    found = location_of(results)
    shared = SharedResults.at(results)
    if isinstance(found, Path):
        directory = CampaignDirectory(found.resolve())
        _absorb(shared, directory)
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="prozess-results-") as path:
        directory = CampaignDirectory(Path(path))
        directory.runs.mkdir()
        for name in (CAMPAIGN_FILE, "matrix.json"):
            if (content := shared.read(name)) is not None:
                (directory.path / name).write_bytes(content)
        if not directory.is_there:
            raise BadInput(f"{shared.address} holds no campaign and no matrix. Give a location that --run made.")
        _absorb(shared, directory)
        for attempt in directory.attempts():
            for name in _SUMMARY if attempt.run is not None else ():
                if (content := shared.read(f"runs/{attempt.run}/{name}")) is not None:
                    (directory.runs / str(attempt.run)).mkdir(exist_ok=True)
                    (directory.runs / str(attempt.run) / name).write_bytes(content)
        yield directory
        for page in ("matrix.html", "result.json", "index.html"):
            if (directory.path / page).is_file():
                shared.write(page, (directory.path / page).read_bytes())


def _absorb(shared: SharedResults, directory: CampaignDirectory) -> None:
    """Makes lines of entries.jsonl of the entries, in the order of the trials. The entry of the last trial in it is read
    again, because a command that was killed may have left some of its attempts."""
    noted = directory.attempts()
    known = {attempt.job.number for attempt in noted} - {attempt.job.number for attempt in noted[-1:]}
    there = {(attempt.job.number, attempt.job.attempt) for attempt in noted}
    for number, trial in sorted(read_entries(shared, dict.fromkeys(known)).items()):
        for attempt in trial.attempts:
            if (number, attempt.job.attempt) not in there:
                directory.append(attempt)
