"""Writes the three pages of the guarantee table: `python -m tools.guarantees_page`.

`guarantees.md` has a row for each anomaly: what may permit it, and what it means. `guarantee-rules.md` has
every rule, and `guarantee-facts.md` what the rules ask for.
"""

import sys
from collections.abc import Iterator

from prozess.harness import installation
from prozess.harness.guarantees.facts.registry import FACTS
from prozess.harness.guarantees.table import TABLE, Guarantee, Rule, RuleEffect
from prozess.harness.guarantees.table.controls import CONTROLS
from prozess.harness.guarantees.table.harm import HARM
from prozess.harness.guarantees.table.rules import NEVER_CERTAIN, NEVER_EXCUSES, proofs_of
from prozess.harness.plan.catalogue import NATURES

DOCS = installation.SEARCH_PATH / "docs"
_HEAD = """\
# The rules of the guarantees

<!-- Made from harness/guarantees by `python -m tools.guarantees_page`. Change the code, not this page. -->

This page lists, for each anomaly, when it is permitted and when it is forbidden. That depends on the configuration of \
the cell (one combination of settings, with topics and clients of its own) and on what really happened to its \
partitions.

- prozess judges each **witness** by itself: one record, one read, one jump of a position. If one witness is \
forbidden, the cell is *violated*. Otherwise, if one is unknown, the cell is *unknown*. Otherwise what was seen is \
permitted, and reports show how often it was; or nothing was seen.
- The rules of an anomaly are tried in order. The first rule whose facts all hold decides. **If no rule applies, the \
witness is forbidden.**
- A fact is true, false or unknown. If a rule is in doubt before one that is certain, the witness is unknown.
- A rule that names a known defect excuses nothing: the verdict is *violated*, and it names the defect. For that, the \
history must show the defect's own signature; a fault nearby does not suffice. If the signature can be neither seen \
nor ruled out, the report says that the defect is possible. If the cause was seen and is no known defect, the witness \
is *explained*, and forbidden all the same.
- Times are widened by the clock error. What depends on a fault that was not proven to work is unknown. The same holds for \
what depends on the controllers' log if that log says nothing about it.
- If there is no witness, the anomaly is *held* if no rule could have permitted one, and *possible, not seen* \
otherwise. It is *unknown* if the evidence is incomplete, if a step of the trial did not happen, if a fault was not \
proven to work, or if a required control showed nothing.
- The guarantees that you choose (`--decide`) decide the verdict. If you choose none, all guarantees decide that can \
be judged with this history. The others are listed as *not judged*, with the reason (`docs/results.md`). If something \
was found, it decides all the same, unless you chose other guarantees.
- If neither the nodes' files nor the controllers' log of a cluster can be read, others may have destroyed replicas or \
asked for an unclean election. What that would excuse is unknown there, unless the trial states that nobody did.
- `lost`, `dirty-read`, `skipped` and the like say that something is missing. Therefore even their findings need a complete \
audit. Findings of the other anomalies stand on any history.
"""


_PERMITTING = """\
## What permits, and what must have been seen

A permission needs proof, as an accusation does: evidence about this partition (by its topic id) at the time of the \
record. If one of these pieces of evidence is missing, the rule permits nothing: the witness is unknown or forbidden. \
Each rule also needs the settings in its "when".

| rule | evidence that it needs |
|---|---|
"""


def _never(rule: Rule) -> str:
    return " (never certain: unknown at best)" if NEVER_CERTAIN.intersection(rule.when) else ""


_OVERVIEW = """\
# The guarantees

<!-- Made from harness/guarantees by `python -m tools.guarantees_page`. Change the code, not this page. -->

What harms most comes first. An anomaly is *forbidden* unless a rule permits it. It is excused only if the run recorded the \
cause, such as an unclean election.

| what is wrong | anomalies |
|---|---|
"""
_BY_ANOMALY = """
## What may permit each anomaly
"""
_HARM = """
**{harmed}**

| anomaly | what may permit it |
|---|---|
"""
_AFTER_OVERVIEW = """

[The rules](guarantee-rules.md) say for each anomaly when it is permitted, and why, with the source. \
[The facts](guarantee-facts.md) are what the rules ask for: of the configuration, and of what happened. \
`prozess explain ANOMALY` says the same of one anomaly, and [Reading the results](results.md) what a report makes of it.

## What each anomaly means

| anomaly | what a client sees | the promise against it |
|---|---|---|
"""
_FACTS_HEAD = """\
# The facts of the guarantees

<!-- Made from harness/guarantees by `python -m tools.guarantees_page`. Change the code, not this page. -->

What the [rules](guarantee-rules.md) ask for, what a permission must be proven by, what faults do, and which \
cells are controls.

| fact | from | meaning |
|---|---|---|
"""


