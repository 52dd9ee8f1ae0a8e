"""Samples memory, threads, descriptors and CPU time of every process of a command while it runs, and says how fast each
grows.

    python benchmarks/memory.py [--every 10] [--csv FILE] -- prozess run benchmarks/soak.toml

Rows of a history are mapped from files: they count as shared memory or file pages and may be dropped by the kernel. What
must not grow is *anonymous* memory. Growth is the slope of a straight line through the anonymous memory of a process over
the time in which clients were at work, less the first third (start, first batches, growing buffers).
"""

import argparse
import csv
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

WARM_UP_SHARE = 1 / 3
SAMPLES_MIN = 6
JUDGED_S = 300.0
GROWTH_MAX_KIB_PER_MIN = 200.0
"""How fast one of our own processes may grow. 15 minutes of it would be 3 MiB."""
_OURS = ("outer", "run-stage", "fork-server", "client")
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one process."""

    at_s: float
    pid: int
    kind: str
    """outer, run-stage, supervisor, fork-server, client, server (Kafka), java-client, spark, spark-worker, or other."""
    name: str
    """The name of a client; for other processes the kind."""
    anonymous_kib: int
    file_kib: int
    shared_kib: int
    threads: int
    descriptors: int
    cpu_s: float
    """User and system time since its start."""


def kind_of(command: Sequence[str], parent_is_fork_server: bool) -> str:
    """Returns the kind of a process, by its command line."""
    line = " ".join(command)
    if "prozess.workloads.runtime.fork_server" in line:
        return "client" if parent_is_fork_server else "fork-server"
    for mark, kind in (
        ("kafka.Kafka", "server"),
        ("kafka.tools", "java-client"),
        ("org.apache.spark", "spark"),
        ("pyspark", "spark-worker"),
        ("prozess.app.run.inside_sandbox", "run-stage"),
        ("prozess.app.run.supervisor", "supervisor"),
        ("prozess run", "outer"),
    ):
        if mark in line:
            return kind
    return "other"


def look(process: psutil.Process, at_s: float) -> Sample:
    """Looks at a process. psutil.Error or OSError if it has ended."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    parent = process.parent()
    of_fork_server = parent is not None and "prozess.workloads.runtime.fork_server" in " ".join(parent.cmdline())
    kind = kind_of(process.cmdline(), of_fork_server)
    name = Path(f"/proc/{process.pid}/fd/1").resolve().stem if kind == "client" else kind
    kib = {key: int(fields[key].split()[0]) for key in ("RssAnon", "RssFile", "RssShmem") if key in fields}
    times = process.cpu_times()
    return Sample(
        at_s=at_s,
        pid=process.pid,
        kind=kind,
        name=name,
        anonymous_kib=kib.get("RssAnon", 0),
        file_kib=kib.get("RssFile", 0),
        shared_kib=kib.get("RssShmem", 0),
        threads=process.num_threads(),
        descriptors=process.num_fds(),
        cpu_s=times.user + times.system,
    )


def sample_while_it_runs(child: subprocess.Popen[bytes], every_s: float) -> Iterator[Sample]:
    """Yields a sample of every process of the tree, every `every_s` seconds, until the command ends."""
    root, began_s = psutil.Process(child.pid), time.monotonic()
    while child.poll() is None:
        try:
            family = [root, *root.children(recursive=True)]
        except psutil.Error:
            family = []
        at_s = time.monotonic() - began_s
        for process in family:
            try:
                yield look(process, at_s)
            except (psutil.Error, OSError, KeyError):
                continue  # it has ended meanwhile
        try:
            child.wait(timeout=every_s)
        except subprocess.TimeoutExpired:
            continue


def growth_kib_per_min(at_s: np.ndarray, kib: np.ndarray) -> float:
    """Returns the slope of the least-squares line, in KiB per minute."""
    return float(np.polyfit(at_s / 60, kib, 1)[0]) if len(at_s) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Course:
    """One process over the time by which it is judged."""

    kind: str
    name: str
    seconds: float
    begin_mib: float
    end_mib: float
    peak_mib: float
    mapped_mib: float
    """Its shared and file pages at the end."""
    growth: float
    """How fast its anonymous memory grew, in KiB per minute."""
    threads: tuple[int, int]
    """How many threads it had at the beginning and at the end."""
    descriptors: tuple[int, int]


