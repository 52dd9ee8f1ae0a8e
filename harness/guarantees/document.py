"""`docs/guarantees.md` from the table: `python -m harness.guarantees.document` writes it anew."""

import sys
from collections.abc import Iterator
from pathlib import Path

from harness.guarantees.controls import CONTROLS
from harness.guarantees.facts import FACTS
from harness.guarantees.faults import NATURES
from harness.guarantees.table import TABLE, Effect, Guarantee

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "guarantees.md"
_HEAD = """\
# The guarantee table

<!-- Made from harness/guarantees by `python -m harness.guarantees.document`. Change the code, not this page. -->

What is forbidden and what is permitted, for each anomaly, given a cell's configuration and what really happened.

- **Judged per witness** (one record, one read, one jump), never per cell. One forbidden witness makes the cell *violated*; \
else one unknown makes it *unknown*; else it is permitted (shown with its count) or held.
- Rules in order, the first whose facts all hold decides. **None does: forbidden.**
- Facts are true, false or unknown. A rule in doubt, before any that is certain, makes the witness unknown. A rule that only \
names a known defect never excuses: the verdict is *violated*, and the defect is named.
- Times are widened by the clock error. What is derived from a fault that was not proven to work is unknown, and so is what \
needs the controllers' own log where it says nothing.
- No witness: *held*, if no rule could have permitted one; else *permitted, not seen*. Incomplete evidence, a step that did \
not happen, a fault without proven effect or a silent required control: *unknown*.
- *Lost*, *dirty-read* and *skipped* say that something is missing: their findings, too, need a complete audit. The others \
stand on any history.
"""


def render() -> str:
    """The whole page."""
    parts = [_HEAD, "\n## The anomalies\n"]
    for guarantee in TABLE.values():
        parts.extend(_guarantee(guarantee))
    parts += ["\n## The facts\n\n| fact | from | meaning |\n|---|---|---|\n"]
    for name, fact in FACTS.items():
        scope = "configuration" if fact.of_configuration else "what happened"
        parts.append(f"| {name} | {scope} | {fact.meaning} |\n")
    parts.append("\n## What faults do\n\n| fault | does |\n|---|---|\n")
    for name, nature in NATURES.items():
        does = [what.replace("_", " ") for what in nature.__slots__ if getattr(nature, what)]
        parts.append(f"| {name} | {', '.join(does)} |\n")
    parts.append(
        "\nWhat *loses unflushed* destroys copies of topics without flush.messages=1, and of no others; all else but what "
        "*destroys* leaves what was written. A kind that is not listed might do anything: what depends on it is unknown.\n"
    )
    parts.append(
        "\n## Controls\n\nCells that are expected to show an anomaly, where a trial names none itself: a silent one "
    )
    parts.append("leaves *held, unproven*.\n\n| anomaly | under | cells | why |\n|---|---|---|---|\n")
    for control in CONTROLS:
        parts.append(
            f"| {control.anomaly} | {', '.join(sorted(control.faults))} | {control.kind} | {control.source} |\n"
        )
    return "".join(parts)


def _guarantee(guarantee: Guarantee) -> Iterator[str]:
    yield f"\n### `{guarantee.anomaly}`\n\n{guarantee.promise} *({guarantee.source})*\n\n"
    if not guarantee.rules:
        yield "Always forbidden.\n"
        return
    yield "| | rule | when | why | source |\n|---|---|---|---|---|\n"
    for number, rule in enumerate(guarantee.rules, 1):
        defect = rule.effect is Effect.DEFECT
        effect = f"**forbidden**, known defect {rule.defect}" if defect else rule.effect
        change = "" if not rule.change else f"; {rule.change} {guarantee.undone}"
        yield f"| {number} | `{rule.id}`: {effect} | {', '.join(rule.when)} | {rule.reason}{change} | {rule.source} |\n"
    yield f"| {len(guarantee.rules) + 1} | **forbidden** | otherwise | | |\n"


def main() -> None:
    """Write the page."""
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"wrote {DOCUMENT}\n")


if __name__ == "__main__":
    main()
