"""Conducts a trial for one command: prepare, run, check, judge, report. Also checks, heals or repeats an older run."""

import gc
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from prozess.app.run.check import CheckOptions, check_run, compare_with_oracle, hashing_of
from prozess.app.run.judge import judge_run, write_judged_tables
from prozess.app.run.outside_sandbox import RunResult, follow_run, refuse_plan
from prozess.app.run.progress import ProgressView
from prozess.app.run_options import RunOptions, refuse_without_spark
from prozess.app.webhook import Webhook, message, posting_failure, verdict_message
from prozess.clusters.registry import backend_named
from prozess.harness.clock import NS_PER_S, Clock, SystemClock
from prozess.harness.errors import BadInput, ProzessError
from prozess.harness.exit_codes import EXIT_CODES, ExitCode
from prozess.harness.guarantees.verdict.judge import parse_decide, refuse_idle
from prozess.harness.history.manifest import WHOLE_HISTORY, Condition, condition_of, is_intact, is_large, plan_of
from prozess.harness.history.versions import concurrent_runs_note, stamp_versions
from prozess.harness.plan.plan import Plan
from prozess.harness.report.reports import report_run
from prozess.harness.report.terminal import show_complaints, show_verdict
from prozess.harness.run_directory import RunDirectory, write_json
from prozess.harness.run_tables.location import TablesLocation, append_run
from prozess.harness.verdict import TrialVerdict

if TYPE_CHECKING:
    from prozess.spark_checkers.session import SparkSession

R = TypeVar("R")


@dataclass(slots=True)
class Seconds:
    """Notes how many seconds each part of a command took, for the report."""

    clock: Clock
    parts: dict[str, float] = field(default_factory=dict)

    def measure(self, name: str, work: Callable[[], R]) -> R:
        """Does the work, notes its seconds under this name, and returns its result."""
        begun_ns = self.clock.monotonic_ns()
        try:
            return work()
        finally:
            self.parts[name] = round((self.clock.monotonic_ns() - begun_ns) / NS_PER_S, 2)


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """A trial that was run. `verdict` is None if the run failed before it could be judged."""

    run: RunDirectory
    exit_code: int
    verdict: TrialVerdict | None = None
    interrupted: bool = False


def conduct(plan: Plan, options: RunOptions) -> int:
    """Runs the plan and returns the exit code. Whatever happens, what was recorded is kept."""
    return conduct_trial(plan, options).exit_code


def conduct_and_notify(plan: Plan, options: RunOptions, webhook: Webhook | None) -> int:
    """Runs the plan like `conduct`, and posts its outcome to a webhook."""
    what = f"{plan.trial}, seed {plan.seed}"
    with posting_failure(webhook, what):
        done = conduct_trial(plan, options)
    if webhook is not None:
        text = (
            message(f"? *failed* {what}", [f"exit code {done.exit_code}", f"run: {done.run.path}"], webhook.host)
            if done.verdict is None
            else verdict_message(what, done.verdict, done.run.path, webhook.host)
        )
        webhook.post(text)
    return done.exit_code


