"""Stage two seen from outside: prepares the machine, starts the run stage in its sandbox, follows it, handles Ctrl-C.

The outer process alone handles SIGINT. The run stage is a child in a session of its own; a supervisor in another session
heals and tears down when this process is killed.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from prozess.app.run.supervisor import start_supervisor
from prozess.clusters.registry import backend_named
from prozess.harness.clock import SystemClock
from prozess.harness.errors import BadInput, HarnessFailed, Interrupted, ProzessError, UnsupportedFault
from prozess.harness.exit_codes import ExitCode
from prozess.harness.interfaces import AnyFault, Capability, Cluster
from prozess.harness.machine_record import begin, record_of
from prozess.harness.plan.checks import check_parameters
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan, mixed_faults
from prozess.harness.plan.schedule import FaultAction, MessagePassed, MixFault, alternatives
from prozess.harness.plan.trial import Trial
from prozess.harness.run_directory import RunDirectory, write_whole
from prozess.harness.values import Frozen
from prozess.nemesis.registry import fault_named

END_S = 60.0
"""How long the stage may take to end after its `end` event, or after the second request to stop."""


@dataclass(slots=True)
class RunResult:
    """The way in which the run stage ended. `error`: its sentence for the user, if there is one."""

    exit_code: int
    error: str | None = None
    interrupted: bool = False
    ended: bool = False
    """True if the stage reported that it had reached its end. If not, it died."""
    phases: dict[str, float] = field(default_factory=dict)
    """Phase → the seconds that it took."""


OnEvent = Callable[[dict[str, Any]], None]


def check_capabilities(plan: Plan, run: RunDirectory, *, isolation: str) -> None:
    """Refuses a schedule with a fault that the backend cannot make here, before anything starts. Raises
    UnsupportedFault."""
    cluster = backend_named(plan.backend).make(plan, run, clock=SystemClock(), isolation=isolation)
    nodes = [node.name for node in cluster.nodes]
    for step in plan.steps:
        if isinstance(step.after, MessagePassed) and cluster.messages is None:
            lacking = cluster.lacks.get(Capability.MESSAGES, "the backend has no proxy for messages")
            raise UnsupportedFault(
                f"Step {step.name!r} waits for a message, which the {plan.backend} backend cannot see: {lacking}."
            )
        if not isinstance(step.do, FaultAction):
            continue
        fault = fault_named(step.do.fault)
        checked = check_parameters(step.do.fault, step.do.parameters, targets=step.do.targets, nodes=nodes)
        if (why := why_no_client_clocks(fault)) is not None:
            raise UnsupportedFault(f"Step {step.name!r}: {step.do.fault!r}: {why}.")
        for capability in sorted(fault_needs(fault, checked)):
            if capability not in cluster.capabilities:
                why = cluster.lacks.get(capability, "it has no such capability")
                raise UnsupportedFault(
                    f"Step {step.name!r} needs {step.do.fault!r}, which the {plan.backend} backend cannot do here: {why}. "
                    "Remove the step, or use a machine or a backend that can (`prozess doctor` says what this one offers)."
                )
        if (why := cluster.refusal_of(step.do.fault, step.do.parameters)) is not None:
            raise UnsupportedFault(f"Step {step.name!r}: {step.do.fault!r} on the {plan.backend} backend: {why}.")


def why_no_client_clocks(fault: type[AnyFault]) -> str | None:
    """Returns why this machine cannot move clients' clocks as the fault wants; None if it can, or if the fault moves
    none."""
    if not fault.moves_client_clocks:
        return None
    from prozess.clusters.disks.shim import client_shim

    support = client_shim()
    return None if support.path is not None else f"clocks of clients cannot be moved here: {support.reason}"


def fault_needs(fault: type[AnyFault], parameters: Frozen) -> frozenset[Capability]:
    """Returns the capabilities that a fault needs with these parameters: some need more with some of them, or less."""
    made = fault()
    return (made.needs | made.needs_for(parameters)) - made.spares(parameters)


def lacking_faults(trial: Trial, *, isolation: str) -> dict[str, str]:
    """Returns those faults of the trial's mixes and lists that its backend cannot make here: label → the reason."""
    faults = mixed_faults(trial)
    if not faults:
        return {}
    backend = backend_named(trial.backend)
    isolation = backend.isolation(isolation, _silent_note)
    calm = trial.model_copy(update={"steps": (), "alerts": ()})
    with tempfile.TemporaryDirectory(prefix="prozess-") as directory:
        run = RunDirectory(Path(directory))
        cluster = backend.make(make_plan(calm, seed=0), run, clock=SystemClock(), isolation=isolation)
        whys = {fault.label: _why_not(fault, cluster) for fault in faults}
        return {label: why for label, why in whys.items() if why is not None}


