"""The first lines of `prozess validate`: the verdict, what may be lost, why, and the one change that helps most. Pure.

Anyone who reads ten lines knows whether to go on. Everything else follows behind a heading (`terminal.prediction_lines`)."""

import re
from collections.abc import Iterator, Sequence

from prozess.harness.printable import number_of
from prozess.validation.prediction import Prediction, Weakness, change_in_words
from prozess.validation.terminal import blame

LINES_MAX = 10
CAUSES_MAX = 2
"""At most this many causes are named here; the others follow below."""
DUTY = "you must"
OF_LOSS = ("lost", "lost-transaction", "torn", "unreported", "unprocessed", "skipped")
"""Anomalies by which a record is gone, or nobody works on it, or nobody knows of its loss."""
OF_GONE = {"lost", "lost-transaction", "torn", "unreported"}
"""Those by which a record is not in the log or not readable; by the others a consumer passes over it."""
WORDS = {
    "lost": ("acknowledged records can disappear", "acknowledged records stay"),
    "lost-transaction": ("committed transactions can disappear", "committed transactions stay"),
    "torn": ("readers can see a part of a transaction", "readers see all of a transaction or nothing"),
    "unreported": ("a failed send can go unreported", "every failed send is reported"),
    "unprocessed": ("a group can leave records unprocessed", "a group processes every record"),
    "skipped": ("consumers can skip records", "consumers skip no record"),
}
"""Anomaly of loss → what can happen, and what is promised."""
_OPTION = re.compile(r"--[a-z-]+")


def first_lines(prediction: Prediction) -> list[tuple[str, str]]:
    """Returns (word, sentence) for each of the first lines, ten at most: the most important first."""
    return list(prediction.names.lines(_lines(prediction)))[:LINES_MAX]


def _lines(prediction: Prediction) -> Iterator[tuple[str, str]]:
    yield "verdict", _verdict(prediction)
    yield "losses", _lost(prediction)
    yield from _why(prediction)
    if helps := _change(prediction):
        yield "change", helps
    for duty in prediction.duties:
        yield DUTY, duty
    yield "judged", _judged(prediction)
    if prediction.defects:
        named = ", ".join(dict.fromkeys(one.defect.id for one in prediction.defects))
        yield "defects", f"of these versions, known, break promises: {named}"
    if prediction.promised:
        yield "promised", f"{len(prediction.promised)} of {len(prediction.judged)} anomalies cannot happen"


def _verdict(prediction: Prediction) -> str:
    """The worst comes first: what can be lost and the change that rules it out, then what is not known."""
    findings = _findings(prediction)
    open_points = _open_points(prediction, further=bool(findings))
    if findings or open_points:
        return f"{'!' if findings else '?'} {' '.join([*findings, *open_points])}"
    limits = ["except for known defects"] if prediction.defects else []
    limits += (
        [f"except what depends on a {' and a '.join(prediction.not_judged)} (none given)"]
        if prediction.not_judged
        else []
    )
    return ", ".join(["✓ promised: no setting is weak", *limits])


def _findings(prediction: Prediction) -> list[str]:
    """ "Records can be lost (acks=1). acks=all rules it out." Empty: no known setting is weak."""
    losing = [weakness for weakness in _by_loss(prediction) if weakness.guarantee.anomaly in OF_LOSS]
    of_loss = [concern for concern in prediction.concerns if set(concern.denies) & OF_GONE]
    if of_loss and not losing:
        causes = ", ".join(cause.partition(" (")[0] for cause in of_loss[0].blame)
        return [f"Records can be lost ({causes}). Better: {of_loss[0].change}."]
    if not losing:
        points = len({weakness.guarantee.anomaly for weakness in _by_loss(prediction)}) + len(prediction.concerns)
        them = "it" if points == 1 else "them"
        return [f"{number_of(points, 'weak point')}; a change of settings rules {them} out."] if points else []
    gone = {weakness.guarantee.anomaly for weakness in losing} & OF_GONE
    changes = list(dict.fromkeys(change for weakness in losing for change in prediction.remedy(weakness)))
    causes = ", ".join(blame(prediction, change).partition(" (")[0] for change in changes)
    what = "Records can be lost" if gone else "Records can be passed over"
    verb = "rule" if len(changes) > 1 else "rules"
    return [f"{what} ({causes}). {_listed([change_in_words(change) for change in changes])} {verb} it out."]


def _open_points(prediction: Prediction, *, further: bool) -> list[str]:
    """What was not understood, or what no file gives. `further`: a weakness was named before."""
    if prediction.doubts:
        count = len(prediction.doubts)
        which = "1 thing was" if count == 1 else f"{count} things were"
        return [f"No promise is made, because {which} not understood."]
    names = {name for one in prediction.missing_settings for name in one.anomalies}
    if not prediction.missing_settings:
        return []
    verb = "depends" if len(names) == 1 else "depend"
    give = dict.fromkeys(word for one in prediction.missing_settings for word in _OPTION.findall(one.give))
    options = f" ({next(iter(give))})" if give else ""
    promises = number_of(len(names), "further promise" if further else "promise")
    return [f"{promises} {verb} on settings that no file gives{options}."]


