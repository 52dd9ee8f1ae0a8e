"""What `prozess measured` writes: Markdown tables, on standard output or into a page between two marks."""

from collections.abc import Sequence
from pathlib import Path

from harness.measured import (
    Measured,
    Spread,
    cluster_lines,
    fault_lines,
    reaction_lines,
    refused,
    trial_lines,
)
from harness.report.marked import write_between

BEGIN, END = "<!-- measured: what follows is written by `prozess measured --into` -->", "<!-- measured: the end -->"


def measured_text(runs: Sequence[Measured]) -> str:
    """Every table. Of two numbers the first is the median, the second the worst."""
    parts = [
        "### Runs",
        "Known defect: violated, and by nothing but what the guarantee table knows as an open defect of others.",
        _runs(runs),
        "### Clusters",
        "Of two numbers the first is the median, the second the worst. A leader was killed: until the metadata log had the "
        "next leader; until every broker that lived named it; until a record that was sent since was acknowledged.",
        _clusters(runs),
        "### Faults, by backend",
        _faults(runs),
        "### What Kafka did",
        "Led: partitions that were led by whom the fault was aimed at; moved: had another leader, known to every broker that "
        "it was not aimed at, before the next fault. Times are from when the fault was made. ISR left: of the copies that "
        "were in sync. Unanswered: records sent while it lasted that were never acknowledged, refused ones among them.",
        _reactions(runs),
    ]
    if whys := refused(runs):
        rows = [(label, ", ".join(places), why) for (label, why), places in whys.items()]
        parts += ["### Left out", _table(("fault", "where", "why"), rows)]
    return "\n\n".join(parts) + "\n"


def _runs(runs: Sequence[Measured]) -> str:
    """How many runs of each trial came out how."""
    return _table(
        ("trial", "backend", "metadata", "held", "known defect", "violated", "unknown", "no verdict"),
        [
            (t.trial, t.backend, t.mode, t.held, t.by_defects, t.violated, t.unknown, t.without)
            for t in trial_lines(runs)
        ],
    )


def _clusters(runs: Sequence[Measured]) -> str:
    """What clusters cost, and how long they took over a killed leader."""
    return _table(
        (
            "backend",
            "metadata",
            "Kafka",
            "nodes",
            "runs",
            "ready, s",
            "memory, MiB",
            "leaders killed",
            "decided, s",
            "known, s",
            "acknowledged, s",
        ),
        [
            (
                c.backend,
                c.mode,
                c.version,
                c.nodes,
                c.runs,
                _told(c.ready_s),
                _told(c.memory_mib),
                c.killed,
                _seconds(c.decided_ms),
                _seconds(c.known_ms),
                _seconds(c.acknowledged_ms),
            )
            for c in cluster_lines(runs)
        ],
    )


def _faults(runs: Sequence[Measured]) -> str:
    """What faults did, by backend."""
    return _table(
        ("fault", "backend", "strikes", "seen to work", "as, for one", "apply, ms", "verify, ms", "undo, ms"),
        [
            (
                f"`{f.what}`",
                f.backend,
                f.strikes,
                f.seen,
                _brief(f.how),
                _told(f.apply_ms),
                _told(f.verify_ms),
                _told(f.undo_ms),
            )
            for f in fault_lines(runs)
        ],
    )


def _reactions(runs: Sequence[Measured]) -> str:
    """What Kafka did about faults."""
    return _table(
        (
            "fault",
            "metadata",
            "strikes",
            "led",
            "moved",
            "known, s",
            "acknowledged, s",
            "ISR left",
            "longest without an acknowledgement, s",
            "unanswered",
        ),
        [
            (
                f"`{r.what}`",
                r.mode,
                r.strikes,
                r.led,
                r.moved,
                _seconds(r.known_ms),
                _seconds(r.acknowledged_ms),
                f"{r.isr_left} of {r.copies}",
                _number(r.longest_s),
                r.unanswered,
            )
            for r in reaction_lines(runs)
        ],
    )


def write_into(path: Path, text: str) -> None:
    """Between the marks of a page. BadInput if it has none."""
    write_between(path, BEGIN, END, f"\n{text}\n")


def _table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _told(spread: Spread) -> str:
    if spread.median is None:
        return "–"
    return f"{_number(spread.median)}, {_number(spread.worst)}"


def _seconds(spread: Spread) -> str:
    return _told(Spread(*(None if ms is None else ms / 1000 for ms in (spread.median, spread.worst))))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _brief(text: str, most: int = 70) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
