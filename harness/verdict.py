"""Verdicts: what `verdict.json` holds. The judge makes them from findings and evidence, and reports read them. They are
values only."""

from collections.abc import Iterable
from enum import StrEnum, unique

from pydantic import Field

from prozess.harness.schema import NONE
from prozess.harness.values import Frozen


@unique
class Verdict(StrEnum):
    """The verdict of a guarantee, a cell or a trial. Unknown never passes."""

    HELD = "held"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    NOT_JUDGED = "not judged"
    """The anomaly does not apply to the cell, or was not chosen to decide."""


@unique
class AnomalyOutcome(StrEnum):
    """Describes what became of one anomaly in one cell: what the configuration allows, and what was seen."""

    HELD = "held"
    """The anomaly is forbidden, and was not seen."""
    VIOLATED = "violated"
    """The anomaly is forbidden, and was seen."""
    PERMITTED = "permitted"
    """The anomaly is permitted, and was seen: this is what the configuration costs."""
    POSSIBLE = "possible, not seen"
    """The anomaly is permitted, and was not seen."""
    UNKNOWN = "unknown"
    NOT_JUDGED = "not judged"


_ORDER = (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.HELD)


SERVER_ERRORS = "server-errors"
"""What `--decide` may name beside guarantees: what servers complain of with no fault near, and clean runs do not."""


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Returns the worst of these verdicts: violated, then unknown, then held. What is not judged does not count. If
    nothing is judged at all, the result is unknown."""
    seen = {Verdict(v) for v in verdicts} - {Verdict.NOT_JUDGED}
    return next((v for v in _ORDER if v in seen), Verdict.UNKNOWN)


class WitnessShown(Frozen):
    """One witness as a report shows it. Times are in seconds on the trial's clock. None: not known, or never."""

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
    """Whether the guarantee table calls it forbidden, permitted, not applicable or unknown."""
    rule: str
    """The id of the rule that decided."""
    faults: tuple[str, ...] = ()
    """The names of the steps whose faults were active between begin and end, or just before."""


class CellAnomaly(Frozen):
    """What was judged of one anomaly in one cell: how many witnesses are forbidden, permitted, unknown, and what follows."""

    anomaly: str
    outcome: AnomalyOutcome
    verdict: Verdict
    count: int = 0
    """How many witnesses there are in all: forbidden + permitted + unknown + not applicable."""
    forbidden: int = 0
    permitted: int = 0
    unknown: int = 0
    not_applicable: int = 0
    """How many the promise is not about: a replica that was down at the end is behind, and breaks none."""
    proven: bool | None = None
    """Whether the control showed that this could have been seen, if the anomaly is held. None: there is no control to
    ask."""
    reason: str = ""
    """The reason, in one sentence for people."""
    why: str = ""
    """Why the outcome is unknown, as a clause."""
    left_out: str = ""
    """Why the anomaly was not judged although it applies, as a clause. Empty: it was to decide, or does not apply."""
    source: str = ""
    """Where the promise or the permission comes from."""
    defects: tuple[str, ...] = ()
    """Known defects whose signature was seen, as 'KAFKA-nnnn, fixed in …'."""
    known: dict[str, int] = Field(default_factory=dict)
    """How many of `forbidden` have the signature of each known defect: 'KAFKA-nnnn' → count."""
    by_rule: dict[str, int] = Field(default_factory=dict)
    """How many of `permitted` each rule of the guarantee table permitted: its id → count."""
    possible: dict[str, int] = Field(default_factory=dict)
    """How many of the others may come from each known defect, though nothing proves it."""
    witnesses: tuple[WitnessShown, ...] = ()

    @property
    def seen(self) -> int:
        """Returns how many witnesses the promise is about."""
        return self.count - self.not_applicable

    @property
    def by_known_defects(self) -> bool:
        """Returns whether everything forbidden is proven to come from known defects."""
        return 0 < self.forbidden == sum(self.known.values())


class WindowJudged(Frozen):
    """A window of a delivery bound in which records were late or missing, and how the guarantee table judges them."""

    number: int
    """The number of the window, as in `prozess.harness.interfaces.witnesses.WINDOW`."""
    forbidden: int = 0
    permitted: int = 0
    unknown: int = 0


class CellVerdict(Frozen):
    """What was judged of one cell: each anomaly that its guarantees name, and the worst of them as its verdict."""

    cell: int
    name: str
    workload: str
    axes: dict[str, str]
    verdict: Verdict
    anomalies: dict[str, CellAnomaly]
    windows: tuple[WindowJudged, ...] = ()
    """The windows of its delivery bound in which the bound did not hold, ascending."""


class ControlResult(Frozen):
    """A control: cells that are expected to show an anomaly, which proves that the trial can see it; and which did."""

    anomaly: str
    cells: tuple[int, ...]
    fired_in: tuple[int, ...]
    count: int
    required: bool

    @property
    def fired(self) -> bool:
        """Returns whether at least one of its cells showed the anomaly."""
        return bool(self.fired_in)


class ExpectationResult(Frozen):
    """What a step was to bring about, and what was seen."""

    step: str
    expected: str
    """What must have come of the step, as a clause for people."""
    reached: bool | None
    """Whether it came true. None: nobody can say, which counts as not reached."""
    seen: str
    """What was seen, as a clause for people."""


class FaultShown(Frozen):
    """A fault as it happened, for timelines."""

    step: str
    fault: str
    nodes: tuple[str, ...]
    begin_s: float
    end_s: float | None
    effective: bool | None
    """Whether the fault was observed to work. None: not known."""
    detail: str = ""
    number: int = NONE
    """The number of the fault within the trial."""


