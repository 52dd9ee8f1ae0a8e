"""The options that several commands share, and the names that a shell completes for them."""

import json
import math
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prozess.harness import inputs
from prozess.harness.errors import BadInput

if TYPE_CHECKING:
    from prozess.app.webhook import Webhook
    from prozess.harness.plan.plan import Cell, Plan, PlannedClient


RUN, CONFIGURATION, RUNS, HISTORIES, MACHINE = SECTIONS = (
    "Run trials",
    "Your configuration and your cluster",
    "Look at runs",
    "Histories of other programs",
    "This machine",
)
"""The sections of `prozess --help`, in this order. Each command names its own."""


def complete_trials() -> list[str]:
    """Returns the names of the trials and campaigns that come with prozess."""
    from prozess.harness.plan.trial_files import known_campaigns, known_exhibits, known_trials

    return [*known_trials(), *known_campaigns(), *known_exhibits()]


def complete_matrices() -> list[str]:
    """Returns the names of the matrices that come with prozess."""
    from prozess.harness.plan.trial_files import known_matrices

    return [*known_matrices()]


def complete_guarantees() -> list[str]:
    """Returns the names of the guarantees that may decide a verdict."""
    from prozess.harness.guarantees.table import TABLE

    return [*TABLE]


def complete_directories(incomplete: str) -> list[str]:
    """Returns the directories whose paths begin with this text."""
    folder, _, begun = incomplete.rpartition("/")
    above = Path(folder or "/" if "/" in incomplete else ".")
    prefix = incomplete.removesuffix(begun)
    return sorted(f"{prefix}{path.name}/" for path in above.glob(f"{escape(begun)}*/"))


def complete_subjects() -> list[str]:
    """Returns what `prozess explain` can explain: anomalies, faults and scenarios."""
    from prozess.harness.plan import catalogue
    from prozess.harness.plan.trial import SCENARIOS

    return [*catalogue.ANOMALIES, *catalogue.FAULTS, *SCENARIOS]


def complete_backends() -> list[str]:
    """Returns the names of the backends, where Kafka can run."""
    from prozess.harness.plan import catalogue

    return [*catalogue.BACKENDS]


def complete_metadata_modes() -> list[str]:
    """Returns the metadata modes of a cluster."""
    from typing import get_args

    from prozess.harness.config.configuration import MetadataMode

    return [str(mode) for mode in get_args(MetadataMode)]


def complete_engines() -> list[str]:
    """Returns the names of the engines that can check a history."""
    from prozess.app.run_options import ENGINES

    return [*ENGINES]


def finite(value: float) -> float:
    """Returns a number that an option was given. BadParameter for inf and nan, which Python takes for numbers."""
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no number that one could wait for. Give a finite one.")
    return value


