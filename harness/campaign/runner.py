"""Runs a campaign: trial after trial, each by `prozess run` in a process of its own: nothing of one stays in the next."""

import json
import resource
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from harness.campaign.index import write_index
from harness.campaign.keep import make_room, tidy
from harness.campaign.plan import Campaign, Drawn, draw, is_over
from harness.campaign.state import Attempt, Begun, CampaignDirectory, next_number
from harness.clock import NS_PER_S, Clock
from harness.errors import ExitCode, HarnessFailed
from harness.own_process import RUN, Stop, listening, run_one, verdict_of
from harness.verdict import Verdict

_TAIL = 400
Following = Callable[[Begun, list[Attempt]], tuple[Drawn, int] | None]
"""What is run next, and which attempt at it that is; None = nothing more."""


def drawn_next(begun: Begun, attempts: list[Attempt]) -> tuple[Drawn, int] | None:
    """By the campaign's seed, until its time, or its rounds, are over."""
    number, attempt = next_number(attempts, begun.campaign.retries)
    if not _time_is_left(begun, attempts) or is_over(begun.campaign, number):
        return None
    return draw(begun.campaign, begun.seed, number), attempt


def run_campaign(
    directory: CampaignDirectory, *, clock: Clock, runner: tuple[str, ...] = RUN, following: Following = drawn_next
) -> int:
    """Go on until nothing follows; returns the exit code: 1 if a trial was violated, else 2 if one was unknown, the
    machinery failed for good, or the campaign was interrupted; else 0. `runner`: what runs a trial."""
    begun, attempts = directory.begun(), directory.attempts()
    in_a_row = 0
    with listening() as stop:
        while not stop.asked and (next_one := following(begun, attempts)) is not None:
            drawn, attempt = next_one
            done = _run_one(directory, begun.campaign, drawn, attempt, clock=clock, runner=runner, stop=stop)
            if stop.asked and (done.failed or done.exit_code == ExitCode.UNKNOWN):
                break  # its schedule was cut short: it is drawn again when the campaign goes on
            directory.append(done)
            attempts.append(done)
            _tell(done)
            if done.run is not None:
                tidy(directory.runs / done.run, done, begun.campaign.keep)
            kept = make_room(directory.runs, attempts, begun.campaign.keep)
            write_index(directory, begun, attempts)
            in_a_row = in_a_row + 1 if done.failed else 0
            if kept.full:
                raise HarnessFailed(
                    f"{directory.path} holds more than {begun.campaign.keep.disk_max_gib:g} GiB of runs that may not be "
                    "dropped. Move some away, or raise keep.disk_max_gib in campaign.json, and go on by --resume."
                )
            if in_a_row >= begun.campaign.failures_in_a_row_max:
                raise HarnessFailed(f"{in_a_row} trials in a row gave no verdict, the last because: {done.why}")
    return int(ExitCode.UNKNOWN if stop.asked else exit_code(attempts))


def exit_code(attempts: list[Attempt]) -> ExitCode:
    """Of everything that was run. A trial that the machinery failed and that gave a verdict when it was tried again counts as
    that verdict."""
    last = {attempt.drawn.number: attempt for attempt in attempts}
    verdicts = {attempt.verdict for attempt in last.values()}
    if Verdict.VIOLATED in verdicts:
        return ExitCode.VIOLATED
    return ExitCode.HELD if verdicts == {Verdict.HELD} else ExitCode.UNKNOWN


def summary(attempts: list[Attempt]) -> str:
    """One line: how many of each verdict, how often the machinery failed."""
    verdicts = Counter(attempt.verdict for attempt in attempts if attempt.verdict)
    told = [f"{count} {verdict}" for verdict, count in verdicts.most_common()]
    failed = sum(attempt.failed for attempt in attempts)
    return ", ".join([*told, *([f"{failed} failed by the machinery"] if failed else [])]) or "nothing was run"


def _time_is_left(begun: Begun, attempts: list[Attempt]) -> bool:
    return begun.duration_s is None or sum(attempt.took_s for attempt in attempts) < begun.duration_s


def _run_one(
    directory: CampaignDirectory,
    campaign: Campaign,
    drawn: Drawn,
    attempt: int,
    *,
    clock: Clock,
    runner: tuple[str, ...],
    stop: Stop,
) -> Attempt:
    began_ns, began_s = clock.monotonic_ns(), clock.wall_ns() / NS_PER_S
    cpu_before_s = _cpu_of_children_s()
    log = directory.path / "last.log"
    words = _command(runner, drawn, directory.runs)
    code, run = run_one(words, directory.runs, log, timeout_s=campaign.trial_timeout_s, stop=stop)
    cpu_s = _cpu_of_children_s() - cpu_before_s
    took_s = (clock.monotonic_ns() - began_ns) / NS_PER_S
    verdict = verdict_of(run) if run is not None and code in (0, 1, 2) else {}
    return Attempt(
        drawn=drawn,
        attempt=attempt,
        exit_code=code,
        verdict=verdict.get("verdict"),
        run=None if run is None else run.name,
        began_s=began_s,
        took_s=took_s,
        cpu_s=round(cpu_s, 1),
        memory_bytes=_memory_bytes(resource.RUSAGE_CHILDREN),
        own_memory_bytes=_memory_bytes(resource.RUSAGE_SELF),
        reason="" if verdict else log.read_bytes()[-_TAIL:].decode(errors="replace").strip(),
        findings={name: count for name, count in verdict.get("findings", {}).items() if count},
    )


def _cpu_of_children_s() -> float:
    """Of every process that ended and was waited for, below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory_bytes(whose: int) -> int:
    """The most that a process has had in memory so far."""
    return resource.getrusage(whose).ru_maxrss * 1024  # Linux counts in KiB


def _command(runner: tuple[str, ...], drawn: Drawn, runs: Path) -> list[str]:
    settings = [part for key, value in drawn.settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    return [*runner, drawn.trial, "--seed", str(drawn.seed), "--runs", str(runs), "--quiet", *settings]


def _tell(done: Attempt) -> None:
    settings = " ".join(f"{key}={value}" for key, value in done.drawn.settings.items())
    what = done.verdict or f"no verdict (exit {done.exit_code}): {done.why}"
    sys.stdout.write(
        f"{done.drawn.number:4} {done.drawn.trial} seed {done.drawn.seed} {settings} {what} {done.took_s:.0f} s\n"
    )
    sys.stdout.flush()