def _why_not(mixed: MixFault, cluster: Cluster) -> str | None:
    """Returns why the backend cannot make the fault with one of the parameters that may be drawn; None if it can."""
    fault = fault_named(mixed.fault)
    for drawn in product(*(alternatives(value) for value in mixed.parameters.values())):
        parameters = dict(zip(mixed.parameters, drawn, strict=True))
        try:
            needs = fault_needs(fault, fault.parameters_model.model_validate(parameters))
        except ValidationError:
            needs = fault.needs  # errors in these parameters are reported when they are drawn
        for capability in sorted(needs):
            if capability not in cluster.capabilities:
                return str(cluster.lacks.get(capability, f"this backend cannot {capability}"))
        if (why := cluster.refusal_of(mixed.fault, parameters)) is not None:
            return why
    if (here := why_no_client_clocks(fault)) is not None:
        return here
    return fault.refusal(mixed.targets or mixed.one_of, [node.name for node in cluster.nodes])


def start_stage(plan: Plan, run: RunDirectory, *, isolation: str) -> subprocess.Popen[str]:
    """Starts the run stage, in a sandbox if this machine has one."""
    from prozess.clusters.machine.sandbox import enter_command

    run.create()
    begin_plan(plan, run)
    command = [sys.executable, "-P", "-m", "prozess.app.run.inside_sandbox", str(run.path), "--isolation", isolation]
    if isolation == "namespaces":
        command = enter_command(command)
    with (run.logs / "run_stage.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )


def begin_plan(plan: Plan, run: RunDirectory) -> None:
    """Writes the plan of a run, into this machine's record first: from here on the run may change this machine."""
    text = plan.model_dump_json(indent=1)
    begin(run).keep_plan(text)
    write_whole(run.plan, text)


def follow_run(plan: Plan, run: RunDirectory, *, isolation: str, on_event: OnEvent) -> RunResult:
    """Runs the run stage to its end, and passes each event to `on_event`. After Ctrl-C it heals and keeps what was
    recorded; after the second one it ends at once."""
    from prozess.clusters.existing.adoption import adopt_plan

    plan = adopt_plan(plan, run, clock=SystemClock())
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
        if result.ended and result.exit_code == ExitCode.HELD and (record := record_of(run)) is not None:
            record.settle()  # its teardown left nothing behind
    if not result.ended:
        raise HarnessFailed(_last_words(run, result.exit_code))
    return result


def _clean_up(run: RunDirectory) -> None:
    """Heals after a stage that died without its sandbox. If that fails now, `prozess heal` can be tried again."""
    from prozess.app.wiring import heal_run

    with suppress(ProzessError):
        # The kernel takes a moment to end a sandbox with all its servers.
        heal_run(run, clock=SystemClock(), ends_within_s=END_S)


def _follow(stage: subprocess.Popen[str], result: RunResult, on_event: OnEvent) -> None:
    assert stage.stdout is not None
    while True:
        try:
            for line in stage.stdout:
                _take(line, result, on_event)
            code = stage.wait(timeout=END_S)
            if not result.ended:  # else it has reported its exit code, and the code of the process does not matter
                result.exit_code = code
            return
        except KeyboardInterrupt:
            if result.interrupted:
                stage.kill()
                raise Interrupted("ended at once. What was recorded is kept, and `prozess check` reads it.") from None
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
    """Waits until the stage has ended, and kills it if it takes too long."""
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
        f"The run stage ended with status {exit_code} and gave no reason. The last lines of its log: "
        f"{' | '.join(lines) or 'none'}. What was recorded is in {run.path}; the log is {log}."
    )


# `prozess plan` refuses what `prozess run` would refuse, before a directory, a download or a cluster is made.

ISOLATIONS = ("namespaces", "signals")


def refuse_plan(plan: Plan, *, isolation: str, progress: Callable[[str], None] | None = None) -> None:
    """Refuses a plan that cannot be run here, before a directory, a download or a cluster is made.

    Raises BadInput or UnsupportedFault; HarnessFailed if something that must be asked does not answer. `isolation`: as
    the command line says, "auto" included.
    """
    from prozess.app.wiring import TOOLBOX
    from prozess.clusters.install.kafka_jars import refuse_unpublished
    from prozess.clusters.install.wheels import refuse_library
    from prozess.workloads.roles import refuse_bad_clients

    level = isolation_of(plan, isolation)
    backend = backend_named(plan.backend)
    backend.refuse(plan)
    refuse_bad_clients(plan, toolbox=TOOLBOX)
    if not backend.lasts and any(isinstance(step.do, FaultAction) for step in plan.steps):
        with tempfile.TemporaryDirectory(prefix="prozess-") as directory:
            check_capabilities(plan, RunDirectory(Path(directory)), isolation=level)
    backend.refuse_versions(plan, progress)
    for library in plan.libraries:
        if library.client == "librdkafka" and library.version is not None:
            refuse_library(library.version, progress=progress)
        elif library.version is not None and library.version != plan.variant.kafka_version:
            try:
                refuse_unpublished(library.version, progress=progress)
            except BadInput as error:
                raise BadInput(f"client_version = {library.version!r} (java): {error}") from error


def isolation_of(plan: Plan, wanted: str) -> str:
    """Returns the isolation level that this backend has on this machine. BadInput for an unknown level."""
    if wanted not in ("auto", *ISOLATIONS):
        raise BadInput(f"--isolation {wanted!r} is not known. Known: auto, {', '.join(ISOLATIONS)}.")
    return backend_named(plan.backend).isolation(wanted, _silent_note)


def _silent_note(_note: str) -> None:
    """Drops the note about the isolation level: the run itself prints it."""