def _listed(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _judged(prediction: Prediction) -> str:
    parts = prediction.parts
    version = f"Kafka {parts.version}" + ("" if parts.version_given else " (assumed: no file says which)")
    guessed = "" if parts.client_given else " (assumed: no file says which)"
    clients = [
        f"{part} {parts.base[f'{scope}.client']}{guessed}"
        for part, scope in (("producer", "producer"), ("consumer", "group"))
        if f"{scope}.client" in parts.base and getattr(parts, part) is not None
    ]
    known = [f"{name}={parts.base[key]}" for name, key in _SHOWN if key in parts.origins]
    return ", ".join([version, *clients, *known])


_SHOWN = (("replication.factor", "topic.replication_factor"), ("min.insync.replicas", "topic.min_insync_replicas"))


def _lost(prediction: Prediction) -> str:
    weak = {weakness.guarantee.anomaly for weakness in prediction.weaknesses}
    weak |= {name for concern in prediction.concerns for name in concern.denies}
    may = [name for name in OF_LOSS if name in weak]
    unknown = [name for name in OF_LOSS if name in {guarantee.anomaly for guarantee in prediction.unknown}]
    defects = [name for name in OF_LOSS if name in {name for one in prediction.defects for name in one.anomalies}]
    promised = {guarantee.anomaly for guarantee in prediction.promised}
    judged = {name for names in prediction.not_judged.values() for name in names}
    unjudged = [name for name in OF_LOSS if name in judged]
    never = [name for name in OF_LOSS if name in promised and name not in defects]
    named = [WORDS[name][0] for name in may]
    named += [f"{WORDS[name][0]}, by a known defect" for name in defects if name not in may]
    named += [WORDS[name][1] for name in never]
    named += [f"not known: whether {', '.join(WORDS[name][0] for name in unknown)}"] if unknown else []
    given = " and no ".join(prediction.not_judged)
    named += (
        [f"not judged (you gave no {given}): whether {', '.join(WORDS[name][0] for name in unjudged)}"]
        if unjudged
        else []
    )
    return "; ".join(named)


def _why(prediction: Prediction) -> Iterator[tuple[str, str]]:
    doubts = list(_doubts(prediction))
    for sentence in doubts[:CAUSES_MAX]:
        yield "why", sentence
    left = CAUSES_MAX - len(doubts[:CAUSES_MAX])
    causes = list(dict.fromkeys(_cause(prediction, weakness) for weakness in _by_loss(prediction)))
    causes += [concern.what for concern in prediction.concerns]
    for sentence in causes[: max(left, 1)]:
        yield "why", sentence
    if not doubts and not causes:
        for missing in prediction.missing_settings[:1]:
            yield "why", missing.unknown()
    more = max(0, len(doubts) - CAUSES_MAX) + max(0, len(causes) - max(left, 1))
    if more:
        yield "why", f"and {number_of(more, 'other cause')}, below"


def _doubts(prediction: Prediction) -> Iterator[str]:
    """What is not understood for one reason is one cause: "compose.yml: k1.volumes, k2.volumes do not keep the log"."""
    alike: dict[tuple[str, str], list[str]] = {}
    for doubt in prediction.doubts:
        alike.setdefault((doubt.origin.partition(":")[0], doubt.why), []).append(doubt.name)
    for (file, why), names in alike.items():
        origin = next(
            one.origin for one in prediction.doubts if one.origin.partition(":")[0] == file and one.why == why
        )
        yield f"{origin}: {', '.join(names)} {why}"


def _by_loss(prediction: Prediction) -> list[Weakness]:
    """Those that a change rules out, what loses records first."""
    weak = [each for each in prediction.weaknesses if each.guarantee.anomaly in prediction.curable]
    return sorted(weak, key=lambda each: each.guarantee.anomaly not in OF_LOSS)


def _cause(prediction: Prediction, weakness: Weakness) -> str:
    """ "acks=1 (app.properties:3): lost, duplicate": one setting is one cause, whatever it makes possible."""
    changes = prediction.remedy(weakness)
    names = [each.guarantee.anomaly for each in _by_loss(prediction) if prediction.remedy(each) == changes]
    where = "; ".join(blame(prediction, change).partition(" → ")[0] for change in changes)
    return f"{where}: {', '.join(dict.fromkeys(names))}"


def _change(prediction: Prediction) -> str:
    """The single change that leaves the fewest weaknesses; and all of them, if one is not enough."""
    best, left = prediction.best_change()
    if best is None:
        return prediction.concerns[0].change if prediction.concerns else ""
    gone = [
        name
        for name in dict.fromkeys(w.guarantee.anomaly for w in prediction.weaknesses)
        if name not in {weakness.guarantee.anomaly for weakness in left}
    ]
    more, _ = prediction.smallest_change()
    rest = [change_in_words(change) for change in more if change != best]
    further = f"; {', '.join(rest)} as well: removes every weakness that a setting can remove" if rest else ""
    what = f"rules out {', '.join(gone)}" if gone else "leaves fewer causes"
    return f"{change_in_words(best)}: {what}{further}"