def conduct_trial(plan: Plan, options: RunOptions) -> TrialOutcome:
    """Runs the plan like `conduct`, and returns the run directory and the verdict, too."""
    clock = SystemClock()
    seconds = Seconds(clock)
    options.refuse_contradictions()
    refuse_plan(plan, isolation=options.isolation)
    if options.tables is not None:  # a location that cannot be written is found out before the trial, and not after it
        TablesLocation.made(options.tables)
    heal_killed_runs(options.runs, clock)
    run = new_run_directory(options.runs, plan, clock)
    with ProgressView(quiet=options.quiet or options.as_json) as view:
        view.begin(plan, run.path)
        isolation = seconds.measure("prepare", lambda: prepare_machine(plan, options.isolation, view))
        seconds.measure("versions", lambda: _stamp(run, plan))
        if note := concurrent_runs_note(run):
            view.note(note)
        spark = SparkAhead(options)

        def on_event(event: dict[str, Any]) -> None:
            view.on_event(event)
            if schedule_finished(plan, event):
                spark.start()

        result = seconds.measure("run", lambda: follow_run(plan, run, isolation=isolation, on_event=on_event))
        seconds.parts.update({f"run: {name}": took_s for name, took_s in result.phases.items()})
        if result.interrupted:
            run.interrupted.touch()
        run.keep_private()
        if not result.interrupted and result.exit_code not in (ExitCode.HELD, ExitCode.UNKNOWN):
            code = _failed(run, result, seconds)
            if options.tables is not None:
                append_run(run, options.tables)
            return TrialOutcome(run, code)
        condition = seconds.measure("prove", lambda: _condition(run, options, spark))
        verdict = _check_and_judge(run, options, seconds, view, spark, condition)
    _present(run, verdict, options, seconds, condition)
    if result.interrupted or result.exit_code == ExitCode.UNKNOWN:
        sys.stderr.write(f"prozess: {result.error or 'the run was interrupted'}\n")
        return TrialOutcome(run, int(ExitCode.UNKNOWN), verdict, interrupted=result.interrupted)
    return TrialOutcome(run, int(EXIT_CODES[verdict.verdict]), verdict)


def schedule_finished(plan: Plan, event: dict[str, Any]) -> bool:
    """Returns whether the schedule has done its last action, so that Spark may start without disturbing anything that
    is timed."""
    last_deed = max((number for number, step in enumerate(plan.steps) if step.do is not None), default=-1)
    if event.get("event") == "step":
        return int(event["number"]) >= last_deed >= 0
    return event.get("event") == "phase" and event.get("name") == "heal"


def recheck(run: RunDirectory, options: RunOptions, *, oracle: bool = False, decide: Sequence[str] = ()) -> int:
    """Checks, judges and, if wanted, reports an existing run. Returns the exit code.

    `oracle`: first ask for a second opinion; HarnessFailed if it differs. `decide`: names of the guarantees that
    decide, instead of the plan's; BadInput for one that cannot. Callers must call
    `refuse_contradictions` first, before a run far away is read.
    """
    run.refuse_read_only()
    if oracle:
        refuse_without_spark("The second opinion (--oracle)")
    named = parse_decide(decide)
    seconds = Seconds(SystemClock())
    spark = SparkAhead(options, oracle=oracle)
    condition = seconds.measure("prove", lambda: _proven(run, options, spark, named))
    import prozess.checkers.registry  # noqa: F401 - it imports every kernel

    gc.freeze()  # imported modules stay: the garbage collector need not scan them again and again
    with ProgressView(quiet=options.quiet or options.as_json) as view:
        verdict = _check_and_judge(run, options, seconds, view, spark, condition, oracle=oracle, decide=named)
        if options.out is not None:
            seconds.measure("tables", lambda: write_judged_tables(run, condition))
    _present(run, verdict, options, seconds, condition)
    return int(EXIT_CODES[verdict.verdict])


def _proven(run: RunDirectory, options: RunOptions, spark: "SparkAhead", decide: Sequence[str]) -> Condition:
    """Returns the condition of a run whose plan can be judged. A check by Spark has a large history proven by its tasks."""
    if options.used_engine == "spark" and is_large(run) and is_intact(run, run.plan):
        refuse_idle(plan_of(run, WHOLE_HISTORY), decide)  # before Spark is started for it
        return _proven_by_tasks(run, options, spark)
    condition = condition_of(run)
    refuse_idle(plan_of(run, condition), decide)
    return condition


def _condition(run: RunDirectory, options: RunOptions, spark: "SparkAhead") -> Condition:
    """Returns the condition of a run. A check by Spark has the files of a large one proven by its tasks."""
    by_tasks = options.used_engine == "spark" and is_large(run)
    return _proven_by_tasks(run, options, spark) if by_tasks else condition_of(run)


def _proven_by_tasks(run: RunDirectory, options: RunOptions, spark: "SparkAhead") -> Condition:
    try:
        return condition_of(run, hashing=hashing_of(run, spark.session(), options.workers))
    except BaseException:
        spark.stop()
        raise


