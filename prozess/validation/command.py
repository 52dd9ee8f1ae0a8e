"""Carries out `prozess validate`: a prediction, trials of exactly this configuration while there is time, and the two
compared."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path

from prozess.app.run_options import RunOptions
from prozess.harness.clock import NS_PER_S, SystemClock
from prozess.harness.config.client_settings import translate_consumer, translate_producer
from prozess.harness.config.configuration import LAST_WITH_ZOOKEEPER
from prozess.harness.config.known_properties import CLIENTS, Client, Settings, properties_of
from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.validation.assumptions import Risks, read_risks
from prozess.validation.change import Change, files_of, show_change
from prozess.validation.comparison import (
    Budget,
    Done,
    closing_line,
)
from prozess.validation.first_lines import first_lines
from prozess.validation.prediction import Prediction, acceptable
from prozess.validation.reading import Reading, Scope, placeholder_in, settings_of
from prozess.validation.remarks import FORMATS, remarks_of, remarks_of_trials
from prozess.validation.servers import ServerSettings, doubt_across, translate_servers
from prozess.validation.sources import (
    DEFAULT_VERSION,
    LiveCluster,
    read_all,
    read_cluster,
    settle,
)
from prozess.validation.terminal import (
    show_comparison,
    show_first_lines,
    show_no_trial,
    show_prediction,
    show_strict,
    to_json,
)
from prozess.validation.trial import ConfigurationParts, doubts_of_client, doubts_of_kafka

COMMITS = ("sync-after", "sync-before", "async-after", "on-revoke", "none")
"""The values of `--commits`: how an application commits, if it does so itself."""


@dataclass(frozen=True, slots=True)
class ValidationInput:
    """The options of `prozess validate`: files, and what no file says."""

    producer: Path | None = None
    consumer: Path | None = None
    topic: Path | None = None
    broker: Path | None = None
    compose: Path | None = None
    service: str | None = None
    """For the Compose file; None = its only one with brokers' settings, or the first of several that are alike."""
    client: str = "auto"
    """The library whose properties these are: java, librdkafka; auto: librdkafka's if the file names what only it has."""
    kafka_version: str | None = None
    """None: what the cluster says, else the newest that is known."""
    commits: str | None = None
    """How the application commits; None = as a file says, else after processing, with a note."""
    applications: tuple[Path, ...] = ()
    """Files that have parts of several clients: all that they have counts."""
    profiles: tuple[str, ...] = ()
    topic_name: str | None = None
    """Which topic is meant of a file that has several."""
    """For Spring Boot or Quarkus, those that are active, the last one counting most."""
    brokers: int | None = None
    cluster: str | None = None
    """Addresses of a running cluster that is asked what brokers, and the topic, are set to."""
    cluster_topic: str | None = None
    client_version: str | None = None
    """For Kafka's Java clients, else the brokers'; of librdkafka, else the installed one."""
    kafka_defaults: bool = False
    """Settings of topic and brokers that no file has are Kafka's own defaults."""
    accept: Path | None = None
    """Risks that somebody has accepted."""


def validate(
    given: ValidationInput, budget: Budget, options: RunOptions, today: date | None = None, *, format: str = "text"
) -> int:
    """Predicts, runs trials, compares, and returns the exit code: 0 as predicted, 1 violated (or, strict, weak), 2 unknown.
    What was not understood is not run either: it would be a trial of another configuration. `today`: on which risks are
    accepted."""
    risks = Risks() if given.accept is None else read_risks(given.accept, acceptable())
    prediction = Prediction(translate(given), given.kafka_defaults, risks, today or _today())
    as_text = format == "text" and not options.as_json
    if as_text:
        first = first_lines(prediction)
        show_first_lines(first)
        show_prediction(prediction, shown=first)
    done = Done()
    if budget.seconds > 0 and not prediction.unclear:
        from prozess.validation.running import carry_out  # it imports what runs Kafka, and what reads histories

        done = carry_out(prediction, budget, options if as_text else replace(options, print_verdict=False))
    comparison = done.comparison(prediction)
    if options.as_json:
        to_json(comparison)
    elif not as_text:
        remarks = [*remarks_of(prediction, strict=budget.strict), *remarks_of_trials(comparison)]
        conclusion = closing_line(comparison) if comparison.runs else f"{len(remarks)} remarks, and no trial was run"
        sys.stdout.write(FORMATS[format](remarks, conclusion))
    elif budget.seconds > 0 and prediction.unclear:
        show_no_trial()
    elif done.runs:
        show_comparison(comparison, done.runs)
    code = comparison.exit_code
    if budget.strict and prediction.failures:
        code = ExitCode.VIOLATED
    elif budget.strict and prediction.unseen and code is ExitCode.HELD:
        code = ExitCode.UNKNOWN
    if code is not comparison.exit_code and as_text:
        show_strict(prediction)
    return int(code)


