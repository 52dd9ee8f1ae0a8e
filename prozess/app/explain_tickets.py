"""Explains a ticket or a proposal by its id: KAFKA-15591, KIP-903, librdkafka#4953."""

import re
from collections.abc import Iterable, Iterator

from rich.markup import escape

from prozess.harness import installation
from prozess.harness.guarantees.facts.registry import FACTS
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.controls import CONTROLS
from prozess.harness.guarantees.table.known_defects import DEFECTS
from prozess.harness.plan.trial_files import known_exhibits, known_trials, load_trial

_ID = re.compile(r"(?:KAFKA-|KIP-|librdkafka#)\d+")
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*(])")
_MADE_OF_THE_TABLE = frozenset({"guarantees.md", "guarantee-rules.md", "guarantee-facts.md"})
SENTENCES_MAX = 5
"""How many sentences of pages are printed."""


def ids_in(text: str) -> set[str]:
    """Returns the ids of tickets and proposals that a text names."""
    return set(_ID.findall(text))


def known_ids() -> set[str]:
    """Returns every id that the guarantee table, a trial or a page of the documentation names."""
    return {found for _, text in (*_table(), *_trials(), *_pages()) for found in ids_in(text)}


def where_to_read(name: str) -> str:
    """Returns where the ticket or the proposal itself is, as words."""
    system, number = re.split(r"[-#]", name)
    return {
        "KAFKA": f"Apache Kafka's issue tracker, {name}",
        "KIP": f"Kafka Improvement Proposals, {name}",
        "librdkafka": f"confluentinc/librdkafka, issue or pull request {number}",
    }[system]


def explain_id(name: str) -> Iterator[str]:
    """Yields what prozess knows of an id, in lines for a terminal: the defect, the rules and promises that rest on it, trials
    that show it, and sentences of the documentation."""
    defect = DEFECTS.get(name)
    about = "a proposal" if name.startswith("KIP-") else "a known defect" if defect is not None else "a ticket"
    yield f"[bold]{escape(name)}[/bold]  {about}: {escape(where_to_read(name))}"
    if defect is not None:
        yield f"status     {escape(defect.description)}"
        yield f"source     {escape(defect.source)}"
    for exhibit in (load_trial(str(path)).exhibit for path in known_exhibits().values()):
        if exhibit is not None and exhibit.ticket == name:
            releases = f"{exhibit.affected} has it, {exhibit.mended} has not"
            yield f"museum     {escape(exhibit.story)} {releases}: `prozess museum {name}`"
    for where, text in (*_table(), *_trials()):
        if name in ids_in(text):
            yield f"named by   {escape(where)}: {escape(_about(name, text))}"
    found = [(page, sentence) for page, text in _pages() for sentence in _sentences(text) if name in ids_in(sentence)]
    for page, sentence in found[:SENTENCES_MAX]:
        yield f"page       {escape(page)}: {escape(sentence)}"
    if len(found) > SENTENCES_MAX:
        yield f"           (and {len(found) - SENTENCES_MAX} more sentences of the documentation)"


def _table() -> Iterator[tuple[str, str]]:
    for guarantee in TABLE.values():
        yield f"the promise against {guarantee.anomaly}", f"{guarantee.promise} ({guarantee.source})"
        for rule in guarantee.rules:
            yield f"rule {rule.id}", f"{rule.reason} ({'; '.join(filter(None, (rule.defect, rule.source)))})"
    for name, fact in FACTS.items():
        yield f"fact {name!r}", fact.meaning
    for control in CONTROLS:
        yield f"the control for {control.anomaly}", control.source
    for defect in DEFECTS.values():
        yield f"defect {defect.id}", f"{defect.description} ({defect.source})"


def _trials() -> Iterator[tuple[str, str]]:
    for name, path in {**known_trials(), **known_exhibits()}.items():
        lines = path.read_text(encoding="utf-8").splitlines()
        comments = [
            line.partition("#")[2].strip() for line in lines if "#" in line and not _ID.search(line.partition("#")[0])
        ]
        titles = [line.partition("=")[2].strip(' "') for line in lines if line.startswith(("title", "name"))]
        yield f"trial {name}", " ".join([*comments, *(f"{title}." for title in titles)])


def _pages() -> Iterator[tuple[str, str]]:
    folder = installation.folder("docs")
    for path in sorted(folder.glob("*.md")) if folder is not None else ():
        if path.name not in _MADE_OF_THE_TABLE:
            yield f"docs/{path.name}", path.read_text(encoding="utf-8")


def _about(name: str, text: str) -> str:
    """Returns the sentences of a text that name the id; the first one as well, which says what it is about."""
    sentences = list(_sentences(text))
    wanted = [sentence for number, sentence in enumerate(sentences) if number == 0 or name in ids_in(sentence)]
    return " ".join(wanted)


def _sentences(text: str) -> Iterable[str]:
    for paragraph in re.split(r"\n\s*\n|\n(?=[|*#-])", text):
        yield from _SENTENCE.split(" ".join(paragraph.split()))
