"""Follows the steps of an application: a step begins when a consumer returns records, and its end shows whether they were
processed.
"""

import json
import mmap
import struct
import sys
import threading
from asyncio import Task, _get_running_loop, current_task
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from prozess.harness.interfaces.application import Registry
from prozess.harness.recording.rows import RowWriter, read_rows
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import COMMITS, MISSING, NONE, PROCESSED, READS, Outcome

# The open steps of an application: one for each thread or task that got records, and how it ended.
#
# A step begins when a consumer gives records, and ends when the same thread (or asyncio task) asks for the next ones,
# or closes the consumer: its code came back by itself. If an exception took it away from there, its records are
# *failed*: nobody processed them. If nothing reports (the process died, another thread closed the consumer), they are
# *doubtful*. How far an application came is in a mapped file, which survives a SIGKILL; how its last steps ended is in
# a JSON file beside it.


STEPS = "steps"
HAZARDS_MAX = 8
"""The most hazards that are noted of a client, each with its record."""
_COUNT = struct.Struct("<q")
Worker = threading.Thread | Task[Any]


@dataclass(slots=True)
class ApplicationStep:
    """A step of an application: records that one thread or task was given together and is not done with."""

    steps: "ApplicationSteps"
    first: int
    after: int
    """The step's rows of `reads` are those from `first` to before `after`."""
    uncovered: dict[int, int]
    """The greatest offset of each partition; a commit that covers it takes it out."""
    handled: BaseException | None
    """The exception that was being handled already when the records were given; it has nothing to do with them."""
    covered: dict[int, int] = field(default_factory=dict)
    in_parts: bool = False
    """A commit covered only some of it, or an offset was stored: the application distinguishes them."""
    effects: bool = False
    """The application showed an effect of the step before all of it was covered by a commit."""
    noted: bool = False
    """The application showed an effect of the step after all of it was covered by a commit."""

    @property
    def taken(self) -> bool:
        """Returns whether an exception that takes the application away here leaves out what was committed. This is
        uncertain where only effects came before the commit, or where only some records were committed: those may have been
        processed.
        """
        if not self.covered and not self.in_parts:
            return True
        return self.noted or not (self.uncovered or self.in_parts or self.effects)


_AT_WORK: dict[Worker, dict[int, ApplicationStep]] = {}
"""The open steps in this process: thread or task → id of its consumer's `ApplicationSteps` → step."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Rows of `reads` whose step did not end by itself."""

    failed: tuple[tuple[int, int], ...] = ()
    doubtful: tuple[tuple[int, int, str], ...] = ()
    """Rows (first, after) of which nobody knows whether they were processed, and why, as a clause."""


