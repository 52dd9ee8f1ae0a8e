"""Stage two seen from outside: prepares the machine, starts the run stage in its sandbox, follows it, handles Ctrl-C.

The outer process alone handles SIGINT. The run stage is a child in a session of its own; a supervisor in another session
heals and tears down when this process is killed.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from harness import catalogue
from harness.clock import SystemClock
from harness.errors import ExitCode, HarnessFailed, Interrupted, ProzessError, UnsupportedFault
from harness.plan import Plan
from harness.planning import make_plan, mixed_faults
from harness.protocols import Capability, Cluster
from harness.run_directory import RunDirectory
from harness.schedule import FaultAction, MixFault, alternatives
from harness.supervisor import start_supervisor
from harness.trial import Trial

END_S = 60.0
"""How long the stage may take to end after it said so, or was told to stop for the second time."""


@dataclass(slots=True)
class RunResult:
    """How the run stage ended. `error`: its sentence for the user, if any."""

    exit_code: int
    error: str | None = None
    interrupted: bool = False
    ended: bool = False
    """The stage said that it was at its end; else it died."""
    phases: dict[str, float] = field(default_factory=dict)
    """Phase → seconds."""


OnEvent = Callable[[dict[str, Any]], None]


def check_capabilities(plan: Plan, run: RunDirectory, *, isolation: str) -> None:
    """Refuse, before anything starts, a schedule whose faults the backend cannot make here."""
    backend = catalogue.resolve(catalogue.BACKENDS, plan.backend, what="backend")
    cluster = backend(plan, run, clock=SystemClock(), isolation=isolation)
    check_parameters = catalogue.service("check-fault")
    nodes = [node.name for node in cluster.nodes]
    for step in plan.steps:
        if not isinstance(step.do, FaultAction):
            continue
        fault = catalogue.resolve(catalogue.FAULTS, step.do.fault, what="fault")
        check_parameters(step.do.fault, step.do.parameters, targets=step.do.targets, nodes=nodes)
        for capability in sorted(fault_needs(fault, step.do.parameters)):
            if capability not in cluster.capabilities:
                why = cluster.lacks.get(capability, "it has no such capability")
                raise UnsupportedFault(
                    f"Step {step.name!r} needs {step.do.fault!r}, which the {plan.backend} backend cannot do here: {why}. "
                    "Remove the step, or run on a machine or backend that can (`prozess doctor` says what this one offers)."
                )
        refusal_of = getattr(cluster, "refusal_of", None)  # of backends that can do a fault to some links only
        if refusal_of is not None and (why := refusal_of(step.do.fault, step.do.parameters)) is not None:
            raise UnsupportedFault(f"Step {step.name!r}: {step.do.fault!r} on the {plan.backend} backend: {why}.")


def fault_needs(fault: Any, parameters: Mapping[str, Any]) -> frozenset[Capability]:  # noqa: ANN401 - a class of `Fault`
    """What a fault needs with these parameters: some need more with some, or less."""
    made, needs = fault(), frozenset(fault.needs)
    if hasattr(made, "needs_for"):
        needs |= made.needs_for(parameters)
    if hasattr(made, "spares"):
        needs -= made.spares(parameters)
    return needs


def lacking_faults(trial: Trial, *, isolation: str) -> dict[str, str]:
    """Faults of the trial's mixes and lists that its backend cannot make here: label → why. `isolation`: as the
    command line says."""
    faults = mixed_faults(trial)
    if not faults:
        return {}
    if trial.backend != "local":
        isolation = "signals"
    elif isolation == "auto":
        isolation = str(catalogue.service("isolation")().level)
    calm = trial.model_copy(update={"steps": (), "alerts": ()})
    backend = catalogue.resolve(catalogue.BACKENDS, trial.backend, what="backend")
    with tempfile.TemporaryDirectory(prefix="prozess-") as directory:
        run = RunDirectory(Path(directory))
        cluster = backend(make_plan(calm, seed=0), run, clock=SystemClock(), isolation=isolation)
        whys = {fault.label: _why_not(fault, cluster) for fault in faults}
        return {label: why for label, why in whys.items() if why is not None}


def _why_not(mixed: MixFault, cluster: Cluster) -> str | None:
    """Why the backend cannot do it, with one of the parameters that may be drawn."""
    fault = catalogue.resolve(catalogue.FAULTS, mixed.fault, what="fault")
    refusal_of = getattr(cluster, "refusal_of", None)
    for drawn in product(*(alternatives(value) for value in mixed.parameters.values())):
        parameters = dict(zip(mixed.parameters, drawn, strict=True))
        for capability in sorted(fault_needs(fault, parameters)):
            if capability not in cluster.capabilities:
                return str(cluster.lacks.get(capability, f"this backend cannot {capability}"))
        if refusal_of is not None and (why := refusal_of(mixed.fault, parameters)) is not None:
            return str(why)
    refusal = getattr(fault, "refusal", None)
    nodes = [node.name for node in cluster.nodes]
    return None if refusal is None else refusal(mixed.targets or mixed.one_of, nodes)


def start_stage(plan: Plan, run: RunDirectory, *, isolation: str) -> subprocess.Popen[str]:
    """The run stage, in its sandbox where there is one."""
    run.create()
    run.plan.write_text(plan.model_dump_json(indent=1), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "harness.stages.inside", str(run.path), "--isolation", isolation]
    if isolation == "namespaces":
        command = catalogue.service("sandbox")(command)
    with (run.logs / "run_stage.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )


def follow_run(plan: Plan, run: RunDirectory, *, isolation: str, on_event: OnEvent) -> RunResult:
    """Run the trial's stage to its end; every event goes to `on_event`. Ctrl-C once: heal, keep, end. Twice: at once."""
    plan = catalogue.service("adopt")(plan, run, clock=SystemClock())
    check_capabilities(plan, run, isolation=isolation)
    stage = start_stage(plan, run, isolation=isolation)
    supervisor = start_supervisor(run, stage.pid)
    result = RunResult(exit_code=int(ExitCode.HARNESS_FAILED))
    try:
        _follow(stage, result, on_event)
    finally:
        _end(stage)
        if not result.ended:
            _clean_up(run)
        supervisor.done()
    if not result.ended:
        raise HarnessFailed(_last_words(run, result.exit_code))
    return result


