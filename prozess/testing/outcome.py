"""Decides whether a test fails by its verdict, with which message, and which stack frames of an error in prozess are
shown."""

import sysconfig
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from prozess.harness import installation
from prozess.harness.errors import ProzessError
from prozess.harness.plan.plan import Plan
from prozess.harness.report.words import SIGNS, brief, reproduce
from prozess.harness.run_directory import RunDirectory
from prozess.harness.verdict import AnomalyOutcome, CellAnomaly, CellVerdict, TrialVerdict, Verdict, WitnessShown
from prozess.testing.expectations import ApplicationFinding, Unjudged
from prozess.testing.recording import Judged

WITNESSES_MAX = 3
"""The number of witnesses that are shown of each anomaly; the report has more."""
OF_APPLICATION_MAX = 5
"""The number of witnesses that are shown of each finding about the application."""


@dataclass(frozen=True, slots=True)
class VerdictOnTest:
    """Describes what the verdict means for a test. `failure`: why it fails; None = it does not. `costs`: permitted anomalies
    that were seen. `unjudged`: promises about the application that were not judged."""

    failure: str | None
    costs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()


def outcome_of(judged: Judged, plan: Plan, *, forbid: Sequence[str]) -> VerdictOnTest:
    """Returns what the verdict means for the test. `forbid`: anomalies that fail the test although its configuration permits
    them."""
    verdict = judged.verdict
    if verdict is None:
        return VerdictOnTest(None, notes=judged.notes)
    failing = [one for one in judged.found if one.unknown or one.fails or one.anomaly in forbid]
    asked = [*_left_out(verdict, forbid), *(one for one in judged.unjudged if set(one.anomalies) & set(forbid))]
    unwanted = [
        (cell, anomaly)
        for cell in verdict.cells
        for anomaly in cell.anomalies.values()
        if anomaly.outcome is AnomalyOutcome.VIOLATED or (anomaly.anomaly in forbid and anomaly.count)
    ]
    costs = tuple(
        f"{cell.name}: {brief(anomaly)}"
        for cell in verdict.cells
        for anomaly in cell.anomalies.values()
        if anomaly.outcome is AnomalyOutcome.PERMITTED
    ) + tuple(f"{one.where}: {one.anomaly} {one.count}: {one.reason}" for one in judged.found if one not in failing)
    of_application = set(verdict.application.doubts()) if verdict.application is not None else set()
    unknown = [reason for reason in verdict.unknown_reasons if reason not in of_application]
    silent = not verdict.cells and not unknown
    well = silent or (verdict.of_kafka or verdict.verdict) in (Verdict.HELD, Verdict.NOT_JUDGED)
    if not unwanted and not failing and not asked and well:
        return VerdictOnTest(None, costs, judged.notes, judged.unjudged)
    seen = [f"{anomaly.anomaly} in {cell.name}" for cell, anomaly in unwanted]
    seen += [f"{one.anomaly} in {one.where}" for one in failing if not one.unknown]
    how = "violated" if seen else "unknown"
    strict = judged.strict and judged.silent
    lines = [f"prozess: {how}: {_sentence(seen, asked if well else [], strict=strict)}", ""]
    for cell, anomaly in unwanted:
        lines += _finding_lines(cell, anomaly, plan, forbidden_by_test=anomaly.outcome is not AnomalyOutcome.VIOLATED)
    for one in failing:
        lines += _of_application(one)
    by = "not judged (strict)" if strict else "not judged, and forbidden by the test (forbid)"
    lines += [f"  ? {by}: {one.sentence()}" for one in asked]
    lines += [f"  ? {reason}" for reason in unknown[:5]]
    lines += ["", *_faults(verdict), *_where(judged.run)]
    return VerdictOnTest("\n".join(lines), costs, judged.notes, judged.unjudged)