class ApplicationSteps:
    """The steps of one consumer's application. The caller holds the consumer's lock; `effect` alone is called without
    it."""

    def __init__(self, run: RunDirectory, registry: Registry, client: int) -> None:
        self._path, self._registry, self._client = _path(run, client), registry, client
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("w+b") as file:
            file.truncate(_COUNT.size)
            self._done = mmap.mmap(file.fileno(), _COUNT.size)
        self._open: dict[Worker, ApplicationStep] = {}
        self._asking: set[Worker] = set()
        self._failed: list[tuple[int, int]] = []
        self._doubtful: list[tuple[int, int, str]] = []
        self._commit_error: BaseException | None = None
        self._hazards, self._given, self._effects, self._ended = 0, 0, False, False

    def asked(self, given: int) -> None:
        """Notes that this thread asks for more, and so is done with what it had. `given`: rows of `reads` so far."""
        self._given = given
        self._over(worker())
        self._advance()

    def given(self, first: int, after: int, reached: Mapping[int, int]) -> None:
        """Notes that these rows of `reads` were given to this thread. `reached`: partition → greatest offset of them."""
        who = worker()
        self._over(who)
        self._asking.add(who)
        self._given = after
        step = ApplicationStep(self, first, after, dict(reached), sys.exc_info()[1])
        self._open[who] = _AT_WORK.setdefault(who, {})[id(self)] = step

    def committing(self, offsets: Mapping[int, int], *, stored: bool = False) -> None:
        """Notes that these offsets (partition → next offset) are committed outside of a transaction, or stored to be
        committed soon."""
        if self._asking and worker() not in self._asking:
            self._registry.note(self._client, "how", "handed-over")
        for step in self._open.values():
            for partition in offsets.keys() & step.uncovered.keys():
                if step.uncovered[partition] < offsets[partition]:
                    step.covered[partition] = step.uncovered.pop(partition)
                    step.in_parts |= stored
                else:
                    step.in_parts = True

    def committed_with_effects(self, offsets: Mapping[int, int]) -> None:
        """Records that a transaction committed these offsets together with the effects of the records."""
        for who, step in list(self._open.items()):
            for partition in offsets.keys() & step.uncovered.keys():
                if step.uncovered[partition] < offsets[partition]:
                    del step.uncovered[partition]
            if not step.uncovered and not step.covered:
                self._over(who)
        self._advance()

    def commit_raised(self, error: BaseException) -> None:
        """Records that a commit raised this exception: a thread that it ends may have processed everything before."""
        self._commit_error = error

    def effect(self, step: ApplicationStep, what: str) -> None:
        """Records an effect of that step: the application produces, or marks its processing."""
        if not self._effects:
            self._effects = True
            self._registry.note(self._client, "how", "effects")
        if step.uncovered or not step.covered:
            step.effects = True
        elif not step.noted:
            step.noted = True
            if self._hazards < HAZARDS_MAX:
                self._hazards += 1
                partition, offset = next(iter(step.covered.items()))
                hazard = {"partition": partition, "offset": offset, "records": step.after - step.first, "what": what}
                self._registry.note(self._client, "hazards", json.dumps(hazard))

    def own(self) -> ApplicationStep | None:
        """Returns the open step of this thread."""
        return self._open.get(worker())

    def closing(self) -> None:
        """Notes that the application closes the consumer, in this thread."""
        self._end(sys.exc_info()[1], other="another thread closed the consumer")

    def seal(self) -> None:
        """Ends all steps: the test is over. A thread that neither asked for more nor closed the consumer may not be
        done: an exception that the test itself expected may have ended its step."""
        self._end(None, other="your code was still processing it when the test ended", nobody=True)

    def _end(self, error: BaseException | None, *, other: str, nobody: bool = False) -> None:
        own = None if nobody else worker()
        for who, step in list(self._open.items()):
            rows = (step.first, step.after)
            raised = error if who is own else _raised_in(who)
            if raised is step.handled:
                raised = None
            if raised is not None and raised is self._commit_error:
                self._doubtful.append((*rows, "the commit itself raised"))
            elif isinstance(raised, Exception) and not step.taken:
                self._doubtful.append((*rows, "an exception left your code after the commit"))
            elif isinstance(raised, Exception):
                self._failed.append(rows)
            elif raised is not None:
                self._doubtful.append((*rows, f"{type(raised).__name__} ended it"))
            elif who is not own and not (isinstance(who, Task) and who.done() and not who.cancelled()):
                self._doubtful.append(
                    (*rows, other if _at_work(who) else "its thread ended without asking for more records")
                )
            self._over(who)
        if not self._ended or self._failed or self._doubtful:
            self._ended = True
            self._path.with_suffix(".json").write_text(
                json.dumps({"failed": self._failed, "doubtful": self._doubtful}), encoding="utf-8"
            )

    def _advance(self) -> None:
        _COUNT.pack_into(self._done, 0, min((step.first for step in self._open.values()), default=self._given))

    def _over(self, who: Worker) -> None:
        if self._open.pop(who, None) is not None:
            mine = _AT_WORK[who]
            del mine[id(self)]
            if not mine:
                del _AT_WORK[who]


def worker() -> Worker:
    """Returns the current worker: the asyncio task if there is one, else the thread."""
    loop = _get_running_loop()
    return (None if loop is None else current_task(loop)) or threading.current_thread()


def produced(topic: str) -> None:
    """Notes that this thread produces through a recorded producer, which is an effect of its open steps."""
    if _AT_WORK and (mine := _AT_WORK.get(worker())):
        for step in list(mine.values()):
            step.steps.effect(step, f"a record was produced to {topic}")


