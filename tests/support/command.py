"""Helpers for tests that run the real command."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.exit_codes import ExitCode
from prozess.harness.history.convert import History
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import TrialVerdict, Verdict

OURS = (sys.executable, "-m", "prozess")
"""The command of this checkout."""


class Command:
    """`prozess …` as a process of its own."""

    def __init__(self, arguments: list[str], directory: Path, *, program: Sequence[str | Path] = OURS) -> None:
        self.runs = directory / "runs"
        self._errors = (directory / "stderr.txt").open("w+")
        self.process = subprocess.Popen(
            [*program, *arguments, "--runs", str(self.runs)],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
            cwd=directory if program is not OURS else None,
        )

    def output(self, *, timeout_s: float) -> str:
        """Standard output, once it ended by itself."""
        return self.process.communicate(timeout=timeout_s)[0]

    @property
    def errors(self) -> str:
        self._errors.flush()
        return Path(self._errors.name).read_text()

    @property
    def run_directory(self) -> Path:
        (found,) = self.runs.iterdir()
        return found

    def wait_event(self, matches: Callable[[dict], bool], *, what: str, timeout_s: float) -> dict:
        """The first event of the run stage that matches."""

        def look() -> dict | None:
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.errors}"
            files = list(self.runs.glob("*/events.jsonl")) if self.runs.exists() else []
            lines = files[0].read_text().splitlines() if files else []
            return next((e for line in lines if (e := _event(line)) and matches(e)), None)

        return wait_until(look, awaited=what, timeout_s=timeout_s, clock=SystemClock(), interval_s=0.02)

    def end(self) -> None:
        """Kill it and close everything; for the end of a test."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=30)
        self._errors.close()


@dataclass(frozen=True)
class Finished:
    """A trial that ran to its end."""

    run: RunDirectory
    verdict: TrialVerdict
    history: History
    errors: str
    """What the command stated on standard error."""


RunTrial = Callable[..., Finished]
REPEATED = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def run_trial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunTrial:
    """`run_trial("smoke", "--set", …, timeout_s=…, seeds=(1, 2))`: a trial by its name or text, run to its end.

    A machine that stands still at the wrong moment can keep a fault or a control from happening, and bring a known defect
    of the client about (librdkafka#4953). Then the trial is run with the next seed, and pytest's summary says so. Whatever
    else comes out is what comes out.
    """
    repeated = request.config.stash.setdefault(REPEATED, [])

    def run(
        trial: str,
        *words: str,
        timeout_s: float = 400,
        seeds: tuple[int, ...] = (1, 2, 3),
        program: Sequence[str | Path] = OURS,
    ) -> Finished:
        directory = tmp_path_factory.mktemp("trial")
        if "\n" in trial:
            file = directory / "trial.toml"
            file.write_text(trial, encoding="utf-8")
            trial = str(file)
        for seed in seeds:
            done = _run_once(directory / f"seed-{seed}", [trial, "--seed", str(seed), *words], timeout_s, program)
            if not _bad_luck(done.verdict) or seed == seeds[-1]:
                return done
            repeated.append(f"{trial} with seed {seed} was {done.verdict.sentence}")
        raise AssertionError("no seed was given")

    return run


def _bad_luck(verdict: TrialVerdict) -> bool:
    """Unknown, or violated by what the guarantee table knows as open defects of others, and by nothing else."""
    return verdict.verdict is Verdict.UNKNOWN or verdict.by_known_defects


def _run_once(directory: Path, words: list[str], timeout_s: float, program: Sequence[str | Path]) -> Finished:
    directory.mkdir()
    command = Command(["run", *words, "--quiet"], directory, program=program)
    try:
        output = command.output(timeout_s=timeout_s)
        assert command.process.returncode in (ExitCode.HELD, ExitCode.VIOLATED, ExitCode.UNKNOWN), (
            command.errors + output
        )
        run = RunDirectory(command.run_directory)
        verdict = TrialVerdict.model_validate_json(run.verdict.read_text(encoding="utf-8"))
        assert left_behind(directory) == []
        return Finished(run, verdict, History.open(run), output + command.errors)
    finally:
        command.end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which trials were run again."""
    for line in config.stash.get(REPEATED, []):
        terminalreporter.write_line(f"RUN AGAIN {line}")


def _event(line: str) -> dict | None:
    try:
        return json.loads(line)
    except ValueError:
        return None


def left_behind(path: Path) -> list[str]:
    """Processes that name this path in their command line or working directory, this one excepted."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        words = " ".join(process.info["cmdline"] or ()) + " " + (process.info["cwd"] or "")
        if str(path) in words and process.pid != os.getpid():
            found.append(f"{process.pid} {words[:200]}")
    return found


def wait_nothing_left(path: Path, *, timeout_s: float) -> None:
    """Return once no process of that run is left."""
    left: list[str] = []

    def none() -> bool:
        left[:] = left_behind(path)
        return not left

    wait_until(
        none, awaited="no process of the run", timeout_s=timeout_s, clock=SystemClock(), last_seen=lambda: str(left)
    )


@pytest.fixture
def prozess(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """`prozess("run", "smoke")` starts the command; whatever is left of it is killed after the test."""
    started: list[Command] = []

    def start(*arguments: str) -> Command:
        started.append(Command(list(arguments), tmp_path))
        return started[-1]

    yield start
    for command in started:
        command.end()