def _sentence(seen: Sequence[str], asked: Sequence[Unjudged], *, strict: bool) -> str:
    if seen:
        return seen[0] + (f", and {len(seen) - 1} more" if len(seen) > 1 else "")
    if asked:
        what = f"{', '.join(asked[0].anomalies)} in {asked[0].where}"
        if strict:
            return f"{what}: nothing says what the application must do (strict)"
        return f"{what}: the test forbids it, and prozess cannot say whether it happened"
    return "what the clients recorded does not show whether the promises held"


def _left_out(verdict: TrialVerdict, forbid: Sequence[str]) -> list[Unjudged]:
    """Returns the anomalies that the test forbids, and that were not judged in a cell that could show them."""
    return [
        Unjudged((anomaly.anomaly,), cell.name, anomaly.left_out, "it cannot be forbidden here")
        for cell in verdict.cells
        for anomaly in cell.anomalies.values()
        if anomaly.anomaly in forbid and anomaly.left_out and not anomaly.count
    ]


def _of_application(found: ApplicationFinding) -> Iterator[str]:
    if found.unknown:
        yield f"  ? {found.anomaly} in {found.where} {found.reason}"
        return
    yield f"  {SIGNS[AnomalyOutcome.VIOLATED]} {found.anomaly} {found.count:,} in {found.where}"
    if not found.fails:
        yield "    This is a hazard and not yet a loss, but the test forbids it (forbid)."
    yield f"    {found.reason}"
    for witness in found.witnesses[:OF_APPLICATION_MAX]:
        yield f"    - {witness.text}"
    if found.count > OF_APPLICATION_MAX:
        yield f"    … {found.count:,} in all"


def _finding_lines(cell: CellVerdict, anomaly: CellAnomaly, plan: Plan, *, forbidden_by_test: bool) -> Iterator[str]:
    settings = ", ".join(f"{axis.partition('.')[2].replace('_', '.')}={value}" for axis, value in _summarised(cell))
    yield f"  {SIGNS[anomaly.outcome]} {brief(anomaly)} in {cell.name} ({settings})"
    if forbidden_by_test:
        yield "    The configuration permits it, the test does not (forbid)."
    yield f"    {anomaly.reason}"
    names = {client.client: client.name for client in plan.clients}
    shown = [w for w in anomaly.witnesses if w.effect == "forbidden" or forbidden_by_test][:WITNESSES_MAX]
    for witness in shown:
        yield f"    - {_witness(witness, names)}"
    if anomaly.count > len(shown):
        yield f"    … {anomaly.count:,} in all"


def _summarised(cell: CellVerdict) -> list[tuple[str, str]]:
    return [(a, v) for a, v in cell.axes.items() if v not in ("–", "no") and a != "topic.name"]


def _witness(witness: WitnessShown, names: dict[int, str]) -> str:
    parts = [f"{witness.topic}/{witness.number}"]
    if witness.log_offset is not None:
        parts.append(f"offset {witness.log_offset}")
    if witness.client >= 0:
        parts.append(f"record {witness.sequence} of {names.get(witness.client, f'client {witness.client}')}")
    if witness.begin_s is not None:
        parts.append(f"at {witness.begin_s:.3f} s")
    if witness.reader is not None:
        parts.append(f"seen by {names.get(witness.reader, f'client {witness.reader}')}")
    if witness.faults:
        parts.append(f"during {', '.join(witness.faults)}")
    return ", ".join(parts)


def _faults(verdict: TrialVerdict) -> list[str]:
    if not verdict.faults:
        return ["  faults active: none"]
    lines = ["  faults active:"]
    for fault in verdict.faults:
        until = "the end" if fault.end_s is None else f"{fault.end_s:.1f} s"
        effect = {True: "effective", False: "without effect", None: "effect not seen"}[fault.effective]
        lines.append(f"    {fault.fault} of {', '.join(fault.nodes)}: {fault.begin_s:.1f} s to {until}, {effect}")
    return lines


def _where(run: RunDirectory) -> list[str]:
    return [
        f"  report:    {run.path / 'report.html'}",
        f"  reproduce: {reproduce(run)}",
    ]