def _clean_up(run: RunDirectory) -> None:
    """After a stage that died: where no sandbox died with it, it left something. What cannot be cleaned now, `prozess heal`
    can be asked for again."""
    with suppress(ProzessError):
        catalogue.service("heal")(run, clock=SystemClock())


def _follow(stage: subprocess.Popen[str], result: RunResult, on_event: OnEvent) -> None:
    assert stage.stdout is not None
    while True:
        try:
            for line in stage.stdout:
                _take(line, result, on_event)
            code = stage.wait(timeout=END_S)
            if not result.ended:  # else it has said with which code, whatever became of it then
                result.exit_code = code
            return
        except KeyboardInterrupt:
            if result.interrupted:
                stage.kill()
                raise Interrupted("ended at once. What was recorded is kept; `prozess check` reads it.") from None
            _ask_to_stop(stage)
            result.interrupted = True
            on_event({"event": "interrupt"})


def _take(line: str, result: RunResult, on_event: OnEvent) -> None:
    try:
        event = json.loads(line)
    except ValueError:
        return  # A torn last line of a stage that was killed.
    if event.get("event") == "error":
        result.error = event["text"]
    elif event.get("event") == "end":
        result.ended, result.exit_code = True, event["exit_code"]
    elif event.get("event") == "phase-done":
        result.phases[event["name"]] = event["took_s"]
    on_event(event)


def _ask_to_stop(stage: subprocess.Popen[str]) -> None:
    assert stage.stdin is not None
    with suppress(BrokenPipeError, ValueError):
        stage.stdin.write("stop\n")
        stage.stdin.flush()


def _end(stage: subprocess.Popen[str]) -> None:
    """No stage outlives this call."""
    if stage.stdin is not None:
        with suppress(BrokenPipeError):
            stage.stdin.close()
    try:
        stage.wait(timeout=END_S)
    except subprocess.TimeoutExpired:
        stage.kill()
        stage.wait(timeout=END_S)
    if stage.stdout is not None:
        stage.stdout.close()


def _last_words(run: RunDirectory, exit_code: int) -> str:
    log = run.logs / "run_stage.log"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:] if log.exists() else []
    return (
        f"The run stage ended with status {exit_code} and said nothing. Its last words: {' | '.join(lines) or 'none'}. "
        f"What was recorded is in {run.path}; see {log}."
    )
