"""Shows users only their part of an error that was raised in code of prozess: their own line that led there, and the error's
text.

A mistake of the user's (a wrong argument, a client that is used after its test) says in its text what is wrong and how it is
put right; where in prozess it was noticed is of no use to them. A mistake of ours, such as an assertion that does not hold,
stays whole: it is to be reported. `pytest --full-trace` shows every frame of both.
"""

import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from prozess.harness import installation
from prozess.harness.errors import ProzessError

_OURS = f"{installation.PACKAGE}/"
_HOOKS = str(installation.PACKAGE / "harness" / "app" / "pytest_plugin.py")
"""Its wrappers stand around every test, whoever raised."""
_PYTHON = f"{sysconfig.get_path('stdlib')}/"
_INSTALLED = ("/site-packages/", "/dist-packages/")
_ARGUMENTS: tuple[type[BaseException], ...] = (TypeError, ValueError, NotImplementedError, RuntimeError, BufferError)
"""What the original clients raise for a wrong argument or a wrong moment, beside errors of their own."""


def hide_our_frames(error: BaseException) -> bool:
    """Takes our frames out of the tracebacks of an error and its causes; returns whether it has a frame of the user's."""
    seen: set[int] = set()
    for link in _chain(error):
        if id(link) in seen:
            break
        seen.add(id(link))
        if isinstance(link, ProzessError) and not _of_users_code(link.__cause__ or link.__context__):
            link.__cause__, link.__suppress_context__ = None, True  # its text says all of it
        if link.__traceback__ is not None and _is_told_by_its_text(link):
            link.__traceback__ = _without_ours(link.__traceback__)
    return _of_users_code(error)


@contextmanager
def hidden_in_threads() -> Iterator[None]:
    """Does the same for errors that end a thread meanwhile: pytest, or Python, shows them as they come."""
    before = threading.excepthook

    def told(caught: threading.ExceptHookArgs) -> None:
        if caught.exc_value is not None:
            hide_our_frames(caught.exc_value)
            seen = (caught.exc_type, caught.exc_value, caught.exc_value.__traceback__, caught.thread)
            caught = threading.ExceptHookArgs(seen)
        before(caught)

    threading.excepthook = told
    try:
        yield
    finally:
        threading.excepthook = before


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it came of, as a traceback shows it."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _is_told_by_its_text(error: BaseException) -> bool:
    """Errors of the tree, of arguments, and of libraries; and whatever the user's own code raised."""
    *_, last = _frames(error.__traceback__)
    if isinstance(error, (ProzessError, *_ARGUMENTS)) or type(error).__module__ != "builtins":
        return True
    return not _ours(last) and not any(_ours(entry) for entry in _below(error.__traceback__))


def _without_ours(first: TracebackType) -> TracebackType:
    """Without our frames, and those of libraries that ours called; the first always stays, because pytest needs one."""
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
    """The frames behind the last one of the user's."""
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
    """Of Python or of an installed package; `<string>` and the like are nobody's file, and made by libraries."""
    name = _file(entry)
    return name.startswith((_PYTHON, "<")) or any(part in name for part in _INSTALLED)
