"""Runs many trials at once, each as a task of Spark: one trial an executor, each with a cluster of its own.

What came of a trial is in one location that all machines can write to, a directory that they share or an object store:

runs/NAME/           the run, as `prozess run` leaves it
entries/N-T.json     trial N is over: its attempts. It is written last, so that a run is there whole, or does not count
begun/N.json         trial N was begun, where and when
jobs/N.json          what is to be run as trial N
plans/N.json         the plan of trial N
owners/ID.json       the command that works here (`prozess.campaigns.shared_results`)
closed.json          the time of --for is over: a task that has not begun its trial leaves it for the next command

A task that Spark begins again, because a machine was lost, runs its trial from the start. If another task ended the same
trial meanwhile, the first entry counts.
"""

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pydantic import ValidationError

from prozess.app.run_options import refuse_without_spark
from prozess.app.run_process import END_TIMEOUT_S, StopRequest, listening, run_while
from prozess.campaigns.campaign_plan import CAMPAIGN_FILE, Campaign, CampaignDirectory
from prozess.campaigns.engine import JobDirectory, RunningJob, TrialAttempt, TrialEngine, TrialJob
from prozess.campaigns.kept_runs import Keep, tidy
from prozess.campaigns.shared_results import SharedResults, owned
from prozess.harness.clock import NS_PER_S, Clock, SystemClock
from prozess.harness.code_identity import code_identity, refuse_other_code, trials_identity
from prozess.harness.errors import BadInput, HarnessFailed, MissingTool, NotReady
from prozess.harness.history.store import location_of
from prozess.harness.plan.plan import Plan
from prozess.harness.printable import printable
from prozess.harness.values import Frozen

if TYPE_CHECKING:
    from prozess.spark_checkers.session import SparkSession

LOOK_S = 2.0
"""How often the command looks for trials that are over."""
AT_ONCE_MAX = 256
"""How many trials one job of Spark has: their plans are written before it begins. The next job begins before a machine is
without a trial."""
CLOSED = "closed.json"
_TRIAL_MEMORY = "3g"
"""What a trial may take beside the executor's heap, where a platform limits that: the four servers of smoke alone take
479 MiB when they are ready, and grow with what they are sent."""
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
class SparkCluster:
    """Where trials run, and for how long."""

    master: str
    cores: int
    """How many cores of an executor a trial has. An executor has as many, so that it runs one trial at a time."""
    seconds: float | None = None
    """After so many no further trial begins. None: all of them run."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark."""

    @property
    def settings(self) -> dict[str, str]:
        """Returns what Spark is given: one trial at a time on an executor, no second try beside a slow one; `conf` wins."""
        cores = str(self.cores)
        settings = {"spark.executor.cores": cores, "spark.task.cpus": cores, "spark.speculation": "false"}
        settings |= {"spark.executor.memoryOverhead": _TRIAL_MEMORY}
        settings |= {f"spark.executorEnv.{name}": os.environ[name] for name in _CHECKSUMS if name in os.environ}
        return settings | dict(self.conf)


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
        """Runs one trial on this machine, which is a worker of Spark's, unless it is over or no further one is to begin.
        Copies the run, and then its entry, to the shared location. HarnessFailed if these cannot be written."""
        if any(name.startswith(f"{number:06}-") for name in self.results.names("entries")):
            return
        if self.results.read(CLOSED) is not None:
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
    jobs: Iterable[TrialJob],
    *,
    planned: int | None,
    cluster: SparkCluster,
    plan_of: Callable[[TrialJob], Plan],
    on_attempt: OnAttempt,
) -> bool:
    """Runs all jobs that have no entry yet on a cluster. Returns false if somebody interrupted. BadInput if another command
    works on the same location.

    `planned`: how many jobs there are; None: there is no end. `plan_of` returns the plan of a job. `on_attempt` gets each
    trial that is over. Raises what `start_session` raises, and HarnessFailed if Spark gives a trial up.
    """
    refuse_without_spark("--master")
    with owned(trials.results) as ownership:
        from prozess.spark_checkers.session import start_session

        trials.results.remove(CLOSED)
        view = _View(trials.results, on_attempt, planned)
        view.look()
        left = (job for job in jobs if job.number not in view.over)
        if (first := next(left, None)) is None:
            return True
        waiting = itertools.chain([first], left)

        def begin() -> list[int]:
            """Writes what the next trials need."""
            some = list(itertools.islice(waiting, AT_ONCE_MAX))
            for job in some:
                trials.results.write(f"jobs/{job.number:06}.json", job.model_dump_json().encode())
                trials.results.write(f"plans/{job.number:06}.json", plan_of(job).model_dump_json().encode())
            ownership.ensure()
            return [job.number for job in some]

        session = start_session(master=cluster.master, settings=cluster.settings)
        try:
            with listening() as stop:
                done = follow(_SparkJobs(trials, session, view), cluster, begin, stop, SystemClock())
        finally:
            session.stop()
        if done:
            ownership.ensure()
            trials.results.remove(CLOSED)
            _remove_unnoted(trials.results)
        return done


