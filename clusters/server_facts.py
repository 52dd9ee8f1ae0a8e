"""What is seen of a server from outside: the last of what it said, and how much memory it takes."""

from pathlib import Path

_TAIL_LINES = 3


def telling_tail(text: str) -> str:
    """The last lines of a server's log that say something: stack frames are left out."""
    lines = [line.strip() for line in text.splitlines()]
    return " | ".join([x for x in lines if x and not x.startswith(("at ", "... "))][-_TAIL_LINES:]) or "(nothing)"


def proportional_mib(pid: int | None) -> float | None:
    """Proportional set size of a process, MiB; None if there is none, or it is not ours to look at."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    kib = [int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")]
    return round(kib[0] / 1024, 1) if kib else None
