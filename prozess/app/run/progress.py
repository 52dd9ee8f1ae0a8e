"""Shows the progress of a run live. It reads the files that the run writes anyway, so that the run is not disturbed.

Rates come from the rows of the producers, faults from the undo journal, and leaders from samples of the brokers' own
views. Verdicts never rest on this.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from rich.markup import escape
from rich.status import Status

from prozess.clusters.registry import backend_named
from prozess.harness.clock import NS_PER_S, Clock, SystemClock
from prozess.harness.console import console
from prozess.harness.history.progress import SendsTail
from prozess.harness.plan.plan import Plan
from prozess.harness.printable import number_of
from prozess.harness.recording.rows import RowTail
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import METADATA, RECORDER_CLIENT, SENDING, MetadataKind, MetadataSource, Outcome


@dataclass(frozen=True, slots=True)
class Pulse:
    """A sample of a run: its rates, its active faults, and its leaders."""

    acknowledged_per_s: float
    """Records per second since the previous sample."""
    in_doubt: int
    """The number of sends with an unknown outcome so far."""
    faults: tuple[str, ...]
    """The faults that are active now, such as "kill broker-2"."""
    leaders_moved: int
    """How often another broker became the leader of a partition so far."""
    leaderless: int
    """The number of partitions without a leader, by the newest of the brokers' views."""
    shrunken: int
    """The number of partitions with a replica that is not in sync."""

    def __str__(self) -> str:
        lines = [f"{self.acknowledged_per_s:,.0f} acknowledged/s"]
        lines += [f"{self.in_doubt:,} in doubt"] if self.in_doubt else []
        lines += [f"active faults: {', '.join(self.faults)}"] if self.faults else []
        lines += [number_of(self.leaders_moved, "leader change")] if self.leaders_moved else []
        lines += [f"{self.leaderless:,} partitions without a leader"] if self.leaderless else []
        lines += [f"{self.shrunken:,} with a shrunken ISR"] if self.shrunken else []
        return " · ".join(lines)


class Watcher:
    """Samples one run while it is going on. One thread uses it."""

    def __init__(self, plan: Plan, run: RunDirectory, clock: Clock) -> None:
        self._run, self._clock = run, clock
        count = len(plan.partitions)
        self._sends = [SendsTail(run.rows, c.client, count) for c in plan.clients if c.role in SENDING]
        self._leaders = LiveLeaders(count)
        self._metadata = RowTail(run.rows, METADATA, RECORDER_CLIENT)
        self._acknowledged, self._looked_ns = 0, clock.monotonic_ns()

    def look(self) -> Pulse:
        """Returns the state of the run, with rates since the last sample."""
        from prozess.nemesis.journal import open_faults

        for tail in self._sends:
            tail.advance()
        completed = sum((tail.completed.sum(axis=1) for tail in self._sends), np.zeros(len(Outcome), dtype=np.int64))
        acknowledged, now_ns = int(completed[Outcome.OK]), self._clock.monotonic_ns()
        seconds = max(1, now_ns - self._looked_ns) / NS_PER_S
        rate = (acknowledged - self._acknowledged) / seconds
        self._acknowledged, self._looked_ns = acknowledged, now_ns
        self._leaders.take(self._metadata.segments())
        faults = open_faults(self._run)
        leaders = self._leaders
        return Pulse(
            rate, int(completed[Outcome.INFO]), tuple(faults), leaders.moved, leaders.leaderless, leaders.shrunken
        )

    def close(self) -> None:
        """Closes the files."""
        for tail in self._sends:
            tail.end()
        self._metadata.close()