def render() -> dict[str, str]:
    """Returns the pages as Markdown, each by the name of its file in docs/."""
    return {"guarantees.md": _overview(), "guarantee-rules.md": _rules(), "guarantee-facts.md": _facts()}


def _overview() -> str:
    parts = [_OVERVIEW]
    for harmed, anomalies in HARM.items():
        parts.append(f"| {harmed} | {', '.join(f'[`{name}`](guarantee-rules.md#{name})' for name in anomalies)} |\n")
    parts.append(_BY_ANOMALY)
    for harmed, anomalies in HARM.items():
        parts.append(_HARM.format(harmed=harmed[0].upper() + harmed[1:]))
        for name in anomalies:
            labels = dict.fromkeys(rule.label for rule in TABLE[name].rules if rule.effect is RuleEffect.PERMITTED)
            parts.append(f"| [`{name}`](guarantee-rules.md#{name}) | {', '.join(labels) or 'nothing'} |\n")
    parts.append(_AFTER_OVERVIEW)
    for anomalies in HARM.values():
        for name in anomalies:
            parts.append(f"| `{name}` | {TABLE[name].meaning_in_full} | {TABLE[name].promise} |\n")
    return "".join(parts)


def _rules() -> str:
    parts = [_HEAD, "\n## The anomalies\n"]
    for guarantee in TABLE.values():
        parts.extend(_guarantee(guarantee))
    return "".join(parts)


def _facts() -> str:
    parts = [_FACTS_HEAD]
    for name, fact in FACTS.items():
        scope = "configuration" if fact.of_configuration else "what happened"
        parts.append(f"| {name} | {scope} | {fact.meaning} |\n")
    parts += ["\n", _PERMITTING]
    parts += [
        f"| `{rule.id}` | {'; '.join(proofs_of(rule)) or 'the configuration'}{_never(rule)} |\n"
        for guarantee in TABLE.values()
        for rule in guarantee.rules
        if rule.effect not in NEVER_EXCUSES
    ]
    parts.append("\n## What faults do\n\n| fault | does |\n|---|---|\n")
    for name, nature in NATURES.items():
        does = [what.replace("_", " ") for what in nature.__slots__ if getattr(nature, what)]
        parts.append(f"| {name} | {', '.join(does)} |\n")
    parts.append(
        "\nA fault that *loses unflushed* data destroys replicas of topics without flush.messages=1, and no others. Of the "
        "other faults only those that *destroy* remove what was written. A fault that is not listed might do anything, so "
        "what depends on it is unknown.\n"
    )
    parts.append(
        "\n## Controls\n\nA control is a set of cells that are expected to show an anomaly. If a trial names no control "
        "itself, prozess takes these. If such a control shows nothing, the anomaly is *held, unproven* in the other cells, "
        "and the verdict's sentence says so.\n\n"
    )
    parts.append("| anomaly | under | cells | why |\n|---|---|---|---|\n")
    for control in CONTROLS:
        parts.append(
            f"| {control.anomaly} | {', '.join(sorted(control.faults))} | {control.kind} | {control.source} |\n"
        )
    return "".join(parts)


def _guarantee(guarantee: Guarantee) -> Iterator[str]:
    yield f"\n### `{guarantee.anomaly}`\n\n{guarantee.meaning_in_full}\n\n"
    yield f"**The promise:** {guarantee.promise} *({guarantee.source})*\n\n"
    if not guarantee.rules:
        yield "Always forbidden.\n"
        return
    yield "| | rule | when | why | source |\n|---|---|---|---|---|\n"
    for number, rule in enumerate(guarantee.rules, 1):
        defect = rule.effect is RuleEffect.DEFECT
        effect = f"**forbidden**, known defect {rule.defect}" if defect else rule.effect
        effect = "**forbidden**, and explained" if rule.effect is RuleEffect.EXPLAINED else effect
        when = ", ".join(rule.when) + (f" (possible: {', '.join(rule.perhaps)})" if rule.perhaps else "")
        change = "" if not rule.change else f"; {rule.change} {guarantee.undone}"
        yield f"| {number} | `{rule.id}`: {effect} | {when} | {rule.reason}{change} | {rule.source} |\n"
    yield f"| {len(guarantee.rules) + 1} | **forbidden** | otherwise | | |\n"


def main() -> None:
    """Writes the pages into the checkout."""
    for name, text in render().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {DOCS / name}\n")


if __name__ == "__main__":
    main()
