"""The supervisor: heals and tears down when the harness dies, even by SIGKILL.

    python -m prozess.app.run.supervisor RUN_DIRECTORY PID START_TIME_TICKS GRACE_SECONDS

A tiny process in a session of its own, holding the reading end of a pipe from the outer process as its standard input.
The outer process says `done` when all is over; if the pipe ends without it, the outer process is gone: then the run stage
is ended (SIGTERM, a grace period, SIGKILL) and the run directory healed.
"""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from prozess.harness.clock import Clock, SystemClock, wait_until
from prozess.harness.errors import HarnessFailed, NotReady, ProzessError
from prozess.harness.processes import ProcessIdentity, identify, is_running, send_signal, session_members
from prozess.harness.run_directory import RunDirectory

GRACE_S = 30.0
"""How long the run stage may take to heal and to take the cluster down by itself."""
GONE_S = 10.0
START_S = 20.0
_DONE = b"done"
_READY = b"ready\n"


class Supervisor:
    """The outer process's handle of its supervisor."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Returns the process id of the supervisor itself."""
        return self._process.pid

    def done(self) -> None:
        """Notifies the supervisor that the run has ended, so that it exits without doing anything. You may call it twice."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.write(_DONE)
                self._process.stdin.flush()
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        try:
            self._process.wait(timeout=GONE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=GONE_S)


def start_supervisor(run: RunDirectory, pid: int, *, grace_s: float = GRACE_S) -> Supervisor:
    """Starts a supervisor for the run stage with this pid, and returns once it stands guard. HarnessFailed if it does
    not start.

    The stage is a child of the caller and leads a session of its own. What the supervisor says is in
    `logs/supervisor.log`.
    """
    stage = identify(pid)
    start_time = stage.start_time if stage else 0  # 0: gone already; nothing will match.
    log_path = run.logs / "supervisor.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-P",
        "-m",
        "prozess.app.run.supervisor",
        str(run.path),
        str(pid),
        str(start_time),
        str(grace_s),
    ]
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    supervisor = Supervisor(process)
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_S)
    if not readable or process.stdout.readline() != _READY:
        supervisor.done()
        words = log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise HarnessFailed(
            f"The supervisor did not start within {START_S:g} s: {' '.join(words) or 'it printed nothing'}."
        )
    return supervisor


def stand_guard(run: RunDirectory, stage: ProcessIdentity, *, grace_s: float, clock: Clock) -> int:
    """Waits until the outer process says `done` or dies. Returns 0 if all is clean, 1 if something could not be cleaned
    up."""
    if _outer_reported_done():
        return 0
    _say(f"the outer process is gone, so the run stage (pid {stage.pid}) is ended")
    end_stage(stage, grace_s=grace_s, clock=clock)
    return _heal(run, clock)


def end_stage(stage: ProcessIdentity, *, grace_s: float, clock: Clock) -> None:
    """Ends the run stage and its whole session: SIGTERM to its process group, `grace_s`, then SIGKILL to what is left.

    If another process has got the stage's old pid, it is left alone.
    """
    for member in _group(stage):
        send_signal(member, signal.SIGTERM)
    with suppress(NotReady):
        wait_until(
            lambda: not is_running(stage),
            awaited="the run stage to end",
            timeout_s=grace_s,
            clock=clock,
            interval_s=0.02,
        )
        _say("the run stage ended by itself")

    def gone() -> bool:
        # Again and again: a process may start another one before it is hit.
        left = _session(stage)
        for member in left:
            send_signal(member, signal.SIGKILL)
        return not left

    try:
        wait_until(
            gone,
            awaited="every process of the run stage to go after SIGKILL",
            timeout_s=GONE_S,
            clock=clock,
            last_seen=lambda: f"pids {[member.pid for member in _session(stage)]}",
            interval_s=0.02,
        )
    except NotReady as error:
        _say(str(error))


def _session(stage: ProcessIdentity) -> list[ProcessIdentity]:
    """Returns the stage and every process of the session that it led; nothing if its pid belongs to somebody else now."""
    now = identify(stage.pid)
    if stage.start_time == 0 or (now is not None and now != stage):
        return []
    members = {status.identity for status in session_members(stage.pid)}
    return sorted(members | ({now} if now else set()), key=lambda member: member.pid)


def _group(stage: ProcessIdentity) -> list[ProcessIdentity]:
    """Returns those processes of `_session` that are in the stage's own process group, or the stage alone if it leads
    none."""
    groups = {status.identity: status.group for status in session_members(stage.pid)}
    return [member for member in _session(stage) if groups.get(member, stage.pid) == stage.pid]


def _outer_reported_done() -> bool:
    """Waits for the end of standard input. Returns whether the last word was `done`."""
    answer = b""
    while len(answer) < len(_DONE):
        piece = os.read(sys.stdin.fileno(), len(_DONE) - len(answer))
        if not piece:
            break
        answer += piece
    return answer == _DONE


def _heal(run: RunDirectory, clock: Clock) -> int:
    # Late: what they need would slow the start, and they are rarely needed.
    import traceback

    from prozess.app.wiring import heal_run

    try:
        report = heal_run(run, clock=clock, ends_within_s=GONE_S)
    except ProzessError as error:
        _say(f"healing failed: {error}")
        return 1
    except Exception:  # noqa: BLE001 - the last process there is: whatever it was must at least be in the log
        _say(f"healing failed: {traceback.format_exc()}")
        return 1
    for kind, lines in (("found", report.found), ("done", report.done), ("left", report.left)):
        for line in lines:
            _say(f"{kind}: {line}")
    _say("clean" if report.clean else "not clean; try `prozess heal`")
    return 0 if report.clean else 1


def _say(text: str) -> None:
    sys.stderr.write(f"supervisor: {text}\n")
    sys.stderr.flush()


def main(argv: list[str] | None = None) -> int:
    """Stands guard as the module says."""
    # It ends when its pipe does, never by a signal meant for others: closing a terminal, Ctrl-C, the end of a session.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    run, pid, start_time, grace_s = sys.argv[1:] if argv is None else argv
    os.write(sys.stdout.fileno(), _READY)
    # The outer process may have died, and nobody reads this pipe then: standard output is not used again.
    stage = ProcessIdentity(int(pid), int(start_time))
    return stand_guard(RunDirectory(Path(run)), stage, grace_s=float(grace_s), clock=SystemClock())


if __name__ == "__main__":
    raise SystemExit(main())