# For an error raised in code of prozess, users see the line of their own code that led there, and the error's text.
#
# A mistake of the user's (a wrong argument, a client that is used after its test) says in its text what is wrong and how
# it is put right; where in prozess it was noticed is of no use to them. A mistake of ours, such as an assertion that does
# not hold, stays whole: it is to be reported. `pytest --full-trace` shows every frame of both.


_OURS = f"{installation.PACKAGE}/"
_HOOKS = str(installation.PACKAGE / "testing" / "plugin.py")
"""Its wrappers stand around every test, whoever raised."""
_PYTHON = f"{sysconfig.get_path('stdlib')}/"
_INSTALLED = ("/site-packages/", "/dist-packages/")
_ARGUMENTS: tuple[type[BaseException], ...] = (TypeError, ValueError, NotImplementedError, RuntimeError, BufferError)
"""Exceptions of the original clients for a wrong argument or a wrong moment, beside errors of their own."""


def hide_our_frames(error: BaseException) -> bool:
    """Takes our frames out of the tracebacks of an error and its causes; returns whether it has a frame of the user's."""
    seen: set[int] = set()
    for link in _chain(error):
        if id(link) in seen:
            break
        seen.add(id(link))
        if isinstance(link, ProzessError) and not _of_users_code(link.__cause__ or link.__context__):
            link.__cause__, link.__suppress_context__ = None, True  # its text is complete
        if link.__traceback__ is not None and _text_suffices(link):
            link.__traceback__ = _without_ours(link.__traceback__)
    return _of_users_code(error)


@contextmanager
def hidden_in_threads() -> Iterator[None]:
    """Does the same for errors that end a thread meanwhile: pytest, or Python, shows them as they come."""
    before = threading.excepthook

    def note(caught: threading.ExceptHookArgs) -> None:
        if caught.exc_value is not None:
            hide_our_frames(caught.exc_value)
            seen = (caught.exc_type, caught.exc_value, caught.exc_value.__traceback__, caught.thread)
            caught = threading.ExceptHookArgs(seen)
        before(caught)

    threading.excepthook = note
    try:
        yield
    finally:
        threading.excepthook = before


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields the error and its causes, as a traceback shows them."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _text_suffices(error: BaseException) -> bool:
    """Returns whether the error's text suffices: errors of prozess, of arguments and of libraries, and all that the user's
    own code raised.
    """
    *_, last = _frames(error.__traceback__)
    if isinstance(error, (ProzessError, *_ARGUMENTS)) or type(error).__module__ != "builtins":
        return True
    return not _ours(last) and not any(_ours(entry) for entry in _below(error.__traceback__))


def _without_ours(first: TracebackType) -> TracebackType:
    """Returns the traceback without frames of prozess and of the libraries that it called. The first frame stays, because
    pytest needs one.
    """
    kept: list[TracebackType] = []
    beneath = False
    for entry in _frames(first):
        if _ours(entry):
            beneath = beneath or not _hook(entry)
        elif not _library(entry):
            beneath = False
            kept.append(entry)
        elif not beneath:
            kept.append(entry)
    rest: TracebackType | None = None
    for entry in reversed(kept or [first]):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    assert rest is not None
    return rest


def _below(trace: TracebackType | None) -> list[TracebackType]:
    """Returns the frames behind the last frame of the user's code."""
    found: list[TracebackType] = []
    for entry in _frames(trace):
        found = [*found, entry] if _ours(entry) or _library(entry) else []
    return [entry for entry in found if not _hook(entry)]


def _of_users_code(error: BaseException | None) -> bool:
    return error is not None and any(not _ours(e) and not _library(e) for e in _frames(error.__traceback__))


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _file(entry: TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename


def _ours(entry: TracebackType) -> bool:
    return _file(entry).startswith(_OURS)


def _hook(entry: TracebackType) -> bool:
    return _file(entry) == _HOOKS


def _library(entry: TracebackType) -> bool:
    """Returns whether the frame is of Python or of an installed package; `<string>` is made by libraries."""
    name = _file(entry)
    return name.startswith((_PYTHON, "<")) or any(part in name for part in _INSTALLED)
