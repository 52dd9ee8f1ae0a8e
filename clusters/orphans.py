"""Servers that could outlive the harness: where there is no pid namespace, each writes down who it is before it runs.

One JSON line per process in `pids.jsonl` of the run. A pid alone may have become someone else's; with the start time
(clock ticks since boot) and the boot's id it is this process and no other.
"""

import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.processes import ProcessIdentity, boot_id, parse_stat, send_signal
from harness.run_directory import RunDirectory

PIDS_NAME = "pids.jsonl"
# The shell writes its own pid and start time, then becomes the server: there is no moment at which the server runs
# unrecorded. Words of /proc/PID/stat hold no quote or backslash: the command name is the shell's.
_RECORD = (
    'read -r stat < "/proc/$$/stat"; read -r boot < /proc/sys/kernel/random/boot_id; '
    'printf \'{"node": "%s", "boot": "%s", "stat": "%s"}\\n\' "$1" "$boot" "$stat" >> "$2"; '
    'shift 2; exec "$@"'
)


def recording_command(command: Sequence[str], *, name: str, into: Path) -> list[str]:
    """`command`, recording itself first. The process that is started is the one that is recorded."""
    return ["sh", "-c", _RECORD, "sh", name, str(into), *command]


def sweep_pids(run: RunDirectory) -> list[str]:
    """SIGKILL what is left of the run's recorded processes; what was done, one sentence each. Never another's process."""
    done = []
    for name, identity in _recorded(run.path / PIDS_NAME):
        try:
            if send_signal(identity, signal.SIGKILL):
                done.append(f"killed {name} (pid {identity.pid})")
        except PermissionError:
            done.append(f"{name} (pid {identity.pid}) is still there and may not be killed by this user")
    return done


def _recorded(path: Path) -> Iterator[tuple[str, ProcessIdentity]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            record = json.loads(line)
            found = str(record["node"]), parse_stat(record["stat"]).identity
        except (ValueError, KeyError, IndexError):
            continue  # torn by a crash: the process had not become a server yet
        if record.get("boot") == boot_id():
            yield found
