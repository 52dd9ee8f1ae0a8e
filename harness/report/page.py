"""Pages that open offline: templates, with styles and scripts put into the page. Nothing is loaded from anywhere."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

BASE_STYLES = ("base.css",)
REPORT_STYLES = (*BASE_STYLES, "report.css")
REPORT_SCRIPTS = ("page.js", "chart.js", "timeline.js", "matrix.js", "details.js", "stories.js", "main.js")
"""In the order in which they are run."""


def environment(package: str) -> Environment:
    """For the templates of a package; `style` is what all pages share."""
    made = Environment(loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    made.globals["style"] = Markup(assets(BASE_STYLES))
    return made


@cache
def assets(names: Sequence[str]) -> str:
    """The texts of these files, one after the other."""
    folder = files("harness.report") / "assets"
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def embedded_json(value: Mapping[str, Any]) -> Markup:
    """JSON that may stand in a script element: no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def security_policy(script: str) -> str:
    """Only this script runs, and nothing is loaded, whatever the texts of a history are."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"
