"""Runs trials one after the other, each by `prozess run` in a process of its own: for campaigns, matrices, scenarios
and shrink.

A directory notes what is being run before, and what came of it after, so that a command that was interrupted or killed
can continue. entries.jsonl has a line for each attempt that is over, running.json what runs now, and runs/ has the run
directories.
"""

import json
import os
import resource
import select
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import TypeVar

from pydantic import (
    Field,
    NonNegativeInt,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
)

from prozess.app.run_process import END_TIMEOUT_S, StopRequest, listening, run_trial_command, run_while
from prozess.campaigns.comparing import RunSummary
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.errors import BadInput, HarnessFailed, StorageFull
from prozess.harness.exit_codes import ExitCode
from prozess.harness.machine_record import begin, kept, record_of
from prozess.harness.processes import ProcessIdentity, boot_id, identify, is_running, send_signal
from prozess.harness.run_directory import RunDirectory, is_within, write_json
from prozess.harness.values import Frozen
from prozess.harness.verdict import TrialVerdict, Verdict

M = TypeVar("M", bound=Frozen)
TRIAL_TIMEOUT_S = 1800.0
"""How long a trial may take from the command to its reports. The longest one that comes with prozess takes a fifth of
it on two cores."""
_TAIL = 400
_OWN = "prozess: "
"""The prefix of a line that prozess itself printed."""
Value = StrictBool | StrictInt | StrictFloat | StrictStr
"""The value of a key of a trial file, as the campaign's file has it. A number stays a number."""


class TrialJob(Frozen):
    """What a command that runs many trials is to run once: a trial with a seed, settings and a metadata mode."""

    number: NonNegativeInt
    attempt: NonNegativeInt = 0
    """The number of earlier attempts at it, in which prozess itself failed."""
    trial: str
    """The name or file of the trial."""
    seed: int
    settings: dict[str, Value] = Field(default_factory=dict)
    variant: str | None = None
    """The metadata mode. None: the trial's own."""
    key: str = ""
    """The key of the plan, in a search whose candidates are all in the same file."""
    what: str = ""
    """The part that was left out of the plan, in a search."""

    def words(self, runs: Path) -> list[str]:
        """Returns the arguments for `prozess run`."""
        words = [self.trial, "--seed", str(self.seed), "--runs", str(runs), "--quiet"]
        words += ["--variant", self.variant] if self.variant else []
        return words + [part for name, v in self.settings.items() for part in ("--set", f"{name}={json.dumps(v)}")]


class TrialAttempt(Frozen):
    """One attempt at one trial, when it is over."""

    job: TrialJob
    exit_code: int
    """The exit code of `prozess run`: 0 held, 1 violated, 2 unknown, 254 and 255 no verdict. Negative: it was killed.
    """
    verdict: Verdict | None = None
    """The verdict. None: there is none."""
    run: str | None = None
    """The name of the run directory, which is in `runs`. None: there was none."""
    began_s: float
    """When it began (Unix time). Nights are distinguished by it."""
    took_s: float
    cpu_s: float = 0.0
    """The CPU seconds of all its processes, as far as somebody waited for them."""
    memory_bytes: int = 0
    """The memory of the largest process of any trial so far. 0: it was not noted."""
    own_memory_bytes: int = 0
    """The most memory that the command's own process had so far. It must not grow."""
    reason: str = ""
    """Why there is no verdict: the end of what the trial printed."""
    findings: dict[str, int] = Field(default_factory=dict)
    hit: bool | None = None
    """In a search: whether what it looks for came back. None: nothing was looked for."""

    @field_validator("run")
    @classmethod
    def _is_a_name(cls, run: str | None) -> str | None:
        if run is not None and (not is_within(run) or "/" in run):
            raise ValueError(f"run = {run!a} is no name of a directory in runs/")
        return run

    @property
    def why(self) -> str:
        """Returns the reason in one line: the error that prozess itself printed, or else the last line of the output."""
        lines = [line.strip() for line in self.reason.splitlines() if line.strip()]
        own = [line.removeprefix(_OWN) for line in lines if line.startswith(_OWN)]
        return (own or lines or ["it printed nothing"])[-1]

    @property
    def failed(self) -> bool:
        """Returns true if prozess itself failed, so that nothing was learnt about Kafka."""
        return self.verdict is None


class RunningJob(Frozen):
    """The file running.json: the trial that runs now, and who runs it."""

    job: TrialJob
    boot: str
    owner: tuple[int, int]
    """The process of the command that runs it: pid and start time, as in `ProcessIdentity`."""
    process: tuple[int, int] | None = None
    """The process of the trial. None: it was not started yet."""

    def runs(self, who: tuple[int, int] | None) -> bool:
        """Returns whether that process still runs."""
        return who is not None and self.boot == boot_id() and is_running(ProcessIdentity(*who))


