"""This module says what `prozess validate` has to say of a configuration, one remark for each weakness, doubt or
change; and the formats in which other programs want it: annotations of GitHub, SARIF, JUnit, Markdown. Pure.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum, unique
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from prozess.harness.verdict import AnomalyOutcome
from prozess.validation.comparison import Comparison
from prozess.validation.prediction import Prediction
from prozess.validation.terminal import causes, weak_sentence


@unique
class Level(StrEnum):
    """Says how much a remark matters."""

    ERROR = "error"
    """It makes the exit code 1."""
    WARNING = "warning"
    """Somebody should look at it: a weakness, or something that is unknown."""
    NOTE = "note"
    """It is good to know."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One sentence about a configuration."""

    level: Level
    rule: str
    """A name that stays the same between runs: `lost/acks-1`, `unclear:NAME`."""
    sentence: str
    origin: str = ""
    """The file, and often the line, that it is about: "app.properties:3"; empty: no single one."""

    file: str = ""
    """A file of the configuration, for what stands at no line of any: the default decides, or nothing does."""

    @property
    def location(self) -> tuple[str, int | None]:
        """Returns the file and the line of its origin; the line is None if it is not known."""
        matched = _ORIGIN.fullmatch(self.origin)
        return (self.origin.partition(", ")[0], None) if matched is None else (matched[1], int(matched[2]))


_ORIGIN = re.compile(r"(.+?):(\d+)(?:, .*)?")
_IN_BRACKETS = re.compile(r"\(([^()]+:\d+)\)")


def remarks_of(prediction: Prediction, *, strict: bool) -> Iterator[Remark]:
    """Yields what is weak or in doubt in a configuration. `strict`: weaknesses that a change would rule out, and open defects
    that break a promise, are errors unless somebody has accepted them."""
    for remark in _remarks_of(prediction, frozenset(prediction.failures if strict else ())):
        file = next((str(reading.path) for reading in prediction.parts.readings), "")
        yield replace(remark, sentence=prediction.names.sentence(remark.sentence), file=file)


def _remarks_of(prediction: Prediction, failures: frozenset[str]) -> Iterator[Remark]:
    for weakness in prediction.weaknesses:
        name, rule = weakness.guarantee.anomaly, weakness.rule.id
        changes = prediction.remedy(weakness)
        deciding = prediction.deciding(weakness) or changes
        origin = next((prediction.parts.origins[each] for each in deciding if each in prediction.parts.origins), "")
        sentence = weak_sentence(prediction, weakness) if changes else f"{name} is possible: {causes(prediction, name)}"
        yield Remark(_level(rule, failures), rule, sentence, _origin(origin))
    for concern in prediction.concerns:
        bracket = _IN_BRACKETS.search(" ".join(concern.blame))
        origin = "" if bracket is None else bracket[1]
        yield Remark(_level(concern.rule, failures), concern.rule, concern.sentence(), origin)
    for one in prediction.defects:
        yield Remark(_level(one.defect.id, failures), one.defect.id, one.sentence())
    for doubt in prediction.doubts:
        yield Remark(Level.WARNING, doubt.rule or f"unclear:{doubt.name}", doubt.sentence(), _origin(doubt.origin))
    for missing in (*prediction.missing_settings, *prediction.unseen):
        yield Remark(Level.WARNING, f"missing-settings:{missing.of}", missing.unknown())


def remarks_of_trials(comparison: Comparison) -> Iterator[Remark]:
    """Yields what the trials of a configuration showed although it cannot happen, and what stayed unknown."""
    for line in comparison.lines() if comparison.runs else ():
        if line.decides is AnomalyOutcome.VIOLATED:
            yield Remark(Level.ERROR, line.anomaly, f"{line.anomaly} was seen in a trial: {line.seen.reason}")
        elif line.decides is AnomalyOutcome.UNKNOWN:
            yield Remark(Level.WARNING, line.anomaly, f"{line.anomaly} is unknown: {line.seen.reason}")


def _level(rule: str, failures: frozenset[str]) -> Level:
    return Level.ERROR if rule in failures else Level.WARNING