RunsOption = Annotated[Path, typer.Option("--runs", help="The directory in which run directories are made.")]
EngineOption = Annotated[
    str,
    typer.Option(
        help="What checks the history: local (threads), spark, or auto (threads; Spark with --master, --remote or --conf).",
        autocompletion=complete_engines,
    ),
]
WorkersOption = Annotated[int, typer.Option(min=1, help="How many threads or Spark tasks work at a time.")]
MasterOption = Annotated[
    str | None,
    typer.Option(help="The Spark master, spark://host:port. Its workers must see the runs under the same path."),
]
RemoteOption = Annotated[
    str | None, typer.Option(help="A Spark Connect server, sc://host:port, in place of a Spark master.")
]
CoresOption = Annotated[
    int,
    typer.Option(
        "--cores-per-trial", min=1, help="With --master: how many cores of an executor a trial has. It is alone there."
    ),
]
ShardOption = Annotated[
    str | None,
    typer.Option(
        metavar="I/N", help="Run the share of one of N machines: every Nth trial, from the Ith on. Example: 3/16."
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.task.maxFailures=8. You may repeat it. spark.hadoop.fs.s3a.… also say how to "
        "log in to a run at an s3a:// URI.",
    ),
]
ResultsOption = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="DIRECTORY",
        help="Where findings, verdict and reports go: a directory or its URI (s3a://bucket/results), new or empty. The run "
        "stays as it was. Default: beside the run.",
    ),
]
TablesOption = Annotated[
    str | None,
    typer.Option(
        "--tables",
        metavar="URI",
        help="Write the rows of the run into tables over many runs (docs/run-tables.md): a directory, or its URI "
        "(s3a://bucket/tables). It is made if it is not there.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="KEY=VALUE replaces a setting of the trial file. VALUE is TOML. An entry of a list has a number, from 0 on: "
        "steps.1.do.parameters.version='\"4.2.1\"'. You may repeat it.",
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option(
        "--backend",
        help="Where Kafka runs: local or compose. Default: what the trial says.",
        autocompletion=complete_backends,
    ),
]
VariantOption = Annotated[
    str | None,
    typer.Option(
        "--variant",
        help="The metadata mode: kraft-isolated, kraft-combined or zookeeper. Default: what the trial says.",
        autocompletion=complete_metadata_modes,
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust", help="Do what a run directory asks for that this machine has no record of. Read the list first."
    ),
]
ClientConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        help="A .properties file of librdkafka that says how to log in (security.*, sasl.*, ssl.*). prozess stores none "
        "of it. Default: the file that PROZESS_CLIENT_CONFIG names.",
    ),
]
WebhookOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Post a message in Slack's format at each violation and at the end. It is a secret, so better put it into "
        "PROZESS_WEBHOOK.",
    ),
]
RunArgument = Annotated[Path, typer.Argument(help="The run directory.")]
StoredRunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run directory, or its URI in an object store (s3a://bucket/run).",
        autocompletion=complete_directories,
    ),
]
DecideOption = Annotated[
    list[str] | None,
    typer.Option(
        "--decide",
        metavar="NAME,…",
        help="The guarantees that decide the verdict, such as lost,duplicate. The others are listed as not judged. "
        "Default: all that can be judged in this kind of history.",
        autocompletion=complete_guarantees,
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print the verdict alone.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print verdict.json instead of tables.")]
TablesAsJsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
OutOption = Annotated[Path, typer.Option("--out", help="The run directory to make. It must be new or empty.")]


# Making a plan from the options of the command line.


def plan_file(trial: str) -> Path | None:
    """Returns the plan.json that the argument names, in place of a trial by name or file; None if it is a trial."""
    path = Path(trial)
    if path.suffix == ".json":
        return path
    return path / "plan.json" if (path / "plan.json").is_file() else None


def load_plan(
    trial: str, *, seed: int, settings: list[str] | None, isolation: str = "auto", trust: bool = False
) -> "Plan":
    """Returns the plan of a trial by name or file, or a plan.json as it stands. BadInput for anything else.

    `isolation`: the level of the command line. What a mix of faults can do depends on it. `trust`: whether a plan.json may
    reach further than a cluster of its own, although this machine has no record that it carried it out.
    """
    from prozess.app.run.outside_sandbox import lacking_faults
    from prozess.harness.config.existing_clusters import refuse_unwritable
    from prozess.harness.plan.outside_effects import refuse_strangers_plan
    from prozess.harness.plan.plan import parse_plan
    from prozess.harness.plan.planning import make_plan
    from prozess.harness.plan.trial_files import load_trial
    from prozess.harness.run_directory import RunDirectory

    if (file := plan_file(trial)) is not None:
        if settings:
            raise BadInput(
                "--set changes a trial file, but a plan.json is run as it stands. Leave --set out, or give the trial."
            )
        try:
            plan = parse_plan(inputs.read_text(file), source=str(file))
            if plan.origin != "trial":
                raise BadInput(
                    f"{str(file)!r} is the plan of a history of another origin ({plan.origin}) than a trial: it can be "
                    "checked, but not run again."
                )
            refuse_unwritable(client_properties(plan), f"{file}: ")
            refuse_strangers_plan(RunDirectory(file.parent), plan, trust=trust)
            return plan
        except OSError as error:
            raise BadInput(f"{str(file)!r} cannot be read: {error.strerror}. Give an existing plan.json.") from error
    loaded = load_trial(trial, overrides(settings or []))
    return make_plan(loaded, seed=seed, lacking=lacking_faults(loaded, isolation=isolation))


def client_properties(plan: "Plan") -> set[str]:
    """Returns the names of all client properties that the plan's cells and clients set by Kafka's own name."""
    from prozess.harness.config.configuration import ApplicationConfiguration, ConsumerConfiguration
    from prozess.harness.plan.cell_work import configurations_of

    names: set[str] = set()
    owners: list[Cell | PlannedClient] = [*plan.cells, *plan.clients]
    for owner in owners:
        if owner.producer is not None:
            names.update(owner.producer.properties)
        for own in configurations_of(owner.work):
            if not isinstance(
                own, ApplicationConfiguration | ConsumerConfiguration
            ):  # which has its own settings in its command
                names.update(own.properties)
    return names


def chosen(backend: str | None, variant: str | None, settings: list[str] | None) -> list[str] | None:
    """Returns `--backend` and `--variant` as `--set` options, in front of the given ones, which have the last word."""
    laid_over = []
    if backend is not None:
        laid_over.append(f"backend={json.dumps(backend)}")
    if variant is not None:
        laid_over.append(f"variant.metadata_mode={json.dumps(variant)}")
    if variant == "zookeeper":
        from prozess.harness.config.configuration import LAST_WITH_ZOOKEEPER

        laid_over.append(f"variant.kafka_version={json.dumps(LAST_WITH_ZOOKEEPER)}")
    return [*laid_over, *(settings or [])] or None


def decided_by(plan: "Plan", decide: list[str] | None) -> "Plan":
    """Returns the plan with the guarantees that `--decide` names, or else its trial. BadInput for an unknown one, or one that
    no cell is judged by."""
    if not decide and not plan.decide:
        return plan
    from prozess.harness.guarantees.verdict.judge import with_decide

    return with_decide(plan, decide or ())


def spark_settings(texts: list[str]) -> dict[str, str]:
    """Parses `--conf KEY=VALUE …`. BadInput for what is no setting of Spark's, or has an option of its own."""
    found: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        key = key.strip()
        if not separator or not key.startswith("spark."):
            raise BadInput(f"--conf {text!r} is not KEY=VALUE with a key of Spark's, such as spark.task.maxFailures=8.")
        if key in ("spark.master", "spark.remote"):
            raise BadInput(f"--conf {text!r}: where Spark is, is stated by --{key.removeprefix('spark.')} {value}.")
        found[key] = value.strip()
    return found


def overrides(settings: list[str]) -> dict[str, Any]:
    """Parses `--set KEY=VALUE …`. A value that is not TOML is a string."""
    import tomllib

    laid_over = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key:
            raise BadInput(f"--set {setting!r} is not KEY=VALUE, such as --set traffic.rate_hz=50.")
        try:
            laid_over[key.strip()] = tomllib.loads(f"v = {value}")["v"]
        except ValueError:
            laid_over[key.strip()] = value.strip()
        except RecursionError as error:
            raise BadInput(
                f"--set {key}: the value is nested too deeply. No value needs more than ten levels."
            ) from error
    return laid_over


def use_login(file: Path | None) -> None:
    """Uses this file to log in to an existing cluster. The module that does it is imported only now."""
    from prozess.harness.config.existing_clusters import use

    use(file)


def webhook_of(url: str | None) -> "Webhook | None":
    """Returns the webhook that somebody named, if any. The module is imported only now."""
    from prozess.app.webhook import webhook_of

    return webhook_of(url)