@dataclass(frozen=True)
class JobDirectory:
    """A directory in which many trials are run."""

    path: Path

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def log(self) -> Path:
        """The file with what the newest trial printed."""
        return self.path / "last.log"

    @property
    def running(self) -> Path:
        return self.path / "running.json"

    @property
    def _entries(self) -> Path:
        return self.path / "entries.jsonl"

    def append(self, attempt: TrialAttempt) -> None:
        """Notes an attempt; it is on the disk when this returns. StorageFull if it cannot be written."""
        line = attempt.model_dump_json().encode() + b"\n"
        try:
            with self._entries.open("ab") as file:
                if (torn := _torn(self._entries)) is not None:
                    file.truncate(torn)
                file.write(line)
                file.flush()  # all of it: without a buffer, `write` may write a part and return
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageFull(f"{self._entries} cannot be written: {error.strerror}.") from error

    def attempts(self) -> list[TrialAttempt]:
        """Returns every attempt so far, in order. A torn last line was never noted and does not count."""
        lines = self._entries.read_bytes().split(b"\n")[:-1] if self._entries.exists() else []
        try:
            return [TrialAttempt.model_validate_json(line) for line in lines]
        except ValidationError as error:
            raise BadInput(f"{self._entries} is damaged: {error.errors()[0]['msg']}.") from error


def _torn(path: Path) -> int | None:
    """Returns where a last line without an end begins; None if there is none."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    return whole if whole < len(content) else None


@dataclass
class TrialEngine:
    """Runs jobs in a directory, one at a time. `runner`: the command that runs a trial, with the options for all
    trials."""

    directory: JobDirectory
    clock: Clock
    stop: StopRequest
    runner: tuple[str, ...]
    timeout_s: float = TRIAL_TIMEOUT_S
    attempts: list[TrialAttempt] = field(default_factory=list)
    """Every attempt so far, those of earlier commands included."""

    @property
    def spent_s(self) -> float:
        """The seconds that all attempts took together."""
        return sum(attempt.took_s for attempt in self.attempts)

    def work(
        self,
        following: Callable[[], TrialJob | None],
        over: Callable[[TrialAttempt], None],
        cut_short: Callable[[TrialAttempt], None] = lambda done: None,
    ) -> None:
        """Runs the jobs that `following` returns until it returns None, or somebody interrupts. Calls `over` or
        `cut_short` after each."""
        while not self.stop.asked and (job := following()) is not None:
            done = self.run(job)
            (cut_short if self.cut_short(done) else over)(done)

    def run(self, job: TrialJob, look: Callable[[TrialVerdict], bool] | None = None) -> TrialAttempt:
        """Runs a job, and records its outcome unless it was cut short. `look`: what a search checks in the verdict."""
        began_ns, began_s, cpu_before_s = (
            self.clock.monotonic_ns(),
            self.clock.wall_ns() / NS_PER_S,
            _cpu_of_children_s(),
        )
        runs, log = self.directory.runs, self.directory.log
        self._note_running(job)
        words = [*self.runner, *job.words(runs)]
        code, run = run_trial_command(
            words,
            runs,
            log,
            timeout_s=self.timeout_s,
            stop=self.stop,
            began=lambda child: self._note_running(job, child),
        )
        judged = None if run is None or code not in (0, 1, 2) else RunSummary.at(run).readable_verdict
        done = TrialAttempt(
            job=job,
            exit_code=code,
            verdict=None if judged is None else judged.verdict,
            run=None if run is None else run.name,
            began_s=began_s,
            took_s=(self.clock.monotonic_ns() - began_ns) / NS_PER_S,
            cpu_s=round(_cpu_of_children_s() - cpu_before_s, 1),
            memory_bytes=_memory_bytes(resource.RUSAGE_CHILDREN),
            own_memory_bytes=_memory_bytes(resource.RUSAGE_SELF),
            reason="" if judged else log.read_bytes()[-_TAIL:].decode(errors="replace").strip(),
            findings={name: count for name, count in judged.findings.items() if count} if judged else {},
            hit=None if look is None else judged is not None and look(judged),
        )
        if not self.cut_short(done):
            self.directory.append(done)
            self.attempts.append(done)
        self._nothing_runs()
        return done

    def cut_short(self, done: TrialAttempt) -> bool:
        """Returns whether an interruption ended the attempt before its schedule was over. Such an attempt has no outcome,
        and is run again."""
        return self.stop.asked and (done.failed or done.exit_code == ExitCode.UNKNOWN)

    def end_orphan(self) -> None:
        """Ends the trial that still runs because the command that ran it was killed. The trial heals, and is run again.

        BadInput if that command still runs; HarnessFailed if the trial does not end.
        """
        try:
            left = RunningJob.model_validate_json(kept(self.directory.running)[0].read_bytes())
        except FileNotFoundError:
            return
        except ValidationError as error:
            raise BadInput(f"{self.directory.running} is damaged: {error.errors()[0]['msg']}. Remove it.") from error
        if left.runs(left.owner):
            raise BadInput(
                f"Process {left.owner[0]} is working in {self.directory.path}. Wait until it ends, or end it."
            )
        if left.process is not None and left.runs(left.process):
            if record_of(RunDirectory(self.directory.path)) is None:
                raise BadInput(
                    f"{self.directory.running} says that process {left.process[0]} is its trial, but this machine has no "
                    "record that it is. End it yourself if it is, or remove that file."
                )
            sys.stderr.write(
                f"{left.job.trial} seed {left.job.seed} still runs, although its command was killed. prozess ends it now\n"
            )
            _end(ProcessIdentity(*left.process))
        self._nothing_runs()

    def _note_running(self, job: TrialJob, child: "subprocess.Popen[bytes] | None" = None) -> None:
        process = None if child is None else _identity(child.pid)
        own = _identity(os.getpid())
        assert own is not None
        running = RunningJob(job=job, boot=boot_id(), owner=own, process=process)
        try:
            for path in kept(self.directory.running):
                write_json(path, running.model_dump(mode="json"))
        except OSError as error:
            raise StorageFull(f"{self.directory.running} cannot be written: {error.strerror}.") from error

    def _nothing_runs(self) -> None:
        for path in kept(self.directory.running):
            path.unlink(missing_ok=True)


def refuse_strangers(directory: JobDirectory, *, trust: bool, what: str) -> None:
    """Raises BadInput if a command of another machine or account began what is in the directory: its trials are orders.

    `trust`: the user has read these trials, and wants to run them."""
    if not trust and record_of(RunDirectory(directory.path)) is None:
        raise BadInput(
            f"{str(directory.path)!r}: this machine has no record that it began this {what}. Somebody may have sent or "
            "changed it, and it says which trials are run, with which settings and options. Begin anew in another directory, "
            "or give --trust (`prozess run`, `prozess shrink`) if you want all of that."
        )
    begin(RunDirectory(directory.path))


@contextmanager
def engine_in(
    directory: JobDirectory,
    *,
    clock: Clock,
    options: Sequence[str] = (),
    runner: tuple[str, ...] | None = None,
    timeout_s: float = TRIAL_TIMEOUT_S,
) -> Iterator[TrialEngine]:
    """A context with an engine that continues in this directory. While it is open, Ctrl-C ends the trial that runs.

    `options`: those of `prozess run` that every trial has. `runner`: the command that runs a trial; None: `prozess run`,
    which heals and ends when this process is killed, even before its process was noted."""
    with listening() as stop:
        words = (*(run_while(os.getpid()) if runner is None else runner), *options)
        engine = TrialEngine(directory, clock, stop, words, timeout_s, directory.attempts())
        engine.end_orphan()
        yield engine


def read_begun(path: Path, what: str, model: type[M], version: int = 1) -> M:
    """Reads the file that describes the work of a directory (`what`: "campaign"). BadInput if it is missing, half
    written, or of another version."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        of = found.get("format_version") if isinstance(found, dict) else None
        if of != version:
            raise BadInput(
                f"{path} has version {of}, and this prozess reads version {version}. Begin again in another directory."
            )
        return model.model_validate(found)
    except FileNotFoundError as error:
        raise BadInput(f"{str(path.parent)!r} holds no {what}: there is no {path.name} in it.") from error
    except ValidationError as error:
        raise BadInput(f"{path} is damaged: {error.errors()[0]['msg']}. Begin again in another directory.") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}. Begin again in another directory.") from error


