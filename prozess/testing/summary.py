"""Prints what the tests of a session did not judge, and what passing tests have shown, at the end of pytest's output.

It imports nothing of prozess: every pytest run where prozess is installed loads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

_NAMED_MAX = 3
_LISTED_MAX = 20


class NotJudgedWarning(UserWarning):
    """A test states no expectation about the application, so that prozess judged Kafka's promises alone."""


class SummaryEntry(TypedDict):
    """The entry of one test in the summary; a worker of xdist sends it as JSON."""

    clients: bool
    """The test has recorded clients, or has broken something."""
    silent: bool
    """The test states no expectation about the application, although it uses records."""
    seen: list[str]
    unjudged: list[list[str]]
    """(anomalies, where, why, what to add)"""


def write_summary(terminalreporter: TerminalReporter) -> None:
    """Prints the tests that judged nothing of their application in a block of its own, then what was seen and permitted,
    and a line for each kind of gap."""
    passed = [*_summaries(terminalreporter, "passed"), *_summaries(terminalreporter, "xpassed")]
    ended = [*passed, *_summaries(terminalreporter, "failed"), *_summaries(terminalreporter, "xfailed")]
    if block := list(nothing_judged(ended)):
        terminalreporter.section("prozess: your application was not judged", yellow=True, bold=True)
        for line in block:
            terminalreporter.line(line)
    lines = [f"{nodeid}: {text}" for nodeid, noted in passed for text in noted["seen"]]
    lines += not_judged([*passed, *_summaries(terminalreporter, "failed")])
    if lines:
        terminalreporter.section("prozess")
    for line in lines:
        terminalreporter.line(line)


def nothing_judged(tests: Sequence[tuple[str, SummaryEntry]]) -> Iterator[str]:
    """Yields the lines of the block: the number and names of tests without expectations, and what to add."""
    recorded = [(nodeid, noted) for nodeid, noted in tests if noted["clients"]]
    silent = [(nodeid, noted) for nodeid, noted in recorded if noted["silent"]]
    if not silent:
        return
    of = "test" if len(recorded) == 1 else "tests"
    yield (
        f"{len(silent)} of {len(recorded)} {of} judged nothing of what your application does: prozess judged Kafka's "
        "promises, and nothing says what the application must make of its records. If it swallows an error, counts "
        "wrongly or changes the order, these pass all the same:"
    )
    yield from (f"  {nodeid}" for nodeid, _ in silent[:_LISTED_MAX])
    if len(silent) > _LISTED_MAX:
        yield f"  and {len(silent) - _LISTED_MAX} more"
    adds = Counter(add for _, noted in silent for add in {gap[3] for gap in noted["unjudged"]})
    yield from (f"add: {add} ({count} of them)" for add, count in adds.most_common())
    yield "`--prozess-strict` fails such tests. `@pytest.mark.prozess(strict=False)` exempts one."


def not_judged(tests: Sequence[tuple[str, SummaryEntry]]) -> list[str]:
    """Returns a line for each kind of gap, with the tests that it concerns: what nothing reported, and what to add."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for nodeid, noted in tests:
        for anomalies, where, why, add in noted["unjudged"]:
            found.setdefault((anomalies, add), {}).setdefault(nodeid, f"{where}: {why}")
    lines = []
    for (anomalies, add), nodeids in found.items():
        names = [nodeid.rpartition("::")[2] for nodeid in nodeids]
        more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        first = next(iter(nodeids.values()))
        lines.append(f"not judged in {', '.join(names[:_NAMED_MAX])}{more}: {anomalies}: {first}; {add}.")
    return lines


def _summaries(terminalreporter: TerminalReporter, how: str) -> list[tuple[str, SummaryEntry]]:
    reports = terminalreporter.getreports(how)
    return [(report.nodeid, report.prozess_summary) for report in reports if hasattr(report, "prozess_summary")]
