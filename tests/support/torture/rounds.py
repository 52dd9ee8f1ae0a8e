"""Torture: the harness is killed at a random moment of a run, and the machine is looked at afterwards.

A round is drawn from its seed: which trial, which event of the run to await, how long after it, and which of our processes
get SIGKILL. Moments are counted from events, since a slow machine must not make every round one of the start-up.
"""

import json
import os
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import NotReady
from prozess.harness.processes import ProcessIdentity, identify, send_signal
from tests.support.servers.ssh import VARIABLE
from tests.support.torture.grounds import Ground, ground_of, in_a_world
from tests.support.torture.leftovers import TOKEN, machine, processes, wait_clean
from tests.support.torture.trials import MORE, TORMENTS, Torment

CLOCK = SystemClock()
EVENT_TIMEOUT_S = 400.0
END_TIMEOUT_S = 150.0
COMMAND_TIMEOUT_S = 180.0
WORLD_TIMEOUT_S = 900.0

PARTS = ("outer", "stage", "supervisor")
VICTIMS = (
    ("outer",),
    ("stage",),
    ("supervisor",),
    ("outer", "supervisor"),
    ("outer", "stage"),
    ("stage", "supervisor"),
    PARTS,
)
_PHASES = ("cluster", "topics", "warm-up", "heal", "audit", "teardown", "replicas")
AFTER_MAX_S = 2.0
FIRST_DRAW = 37_100
"""Where draws begin: in the first few, those of CI, other people's machines and clusters are hit in the middle of faults."""


@dataclass(frozen=True)
class Round:
    """One drawn round. `event`: a phase, a step, "start" or "end"; `after_s`: how long after it."""

    seed: int
    torment: Torment
    event: str
    after_s: float
    victims: tuple[str, ...]

    def __str__(self) -> str:
        killed = " + ".join(self.victims)
        return f"round {self.seed}: {self.torment.name!r}, {killed} killed {self.after_s:.2f} s after {self.event!r}"


def draw(seed: int, torments: Sequence[Torment] = TORMENTS + MORE) -> Round:
    """The round of that seed. Trials take turns, so that few rounds have them all; half of the moments are in the schedule,
    where something is broken."""
    rng = random.Random(FIRST_DRAW + seed)
    torment = torments[seed % len(torments)]
    event = rng.choice(torment.steps) if rng.random() < 0.5 else rng.choice(("start", *_PHASES, "end"))
    return Round(seed, torment, event, rng.uniform(0, AFTER_MAX_S), rng.choice(VICTIMS))


@dataclass
class Outcome:
    """What was seen after a round. `problems` empty = as it must be."""

    drawn: Round
    in_time: bool = True
    """The run was still going on when it was hit."""
    clean_s: float | None = None
    """Until nothing was left without any help; None = `prozess heal` was needed."""
    problems: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


class Victim:
    """`prozess run …` of a round, and its parts."""

    def __init__(self, drawn: Round, directory: Path, tail: str) -> None:
        directory.mkdir(parents=True)
        self.token = uuid.uuid4().hex
        self.environment = {**os.environ, TOKEN: self.token, "PROZESS_ISOLATION": ""}
        self.runs = directory / "runs"
        trial = directory / "trial.toml"
        trial.write_text(drawn.torment.text(tail), encoding="utf-8")
        self.errors = directory / "stderr.txt"
        words = ["run", str(trial), "--seed", str(drawn.seed), "--engine", "local", "--quiet", "--runs", str(self.runs)]
        with self.errors.open("wb") as errors:
            self.outer = subprocess.Popen(
                [sys.executable, "-m", "prozess", *words, "--isolation", drawn.torment.isolation],
                stdout=errors,
                stderr=errors,
                env=self.environment,
                start_new_session=True,
            )

    @property
    def run(self) -> Path | None:
        """Its run directory, once there is one."""
        return next(iter(self.runs.glob("*/")), None)

    def happened(self, event: str) -> bool:
        """Did the run reach that event? An ended run reaches nothing more."""
        if event == "start":
            return True
        path = None if self.run is None else self.run / "events.jsonl"
        if path is None or not path.exists():
            return False
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                told = json.loads(line)
                if event in (told.get("name"), told["event"]) and told["event"] in ("phase", "step", "end"):
                    return True
        return False

    def part(self, name: str) -> list[ProcessIdentity]:
        """The processes of that part; the run stage is two in a sandbox: unshare, and the first process inside."""
        if name == "outer":
            found = [self.outer.pid] if self.outer.poll() is None else []
        else:
            module = "prozess.app.run.supervisor" if name == "supervisor" else "prozess.app.run.inside_sandbox"
            found = [p.pid for p in psutil.process_iter(["cmdline"]) if self._is(p, module)]
        return [identity for pid in found if (identity := identify(pid)) is not None]

    def _is(self, process: psutil.Process, module: str) -> bool:
        return module in (words := process.info["cmdline"] or []) and any(str(self.runs) in word for word in words)


def play(drawn: Round, directory: Path) -> Outcome:
    """Play the round; whatever it leaves is ended, after it was reported."""
    if drawn.torment.backend == "ssh" and VARIABLE not in os.environ:
        return _played_in_a_world(drawn, directory)
    outcome = Outcome(drawn)
    with ground_of(drawn.torment.backend, directory / "ground") as ground:
        before = machine()
        victim = Victim(drawn, directory / "round", ground.tail)
        try:
            _look(victim, _strike(victim, drawn, outcome), outcome, before, ground)
        finally:
            _sweep(victim)
    return outcome


