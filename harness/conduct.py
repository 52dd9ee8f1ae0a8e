"""Conducts a whole trial from one command: prepare, run, check, judge, report, with progress; and the exit code of it all."""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import catalogue
from harness.clock import NS_PER_S, Clock, SystemClock
from harness.errors import BadInput, ExitCode, HarnessFailed, ProzessError
from harness.needs import capabilities_needed, versions_installed
from harness.plan import Plan, parse_plan
from harness.progress import ProgressView
from harness.protocols import Capability
from harness.report import report_run
from harness.report.terminal import show_verdict
from harness.run_directory import RunDirectory, write_json
from harness.stages.check import CheckOptions, check_run, compare_with_oracle
from harness.stages.judge import judge_run
from harness.stages.run import RunResult, follow_run
from harness.verdict import TrialVerdict, Verdict
from harness.versions import stamp_versions

ISOLATIONS = ("namespaces", "signals")
EXIT_CODES = {
    Verdict.HELD: ExitCode.HELD,
    Verdict.VIOLATED: ExitCode.VIOLATED,
    Verdict.UNKNOWN: ExitCode.UNKNOWN,
    Verdict.NOT_JUDGED: ExitCode.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line may choose besides the trial."""

    runs: Path
    engine: str
    workers: int
    isolation: str
    quiet: bool
    as_json: bool
    master: str | None = None
    """Spark's master; None = a local one with as many threads as workers."""
    remote: str | None = None
    """A Spark Connect server to use instead."""
    report: bool = True
    """Write the report, too."""

    def refuse_contradictions(self) -> None:
        """BadInput for an engine that there is none of, and for addresses that it has no use for."""
        if self.engine not in catalogue.ENGINES:
            raise BadInput(f"--engine {self.engine!r} is not known. Known: {', '.join(sorted(catalogue.ENGINES))}.")
        given = [name for name, value in (("--master", self.master), ("--remote", self.remote)) if value is not None]
        if self.engine != "spark" and given:
            raise BadInput(f"{given[0]} is Spark's, and --engine is {self.engine!r}. Leave one of them away.")
        if len(given) > 1:
            raise BadInput("--master and --remote are two ways to say where Spark is. Give one of them.")


@dataclass(slots=True)
class Seconds:
    """How long each part took, for the report and for budgets."""

    clock: Clock
    parts: dict[str, float] = field(default_factory=dict)

    def measure(self, name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever the work gives
        """Do the work, note its seconds."""
        begun_ns = self.clock.monotonic_ns()
        try:
            return work()
        finally:
            self.parts[name] = round((self.clock.monotonic_ns() - begun_ns) / NS_PER_S, 2)


@dataclass(frozen=True, slots=True)
class Conducted:
    """A trial that was run. `verdict`: None if it could not be run to where it can be judged."""

    run: RunDirectory
    exit_code: int
    verdict: TrialVerdict | None = None


def conduct(plan: Plan, options: Options) -> int:
    """Run the plan; returns the exit code. Everything that was recorded is kept, whatever happens."""
    return conduct_trial(plan, options).exit_code


def conduct_trial(plan: Plan, options: Options) -> Conducted:
    """As `conduct`, with where the run is and what was found."""
    clock = SystemClock()
    seconds = Seconds(clock)
    options.refuse_contradictions()
    catalogue.service("refuse-bad-clients")(plan)
    run = new_run_directory(options.runs, plan, clock)
    with ProgressView(quiet=options.quiet or options.as_json) as view:
        view.begin(plan, run.path)
        isolation = seconds.measure("prepare", lambda: prepare(plan, options.isolation, view))
        seconds.measure("versions", lambda: stamp_versions(run, plan))
        spark = SparkAhead(options, view)

        def on_event(event: dict[str, Any]) -> None:
            view.on_event(event)
            if is_quiet_from_here(plan, event):
                spark.start()

        result = seconds.measure("run", lambda: follow_run(plan, run, isolation=isolation, on_event=on_event))
        seconds.parts.update({f"run: {name}": took_s for name, took_s in result.phases.items()})
        if not result.interrupted and result.exit_code not in (ExitCode.HELD, ExitCode.UNKNOWN):
            return Conducted(run, _failed(run, result, seconds))
        verdict = _check_and_judge(run, options, seconds, view, spark)
    _present(run, verdict, options, seconds)
    if result.interrupted or result.exit_code == ExitCode.UNKNOWN:
        sys.stderr.write(f"prozess: {result.error or 'the run was interrupted'}\n")
        return Conducted(run, int(ExitCode.UNKNOWN), verdict)
    return Conducted(run, int(EXIT_CODES[verdict.verdict]), verdict)


def is_quiet_from_here(plan: Plan, event: dict[str, Any]) -> bool:
    """Has the schedule done its last deed, so that Spark may start without disturbing what is timed?"""
    last_deed = max((number for number, step in enumerate(plan.steps) if step.do is not None), default=-1)
    if event.get("event") == "step":
        return int(event["number"]) >= last_deed >= 0
    return event.get("event") == "phase" and event.get("name") == "heal"


def recheck(path: Path, options: Options, *, oracle: bool = False) -> int:
    """Check, judge and, if wanted, report an existing run. `oracle`: first ask for a second opinion; HarnessFailed if it
    differs."""
    options.refuse_contradictions()
    run = RunDirectory.existing(path)
    parse_plan(
        run.plan.read_text(encoding="utf-8", errors="replace"), source=str(run.plan)
    )  # before Spark is started for it
    seconds = Seconds(SystemClock())
    with ProgressView(quiet=options.quiet or options.as_json) as view:
        verdict = _check_and_judge(run, options, seconds, view, SparkAhead(options, view), oracle=oracle)
    _present(run, verdict, options, seconds)
    return int(EXIT_CODES[verdict.verdict])


def heal_runs(path: Path | None, runs: Path) -> int:
    """Heal one run, or every run under `runs`; says what was found."""
    heal_run = catalogue.service("heal")
    directories = [RunDirectory.existing(path)] if path else _runs_under(runs)
    clean = True
    for run in directories:
        report = heal_run(run, clock=SystemClock())
        sys.stdout.write(f"{run.path.name}: {report}\n")
        clean = clean and report.clean
    if not directories:
        sys.stdout.write(f"No runs under {runs}: nothing to heal.\n")
    return int(ExitCode.HELD if clean else ExitCode.HARNESS_FAILED)


def _runs_under(runs: Path) -> list[RunDirectory]:
    return [RunDirectory(p.parent.resolve()) for p in sorted(runs.glob("*/plan.json"))]


def new_run_directory(runs: Path, plan: Plan, clock: Clock) -> RunDirectory:
    """A fresh `<runs>/<trial>-<seed>-<UTC time>`; BadInput if it cannot be made."""
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
            raise BadInput(f"--runs {str(runs)!r}: cannot make {path.name} there ({error.strerror}).") from error
        run = RunDirectory(path)
        run.create()
        return run
    raise BadInput(f"--runs {str(runs)!r} has a hundred runs of this second; try again.")


def prepare(plan: Plan, wanted: str, view: ProgressView) -> str:
    """Jars, Java, class archives; returns the isolation level, said aloud if it costs anything."""
    if wanted not in ("auto", *ISOLATIONS):
        raise BadInput(f"--isolation {wanted!r} is not known. Known: auto, {', '.join(ISOLATIONS)}.")
    if plan.backend in ("local", "compose") and Capability.DELAY in capabilities_needed(plan):
        catalogue.service("toxiproxy")(progress=view.note)  # built here: the sandbox has no network
    if plan.backend != "local":
        _prepare_elsewhere(plan, view)
        return "signals"
    java = catalogue.service("java")()
    versions = (*plan.variant.kafka_versions, plan.variant.kafka_version, *versions_installed(plan))
    for version in dict.fromkeys(versions):
        jars = catalogue.service("jars")(version, progress=view.note)
        catalogue.service("archives")(version, java, jars, progress=view.note)
    if plan.metrics:
        _prepare_metrics(view)
    if wanted != "auto":
        return wanted
    support = catalogue.service("isolation")()
    if support.level != "namespaces":
        view.note(" ".join((f"Isolation: {support.level}. {support.reason}", *support.costs)))
    return str(support.level)


def _prepare_elsewhere(plan: Plan, view: ProgressView) -> None:
    """Before a run starts: what is missing is said now, and what takes its time is not taken for a slow cluster."""
    if plan.backend != "compose" or plan.compose.file is not None:
        return
    find_image, compose = catalogue.service("find-image"), plan.compose
    zookeeper = plan.variant.metadata_mode == "zookeeper"
    for version in plan.variant.kafka_versions:
        find_image("kafka", version, wanted=compose.kafka_image, zookeeper=zookeeper, progress=view.note)
    if zookeeper:
        find_image("zookeeper", plan.variant.kafka_version, wanted=compose.zookeeper_image, progress=view.note)
    if plan.metrics:
        _prepare_metrics(view)


def _prepare_metrics(view: ProgressView) -> None:
    """Without the agent the trial runs all the same: what only the servers' JMX tells is then absent, never zero."""
    try:
        catalogue.service("metrics-agent")(progress=view.note)
    except HarnessFailed as error:
        view.note(f"No metrics from inside the servers: {error}")


class SparkAhead:
    """Starts Spark in a thread while the cluster is still busy, so that its start-up is hidden."""

    def __init__(self, options: Options, view: ProgressView) -> None:
        self._wanted = options.engine == "spark"
        self._options, self._view = options, view
        self._thread: threading.Thread | None = None
        self._session: Any = None
        self._error: ProzessError | None = None

    def start(self) -> None:
        """Begin, once."""
        if self._wanted and self._thread is None:
            self._thread = threading.Thread(target=self._start, name="spark-ahead", daemon=True)
            self._thread.start()

    def _start(self) -> None:
        master, start = self._options.master or f"local[{self._options.workers}]", catalogue.service("spark-session")
        try:
            if self._options.remote is not None:
                self._session = start(remote=self._options.remote)
            else:
                java_home = catalogue.service("spark-java-home")(catalogue.service("java")())
                self._session = start(master=master, java_home=str(java_home))
        except ProzessError as error:
            self._error = error

    def session(self) -> Any:  # noqa: ANN401 - a SparkSession, or None for other engines
        """The session; waits for its start. Raises what went wrong."""
        if not self._wanted:
            return None
        self.start()
        assert self._thread is not None
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._session

    def stop(self) -> None:
        """End it, if it was started."""
        if self._thread is not None:
            self._thread.join()
            if self._session is not None:
                self._session.stop()


def _check_and_judge(
    run: RunDirectory,
    options: Options,
    seconds: Seconds,
    view: ProgressView,
    spark: SparkAhead,
    *,
    oracle: bool = False,
) -> TrialVerdict:
    view.phase("check", engine=options.engine)
    try:
        session = seconds.measure("check: wait for Spark", spark.session)
        check = CheckOptions(engine=options.engine, workers=options.workers, session=session)  # type: ignore[arg-type]
        findings = seconds.measure("check", lambda: check_run(run, check))
        if oracle:
            seconds.measure("oracle", lambda: compare_with_oracle(run, workers=options.workers, session=session))
    finally:
        spark.stop()
    verdict: TrialVerdict = seconds.measure("judge", lambda: judge_run(run, findings))
    view.phase_done("check", sum(seconds.parts.get(part, 0.0) for part in ("check: wait for Spark", "check", "judge")))
    return verdict


def _present(run: RunDirectory, verdict: TrialVerdict, options: Options, seconds: Seconds) -> None:
    """The verdict first: to draw the report takes longer than to check a small history."""
    if options.as_json:
        sys.stdout.write(verdict.model_dump_json(indent=1) + "\n")
    elif options.quiet:
        sys.stdout.write(f"{verdict.verdict}: {verdict.sentence}\n")
    else:
        show_verdict(verdict, run)
    sys.stdout.flush()
    write_json(run.path / "seconds.json", seconds.parts)
    if options.report:
        seconds.measure("report", lambda: report_run(run))
        write_json(run.path / "seconds.json", seconds.parts)
        if not options.as_json and not options.quiet:
            sys.stdout.write(f"report     {run.path / 'report.html'}\n")


def _failed(run: RunDirectory, result: RunResult, seconds: Seconds) -> int:
    write_json(run.path / "seconds.json", seconds.parts)
    sys.stderr.write(f"prozess: {result.error}\nWhat was recorded is kept in {run.path}.\n")
    return int(result.exit_code)
