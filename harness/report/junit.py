"""junit.xml: a test case per cell and anomaly, and per alert, so that CI systems show what failed. Unknown is an error,
never a pass."""

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from harness.run_directory import RunDirectory
from harness.verdict import AnomalyOutcome, CellAnomaly, TrialVerdict, Verdict


def write_junit(run: RunDirectory, verdict: TrialVerdict, seconds: Mapping[str, float]) -> Path:
    """Write junit.xml; returns its path."""
    judged = [a for cell in verdict.cells for a in cell.anomalies.values()]
    verdicts = [a.verdict for a in judged] + [a.verdict for a in verdict.alerts]
    suite = ElementTree.Element(
        "testsuite",
        name=f"prozess.{verdict.trial}",
        tests=str(len(verdicts)),
        failures=str(verdicts.count(Verdict.VIOLATED)),
        errors=str(verdicts.count(Verdict.UNKNOWN)),
        skipped=str(sum(a.outcome is AnomalyOutcome.NOT_JUDGED for a in judged)),
        time=f"{seconds.get('run', 0.0):.2f}",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in {"seed": str(verdict.seed), "verdict": verdict.verdict, "sentence": verdict.sentence}.items():
        ElementTree.SubElement(properties, "property", name=name, value=str(value))
    for cell in verdict.cells:
        for anomaly in cell.anomalies.values():
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"{verdict.trial}.{cell.name}", name=f"no {anomaly.anomaly}"
            )
            _outcome(case, anomaly)
    for alert in verdict.alerts:
        case = ElementTree.SubElement(suite, "testcase", classname=f"{verdict.trial}.alerts", name=alert.name)
        if alert.verdict is Verdict.VIOLATED:
            ElementTree.SubElement(case, "failure", message=alert.expr).text = alert.reason
        elif alert.verdict is Verdict.UNKNOWN:
            ElementTree.SubElement(case, "error", message=alert.reason)
    path = run.path / "junit.xml"
    ElementTree.indent(suite)
    path.write_bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))
    return path


def _outcome(case: ElementTree.Element, anomaly: CellAnomaly) -> None:
    match anomaly.outcome:
        case AnomalyOutcome.VIOLATED:
            failure = ElementTree.SubElement(case, "failure", message=f"{anomaly.forbidden} × {anomaly.anomaly}")
            failure.text = anomaly.reason
        case AnomalyOutcome.UNKNOWN:
            ElementTree.SubElement(case, "error", message=anomaly.reason or "could not tell")
        case AnomalyOutcome.NOT_JUDGED:
            ElementTree.SubElement(case, "skipped", message=anomaly.reason or "does not apply")
        case AnomalyOutcome.SHOWN:
            ElementTree.SubElement(case, "system-out").text = f"permitted, seen {anomaly.count}: {anomaly.reason}"
        case _:
            pass