def heal_runs(path: Path | None, runs: Path, *, trust: bool = False) -> int:
    """Heals one run, or every run under `runs`, and prints what was done. Returns the exit code.

    `trust`: also what only the directory of the run says is done. BadInput if that is wanted of more than one run."""
    from prozess.app.wiring import heal_run

    if trust and path is None:
        raise BadInput("--trust is for one run directory, whose list you have read. Name it.")
    directories = [RunDirectory.existing(path)] if path else _runs_under(runs)
    clean = True
    for run in directories:
        report = heal_run(run, clock=SystemClock(), trust=trust)
        sys.stdout.write(f"{run.path.name}: {report}\n")
        clean = clean and report.clean
    if not directories:
        sys.stdout.write(f"There are no runs under {runs}, so there is nothing to heal.\n")
    return int(ExitCode.HELD if clean else ExitCode.HARNESS_FAILED)


def heal_killed_runs(runs: Path, clock: Clock) -> None:
    """Heals runs in the same directory that were killed with their supervisor: their control groups are still there."""
    from prozess.app.wiring import heal_run
    from prozess.clusters.disks.volumes import runs_with_groups

    for run in runs_with_groups(runs):
        with suppress(ProzessError):  # it is alive, or `prozess heal` will report what is left of it
            heal_run(run, clock=clock)


def _runs_under(runs: Path) -> list[RunDirectory]:
    return [RunDirectory(p.parent.resolve()) for p in sorted(runs.glob("*/plan.json"))]


def new_run_directory(runs: Path, plan: Plan, clock: Clock) -> RunDirectory:
    """Makes the directory `<runs>/<trial>-<seed>-<UTC time>`. BadInput if it cannot be made."""
    from datetime import UTC, datetime

    stamp = datetime.fromtimestamp(clock.wall_ns() / NS_PER_S, UTC).strftime("%Y%m%dT%H%M%S")
    for attempt in range(100):
        suffix = f"-{attempt}" if attempt else ""
        path = (runs / f"{plan.trial}-{plan.seed}-{stamp}{suffix}").resolve()
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise BadInput(f"--runs {str(runs)!r}: {path.name} cannot be made there ({error.strerror}).") from error
        run = RunDirectory(path)
        run.create()
        return run
    raise BadInput(f"--runs {str(runs)!r} already has a hundred runs of this second. Try again.")


def prepare_machine(plan: Plan, wanted: str, view: ProgressView) -> str:
    """Fetches and builds what the clients and the backend need, and returns the isolation level. Notes what that level
    costs."""
    from prozess.app.wiring import TOOLBOX
    from prozess.clusters.install.kafka_jars import ensure_jars
    from prozess.clusters.install.wheels import ensure_library
    from prozess.workloads.library_check import check_libraries
    from prozess.workloads.librdkafka import close

    for library in plan.libraries:  # fetched here: the sandbox has no network
        if library.client == "librdkafka" and library.version is not None:
            ensure_library(library.version, progress=view.note)
        elif library.client == "java" and library.version is not None:
            ensure_jars(library.version, progress=view.note)
    check_libraries(plan, toolbox=TOOLBOX)
    backend = backend_named(plan.backend)
    backend.prepare(plan, view.note, close)
    return backend.isolation(wanted, view.note)


def _stamp(run: RunDirectory, plan: Plan) -> None:
    from prozess.app.wiring import tool_versions
    from prozess.clusters.install.kafka_jars import jar_facts
    from prozess.clusters.install.wheels import library_facts

    stamp_versions(run, plan, jar_facts=jar_facts, library_facts=library_facts, tool_versions=tool_versions)