class Jobs(Protocol):
    """The jobs of Spark that run trials."""

    def has_room(self, cores: int) -> bool:
        """Returns whether so few trials are left that a machine may soon have none."""

    def begin(self, numbers: Sequence[int]) -> None:
        """Hands these trials to Spark."""

    def wait(self, seconds: float) -> bool:
        """Waits until a job ends, at most so long. Returns whether one still runs."""

    def close(self) -> None:
        """Says to all tasks that no further trial begins."""

    def cancel(self) -> None:
        """Ends every job that Spark was handed, and the trials with it."""


def follow(jobs: Jobs, cluster: SparkCluster, begin: Callable[[], list[int]], stop: StopRequest, clock: Clock) -> bool:
    """Hands trials to Spark until all are over, or the time is. Returns false if somebody interrupted. `begin`: prepares the
    next trials, and returns their numbers; none if there is none."""
    more = True
    over_ns = None if cluster.seconds is None else clock.monotonic_ns() + round(cluster.seconds * NS_PER_S)
    while not stop.asked:
        if over_ns is not None and clock.monotonic_ns() >= over_ns:
            more, over_ns = False, None
            jobs.close()
        while more and jobs.has_room(cluster.cores):
            numbers = begin()
            more = bool(numbers)
            if numbers:
                jobs.begin(numbers)
        if not jobs.wait(LOOK_S):
            return True
    jobs.cancel()
    return False


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
    planned: int | None

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
        of = "" if self.planned is None else f" of {self.planned}"
        line = f"{len(self.over)}{of} trials are over"
        if numbers:
            line += f"; trials {', '.join(numbers)} run" if len(numbers) > 1 else f"; trial {numbers[0]} runs"
        if line != self._last:
            self._last = line
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


class _SparkJobs:
    """The jobs of Spark that run trials, a task for each. Spark begins the tasks of a later job where those of an earlier
    one leave a machine free."""

    def __init__(self, trials: SparkTrials, session: "SparkSession", view: _View) -> None:
        self._trials, self._session, self._view = trials, session, view
        self._begun: set[int] = set()
        self._failed: list[Exception] = []
        self._threads: list[threading.Thread] = []
        self._one_ended = threading.Event()

    @property
    def _left(self) -> set[int]:
        """The trials that were handed to Spark and are not over."""
        return self._begun - self._view.over.keys()

    def has_room(self, cores: int) -> bool:
        """Returns whether so few trials are left that a machine may soon have none."""
        from prozess.spark_checkers.session import parallelism_of

        return len(self._left) < max(AT_ONCE_MAX, 2 * parallelism_of(self._session) // cores)

    def close(self) -> None:
        """Says to all tasks that no further trial begins."""
        self._trials.results.write(CLOSED, b"{}")

    def begin(self, numbers: Sequence[int]) -> None:
        """Hands these trials to Spark."""
        from prozess.spark_checkers.session import map_numbers, to_arrow

        trials, schema = self._trials, pa.schema([("number", pa.int64())])

        def work(mine: Iterator[int]) -> Iterator[pa.RecordBatch]:
            for position in mine:
                trials.run_here(numbers[position])
                yield pa.RecordBatch.from_pydict({"number": [numbers[position]]}, schema)

        def wait() -> None:
            try:
                to_arrow(map_numbers(self._session, len(numbers), work, schema, tasks=len(numbers)))
            except Exception as error:  # noqa: BLE001 - handed to the thread that waits
                self._failed.append(error)
            finally:
                self._one_ended.set()

        self._begun |= set(numbers)
        self._threads.append(threading.Thread(target=wait, name="trials-on-spark", daemon=True))
        self._threads[-1].start()

    def wait(self, seconds: float) -> bool:
        """Waits until a job ends, at most so long, and looks what is over. Returns whether a job still runs. HarnessFailed if
        Spark gave up."""
        if any(thread.is_alive() for thread in self._threads):
            self._one_ended.wait(seconds)
            self._one_ended.clear()
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._view.look()
        if self._failed:
            from prozess.spark_checkers.session import last_line

            raise HarnessFailed(
                f"Spark gave up: {printable(last_line(self._failed[0]))}. {len(self._left)} of these trials are not over. "
                "The same command continues with them."
            )
        return bool(self._threads)

    def cancel(self) -> None:
        """Ends every job. NotReady if that takes too long."""
        self._session.sparkContext.cancelAllJobs()
        for thread in self._threads:
            thread.join(END_TIMEOUT_S)
            if thread.is_alive():
                raise NotReady(awaited="the end of Spark's tasks", timeout_s=END_TIMEOUT_S, last_seen="some still run")
        self._view.look()


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

    For a directory, the entries become lines of its entries.jsonl. For a URI, a directory here has what was begun and the
    entries, and pages that are written into that are copied back; the runs stay where they are. BadInput if nothing was
    begun there.
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
        yield directory
        for page in ("matrix.html", "result.json", "index.html"):
            if (directory.path / page).is_file():
                shared.write(page, (directory.path / page).read_bytes())


def runs_of(results: Path | str) -> str | None:
    """Returns the URI of the runs of results that are at a URI; None: they are in the directory."""
    found = location_of(results)
    return None if isinstance(found, Path) else f"{found.rstrip('/')}/runs"


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
