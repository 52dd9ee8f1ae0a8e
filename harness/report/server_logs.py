"""Excerpts of the servers' own logs around a moment of the trial, for the stories of a report.

The logs are in order of time, so a window of one is found by bisection: however long a log is, little of it is read.
"""

import mmap
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from prozess.harness.clock import NS_PER_S
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.printable import printable
from prozess.harness.run_directory import RunDirectory, read_object

AROUND_S = 1.0
"""How much before and after a witness its excerpt shows."""
LENGTH_MAX_S = 20.0
"""The longest time of which an excerpt shows lines."""
LINES_MAX = 24
"""How many lines one excerpt has at most, those of every node together."""
WIDTH_MAX = 400
"""Where a line is cut."""
_BEGIN = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\] (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
"""The begin of an entry, as the log4j configurations that come with Kafka write it: `[%d] %p %m (%c)`."""
_COMPLAINT = re.compile(rb"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] (WARN|ERROR|FATAL) ([^\n]*)", re.MULTILINE)
_DIGITS = re.compile(rb"\d+")
_VARIABLE = (
    (re.compile(r"\{.*\}"), "{…}"),
    (re.compile(r"(\w+(?:Request|Response)Data)\(.*"), r"\1(…)"),
    (re.compile(r"(?<![\w-])(?:[\w-]{22}(?=:[\w.-]+-\d)|(?=[A-Za-z_-]*\d)[\w-]{22}(?![\w-]))"), "ID"),
    (re.compile(r"(?<![\w/])/(?:[\w.+-]+/)+[\w.+-]*"), "PATH"),
    (re.compile(r"\bcell-\d+(?:-\w+)*"), "NAME"),
    (re.compile(r"\d+"), "#"),
)
"""What differs from run to run in lines that say the same, and what is written instead: bodies of requests, ids of topics
and directories, paths, names that prozess gives, numbers."""
KINDS_MAX = 1_000
"""How many kinds of complaints one log has at most; the lines of all others are counted together."""
_ZONES_S = 900
"""Time zones differ by quarters of an hour."""
_LOUD = (b"WARN", b"ERROR", b"FATAL")


@dataclass(frozen=True)
class TrialTime:
    """The wall clock of the machine that ran the trial, beside the trial's own clock."""

    began: datetime
    """The wall clock, in UTC, at 0 s of the trial."""

    @staticmethod
    def of(run: RunDirectory) -> "TrialTime | None":
        """Returns the wall clock of a run. None if the trial never started, if nobody noted it, or if the history was
        generated or imported without one: its time begins with 0, and not in 1970."""
        try:
            noted = read_object(run.clock) if run.clock.exists() else {}
            wall_ns = int(noted["start_monotonic_ns"]) + int(noted["wall_minus_monotonic_ns"])
        except (HistoryUnreadable, KeyError, TypeError, ValueError):
            return None
        if not wall_ns:
            return None
        return TrialTime(datetime.fromtimestamp(wall_ns / NS_PER_S, UTC))

    def at(self, seconds: float) -> datetime:
        """Returns the wall clock at that moment of the trial."""
        return self.began + timedelta(seconds=seconds)

    def brief(self, seconds: float | None) -> str:
        """Returns the time of day at that moment, such as `15:31:14.345`; empty for None."""
        return "" if seconds is None else self.at(seconds).strftime("%H:%M:%S.%f")[:-3]


@dataclass(frozen=True)
class LogLine:
    """One line of a server's log."""

    node: str
    at_s: float
    """When, on the trial's clock, as the server's own clock says."""
    text: str


class ServerLogs:
    """Finds what servers wrote into their logs around a moment of the trial."""

    def __init__(self, run: RunDirectory, nodes: Iterable[str]) -> None:
        """`nodes`: the names of the servers. A log that is not there, or is empty, says nothing."""
        self._time = TrialTime.of(run)
        paths = {node: run.logs / f"{node}.log" for node in nodes}
        self._paths = {node: path for node, path in paths.items() if path.is_file() and path.stat().st_size}

    def around(self, begin_s: float, end_s: float, partition: str) -> list[LogLine]:
        """Returns what servers complained about, and what they stated of the partition (`topic-0`), in this time and shortly
        before and after. Sorted by time; of too many lines the first of each server."""
        if self._time is None:
            return []
        from_s, to_s = begin_s - AROUND_S, min(end_s, begin_s + LENGTH_MAX_S) + AROUND_S
        name = re.compile(rb"(?<![\w.-])" + re.escape(partition.encode()) + rb"(?![\d.-])")
        each = max(1, LINES_MAX // max(1, len(self._paths)))
        found = [
            line
            for node, path in self._paths.items()
            for line in islice(_lines_in(path, node, self._time, from_s, to_s, name), each)
        ]
        return sorted(found, key=lambda line: line.at_s)


@dataclass(frozen=True)
class LogEntry:
    """One entry of a log: where its line is in the file, and what the line begins with."""

    at_s: float
    level: bytes
    begin: int
    end: int


class ServerLog:
    """One log, mapped into memory. `began_s`: the trial's begin, in seconds of the clock that the log's times are of."""

    def __init__(self, content: mmap.mmap, time: TrialTime) -> None:
        self.content = content
        self._began_s = 0.0
        first = self.entry(0)
        if first is not None:
            # The server's time zone is not noted: its first entry is of the minutes before the trial began.
            wall_s = time.began.timestamp()
            self._began_s = wall_s + round((first.at_s - wall_s) / _ZONES_S) * _ZONES_S

    def entry(self, offset: int) -> LogEntry | None:
        """Returns the first entry that begins at that index or later. Lines that continue an entry are passed over."""
        content, begin = self.content, offset
        if offset and content[offset - 1 : offset] != b"\n":
            begin = content.find(b"\n", offset) + 1
            if not begin:
                return None
        while begin < len(content):
            end = content.find(b"\n", begin) + 1 or len(content)
            if matched := _BEGIN.match(content[begin : min(end, begin + 64)]):
                local = datetime.strptime(matched[1].decode(), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
                at_s = local.timestamp() + int(matched[2]) / 1000 - self._began_s
                return LogEntry(at_s, matched[3], begin, end)
            begin = end
        return None

    def first_from(self, from_s: float) -> int:
        """Returns an index in the log from which on every entry is of this time or later."""
        low, high = 0, len(self.content)
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            if entry is None or entry.at_s >= from_s:
                high = middle
            else:
                low = entry.end
        return low


def _lines_in(
    path: Path, node: str, time: TrialTime, from_s: float, to_s: float, name: "re.Pattern[bytes]"
) -> Iterator[LogLine]:
    """Yields the entries of that time that are complaints, or name the partition."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        log = ServerLog(content, time)
        entry = log.entry(log.first_from(from_s))
        while entry is not None and entry.at_s <= to_s:
            line = content[entry.begin : entry.end]
            if entry.level in _LOUD or name.search(line):
                text = _text(line)
                yield LogLine(node, entry.at_s, text[:WIDTH_MAX] + ("…" if len(text) > WIDTH_MAX else ""))
            entry = log.entry(entry.end)


@dataclass(frozen=True)
class Complaint:
    """Lines of one log by which a server complained, and which differ only in numbers."""

    level: str | None
    """None: lines of all kinds beyond KINDS_MAX."""
    kind: str | None
    """The template of the line (`template`)."""
    count: int
    first_s: float | None
    last_s: float | None
    example: str | None
    quiet: int = 0
    """How many of them are in the windows that were asked for."""


def template(line: str) -> str:
    """Returns a line without what differs from run to run.

    Example: `[Log partition=cell-3-1, dir=/tmp/r/data] Node 2 (/10.0.0.1:9092)` becomes `[Log partition=NAME, dir=PATH]
    Node # (/#.#.#.#:#)`.
    """
    for pattern, text in _VARIABLE:
        line = pattern.sub(text, line)
    return line


def complaints_in(path: Path, time: TrialTime, windows: Sequence[tuple[float, float]] = ()) -> list[Complaint]:
    """Returns what a server complained about in its log, in the order of the first lines, and how much of it in these
    windows of the trial (seconds, ascending, apart). A log without times says nothing."""
    if not path.stat().st_size:
        return []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        log = ServerLog(content, time)
        # Entries are in the order of time: a window is a stretch of the file, and an odd number of ends is in front of a line
        # that is in one.
        ends = [log.first_from(at_s) for window in windows for at_s in window]
        found: dict[
            tuple[bytes, str], list[int]
        ] = {}  # how many, where the first and the last begin, how many in windows
        templates: dict[bytes, str] = {}
        beyond = 0
        for line in _COMPLAINT.finditer(content):
            alike = _DIGITS.sub(b"#", line[2][:WIDTH_MAX])  # what repeats ten thousand times differs in numbers alone
            if alike not in templates:
                templates[alike] = template(_text(line[2][:WIDTH_MAX]))
            kind = line[1], templates[alike]
            within = bisect_right(ends, line.start()) % 2
            if kind in found:
                found[kind][0] += 1
                found[kind][2] = line.start()
                found[kind][3] += within
            elif len(found) < KINDS_MAX:
                found[kind] = [1, line.start(), line.start(), within]
            else:
                beyond += 1
        kinds = [_complaint(log, level, kind, *where) for (level, kind), where in found.items()]
        return kinds + ([Complaint(None, None, beyond, None, None, None)] if beyond else [])


def _complaint(log: ServerLog, level: bytes, kind: str, count: int, first: int, last: int, quiet: int) -> Complaint:
    entries = [log.entry(begin) for begin in (first, last)]
    first_s, last_s = (None if entry is None else entry.at_s for entry in entries)
    end = log.content.find(b"\n", first)
    line = log.content[first : end if end >= 0 else len(log.content)][:WIDTH_MAX]
    return Complaint(level.decode(), kind, count, first_s, last_s, _text(line), quiet)


def _text(line: bytes) -> str:
    return printable(line.decode(errors="replace").strip().replace("\t", " "))