class LiveLeaders:
    """The leader of each partition, by the reports of the brokers.

    For one partition the view with the highest leader epoch counts, of equal ones the one that was written last. The
    replicas in sync are those that leaders name themselves.
    """

    def __init__(self, partitions: int) -> None:
        self._seen = 0
        self._epoch = np.full(partitions, -1, dtype=np.int64)
        self._leader = np.full(partitions, -1, dtype=np.int64)
        self._led_by = np.full(partitions, -1, dtype=np.int64)
        """The same as `_leader`, but while a partition has no leader, the one before."""
        self._whole = np.ones(partitions, dtype=bool)
        self._whole_epoch = np.full(partitions, -1, dtype=np.int64)
        """The leader epoch of the view that gave `_whole`."""
        self._watched = np.zeros(partitions, dtype=bool)
        self.moved = 0

    @property
    def leaderless(self) -> int:
        return int((self._watched & (self._leader < 0)).sum())

    @property
    def shrunken(self) -> int:
        return int((self._watched & ~self._whole).sum())

    def take(self, segments: Sequence[np.ndarray]) -> None:
        """Takes every row slot of the table so far, written or not."""
        if not segments:
            return
        rows = np.concatenate([np.asarray(segment) for segment in segments])[self._seen :]
        right = rows["mark"] == np.arange(self._seen + 1, self._seen + len(rows) + 1)
        rows = rows[: len(right) if right.all() else int(np.argmin(right))]
        self._seen += len(rows)
        rows = rows[(rows["kind"] == MetadataKind.PARTITION) & (rows["source"] == MetadataSource.SAMPLE)]
        rows = rows[np.lexsort((rows["leader_epoch"], rows["partition"]))]  # stable: in the order they were written
        self._take_leaders(rows[rows["leader_epoch"] >= self._epoch[rows["partition"]]])
        # Followers' views are late about the ISR; the leader's own is not.
        reporting = rows[(rows["node"] == rows["leader"]) | (rows["leader"] < 0)]
        reporting = reporting[reporting["leader_epoch"] >= self._whole_epoch[reporting["partition"]]]
        newest = reporting[_last_of(reporting["partition"])]
        self._whole[newest["partition"]] = newest["isr"] == newest["replicas"]
        self._whole_epoch[newest["partition"]] = newest["leader_epoch"]

    def _take_leaders(self, rows: np.ndarray) -> None:
        self._count_moves(rows[_last_of(rows["partition"], rows["leader_epoch"])])
        newest = rows[_last_of(rows["partition"])]
        where = newest["partition"]
        self._epoch[where], self._leader[where], self._watched[where] = newest["leader_epoch"], newest["leader"], True

    def _count_moves(self, epochs: np.ndarray) -> None:
        """Counts changes of leaders. `epochs`: one row for each partition and epoch, sorted."""
        led = epochs[epochs["leader"] >= 0]
        partition, leader = led["partition"], led["leader"]
        first = np.concatenate([[True], partition[1:] != partition[:-1]])[: len(led)]
        before = np.where(first, self._led_by[partition], np.concatenate([[-1], leader[:-1]])[: len(led)])
        self.moved += int(((before >= 0) & (before != leader)).sum())
        last = _last_of(partition)
        self._led_by[partition[last]] = leader[last]


def _last_of(*keys: np.ndarray) -> np.ndarray:
    """Returns bool[rows]: which row is the last of each run of equal keys."""
    changes = [key[1:] != key[:-1] for key in keys]
    found: np.ndarray = np.concatenate([np.logical_or.reduce(changes), [True]])[-len(keys[0]) :]
    return found if len(keys[0]) else np.zeros(0, dtype=bool)


_NAMES = {
    "cluster": "starting the cluster",
    "topics": "creating topics",
    "warm-up": "warming up until every partition acknowledges records",
    "schedule": "following the schedule",
    "heal": "healing, until every replica is in sync",
    "audit": "auditing: reading every partition from its start",
    "replicas": "reading the replicas' files",
    "server-logs": "reading the servers' logs",
    "teardown": "taking the cluster down",
    "check": "checking the history",
}
_WATCHED = ("warm-up", "schedule", "heal")
"""The stages in which clients send."""
LOOK_S = 1.0