class AlertResult(Frozen):
    """An alert rule of the trial, evaluated over the recorded metrics. Intervals are in seconds on the trial's clock."""

    name: str
    expr: str
    verdict: Verdict
    """held: the alert fired when it had to, and was silent when it had to be."""
    fired: tuple[tuple[float, float], ...] = ()
    unknown: tuple[tuple[float, float], ...] = ()
    """When metrics were absent, so that the alert may or may not have fired."""
    during: tuple[str, ...] = ()
    """The steps during whose faults it had to fire."""
    silent: tuple[str, ...] = ()
    reason: str = ""


class ApplicationWitness(Frozen):
    """A record that shows what an application did."""

    topic: str
    number: int
    """The partition, as Kafka numbers it."""
    log_offset: int
    text: str
    """The record and what became of it, in one line for people."""


class ApplicationAnomaly(Frozen):
    """Something that an application under test did. No configuration promises or permits it: a test says what is wrong."""

    anomaly: str
    where: str
    """The topic, or input and output."""
    outcome: AnomalyOutcome
    """violated: the test fails by it. shown: a hazard that the test does not forbid. unknown: it could not be judged."""
    count: int = 0
    reason: str = ""
    """The reason, in one sentence for people; of what is unknown, a clause that follows the anomaly and the place."""
    witnesses: tuple[ApplicationWitness, ...] = ()


class ApplicationGap(Frozen):
    """Anomalies of an application that were not judged in one place."""

    anomalies: tuple[str, ...]
    where: str
    why: str
    """A clause whose subject is named."""
    add: str
    """What to add to the test, so that they are judged."""
    forbidden: bool = False
    """Whether the test forbids one of them: then not to know is not to pass."""

    def sentence(self) -> str:
        """Returns a sentence for a person."""
        return f"{', '.join(self.anomalies)} in {self.where}: {self.why}; {self.add}"


class ApplicationVerdict(Frozen):
    """Describes what a test found of the application under test: the whole of `application.json`."""

    anomalies: tuple[ApplicationAnomaly, ...] = ()
    not_judged: tuple[ApplicationGap, ...] = ()

    def of(self, outcome: AnomalyOutcome) -> list[ApplicationAnomaly]:
        """Returns the anomalies with this outcome."""
        return [anomaly for anomaly in self.anomalies if anomaly.outcome is outcome]

    def doubts(self) -> list[str]:
        """Returns why it is not known whether the application did what the test wants."""
        unknown = [f"{one.anomaly} in {one.where} {one.reason}" for one in self.of(AnomalyOutcome.UNKNOWN)]
        asked = [gap.sentence() for gap in self.not_judged if gap.forbidden]
        return unknown + [f"the test forbids what was not judged: {sentence}" for sentence in asked]

    def doubted(self) -> "ApplicationVerdict":
        """Returns this verdict with every anomaly unknown, because the files that show it are damaged, or nothing proves
        them."""
        unknown = {"outcome": AnomalyOutcome.UNKNOWN, "reason": "is not known, because the evidence is damaged"}
        return self.model_copy(update={"anomalies": tuple(a.model_copy(update=unknown) for a in self.anomalies)})


class TrialVerdict(Frozen):
    """The whole of `verdict.json`."""

    verdict: Verdict
    sentence: str
    interrupted: bool = False
    """Whether somebody stopped the run. What is unknown then says nothing about Kafka."""
    trial: str
    title: str
    seed: int
    cells: tuple[CellVerdict, ...]
    controls: tuple[ControlResult, ...] = ()
    not_proven: tuple[str, ...] = ()
    """For each control that was silent: what held, although nothing shows that a violation could have been seen."""
    unknown_reasons: tuple[str, ...] = ()
    """Why parts are unknown, the worst first, each once."""
    faults: tuple[FaultShown, ...] = ()
    expectations: tuple[ExpectationResult, ...] = ()
    """What the steps were to bring about, in their order."""
    alerts: tuple[AlertResult, ...] = ()
    findings: dict[str, int] = Field(default_factory=dict)
    """Everything that was looked for, whatever it means: for each anomaly, or fact, how many were found in all cells."""
    decided: tuple[str, ...] = ()
    """The guarantees that the verdict rests on."""
    not_judged: dict[str, str] = Field(default_factory=dict)
    """The guarantees that apply and did not decide: why, and how much of them was found all the same."""
    application: ApplicationVerdict | None = None
    """What was found of the application under test, and decides, too. None: this is no test of an application."""
    of_kafka: Verdict | None = None
    """The verdict on Kafka's promises alone, where the application decides, too. None: it is `verdict`."""
    server_errors: Verdict | None = None
    """The verdict on what servers complained of with no fault near, where it decides, too. None: it does not."""
    complaints: dict[str, int] = Field(default_factory=dict)
    """What these were: an example of each kind → how many came with no fault near."""
    facts: dict[str, str] = Field(default_factory=dict)
    """Versions, settings that shape the trial, and counts: name → text."""

    @property
    def by_known_defects(self) -> bool:
        """Returns whether the verdict is violated, and only by what is proven to come from known defects of others."""
        judged = [judged for cell in self.cells for judged in cell.anomalies.values()]
        forbidden = [of for of in judged if of.verdict is Verdict.VIOLATED]
        others = any(alert.verdict is Verdict.VIOLATED for alert in self.alerts)
        others |= self.server_errors is Verdict.VIOLATED
        others |= self.application is not None and bool(self.application.of(AnomalyOutcome.VIOLATED))
        return bool(forbidden) and not others and all(of.by_known_defects for of in forbidden)