def unfinished(run: RunDirectory, client: int, *, given: int) -> Unfinished:
    """Returns which of the `given` rows of a client's `reads` belong to steps that did not end by themselves."""
    path = _path(run, client)
    results = path.with_suffix(".json")
    if results.exists():
        stored = json.loads(results.read_text(encoding="utf-8"))
        return Unfinished(
            tuple((int(a), int(b)) for a, b in stored["failed"]),
            tuple((int(a), int(b), str(why)) for a, b, why in stored["doubtful"]),
        )
    if not path.exists():
        return Unfinished()
    (done,) = _COUNT.unpack(path.read_bytes())
    return Unfinished(
        doubtful=((done, given, "its process ended before it asked for more records"),) if done < given else ()
    )


def _path(run: RunDirectory, client: int) -> Path:
    return run.path / STEPS / str(client)


def _at_work(who: Worker) -> bool:
    return who.is_alive() if isinstance(who, threading.Thread) else not who.done()


def _raised_in(who: Worker) -> BaseException | None:
    """Returns the exception that a task ended with; None of a thread, which does not say. It avoids `exception()`:
    asyncio would take that as seen by the user."""
    return getattr(who, "_exception", None) if isinstance(who, Task) and who.done() else None


# After the test: the records that the members of its groups processed, by the ends of their steps.


def fill_processed(run: RunDirectory, clients: Iterable[int], group: int) -> None:
    """Writes rows of `processed` for members that did not mark their processing: every record that they were
    given counts as processed, except those whose step an exception ended. (What is doubtful is shown by `doubtful_records`,
    and accuses nobody.)"""
    for client in clients:
        reads, _ = read_rows(run.rows, READS, client)
        if not len(reads) or (run.rows / f"{PROCESSED.name}.{client}.0.rows").exists():
            continue
        done_ns = np.array(reads["read_ns"])
        for first, after in unfinished(run, client, given=len(reads)).failed:
            done_ns[first:after] = MISSING
        writer = RowWriter(run.rows, PROCESSED, client)
        columns = {name: np.asarray(reads[name]) for name in ("log_offset", "sequence", "sender", "partition", "span")}
        columns |= {"started_ns": np.asarray(reads["read_ns"]), "done_ns": done_ns}
        writer.extend({**columns, "group": np.full(len(reads), group, dtype=np.int32)})
        writer.close()


def doubtful_records(run: RunDirectory, clients: Sequence[int]) -> list[tuple[int, int, str]]:
    """Returns (partition, offset, why) of each record that members of one group may have committed past, and of which
    nothing says whether any of them processed it."""
    top: dict[int, int] = {}
    done: dict[int, set[int]] = {}
    doubtful: list[tuple[int, int, str]] = []
    for client in clients:
        for partition, offset in _greatest(run, client, certain=False).items():
            top[partition] = max(top.get(partition, NONE), offset)
        reads, _ = read_rows(run.rows, READS, client)
        left = unfinished(run, client, given=len(reads))
        ended = np.ones(len(reads), dtype=bool)
        for first, after, *_ in (*left.failed, *left.doubtful):
            ended[first:after] = False
        for first, after, why in left.doubtful:
            rows = reads[first:after]
            doubtful += [
                (p, o, why) for p, o in zip(rows["partition"].tolist(), rows["log_offset"].tolist(), strict=True)
            ]
        for partition in np.unique(reads["partition"]).tolist():
            mine = reads["log_offset"][ended & (reads["partition"] == partition)]
            done.setdefault(partition, set()).update(mine.tolist())
    return [d for d in doubtful if d[1] < top.get(d[0], NONE) and d[1] not in done.get(d[0], ())]


def greatest_commits(run: RunDirectory, clients: Iterable[int]) -> dict[int, dict[int, int]]:
    """Returns the greatest offset that each client committed, by an answer: client → partition → offset."""
    return {client: _greatest(run, client, certain=True) for client in clients}


def _greatest(run: RunDirectory, client: int, *, certain: bool) -> dict[int, int]:
    commits, _ = read_rows(run.rows, COMMITS, client)
    kept = commits[commits["outcome"] == Outcome.OK if certain else commits["outcome"] != Outcome.FAIL]
    return {
        partition: int(kept["log_offset"][kept["partition"] == partition].max())
        for partition in np.unique(kept["partition"]).tolist()
    }
