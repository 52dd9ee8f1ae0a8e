"""Prints the output of `prozess validate`: what was read, what is predicted line by line, and what was seen."""

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from prozess.harness.console import console
from prozess.harness.exit_codes import ExitCode
from prozess.harness.printable import number_of
from prozess.harness.report.words import MEANINGS, SIGNS, roughly, time_left_s
from prozess.harness.verdict import AnomalyOutcome
from prozess.validation.comparison import Comparison, ComparisonLine, WeaknessState, closing_line
from prozess.validation.prediction import Prediction, Weakness, change_in_words

_STYLES = {
    "note": "dim",
    "weak": "yellow",
    "defect": "yellow",
    "defects": "yellow",
    "unclear": "yellow",
    "unknown": "yellow",
    "change": "bold",
} | {"worse": "red", "look": "yellow", "roll": "yellow"}
"""The style of each line, by its first word."""
_PROVOKED = {WeaknessState.SHOWN: "●", WeaknessState.NOT_SHOWN: "○", WeaknessState.NOT_TRIED: "–"}
CLOSING = {ExitCode.HELD: "✓", ExitCode.VIOLATED: "✗", ExitCode.UNKNOWN: "?"}


HEADING = "everything, by file, promise and weakness"


def show_first_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Prints the lines that come first, and the heading of what follows."""
    out = console()
    for word, sentence in lines:
        out.print(
            f"{word:<10} ",
            style="bold" if word in ("verdict", "change") else _STYLES.get(word),
            end="",
            highlight=False,
        )
        out.print(escape(sentence), style="bold" if word == "verdict" else None, soft_wrap=True)
    out.print(f"\n─── {HEADING} ───", style="dim", highlight=False)


def show_prediction(prediction: Prediction, *, shown: Collection[tuple[str, str]] = ()) -> None:
    """Prints what the configuration promises and what not, with the setting responsible, and the smallest change. `shown`:
    lines that came before, which are not repeated."""
    out = console()
    for word, sentence in prediction_lines(prediction):
        if (word, sentence) in shown:
            continue
        out.print(f"{word:<10} ", style=_STYLES.get(word), end="", highlight=False)
        out.print(escape(sentence), style="dim" if word == "note" else None, soft_wrap=True)


def show_no_trial() -> None:
    """Prints why no trial is run."""
    sentence = "prozess did not understand all of your files, so a trial would test another configuration than yours"
    console().print(f"trials     none: {sentence}", soft_wrap=True)


def print_begin(over: int, trials_max: int, *, spent_s: float, limit_s: float) -> None:
    """Prints on standard error that a trial begins, and about how long all of them still take. `over`: how many there were;
    `limit_s`: how long all of them may take, in seconds."""
    left_s = time_left_s(over, trials_max, spent_s=spent_s, limit_s=limit_s)
    assert left_s is not None, "there is a limit"
    word = "about" if over else "at most"
    console(stderr=True).print(f"trial {over + 1} of at most {trials_max} begins; {word} {roughly(left_s)} left")


def show_strict(prediction: Prediction) -> None:
    """Prints why `--strict` alone decides the exit code: the last word of the output is its exit code's."""
    if failures := tuple(dict.fromkeys(prediction.failures)):
        text = (
            "--strict fails, exit code 1: nobody has accepted these weaknesses and open defects: "
            f"{', '.join(failures)}. Change the settings, or accept the risk (--accept)"
        )
        sign = CLOSING[ExitCode.VIOLATED]
    else:
        unseen = "; ".join(one.unknown() for one in prediction.unseen)
        text, sign = f"--strict is unknown, exit code 2: {unseen}", CLOSING[ExitCode.UNKNOWN]
    console().print(f"{sign} {escape(text)}", soft_wrap=True)


def show_comparison(comparison: Comparison, runs: Sequence[Path]) -> None:
    """Prints prediction and observation side by side."""
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
        if line.decides in (AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN):
            out.print(f"{SIGNS[line.decides]} {line.anomaly}: {escape(line.seen.reason)}", soft_wrap=True)
    for reason in dict.fromkeys(reason for run in comparison.runs for reason in run.unknown_reasons):
        out.print(f"[yellow]unknown: {escape(reason)}[/yellow]", soft_wrap=True)
    for name, why in comparison.left_out.items():
        out.print(f"left out   {escape(name)}: {escape(why)}", soft_wrap=True)
    for run in runs:
        out.print(f"report     {run / 'report.html'}", soft_wrap=True)
    labels = {weakness.rule.id: weakness.rule.label for weakness in comparison.prediction.weaknesses}
    for of in comparison.provoked:
        what = f"{of.anomaly} by {labels[of.rule]}" if of.rule in labels else of.rule
        out.print(f"{_PROVOKED[of.state]} {escape(f'{what}: {of.sentence()}')}", soft_wrap=True)
    sign = CLOSING[comparison.exit_code]
    out.print(f"{sign} {escape(closing_line(comparison))}", soft_wrap=True)