def refuse_contradictions(
    given: ValidationInput, old: Path | None, new: Path | None, output: str, *, as_json: bool
) -> None:
    """Raises BadInput for options of `validate` that cannot be given together, and for an unknown format."""
    if output != "text" and output not in FORMATS:
        raise BadInput(f"--format {output!r} is not known. Known: text, {', '.join(FORMATS)}.")
    if as_json and (output != "text" or old is not None):
        raise BadInput(
            "--json prints the whole result of a prediction. Leave out --format, --old and --new, or --json."
        )
    if (old is None) != (new is None):
        raise BadInput("--old and --new are the two sides of one change. Give both of them.")
    files = {
        "--producer": given.producer, "--consumer": given.consumer, "--topic": given.topic, "--broker": given.broker,
        "--compose": given.compose, "--application": given.applications, "--cluster": given.cluster,
    }  # fmt: skip
    if old is not None and (named := [name for name, value in files.items() if value]):
        raise BadInput(
            f"{named[0]} names a file, and --old and --new name the directories of all of them. Leave one out."
        )


def compare(given: ValidationInput, old: Path, new: Path, options: RunOptions, *, format: str = "text") -> int:
    """Says what a change of settings does, from the files of two directories, and returns the exit code: 0 if nothing gets
    worse, 1 if something is possible that could not happen before, 2 if something becomes unknown. It runs no trial."""
    risks = Risks() if given.accept is None else read_risks(given.accept, acceptable())
    sides = [
        Prediction(translate(_with_files(given, files_of(path))), given.kafka_defaults, risks, _today())
        for path in (old, new)
    ]
    change = Change(*sides)
    if format == "text":
        show_change(change, quiet=options.quiet)
    else:
        sys.stdout.write(FORMATS[format](change.remarks, change.conclusion))
    return int(change.exit_code)


def _with_files(given: ValidationInput, files: Mapping[str, Sequence[Path]]) -> ValidationInput:
    named = {part: paths[0] for part, paths in files.items() if part != "applications"}
    return replace(
        given,
        producer=named.get("producer"),
        consumer=named.get("consumer"),
        topic=named.get("topic"),
        broker=named.get("broker"),
        compose=named.get("compose"),
        applications=tuple(files.get("applications", ())),
    )


def _today() -> date:
    return datetime.fromtimestamp(SystemClock().wall_ns() / NS_PER_S).astimezone().date()


def translate(given: ValidationInput) -> ConfigurationParts:
    """Reads the files and returns their settings as those of a trial. BadInput for what is wrong with them."""
    named = (given.producer, given.consumer, given.topic, given.broker, given.compose)
    if not any(named) and given.cluster is None and not given.applications:
        raise BadInput(
            "There is nothing to validate. Give --producer, --consumer or --application, and what there is of "
            "--topic, --broker. Topic and brokers can be validated alone, too."
        )
    if given.commits is not None and given.commits not in COMMITS:
        raise BadInput(f"--commits {given.commits!r} is not known. Known: {', '.join(COMMITS)}.")
    _refuse_two_sources(given)
    files: dict[Scope, Path | None] = {
        "producer": given.producer, "consumer": given.consumer, "topic": given.topic, "broker": given.broker
    }  # fmt: skip
    readings = read_all(files, given.applications, given.profiles, given.topic_name)
    producer, consumer = settings_of(readings, "producer"), settings_of(readings, "consumer")
    topic, broker = settings_of(readings, "topic"), settings_of(readings, "broker")
    elsewhere = given.cluster is not None or given.compose is not None
    if not any((producer, consumer, topic, broker)) and not elsewhere:
        raise BadInput(_nothing_found(given, readings))
    live = None
    if given.cluster is not None:
        both = {**(consumer or {}), **(producer or {})}
        logging_in = {name: setting for name, setting in both.items() if placeholder_in(setting.value) is None}
        live = read_cluster(given.cluster, given.cluster_topic, logging_in, given.kafka_version)
    if given.compose is not None:
        from prozess.validation.compose.brokers import read_compose

        readings.append(read_compose(given.compose, given.service))
    version, origin = _version(given, readings, live)
    clients = _clients(given.client, readings, version)
    doubts = list(doubts_of_kafka(version, origin, _refuse_unpublished))
    releases = {
        scope: given.client_version if client == "java" and given.client_version is not None else version
        for scope, client in clients.items()
    }
    for reading in readings:
        settle(reading, clients, version, releases)
    commits = given.commits or next((each.commits.value for each in readings if each.commits is not None), None)
    servers = _servers(given, readings, version, live)
    servers.unclear += doubts
    sender = None if producer is None else translate_producer(producer, clients["producer"], releases["producer"])
    members = (
        None
        if consumer is None
        else translate_consumer(consumer, clients["consumer"], releases["consumer"], commits=commits)
    )
    compacted = servers.base.get("topic.cleanup_policy") == "compact"
    runs = sender is not None and "transactional.id" not in sender.origins and not compacted
    for client, part, run in ((clients["producer"], sender, runs), (clients["consumer"], members, True)):
        if part is not None:
            part.unclear += doubts_of_client(client, given.client_version, version, _refuse_unpublished, runs=run)
            doubt_across(part, servers, version, given_by_somebody=servers.broker is not None or given.kafka_defaults)
    return ConfigurationParts(
        servers,
        sender,
        members,
        version,
        tuple(readings),
        client_version=given.client_version,
        client_given=_names_client(given, readings, producer, consumer, version),
        version_given=bool(origin) or live is not None,
    )


