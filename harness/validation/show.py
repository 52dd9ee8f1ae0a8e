"""What `prozess validate` prints."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from harness.console import console
from harness.guarantees.sentences import number_of
from harness.report.words import MEANINGS, SIGNS
from harness.validation.comparison import Comparison, Line
from harness.validation.predict import Prediction, Weakness, say
from harness.verdict import AnomalyOutcome


def show_prediction(prediction: Prediction) -> None:
    """What the configuration promises and what not, with the setting responsible, and the smallest change."""
    out = console()
    for note in prediction.parts.notes:
        out.print(f"[dim]note       {escape(note)}[/dim]", soft_wrap=True)
    for sentence in prediction.margins.sentences():
        out.print(f"copies     {escape(sentence)}", soft_wrap=True)
    promised = ", ".join(guarantee.anomaly for guarantee in prediction.promised)
    out.print(f"promised   never {escape(promised)}", soft_wrap=True)
    anomalies = {weakness.guarantee.anomaly: weakness for weakness in reversed(prediction.weaknesses)}
    for name, weakness in reversed(anomalies.items()):
        if name in prediction.curable:
            out.print(f"[yellow]weak[/yellow]       {escape(weak_sentence(prediction, weakness))}", soft_wrap=True)
    for name in reversed(anomalies):
        if name not in prediction.curable:
            out.print(f"even so    {name} is possible: {escape(causes(prediction, name))}", soft_wrap=True)
    changes, left = prediction.smallest_change()
    if changes:
        kept = {weakness.guarantee.anomaly for weakness in left}
        gone = [name for name in dict.fromkeys(w.guarantee.anomaly for w in prediction.weaknesses) if name not in kept]
        said = ", ".join(say(change) for change in changes)
        rules_out = f"rules out {', '.join(gone)}" if gone else "leaves fewer causes"
        out.print(f"[bold]change[/bold]     {escape(said)}: {escape(rules_out)}", soft_wrap=True)


def weak_sentence(prediction: Prediction, weakness: Weakness) -> str:
    """What may happen, why, which setting of which file is to blame, and what would rule it out."""
    where = "; ".join(blame(prediction, change) for change in prediction.remedy(weakness))
    name = weakness.guarantee.anomaly
    return f"{name} is possible: {causes(prediction, name)}. {where}"


def causes(prediction: Prediction, anomaly: str) -> str:
    """Every reason for which it is permitted."""
    return "; or ".join(dict.fromkeys(w.rule.reason for w in prediction.weaknesses if w.guarantee.anomaly == anomaly))


def blame(prediction: Prediction, change: str) -> str:
    """ "acks=1 (app.properties:3) → acks=all" """
    value, origin = prediction.parts.base[change], prediction.parts.origins.get(change, "the default")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{change.partition('.')[2].replace('_', '.')}={text} ({origin}) → {say(change)}"


def show_comparison(comparison: Comparison, runs: Sequence[Path]) -> None:
    """Prediction and observation side by side."""
    out = console()
    table = Table(
        title=f"prediction and observation, {number_of(len(runs), 'run')}",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("guarantee", "predicted", "observed"):
        table.add_column(heading)
    for line in comparison.lines():
        table.add_row(line.anomaly, escape(predicted(line)), escape(observed(line)))
    out.print(table)
    for line in comparison.lines():
        if line.seen.outcome in (AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN):
            out.print(f"{SIGNS[line.seen.outcome]} {line.anomaly}: {escape(line.seen.reason)}", soft_wrap=True)
    for reason in dict.fromkeys(reason for run in comparison.runs for reason in run.unknown_reasons):
        out.print(f"[yellow]unknown: {escape(reason)}[/yellow]", soft_wrap=True)
    for run in runs:
        out.print(f"report     {run / 'report.html'}", soft_wrap=True)


def predicted(line: Line) -> str:
    """In a few words."""
    labels = ", ".join(dict.fromkeys(weakness.rule.label for weakness in line.weaknesses))
    return f"possible: {labels}" if labels else "cannot happen"


def observed(line: Line) -> str:
    """In a few words."""
    count = f", {line.seen.count:,} times" if line.seen.count else ""
    return f"{SIGNS[line.seen.outcome]} {MEANINGS[line.seen.outcome]}{count}"


def to_json(comparison: Comparison) -> None:
    """Everything, for a program."""
    prediction = comparison.prediction
    changes, _ = prediction.smallest_change()
    document = {
        "notes": prediction.parts.notes,
        "promised": [guarantee.anomaly for guarantee in prediction.promised],
        "weaknesses": [
            {
                "anomaly": weakness.guarantee.anomaly,
                "rule": weakness.rule.id,
                "workload": weakness.workload,
                "reason": weakness.rule.reason,
                "source": weakness.rule.source,
                "remedy": [say(change) for change in prediction.remedy(weakness)],
            }
            for weakness in prediction.weaknesses
        ],
        "copies": list(prediction.margins.sentences()),
        "change": [say(change) for change in changes],
        "runs": len(comparison.runs),
        "observed": {
            line.anomaly: {"outcome": line.seen.outcome, "count": line.seen.count, "reason": line.seen.reason}
            for line in comparison.lines()
        }
        if comparison.runs
        else {},
    }
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