def predicted(line: ComparisonLine) -> str:
    """Returns what was predicted in a few words."""
    if line.missing is not None:
        return f"not judged: you gave no {line.missing}"
    labels = ", ".join(dict.fromkeys(weakness.rule.label for weakness in line.weaknesses))
    return f"possible: {labels}" if labels else "cannot happen"


def observed(line: ComparisonLine) -> str:
    """Returns what was observed in a few words. For an anomaly that held, what was seen is outside of its promise: a wait
    while a fault was at work."""
    times = number_of(line.seen.count, "time")
    count = f", {times}" if line.seen.outcome is not AnomalyOutcome.HELD else f" ({times} while it is not promised)"
    seen = f"{MEANINGS[line.seen.outcome]}{count if line.seen.count else ''}"
    return (
        f"{SIGNS[line.decides]} {seen if line.missing is None else f'with a {line.missing} that is not yours: {seen}'}"
    )


def to_json(comparison: Comparison) -> None:
    """Prints the whole result as JSON."""
    prediction = comparison.prediction
    changes, _ = prediction.smallest_change()
    words = prediction.names.sentence
    document = {
        "files": [reading.summary() for reading in prediction.parts.readings],
        "unclear": [
            {"name": doubt.name, "origin": doubt.origin, "why": doubt.why, "rule": doubt.rule}
            for doubt in prediction.doubts
        ],
        "unknown": [guarantee.anomaly for guarantee in prediction.unknown],
        "notes": prediction.parts.notes,
        "duties": prediction.duties,
        "promised": [guarantee.anomaly for guarantee in prediction.promised],
        "weaknesses": [
            {
                "anomaly": weakness.guarantee.anomaly,
                "rule": weakness.rule.id,
                "workload": weakness.workload,
                "reason": weakness.rule.reason,
                "source": weakness.rule.source,
                "remedy": [words(change_in_words(change)) for change in prediction.remedy(weakness)],
            }
            for weakness in prediction.weaknesses
        ],
        "defects": [
            {
                "id": one.defect.id,
                "anomalies": one.anomalies,
                "status": one.status,
                "reason": one.reason,
                "avoided": one.defect.avoided,
                "source": one.defect.source,
            }
            for one in prediction.defects
        ],
        "availability": [
            {
                "rule": concern.rule,
                "anomalies": concern.denies,
                "what": words(concern.what),
                "settings": concern.blame,
                "change": words(concern.change),
                "source": concern.source,
            }
            for concern in prediction.concerns
        ],
        "missing_settings": [
            {"of": one.of, "settings": one.settings, "anomalies": one.anomalies}
            for one in (*prediction.missing_settings, *prediction.unseen)
        ],
        "assumed": prediction.assumed,
        "not_judged": prediction.not_judged,
        "accepted": {
            rule: {"reason": risk.reason, "until": str(risk.until)}
            for rule, risk in (
                *prediction.accepted.items(),
                *((doubt.rule, risk) for doubt, risk in prediction.accepted_doubts.items()),
            )
        },
        "remarks": prediction.remarks,
        "failures": prediction.failures,
        "copies": [words(sentence) for sentence in _copies(prediction)],
        "change": [words(change_in_words(change)) for change in changes],
        "runs": len(comparison.runs),
        "observed": {
            line.anomaly: {"outcome": line.decides, "count": line.seen.count, "reason": line.seen.reason}
            for line in comparison.lines()
        }
        if comparison.runs
        else {},
        "provoked": [
            {
                "anomaly": of.anomaly,
                "rule": of.rule,
                "state": of.state,
                "tries": of.tries,
                "count": of.count,
                "why": of.why,
                "witness": of.witness,
                "report": of.report,
            }
            for of in comparison.provoked
        ],
        "left_out": dict(comparison.left_out),
        "conclusion": closing_line(comparison) if comparison.runs else "",
    }
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


# What a prediction says, line by line: a word that says what kind of line it is, and the sentence. Pure.


NAMES = {
    "producer.max_in_flight": "max.in.flight.requests.per.connection",
    "group.properties.check.crcs": "check.crcs",
}
"""Settings whose name in a trial file is not Kafka's → Kafka's name."""


def prediction_lines(prediction: Prediction) -> Iterator[tuple[str, str]]:
    """Yields (word, sentence) for each line of the prediction, in the order of the output."""
    yield from prediction.names.lines(_prediction_lines(prediction))


def _prediction_lines(prediction: Prediction) -> Iterator[tuple[str, str]]:
    for duty in prediction.duties:
        yield "you must", duty
    for reading in prediction.parts.readings:
        yield "file", reading.summary()
    for note in prediction.parts.notes:
        yield "note", note
    for assumption in prediction.assumed:
        yield "assumed", assumption
    for sentence in _copies(prediction):
        yield "copies", sentence
    yield from _promises(prediction)
    yield from _weaknesses(prediction)
    yield from _change(prediction)
    for remark in prediction.remarks:
        yield "accepted", remark


def _copies(prediction: Prediction) -> Iterator[str]:
    """Yields how many brokers and disks may be gone; nothing where no file says how many copies there are."""
    if prediction.fault_tolerance is not None:
        yield from prediction.fault_tolerance.sentences()