class ProgressView:
    """Shows the progress of a run on standard error: how long stages took, steps as they happen, and counts.

    When a step happened is shown by the trial's clock, as in the report: in seconds since it began, after the warm-up.
    On a terminal a spinner shows the current stage. `quiet` shows nothing. Standard output stays clean for `--json` and
    pipes.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._console = console(stderr=True, quiet=quiet)
        self._status: Status = self._console.status("preparing")
        self._stage = ""
        self._clock_began_s = 0.0
        self._names: Mapping[str, str] = _NAMES
        self._nodes_unread = False
        self._watching: threading.Thread | None = None
        self._enough = threading.Event()

    def __enter__(self) -> "ProgressView":
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._enough.set()
        if self._watching is not None:
            self._watching.join()
        self._status.stop()

    def begin(self, plan: Plan, path: Path) -> None:
        """Prints what is about to run."""
        self._names = _NAMES | dict(backend_named(plan.backend).stages or {})
        self._nodes_unread = plan.nodes_unread
        self._console.print(f"[bold]{escape(plan.title)}[/bold]")
        self._console.print(
            f"trial {plan.trial}, seed {plan.seed}: {number_of(len(plan.cells), 'cell')}, "
            f"{number_of(len(plan.partitions), 'partition')}, {number_of(len(plan.steps), 'step')}, {plan.cluster_in_words}"
        )
        for fault, why in plan.left_out.items():
            self._console.print(f"left out: {escape(fault)}: {escape(why)}")
        if plan.replays is not None:
            self._console.print(f"This is a replay of {plan.replays}.")
        self._console.print(f"run directory {path}", soft_wrap=True)
        if self._console.is_terminal and not self._console.quiet:
            arguments = plan, RunDirectory(path)
            self._watching = threading.Thread(target=self._watch, args=arguments, name="watcher", daemon=True)
            self._watching.start()

    def _watch(self, plan: Plan, run: RunDirectory) -> None:
        """Shows the current rates and faults behind the name of the stage."""
        watcher = Watcher(plan, run, SystemClock())
        try:
            while not self._enough.wait(LOOK_S):
                if (stage := self._stage) in _WATCHED:
                    pulse = watcher.look()
                    if stage == self._stage:
                        self._status.update(f"{self._names[stage]}  [dim]{escape(str(pulse))}[/dim]")
        finally:
            watcher.close()

    def note(self, text: str) -> None:
        """Prints a line."""
        self._console.print(escape(text))

    def phase(self, name: str, **details: object) -> None:
        """Prints that a stage began."""
        self._stage = name
        shown = ", ".join(f"{key} {value}" for key, value in details.items())
        self._status.update(self._names.get(name, name) + (f" ({shown})" if shown else ""))

    def phase_done(self, name: str, took_s: float, traffic: dict[str, int] | None = None) -> None:
        """Prints that a stage ended, and how long it took."""
        self._console.print(f"  {self._names.get(name, name)}: took {took_s:.1f} s{_counts(traffic)}")

    def on_event(self, event: dict[str, Any]) -> None:
        """Shows an event of the run stage."""
        match event["event"]:
            case "phase":
                details = {k: v for k, v in event.items() if k in ("steps", "count")}
                self.phase(event["name"], **details)
            case "phase-done":
                self.phase_done(event["name"], event["took_s"], event.get("traffic"))
            case "clock":
                self._clock_began_s = event["at_s"]
                self._console.print(f"    at {0:6.2f} s  the trial's clock begins")
            case "step":
                what = "" if event["what"] == "done" else f" [red]{escape(event['what'])}[/red]"
                at_s = event["at_s"] - self._clock_began_s
                self._console.print(f"    at {at_s:6.2f} s  {escape(event['name'])}{what}")
            case "interrupt":
                self._console.print("stopping: prozess heals first. Press Ctrl-C again to stop at once")
            case _:
                self._on_trouble(event)

    def _on_trouble(self, event: dict[str, Any]) -> None:
        """Shows an event that occurs only in a run with problems."""
        match event["event"]:
            case "dead-clients":
                for name, words in event["clients"].items():
                    self._console.print(f"[red]client {escape(name)} ended by itself: {escape(words)}[/red]")
            case "audited" if event["incomplete"]:
                self._console.print(
                    f"[red]the audit is incomplete: {number_of(event['incomplete'], 'partition read')} did not finish; the "
                    f"first: {escape(event['first'])}[/red]"
                )
            case "not-whole":
                self._console.print(f"[red]the cluster did not recover: {escape(event['text'])}[/red]")
            case "mended" | "limit-reached" as kind:
                self._console.print(escape(event["text"]), style="red" if kind == "limit-reached" else None)
            case "hanging-transactions":
                for text in event["found"]:
                    self._console.print(f"hanging transaction, {escape(text)}")
            case "no-ground-truth" if self._nodes_unread:
                self._console.print(
                    "[dim]the controllers' log cannot be read here: what only it shows is not judged[/dim]"
                )
            case "no-ground-truth":
                self._console.print(f"[red]{escape(event['error'])}[/red]")
            case _:
                pass


def _counts(traffic: dict[str, int] | None) -> str:
    if not traffic or not traffic.get("issued"):
        return ""
    return f"[dim]; {traffic['issued']:,} sent, {traffic['ok']:,} acknowledged, {traffic['info']:,} in doubt[/dim]"
