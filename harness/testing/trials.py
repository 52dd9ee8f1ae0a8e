"""The fixture `trial`: runs a whole trial within a test, for its verdict."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.conduct import Options, conduct_trial
from harness.errors import HarnessFailed
from harness.plan import Plan
from harness.planning import make_plan
from harness.run_directory import RunDirectory
from harness.stages.run import lacking_faults
from harness.testing.settings import TestSettings
from harness.trial import Trial, load_trial, parse_trial
from harness.verdict import TrialVerdict, Verdict


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A trial that was run, and what came of it."""

    run: RunDirectory
    verdict: TrialVerdict

    @property
    def held(self) -> bool:
        """Did every promise hold? Unknown is no yes."""
        return self.verdict.verdict is Verdict.HELD

    @property
    def report(self) -> Path:
        """report.html."""
        return self.run.path / "report.html"

    def count(self, anomaly: str) -> int:
        """How often it was seen, whatever that means."""
        return self.verdict.findings.get(anomaly, 0)

    def __str__(self) -> str:
        return f"{self.verdict.verdict}: {self.verdict.sentence} ({self.report})"


class RunTrial:
    """Call it with a trial: its name, a file, a `Trial`, a document as a file would have it, or a plan."""

    def __init__(self, runs: Path, settings: TestSettings) -> None:
        self._runs, self._settings = runs, settings

    def __call__(
        self,
        trial: str | Path | Trial | Plan | Mapping[str, Any],
        *,
        seed: int = 1,
        overrides: Mapping[str, Any] | None = None,
    ) -> TrialRun:
        """Run it and judge it. HarnessFailed if it could not be run to where it can be judged. `overrides`: as --set."""
        plan = trial if isinstance(trial, Plan) else self._plan(trial, seed, dict(overrides or {}))
        self._runs.mkdir(parents=True, exist_ok=True)
        options = Options(
            runs=self._runs,
            engine="local",
            workers=2,
            isolation=self._settings.isolation,
            quiet=True,
            as_json=False,
        )
        conducted = conduct_trial(plan, options)
        if conducted.verdict is None:
            raise HarnessFailed(
                f"The trial {plan.trial!r} could not be judged; what was recorded is in {conducted.run.path}."
            )
        return TrialRun(conducted.run, conducted.verdict)

    def _plan(self, trial: str | Path | Trial | Mapping[str, Any], seed: int, overrides: dict[str, Any]) -> Plan:
        if isinstance(trial, Trial):
            made = trial
        elif isinstance(trial, Mapping):
            made = parse_trial(dict(trial), source="the trial of this test")
        else:
            made = load_trial(str(trial), overrides)
        return make_plan(made, seed=seed, lacking=lacking_faults(made, isolation=self._settings.isolation))