def _promises(prediction: Prediction) -> Iterator[tuple[str, str]]:
    if prediction.promised:
        never = ", ".join(guarantee.anomaly for guarantee in prediction.promised)
        yield "promised", f"never {never}{prediction.provided}"
    for one in prediction.defects:
        risk = prediction.accepted.get(one.defect.id)
        yield "defect", f"{one.sentence()} [{one.defect.id}]" + (f"; {risk.sentence()}" if risk else "")
    for accepted, risk in prediction.accepted_doubts.items():
        yield "accepted", f"{accepted.sentence()} [{accepted.rule}]; {risk.sentence()}"
    for doubt in prediction.doubts:
        yield "unclear", doubt.sentence()
    if prediction.doubts:
        yield "unknown", _doubted(prediction)
    for missing in (*prediction.missing_settings, *prediction.unseen):
        yield "unknown", missing.unknown()
    for part, names in prediction.not_judged.items():
        yield "not judged", f"{', '.join(names)}: these depend on a {part}, and you gave none (--{part})"


def _doubted(prediction: Prediction) -> str:
    """Each anomaly stands on one line: what depends on a setting that no file has, too, is on that setting's."""
    later = {name for missing in prediction.missing_settings for name in missing.anomalies}
    names = [guarantee.anomaly for guarantee in prediction.unknown if guarantee.anomaly not in later]
    if not names:
        return f"prozess promises nothing, {way_out(prediction)}"
    of = "none of these, and none of those on the next lines," if later else "none of these,"
    return f"{', '.join(names)}: prozess promises {of} {way_out(prediction)}"


def way_out(prediction: Prediction) -> str:
    """Returns why nothing is promised, and what a person can do."""
    if prediction.unclear:
        return (
            "because it did not understand everything in your files, and what "
            "is unclear may matter. Replace placeholders by their values, remove names that no client reads, "
            "or write the settings with Kafka's names in a .properties file"
        )
    return "because the trials run another client with the same settings, and yours may have other defects"


def _weaknesses(prediction: Prediction) -> Iterator[tuple[str, str]]:
    anomalies = list(dict.fromkeys(weakness.guarantee.anomaly for weakness in prediction.weaknesses))
    weak = [name for name in anomalies if name in prediction.curable]
    sentences = [(_rules(prediction, name), weak_sentence(prediction, _first(prediction, name))) for name in weak]
    sentences += [((concern.rule,), concern.sentence()) for concern in prediction.concerns]
    accepted = []
    for rules, sentence in sentences:
        risks = [prediction.accepted.get(rule) for rule in rules]
        if all(risks):
            why = "; ".join(dict.fromkeys(risk.sentence() for risk in risks if risk is not None))
            accepted.append(("accepted", f"{sentence} [{', '.join(rules)}]; {why}"))
        else:
            yield "weak", f"{sentence} [{', '.join(rules)}]"
    yield from accepted
    for name in anomalies:
        if name not in prediction.curable:
            yield "even so", f"{name} is possible: {causes(prediction, name)}"


def _rules(prediction: Prediction, anomaly: str) -> tuple[str, ...]:
    return tuple(w.rule.id for w in prediction.weaknesses if w.guarantee.anomaly == anomaly)


def _first(prediction: Prediction, anomaly: str) -> Weakness:
    return next(weakness for weakness in prediction.weaknesses if weakness.guarantee.anomaly == anomaly)


def _change(prediction: Prediction) -> Iterator[tuple[str, str]]:
    changes, left = prediction.smallest_change()
    if changes:
        kept = {weakness.guarantee.anomaly for weakness in left}
        gone = [name for name in dict.fromkeys(w.guarantee.anomaly for w in prediction.weaknesses) if name not in kept]
        named = ", ".join(change_in_words(change) for change in changes)
        rules_out = f"rules out {', '.join(gone)}" if gone else "leaves fewer causes"
        yield "change", f"{named}: {rules_out}"


def weak_sentence(prediction: Prediction, weakness: Weakness) -> str:
    """Returns what may happen, why, which setting of which file is to blame, and what would rule it out."""
    where = "; ".join(blame(prediction, change) for change in prediction.remedy(weakness))
    name = weakness.guarantee.anomaly
    return f"{name} is possible: {causes(prediction, name)}. {where}"


def causes(prediction: Prediction, anomaly: str) -> str:
    """Returns every reason why the table permits this anomaly."""
    return "; or ".join(dict.fromkeys(w.rule.reason for w in prediction.weaknesses if w.guarantee.anomaly == anomaly))


def blame(prediction: Prediction, change: str) -> str:
    """ "acks=1 (app.properties:3) → acks=all" """
    value, origin = prediction.parts.base[change], prediction.parts.origins.get(change, "the default")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if change == "group.commit":
        now = "enable.auto.commit=true" if text.startswith("auto") else f"--commits {text}"
    else:
        now = f"{NAMES.get(change, change.partition('.')[2].replace('_', '.'))}={text}"
    return f"{now} ({origin}) → {change_in_words(change)}"