def exit_code_of(verdicts: Iterable[Verdict | None]) -> ExitCode:
    """Returns the exit code of many trials: 1 if one was violated, else 2 if one is unknown or has no verdict, or there
    is none, else 0."""
    there = set(verdicts)
    if Verdict.VIOLATED in there:
        return ExitCode.VIOLATED
    return ExitCode.HELD if there == {Verdict.HELD} else ExitCode.UNKNOWN


def _identity(pid: int) -> tuple[int, int] | None:
    found = identify(pid)
    return None if found is None else (found.pid, found.start_time)


def _end(identity: ProcessIdentity) -> None:
    """Asks a process to end, as Ctrl-C would, then kills it. Its supervisor heals."""
    for number in (SIGTERM, SIGKILL):
        try:
            descriptor = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return
        try:
            if not send_signal(identity, number) or select.select([descriptor], [], [], END_TIMEOUT_S)[0]:
                return
        finally:
            os.close(descriptor)
    raise HarnessFailed(f"Process {identity.pid}, a trial that was left running, did not end. End it, and try again.")


def _cpu_of_children_s() -> float:
    """Returns the CPU seconds of every process below this one that ended and was waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory_bytes(whose: int) -> int:
    """Returns the most memory that a process had so far."""
    return resource.getrusage(whose).ru_maxrss * 1024  # Linux counts in KiB