def _played_in_a_world(drawn: Round, directory: Path) -> Outcome:
    """Among machines that are there, and end with it."""
    directory.mkdir(parents=True)
    told = directory / "outcome.json"
    done = in_a_world(
        [sys.executable, "-m", "tests.support.torture.rounds", str(drawn.seed), str(directory / "played"), str(told)],
        directory,
        timeout_s=WORLD_TIMEOUT_S,
    )
    if not told.exists():
        said = (done.stdout + done.stderr)[-3000:]
        return Outcome(drawn, problems=[f"the round ended with {done.returncode}: {said}"])
    return Outcome(drawn, **json.loads(told.read_text(encoding="utf-8")))


def _strike(victim: Victim, drawn: Round, outcome: Outcome) -> Round:
    """The round as it was: at first there is only the command itself."""
    wait_until(
        lambda: victim.happened(drawn.event) or victim.outer.poll() is not None,
        awaited=f"{drawn.event!r} of the run",
        timeout_s=EVENT_TIMEOUT_S,
        clock=CLOCK,
        interval_s=0.02,
    )
    with suppress(subprocess.TimeoutExpired):
        victim.outer.wait(drawn.after_s)
    hit = [identity for name in drawn.victims for identity in victim.part(name)]
    if not hit:
        drawn, hit = replace(drawn, victims=("outer",)), victim.part("outer")
    outcome.in_time = bool(hit)
    for identity in hit:
        send_signal(identity, signal.SIGKILL)
    return drawn


def _look(victim: Victim, drawn: Round, outcome: Outcome, before: frozenset[str], ground: Ground) -> None:
    begun_ns = CLOCK.monotonic_ns()
    code = _end_of(victim, drawn, outcome)
    run = victim.run or victim.runs / "none"
    alone = set(drawn.victims) == set(PARTS)
    left = wait_clean(before, run=run, token=victim.token, timeout_s=3.0 if alone else END_TIMEOUT_S)
    if not left:
        outcome.clean_s = (CLOCK.monotonic_ns() - begun_ns) / 1e9
    elif not alone:
        outcome.problems.append(f"nobody cleaned up, though somebody was left to: {left}")
    if "outer" not in drawn.victims and code not in (0, 1, 2, 255):
        outcome.problems.append(f"the command ended with {code}")
    if (run / "plan.json").exists():
        for time in ("first", "second"):
            _heal(victim, run, outcome, time)
        left = wait_clean(before, run=run, token=victim.token, timeout_s=60)
        left += ground.remains(run.name)
        outcome.problems += [f"left after heal: {line}" for line in left]
        _check(victim, run, outcome)
    elif left:
        outcome.problems.append(f"left without a run directory: {left}")
    said = victim.errors.read_text(encoding="utf-8", errors="replace")
    if "Traceback" in said or "a bug in prozess" in said:
        outcome.problems.append(f"the command stated: {said[-1500:]}")


def _end_of(victim: Victim, drawn: Round, outcome: Outcome) -> int | None:
    try:
        return victim.outer.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        outcome.problems.append(f"the command went on for {END_TIMEOUT_S:g} s after {drawn}")
        return None


def _heal(victim: Victim, run: Path, outcome: Outcome, time: str) -> None:
    done = _prozess(victim, "heal", str(run))
    outcome.said.append(f"heal, {time} time: {done.stdout.strip()}")
    if done.returncode or "Traceback" in done.stderr:
        outcome.problems.append(f"heal, {time} time, ended with {done.returncode}: {done.stderr[-1500:]}")
    elif time == "second" and not done.stdout.endswith(": clean\n"):
        outcome.problems.append(f"heal was not done after the first time: {done.stdout}")


def _check(victim: Victim, run: Path, outcome: Outcome) -> None:
    """What was recorded is readable: a verdict, or unknown with a sentence."""
    done = _prozess(victim, "check", str(run), "--engine", "local", "--quiet")
    words = done.stdout + done.stderr
    outcome.said.append(f"check: {done.returncode}: {words.strip()[:300]}")
    if done.returncode not in (0, 1, 2) or "Traceback" in words or "a bug in prozess" in words:
        outcome.problems.append(f"check ended with {done.returncode}: {words[-1500:]}")


def _prozess(victim: Victim, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "prozess", *words],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
        env={**victim.environment, TOKEN: ""},
    )


def _sweep(victim: Victim) -> None:
    """End what a failed round left, so that the next one begins clean."""
    run = victim.run or victim.runs / "none"

    def swept() -> bool:
        for line in processes(run, victim.token):
            if (identity := identify(int(line.split()[1]))) is not None:
                send_signal(identity, signal.SIGKILL)
        return not processes(run, victim.token)

    with suppress(NotReady):
        wait_until(swept, awaited="the round's processes to go", timeout_s=30.0, clock=CLOCK)
    with suppress(subprocess.TimeoutExpired):
        victim.outer.wait(10)


def main() -> None:
    """Inside a world: SEED DIRECTORY FILE, where what was seen goes."""
    outcome = play(draw(int(sys.argv[1])), Path(sys.argv[2]))
    told = {name: getattr(outcome, name) for name in ("in_time", "clean_s", "problems", "said")}
    Path(sys.argv[3]).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main()
