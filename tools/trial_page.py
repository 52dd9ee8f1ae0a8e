"""Writes `docs/trial-file.md`, every key of a trial file, from the models that read it: `python -m tools.trial_page`."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from prozess.harness import installation
from prozess.harness.config.configuration import ComposeOptions, ComposeService, Variant
from prozess.harness.config.existing_clusters import AttachOptions, SshNodeOptions, SshOptions
from prozess.harness.plan.alerts import AlertSpec
from prozess.harness.plan.axes import SCOPE_MODELS
from prozess.harness.plan.exhibit import Exhibit
from prozess.harness.plan.schedule import Step
from prozess.harness.plan.trial import ControlSpec, Exclude, Limits, Share, Topics, Traffic, Trial, WorkloadSpec

DOCUMENT = installation.SEARCH_PATH / "docs" / "trial-file.md"
_HEAD = """\
# The trial file

<!-- Made from harness/plan/trial.py and the models that it names by `python -m tools.trial_page`. Change these. -->

A trial is a TOML file: `trials/` has those that come with prozess, and [a first hour](first-hour.md) builds one. This page
has every key that it may have, and every setting of a cell. A key that is not here is refused, with the nearest
one. `prozess plan FILE` says what a file would do without doing it, and `--set KEY=VALUE` changes one key for one run:

    prozess plan smoke --set traffic.rate_hz=50 --set limits.drain_s=120

A trial with one workload may have that workload's keys at the top level, with `workload` for its kind. Conditions, actions
and expectations of `[[steps]]` are in [schedules.md](schedules.md), faults in [faults.md](faults.md), kinds of workload in
[workloads.md](workloads.md), the table `[matrix]` in [matrix.md](matrix.md). In Python the same keys are arguments
([python.md](python.md)).
"""
TABLES: tuple[tuple[str, type[BaseModel]], ...] = (
    ("The top level", Trial),
    ("`[[workloads]]`, or the top level of a trial with one workload", WorkloadSpec),
    ("`[traffic]`", Traffic),
    ("`[topics]`", Topics),
    ("`[share]`", Share),
    ("`[[exclude]]`", Exclude),
    ("`[[controls]]`", ControlSpec),
    ("`[limits]`", Limits),
    ("`[variant]`", Variant),
    ("`[[steps]]`", Step),
    ("`[[alerts]]`", AlertSpec),
    ("`[exhibit]`, of a trial of the museum", Exhibit),
    ("`[compose]`, of the backend compose", ComposeOptions),
    ("`[[compose.services]]`", ComposeService),
    ("`[ssh]`, of the backend ssh", SshOptions),
    ("`[[ssh.nodes]]`", SshNodeOptions),
    ("`[attach]`, of the backend attach", AttachOptions),
)
"""Heading → the model whose keys stand below it."""
_SETTINGS = """
## Settings of cells

Under `[base]` a setting has one value in every cell of the workload; under `[axes]` it has a list of values, and every valid
combination becomes a cell. The value `"default"` leaves the setting to Kafka, or to prozess. Kafka's own properties that are
not in these tables are written as they are: `"topic.properties.segment.ms" = 10000`.
"""


@cache
def meanings(model: type[BaseModel]) -> Mapping[str, str]:
    """Returns what stands below each field of a model, and of its bases. A field without a text is left out.

    Example: below `rate_hz: float = 20.0` stands "Records per second."; it gives {"rate_hz": "Records per second."}.
    """
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if not (isinstance(one, type) and issubclass(one, BaseModel)) or one is BaseModel:
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        assert isinstance(definition, ast.ClassDef), one
        for field, text in zip(definition.body, definition.body[1:], strict=False):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if (
                isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                words = " ".join(inspect.cleandoc(text.value.value).split())
                found[field.target.id] = words.replace("None means", "Left out means")
    return found


def keys(model: type[BaseModel]) -> Iterator[tuple[str, str, str, str]]:
    """Yields (key, its values, its default, its meaning) of each field of a model, as Markdown."""
    schema = model.model_json_schema()
    for name, field in model.model_fields.items():
        shown = field.alias or name
        values = _values(schema["properties"][shown], schema.get("$defs", {}))
        default = "needed" if field.is_required() else _default(field.get_default(call_default_factory=True))
        yield shown, values, default, meanings(model).get(name, "")


def _default(value: object) -> str:
    if value is None or value in ((), {}, ""):
        return "–"
    if isinstance(value, BaseModel):
        return "its defaults"
    if isinstance(value, tuple):
        return f"`[{', '.join(_literal(one) for one in value)}]`"
    return f"`{_literal(value)}`"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _values(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Returns which values a field takes: `integer, 1 to 10,000`."""
    if "$ref" in schema:
        return _values(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    if "anyOf" in schema or "oneOf" in schema:
        parts = [_values(one, definitions) for one in schema.get("anyOf", schema.get("oneOf"))]
        return " or ".join(dict.fromkeys(part for part in parts if part != "null"))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{_literal(value)}`" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        inner = _values(schema.get("items", {}), definitions) or "values"
        return f"list of: {inner}"
    if kind in ("integer", "number"):
        return _bounded(kind, schema)
    return {"object": "table", "string": "text", "boolean": "`true`, `false`", "null": "null"}.get(str(kind), "any")


def _bounded(kind: str, schema: Mapping[str, Any]) -> str:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    first = f"above {_number(above)}" if above is not None else "" if low is None else f"from {_number(low)}"
    last = f"below {_number(below)}" if below is not None else "" if high is None else f"to {_number(high)}"
    return ", ".join(part for part in (kind, " ".join(filter(None, (first, last)))) if part)


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def _table(model: type[BaseModel], prefix: str = "") -> str:
    lines = ["| key | values | default | meaning |", "|---|---|---|---|"]
    for name, values, default, meaning in keys(model):
        row = (f"`{prefix}{name}`", values, default, meaning.replace("|", "\\|"))
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def render() -> str:
    """Returns the page as Markdown."""
    parts = [_HEAD]
    parts += [f"\n## {heading}\n\n{_table(model)}\n" for heading, model in TABLES]
    parts.append(_SETTINGS)
    parts += [f"\n### `{scope}.…`\n\n{_table(model, f'{scope}.')}\n" for scope, model in SCOPE_MODELS.items()]
    return "".join(parts)


def main() -> int:
    """Writes docs/trial-file.md, the page of all keys of a trial file."""
    DOCUMENT.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
