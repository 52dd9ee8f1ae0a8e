"""Verdicts: what `verdict.json` holds. Made by the judge from findings and envelope; read by reports. Values only."""

from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field

from harness.configuration import Frozen
from harness.schema import NONE


class Verdict(StrEnum):
    """Of a guarantee, a cell, a trial. Unknown never passes."""

    HELD = "held"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    NOT_JUDGED = "not judged"
    """The anomaly does not apply to the cell."""


class AnomalyOutcome(StrEnum):
    """Of one anomaly in one cell: what the configuration allows × what was seen."""

    HELD = "held"
    """Forbidden and absent."""
    VIOLATED = "violated"
    """Forbidden and seen."""
    SHOWN = "shown"
    """Permitted and seen: what this configuration costs."""
    PERMITTED = "permitted"
    """Permitted and not seen."""
    UNKNOWN = "unknown"
    NOT_JUDGED = "not judged"


_ORDER = (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.HELD)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """violated > unknown > held; what is not judged does not count; nothing judged at all is unknown."""
    seen = {Verdict(v) for v in verdicts} - {Verdict.NOT_JUDGED}
    return next((v for v in _ORDER if v in seen), Verdict.UNKNOWN)


class WitnessShown(Frozen):
    """One witness as a report shows it. Times in seconds on the trial's clock; None = not known or never."""

    partition: int
    topic: str
    number: int
    client: int
    sequence: int
    log_offset: int | None = None
    begin_s: float | None = None
    end_s: float | None = None
    other_client: int | None = None
    other_sequence: int | None = None
    other_offset: int | None = None
    reader: int | None = None
    seen_s: float | None = None
    effect: str
    """forbidden, permitted, not applicable, or unknown."""
    rule: str
    """Id of the rule that decided."""
    faults: tuple[str, ...] = ()
    """Names of the steps whose faults were active between begin and end (or just before)."""


class CellAnomaly(Frozen):
    """One anomaly in one cell."""

    anomaly: str
    outcome: AnomalyOutcome
    verdict: Verdict
    count: int = 0
    """Witnesses in all; forbidden + permitted + unknown + not applicable."""
    forbidden: int = 0
    permitted: int = 0
    unknown: int = 0
    proven: bool | None = None
    """held: did the control show that this could have been seen? None where there is no control to ask."""
    reason: str = ""
    """One sentence for a person."""
    source: str = ""
    """Where the promise or permission comes from."""
    defects: tuple[str, ...] = ()
    """Known defects that match, as 'KAFKA-nnnn, fixed in …'."""
    witnesses: tuple[WitnessShown, ...] = ()


class WindowJudged(Frozen):
    """A window of a delivery bound in which records were late or missing, and what the table makes of them."""

    number: int
    """As `harness.windows.WINDOW` has it."""
    forbidden: int = 0
    permitted: int = 0
    unknown: int = 0


class CellVerdict(Frozen):
    """One cell."""

    cell: int
    name: str
    workload: str
    axes: dict[str, str]
    verdict: Verdict
    anomalies: dict[str, CellAnomaly]
    windows: tuple[WindowJudged, ...] = ()
    """Of its delivery bound, ascending; only those in which it did not hold."""


class ControlResult(Frozen):
    """A control and whether it fired."""

    anomaly: str
    cells: tuple[int, ...]
    fired_in: tuple[int, ...]
    count: int
    required: bool

    @property
    def fired(self) -> bool:
        """At least one of its cells showed the anomaly."""
        return bool(self.fired_in)


class FaultShown(Frozen):
    """A fault as it happened, for timelines."""

    step: str
    fault: str
    nodes: tuple[str, ...]
    begin_s: float
    end_s: float | None
    effective: bool | None
    """None = not known."""
    detail: str = ""
    number: int = NONE
    """Of the fault within the trial."""


class AlertResult(Frozen):
    """An alert rule of the trial, over the metrics as they were. Intervals in seconds on the trial's clock."""

    name: str
    expr: str
    verdict: Verdict
    """held: it fired when it had to, and was silent when it had to."""
    fired: tuple[tuple[float, float], ...] = ()
    unknown: tuple[tuple[float, float], ...] = ()
    """When metrics were absent such that it may or may not have fired."""
    during: tuple[str, ...] = ()
    """Steps whose faults it had to fire in."""
    silent: tuple[str, ...] = ()
    reason: str = ""


class TrialVerdict(Frozen):
    """The whole of `verdict.json`."""

    verdict: Verdict
    sentence: str
    trial: str
    title: str
    seed: int
    cells: tuple[CellVerdict, ...]
    controls: tuple[ControlResult, ...] = ()
    unknown_reasons: tuple[str, ...] = ()
    """Why parts are unknown, worst first; each once."""
    faults: tuple[FaultShown, ...] = ()
    alerts: tuple[AlertResult, ...] = ()
    findings: dict[str, int] = Field(default_factory=dict)
    """Everything that was looked for, whatever it means: anomaly, or fact, → how many were found in all cells."""
    facts: dict[str, str] = Field(default_factory=dict)
    """Versions, settings that shape the trial, counts: name → text."""

    @property
    def by_known_defects(self) -> bool:
        """Violated, and by nothing but what the guarantee table knows as open defects of others?"""
        forbidden = [judged for cell in self.cells for judged in cell.anomalies.values() if judged.forbidden]
        others = any(alert.verdict is Verdict.VIOLATED for alert in self.alerts)
        return bool(forbidden) and not others and all(judged.defects for judged in forbidden)
