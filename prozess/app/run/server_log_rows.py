"""Writes traces of known defects in the servers' own logs into the history: rows of `observations`.

Three kinds of lines are looked for, by the times of the servers' clocks:

    [… 22:10:33,532] INFO [UnifiedLog partition=cell-000-1, dir=…] Truncating to offset 40 (…)          TRUNCATED, offset 40
    [… 22:10:33,539] WARN [UnifiedLog partition=cell-000-1, dir=…] Non-monotonic update of high watermark from (offset=44 …
                                                                                      HIGH_WATERMARK_TAKEN_BACK, offset 44
    [… 22:10:33,905] ERROR Closing socket for … because of error (kafka.network.Processor)              MARKERS_REFUSED
    org.apache.kafka.common.errors.UnsupportedVersionException: Received request for api with key 27 …
"""

import mmap
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces import Node
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.rows import Recorder
from prozess.harness.report.server_logs import ServerLog, TrialTime
from prozess.harness.run_directory import RunDirectory, read_object
from prozess.harness.schema import NONE, ObservationKind

_OF_LOG = rb" \[(?:Unified)?Log partition=([\w.-]+)-(\d+), dir=[^\]]*\] "
_OF_PARTITIONS = tuple(
    (kind, b"] " + text, re.compile(_OF_LOG + text + between + rb"(\d+)"))
    for kind, text, between in (
        (ObservationKind.TRUNCATED, b"Truncating to offset ", b""),
        (ObservationKind.HIGH_WATERMARK_TAKEN_BACK, b"Non-monotonic update of high watermark from ", rb"\(offset="),
    )
)
"""(kind, what its lines have, what they are): the partition's topic and number, and the offset."""
_REFUSED = b"Received request for api with key 27 (WriteTxnMarkers) and unsupported version"


def keep_server_logs(run: RunDirectory, plan: Plan, nodes: Sequence[Node], recorder: Recorder) -> int:
    """Writes a row for each broker log that was read, and for each trace in it. Returns how many rows. A log
    without times, or that is not there, says nothing."""
    time = TrialTime.of(run)
    if time is None:
        return 0
    start_ns = int(read_object(run.clock)["start_monotonic_ns"])
    names = {(topic.encode(), number): dense for (topic, number), dense in plan.recorded.items()}
    count = 0
    for node in nodes:
        path = run.logs / f"{node.name}.log"
        if "broker" not in node.roles or not path.is_file() or not path.stat().st_size:
            continue
        for kind, time_s, value, partition in observations_in(path, time, names):
            recorder.write(
                "observations",
                time_ns=start_ns + round(time_s * NS_PER_S),
                value=value,
                partition=partition,
                kind=int(kind),
                node=node.node_id,
                step=NONE,
            )
            count += 1
    return count


def observations_in(
    path: Path, time: TrialTime, names: Mapping[tuple[bytes, int], int]
) -> Iterator[tuple[ObservationKind, float, int, int]]:
    """Yields (kind, seconds on the trial's clock, value, partition) of each trace in the log. `names`: (topic, number)
    → dense id. Nothing at all of a log without times."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        log = ServerLog(content, time)
        if log.entry(0) is None:
            return
        yield ObservationKind.SERVER_LOG, 0.0, len(content), NONE
        for kind, text, pattern in _OF_PARTITIONS:
            for begin in _lines_with(content, text):
                entry = log.entry(begin)
                found = entry and entry.begin == begin and pattern.search(content[begin : entry.end])
                if entry and found and (partition := names.get((found[1], int(found[2])))) is not None:
                    yield kind, entry.at_s, int(found[3]), partition
        refused = Counter[int]()
        for begin in _lines_with(content, _REFUSED):
            entry = log.entry(content.rfind(b"\n", 0, max(0, begin - 1)) + 1)
            if entry and entry.begin < begin:
                refused[int(entry.at_s // 1)] += 1
        for second, count in sorted(refused.items()):
            yield ObservationKind.MARKERS_REFUSED, float(second), count, NONE


def _lines_with(content: mmap.mmap, text: bytes) -> Iterator[int]:
    """Yields where each line begins that has the text."""
    found = content.find(text)
    while found >= 0:
        yield content.rfind(b"\n", 0, found) + 1
        found = content.find(text, found + len(text))