def _origin(origin: str) -> str:
    """Only files have a place: "the default" and options have none."""
    return origin if _ORIGIN.fullmatch(origin) or ", " in origin else ""


# Formats. Each returns text with a line feed at its end.


def to_github(remarks: Sequence[Remark], conclusion: str) -> str:
    """Returns workflow commands, which GitHub Actions shows beside the lines of a pull request."""
    lines = []
    for remark in remarks:
        path, line = remark.location
        where = f"file={_property(path)}," if path else ""
        where += f"line={line}," if line is not None else ""
        command = "notice" if remark.level is Level.NOTE else remark.level
        lines.append(f"::{command} {where}title={_property(remark.rule)}::{_data(remark.sentence)}")
    return "\n".join([*lines, _data(conclusion)]) + "\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def to_sarif(remarks: Sequence[Remark], conclusion: str) -> str:
    """Returns SARIF 2.1.0 (OASIS), which code scanning and editors read."""
    rules = {remark.rule: {"id": remark.rule} for remark in remarks}
    results = []
    for remark in remarks:
        result: dict[str, Any] = {
            "ruleId": remark.rule,
            "level": str(remark.level),
            "message": {"text": remark.sentence},
        }
        path, line = remark.location if remark.origin else (remark.file, None)
        if path:
            # Code scanning refuses a file in which one result has no location.
            location: dict[str, Any] = {"artifactLocation": {"uri": quote(path)}}
            location["region"] = {"startLine": 1 if line is None else line}
            result["locations"] = [{"physicalLocation": location}]
        results.append(result)
    driver = {"name": "prozess", "version": _version(), "rules": list(rules.values())}
    run = {"tool": {"driver": driver}, "results": results, "properties": {"conclusion": conclusion}}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, ensure_ascii=False) + "\n"


def _version() -> str:
    from prozess.harness.history.versions import own_version

    return str(own_version()["version"] or "")


_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def to_junit(remarks: Sequence[Remark], conclusion: str) -> str:
    """Returns a JUnit report: a test for each rule, of which errors have failed; warnings and notes are in its output."""
    by_rule: dict[str, list[Remark]] = {}
    for remark in remarks:
        by_rule.setdefault(remark.rule, []).append(remark)
    failed = sum(any(remark.level is Level.ERROR for remark in of_rule) for of_rule in by_rule.values())
    counts = {"tests": str(max(1, len(by_rule))), "failures": str(failed), "errors": "0"}
    suite = ElementTree.Element("testsuite", {"name": "prozess validate"} | counts)
    for rule, of_rule in (by_rule or {"configuration": []}).items():
        test = ElementTree.SubElement(suite, "testcase", classname="prozess.validate", name=rule)
        for remark in of_rule:
            text = f"{remark.origin}: {remark.sentence}" if remark.origin else remark.sentence
            if remark.level is Level.ERROR:
                ElementTree.SubElement(test, "failure", message=remark.sentence).text = text
            else:
                ElementTree.SubElement(test, "system-out").text = text
    ElementTree.SubElement(suite, "system-out").text = conclusion
    ElementTree.indent(suite)
    return _NOT_XML.sub("?", ElementTree.tostring(suite, encoding="unicode")) + "\n"


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot have."""


def to_markdown(remarks: Sequence[Remark], conclusion: str) -> str:
    """Returns Markdown for a comment on a pull request."""
    lines = [f"**prozess validate**: {_cell(conclusion)}", ""]
    if remarks:
        lines += ["| | rule | what | where |", "|---|---|---|---|"]
        signs = {Level.ERROR: "❌", Level.WARNING: "⚠️", Level.NOTE: "ℹ️"}
        lines += [
            f"| {signs[r.level]} {r.level} | `{_cell(r.rule)}` | {_cell(r.sentence)} | {_cell(r.origin)} |"
            for r in remarks
        ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"([\\|<>*_`\[\]])", r"\\\1", " ".join(text.split()))


Format = Callable[[Sequence[Remark], str], str]
FORMATS: Mapping[str, Format] = {"github": to_github, "sarif": to_sarif, "junit": to_junit, "markdown": to_markdown}
"""Format → what writes it, from remarks and the conclusion."""