def courses(samples: Sequence[Sample]) -> list[Course]:
    """Returns the course of every process that was sampled SAMPLES_MIN times after the first third of its life, while
    clients lived."""
    while_traffic = [s.at_s for s in samples if s.kind == "client"]
    end_s = max(while_traffic, default=np.inf)
    found = []
    for pid in dict.fromkeys(s.pid for s in samples):
        mine = [s for s in samples if s.pid == pid and s.at_s <= end_s + 1]
        if not mine:
            continue
        first_s, last_s = mine[0].at_s, mine[-1].at_s
        late = [s for s in mine if s.at_s >= first_s + (last_s - first_s) * WARM_UP_SHARE]
        if len(late) < SAMPLES_MIN:
            continue
        last, at_s = late[-1], np.array([s.at_s for s in late])
        kib = np.array([s.anonymous_kib for s in late], dtype=float)
        found.append(
            Course(
                kind=last.kind,
                name=last.name,
                seconds=last.at_s - late[0].at_s,
                begin_mib=late[0].anonymous_kib / _KIB,
                end_mib=last.anonymous_kib / _KIB,
                peak_mib=max(s.anonymous_kib for s in samples if s.pid == pid) / _KIB,
                mapped_mib=(last.file_kib + last.shared_kib) / _KIB,
                growth=growth_kib_per_min(at_s, kib),
                threads=(late[0].threads, last.threads),
                descriptors=(late[0].descriptors, last.descriptors),
            )
        )
    return found


def peaks(samples: Sequence[Sample]) -> dict[str, float]:
    """Returns, for each kind, the most anonymous memory that all processes of the kind had together at one look, in MiB."""
    sums: dict[tuple[str, float], int] = {}
    for s in samples:
        key = (s.kind, s.at_s)
        sums[key] = sums.get(key, 0) + s.anonymous_kib
    kinds = dict.fromkeys(s.kind for s in samples)
    return {kind: max(kib for (k, _), kib in sums.items() if k == kind) / _KIB for kind in kinds}


def cpu(samples: Sequence[Sample]) -> dict[str, tuple[int, float]]:
    """Returns, for each kind, how many processes there were, and how much CPU time they had taken at the last look, in
    seconds."""
    last = {s.pid: s for s in samples}
    found: dict[str, tuple[int, float]] = {}
    for s in last.values():
        count, seconds = found.get(s.kind, (0, 0.0))
        found[s.kind] = count + 1, seconds + s.cpu_s
    return found


def report(samples: Sequence[Sample]) -> bool:
    """Prints what was found. True if some process of ours was sampled for long enough, and none of them grows."""
    for kind, mib in peaks(samples).items():
        count, seconds = cpu(samples)[kind]
        print(f"{count:4} x {kind:13} peak together {mib:8.1f} MiB anonymous, CPU {seconds:7.1f} s")
    growing, judged = 0, 0
    for c in sorted(courses(samples), key=lambda c: (c.kind, c.name)):
        long = c.kind in _OURS and c.seconds >= JUDGED_S
        grows = long and c.growth > GROWTH_MAX_KIB_PER_MIN
        growing, judged = growing + grows, judged + long
        print(
            f"{c.kind:11} {c.name[:44]:44} {c.begin_mib:7.1f} -> {c.end_mib:7.1f} MiB (mapped {c.mapped_mib:7.1f}) "
            f"{c.growth:+8.1f} KiB/min, threads {c.threads[0]} -> {c.threads[1]}, "
            f"descriptors {c.descriptors[0]} -> {c.descriptors[1]}{' GROWS' if grows else ''}"
        )
    verdict = "too short to say" if not judged else f"{growing} GROW" if growing else "flat"
    print(
        f"anonymous memory of {judged} processes of ours: {verdict} (flat: <= {GROWTH_MAX_KIB_PER_MIN:g} KiB/min each)"
    )
    return bool(judged) and not growing


def main() -> int:
    """Runs the command, prints what was found, and returns the command's exit code. It is 70 if the command succeeded
    and not every process that can be judged is flat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two looks")
    parser.add_argument("--csv", type=Path, help="write every sample there")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    child = subprocess.Popen(arguments.command)
    samples = list(sample_while_it_runs(child, arguments.every))
    if arguments.csv:
        with arguments.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(Sample.__slots__))
            writer.writeheader()
            writer.writerows(asdict(s) for s in samples)
    flat = report(samples)
    return child.returncode or (0 if flat else 70)


if __name__ == "__main__":
    sys.exit(main())