class SparkAhead:
    """Starts Spark in a thread while the cluster is still busy, so that nobody waits for it later."""

    def __init__(self, options: RunOptions, *, oracle: bool = False) -> None:
        self._wanted = oracle or options.used_engine == "spark"
        self._options = options
        self._thread: threading.Thread | None = None
        self._session: SparkSession | None = None
        self._error: ProzessError | None = None

    def start(self) -> None:
        """Begins to start Spark, once."""
        if self._wanted and self._thread is None:
            self._thread = threading.Thread(target=self._start, name="spark-ahead", daemon=True)
            self._thread.start()

    def _start(self) -> None:
        from prozess.clusters.install.tools import find_java, spark_java_home
        from prozess.spark_checkers.session import local_master, start_session

        master = self._options.master or local_master(self._options.workers)
        try:
            if self._options.remote is not None:
                self._session = start_session(remote=self._options.remote, settings=self._options.conf)
            else:
                java_home = spark_java_home(find_java())
                self._session = start_session(master=master, java_home=str(java_home), settings=self._options.conf)
        except ProzessError as error:
            self._error = error

    def session(self) -> "SparkSession | None":
        """Waits for the start and returns the session; None if neither the engine nor a second opinion needs one. Raises what
        went wrong."""
        if not self._wanted:
            return None
        self.start()
        assert self._thread is not None
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._session

    def stop(self) -> None:
        """Stops Spark if it was started."""
        if self._thread is not None:
            self._thread.join()
            if self._session is not None:
                self._session.stop()


def _check_and_judge(
    run: RunDirectory,
    options: RunOptions,
    seconds: Seconds,
    view: ProgressView,
    spark: SparkAhead,
    condition: Condition,
    *,
    oracle: bool = False,
    decide: Sequence[str] = (),
) -> TrialVerdict:
    view.phase("check", engine=options.used_engine)
    try:
        session = seconds.measure("wait for Spark", spark.session) if condition.readable else None
        engine = options.used_engine
        check = CheckOptions(engine, options.workers, session=session if engine == "spark" else None)
        findings = seconds.measure("check", lambda: check_run(run, check, condition))
        if oracle and condition.damaged:
            view.note("The second opinion was not asked for: files of the run are damaged.")
        elif oracle:
            left_out = seconds.measure(
                "oracle", lambda: compare_with_oracle(run, workers=options.workers, session=session)
            )
            if left_out is not None:
                view.note(left_out)
    finally:
        spark.stop()
    verdict = seconds.measure("judge", lambda: judge_run(run, findings, condition, decide=decide))
    view.phase_done("check", sum(seconds.parts.get(part, 0.0) for part in ("wait for Spark", "check", "judge")))
    return verdict


def _present(
    run: RunDirectory, verdict: TrialVerdict, options: RunOptions, seconds: Seconds, condition: Condition
) -> None:
    """Prints the verdict, then writes the report: to draw it takes longer than to check a small history."""
    if not options.print_verdict:
        pass
    elif options.as_json:
        sys.stdout.write(verdict.model_dump_json(indent=1) + "\n")
    elif options.quiet:
        text = verdict.sentence.removeprefix(f"{verdict.verdict}: ".capitalize())
        sys.stdout.write(f"{verdict.verdict}: {text}\n")
    else:
        show_verdict(verdict, run)
    sys.stdout.flush()
    write_json(run.path / "seconds.json", seconds.parts)
    shown = options.print_verdict and not options.as_json and not options.quiet
    if options.report:
        written = seconds.measure("report", lambda: report_run(run, condition))
        write_json(run.path / "seconds.json", seconds.parts)
        if shown and not condition.damaged:
            show_complaints(written.complaints)
    run.keep_private()
    if options.report and shown:
        sys.stdout.write(f"report     {(options.out or run.address).rstrip('/')}/report.html\n")
    if options.tables is not None:
        store = append_run(run, options.tables)
        sys.stdout.write(f"tables     {store}\n" if shown else "")


def _failed(run: RunDirectory, result: RunResult, seconds: Seconds) -> int:
    write_json(run.path / "seconds.json", seconds.parts)
    sys.stderr.write(f"prozess: {result.error}\nWhat was recorded is kept in {run.path}.\n")
    return int(result.exit_code)
