"""matrix.html: what these settings are worth, as one page that opens offline, with links to the reports of the runs."""

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.matrices.results import Results
from harness.matrices.table import brief, controls, overall, sentence, told
from harness.report.words import MEANINGS, SIGNS, VERDICT_SIGNS, short

PAGE, DATA = "matrix.html", "result.json"


def write_page(path: Path, results: Results) -> list[Path]:
    """Write the page and the data behind it; their paths."""
    environment = Environment(
        loader=PackageLoader("harness.matrices"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    axes = sorted({axis for c in results.configurations for axis in c.axes})
    text = environment.get_template("matrix.html.j2").render(
        results=results,
        verdict=overall(results),
        sentence=sentence(results),
        count=lambda number: f"{number:,}" if number else "",
        columns=told(results),
        axes=axes,
        brief=brief,
        controls=controls,
        signs=SIGNS,
        meanings=MEANINGS,
        verdict_signs=VERDICT_SIGNS,
        has_report=lambda run: run is not None and (path / "runs" / run / "report.html").exists(),
        short=lambda axis: short(axis) or axis,
    )
    written = []
    for name, content in ((DATA, results.model_dump_json(indent=1)), (PAGE, text)):
        part = path / f"{name}.part"
        part.write_text(content, encoding="utf-8")
        written.append(part.replace(path / name))
    return written
