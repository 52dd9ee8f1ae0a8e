"""Live progress of a run on the terminal: stages with their seconds, steps as they happen, the counts so far.

On a terminal a spinner shows the current stage; elsewhere plain lines. Everything goes to standard error, so that
`--json` and pipes stay clean.
"""

import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.markup import escape
from rich.status import Status

from harness.clock import SystemClock
from harness.console import console
from harness.live import Watcher
from harness.plan import Plan
from harness.run_directory import RunDirectory

_NAMES = {
    "cluster": "starting the cluster",
    "topics": "creating topics",
    "warm-up": "warming up until acknowledgements flow everywhere",
    "schedule": "following the schedule",
    "heal": "healing, waiting for whole ISR",
    "audit": "auditing every partition from its start",
    "teardown": "taking the cluster down",
    "check": "checking the history",
}
_WATCHED = ("warm-up", "schedule", "heal")
"""Stages in which clients send."""
LOOK_S = 1.0


class ProgressView:
    """A context; `quiet` shows nothing."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = console(stderr=True, quiet=quiet)
        self._status: Status = self._console.status("preparing")
        self._stage = ""
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
        """Say what is about to happen."""
        self._console.print(f"[bold]{escape(plan.title)}[/bold]")
        self._console.print(
            f"trial {plan.trial}, seed {plan.seed}: {len(plan.cells)} cells, {len(plan.partitions)} partitions, "
            f"{len(plan.steps)} steps, {plan.cluster_in_words}"
        )
        for fault, why in plan.left_out.items():
            self._console.print(f"left out: {escape(fault)}: {escape(why)}")
        if plan.replays is not None:
            self._console.print(f"a replay of {plan.replays}")
        self._console.print(f"run directory {path}", soft_wrap=True)
        if self._console.is_terminal and not self._console.quiet:
            arguments = plan, RunDirectory(path)
            self._watching = threading.Thread(target=self._watch, args=arguments, name="watcher", daemon=True)
            self._watching.start()

    def _watch(self, plan: Plan, run: RunDirectory) -> None:
        """What happens at this moment, behind the name of the stage."""
        watcher = Watcher(plan, run, SystemClock())
        try:
            while not self._enough.wait(LOOK_S):
                if (stage := self._stage) in _WATCHED:
                    pulse = watcher.look()
                    if stage == self._stage:
                        self._status.update(f"{_NAMES[stage]}  [dim]{escape(str(pulse))}[/dim]")
        finally:
            watcher.close()

    def note(self, text: str) -> None:
        """A line worth reading."""
        self._console.print(escape(text))

    def phase(self, name: str, **details: Any) -> None:  # noqa: ANN401 - shown as text
        """A stage began."""
        self._stage = name
        shown = ", ".join(f"{key} {value}" for key, value in details.items())
        self._status.update(_NAMES.get(name, name) + (f" ({shown})" if shown else ""))

    def phase_done(self, name: str, took_s: float, traffic: dict[str, int] | None = None) -> None:
        """A stage ended."""
        self._console.print(f"  {took_s:6.1f} s  {_NAMES.get(name, name)}{_counts(traffic)}")

    def on_event(self, event: dict[str, Any]) -> None:
        """An event of the run stage."""
        match event["event"]:
            case "phase":
                details = {k: v for k, v in event.items() if k in ("steps", "count")}
                self.phase(event["name"], **details)
            case "phase-done":
                self.phase_done(event["name"], event["took_s"], event.get("traffic"))
            case "step":
                what = "" if event["what"] == "done" else f" [red]{escape(event['what'])}[/red]"
                self._console.print(f"            {event['at_s']:6.2f} s  {escape(event['name'])}{what}")
            case "interrupt":
                self._console.print("stopping: healing first; once more to stop at once")
            case _:
                self._on_trouble(event)

    def _on_trouble(self, event: dict[str, Any]) -> None:
        """An event that a run without trouble does not have."""
        match event["event"]:
            case "dead-clients":
                for name, words in event["clients"].items():
                    self._console.print(f"[red]client {escape(name)} ended unasked: {escape(words)}[/red]")
            case "audited" if event["incomplete"]:
                self._console.print(f"[red]audit incomplete in {event['incomplete']}: {escape(event['first'])}[/red]")
            case "not-whole":
                self._console.print(f"[red]not whole again: {escape(event['text'])}[/red]")
            case "hanging-transactions":
                for text in event["found"]:
                    self._console.print(f"hanging transaction, {escape(text)}")
            case "no-ground-truth":
                self._console.print(f"[red]{escape(event['error'])}[/red]")
            case _:
                pass


def _counts(traffic: dict[str, int] | None) -> str:
    if not traffic or not traffic.get("issued"):
        return ""
    return f"  [dim]{traffic['issued']:,} sent, {traffic['ok']:,} ok, {traffic['info']:,} unknown[/dim]"