def _refuse_unpublished(version: str) -> None:
    """Asks the repository whether there is such a version. Few versions need to be asked for, and what asks is imported with
    the first of them."""
    from prozess.clusters.install.kafka_jars import refuse_unpublished

    refuse_unpublished(version)


def _version(given: ValidationInput, readings: Sequence[Reading], live: LiveCluster | None) -> tuple[str, str]:
    """Returns the version of the brokers, and who says it; "" = nobody, or a cluster that runs. Where a file names what
    runs without saying which version it is, and nobody else says it, that is unclear."""
    if given.kafka_version is not None:
        return given.kafka_version, "--kafka-version"
    for reading in readings:
        reading.unclear += reading.no_version
    if live is not None:
        return live.version, ""
    saying = next((each for each in readings if each.kafka_version is not None), None)
    usual = LAST_WITH_ZOOKEEPER if "zookeeper.connect" in (settings_of(readings, "broker") or {}) else DEFAULT_VERSION
    return (usual, "") if saying is None else (saying.kafka_version or usual, str(saying.path))


def _nothing_found(given: ValidationInput, readings: Sequence[Reading]) -> str:
    summaries = "; ".join(reading.summary() for reading in readings)
    doubts = [each.sentence() for reading in readings for each in reading.unclear[:2]]
    return (
        f"No settings of a producer, a consumer, a topic or brokers were found in {summaries}. "
        + (f"Not understood: {'; '.join(doubts)}. " if doubts else "")
        + "Give the file that has them, or write those that matter down with Kafka's names in a .properties "
        "file (--producer, --consumer)."
    )


def _clients(wanted: str, readings: Sequence[Reading], version: str) -> dict[Scope, Client]:
    """Returns the client whose properties each part has: its library's where the file names it (librdkafka stands in for
    those that are not run), else what was asked for, or can be seen from the names of all files that do not say."""
    libraries = {scope: reading.library for reading in readings for scope in reading.scopes if reading.library}
    silent = [reading for reading in readings if not reading.library]
    guessed = _client(wanted, settings_of(silent, "producer"), settings_of(silent, "consumer"), version)
    parts: tuple[Scope, ...] = ("producer", "consumer")
    return {s: guessed if s not in libraries else "java" if libraries[s] == "java" else "librdkafka" for s in parts}


def _client(wanted: str, producer: Settings | None, consumer: Settings | None, version: str) -> Client:
    for client in CLIENTS:
        if wanted == client:
            return client
    if wanted != "auto":
        raise BadInput(f"--client {wanted!r} is not known. Known: auto, {', '.join(CLIENTS)}.")
    for scope, settings in (("producer", producer), ("consumer", consumer)):
        java, other = (properties_of(scope, client, version) for client in CLIENTS)
        if any(name in other and name not in java for name in settings or ()):
            return "librdkafka"
    return "java"


def _names_client(
    given: ValidationInput,
    readings: Sequence[Reading],
    producer: Settings | None,
    consumer: Settings | None,
    version: str,
) -> bool:
    """Did somebody say which library it is, or a file that is of one alone, or a name that only one of them has?"""
    of_clients = [reading for reading in readings if "producer" in reading.scopes or "consumer" in reading.scopes]
    if given.client != "auto" or any(reading.library for reading in of_clients):
        return True
    for scope, settings in (("producer", producer), ("consumer", consumer)):
        tables = [properties_of(scope, client, version) for client in CLIENTS]
        if any(sum(name in table for table in tables) == 1 for name in settings or ()):
            return True
    return False


def _refuse_two_sources(given: ValidationInput) -> None:
    of_brokers = [name for name in ("broker", "compose", "cluster") if getattr(given, name) is not None]
    if len(of_brokers) > 1:
        options_given = " and ".join(f"--{name}" for name in of_brokers)
        raise BadInput(f"{options_given} each say what the brokers are. Give one of them.")
    if given.cluster_topic is not None and given.cluster is None:
        raise BadInput(
            f"--cluster-topic {given.cluster_topic!r} is read from a running cluster. Give --cluster HOST:PORT."
        )
    if given.cluster_topic is not None and given.topic is not None:
        raise BadInput("--topic and --cluster-topic both say what the topic is. Give one of them.")


def _servers(
    given: ValidationInput, readings: Sequence[Reading], version: str, live: LiveCluster | None
) -> ServerSettings:
    topic, broker = settings_of(readings, "topic"), settings_of(readings, "broker")
    if live is not None:
        topic = topic if live.topic is None else live.topic
        found = translate_servers(topic, live.broker, version, live.brokers)
        found.notes[:0] = live.notes
        found.unclear += live.doubts
        return found
    brokers = next((each.brokers for each in readings if each.brokers is not None), None)
    if topic is None:
        for reading in readings:
            reading.unclear += reading.makes_topics
    return translate_servers(topic, broker, version, given.brokers or brokers)
