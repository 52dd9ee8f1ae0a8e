"""`prozess validate`: predict, then run trials of exactly this configuration under every fault, then compare the two."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.clock import NS_PER_S, SystemClock
from harness.conduct import Conducted, Options, conduct_trial
from harness.errors import BadInput, ExitCode
from harness.validation.clients import Translated, translate_consumer, translate_producer
from harness.validation.comparison import Comparison, Observed, observe
from harness.validation.known import CLIENTS, Client, Setting, Settings, properties_of
from harness.validation.live import DEFAULT_VERSION, Live, read_cluster
from harness.validation.predict import Prediction
from harness.validation.servers import translate_servers
from harness.validation.show import show_comparison, show_prediction, to_json
from harness.validation.sources import compose_services, read_settings
from harness.validation.trial import Parts

COMMITS = ("sync-after", "sync-before", "async-after", "on-revoke", "none")
"""What `--commits` may say: how an application commits that does so itself."""


@dataclass(frozen=True, slots=True)
class Given:
    """The files, and what no file says."""

    producer: Path | None = None
    consumer: Path | None = None
    topic: Path | None = None
    broker: Path | None = None
    compose: Path | None = None
    service: str | None = None
    """Of the Compose file; None = its only one with brokers' settings, or the first of several that are alike."""
    client: str = "auto"
    """Whose properties: java, librdkafka; auto: librdkafka's if the file names what only it has."""
    kafka_version: str | None = None
    """None: what the cluster tells, else the newest that is known."""
    commits: str = "sync-after"
    brokers: int | None = None
    cluster: str | None = None
    """Addresses of a running cluster that is asked what brokers, and the topic, are set to."""
    cluster_topic: str | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may be run. `seconds`: no further trial begins after that; 0 = predict only."""

    seconds: float
    trials: int = 10
    seed: int = 1
    backend: str = "local"
    strict: bool = False
    """A weakness that a change of settings would rule out is a failure."""


def validate(given: Given, budget: Budget, options: Options) -> int:
    """Predict, run, compare; returns the exit code: 0 as predicted, 1 violated (or, strict, weak), 2 unknown."""
    prediction = Prediction(translate(given))
    if not options.as_json:
        show_prediction(prediction)
    runs = _run(prediction, budget, options) if budget.seconds > 0 else []
    comparison = Comparison(prediction, tuple(observed for _, observed in runs))
    if options.as_json:
        to_json(comparison)
    elif runs:
        show_comparison(comparison, [conducted.run.path for conducted, _ in runs])
    if budget.strict and prediction.curable and comparison.exit_code is ExitCode.HELD:
        return int(ExitCode.VIOLATED)
    return int(comparison.exit_code)


def translate(given: Given) -> Parts:
    """The files as settings of a trial. BadInput for what is wrong with them."""
    if given.producer is None and given.consumer is None:
        raise BadInput(
            "There is nothing to validate. Give --producer or --consumer, and what there is of --topic, --broker."
        )
    if given.commits not in COMMITS:
        raise BadInput(f"--commits {given.commits!r} is not known. Known: {', '.join(COMMITS)}.")
    _refuse_two_sources(given)
    producer = read_settings(given.producer, "producer") if given.producer else None
    consumer = read_settings(given.consumer, "consumer") if given.consumer else None
    live = None
    if given.cluster is not None:
        logging_in = {**(consumer or {}), **(producer or {})}
        live = read_cluster(given.cluster, given.cluster_topic, logging_in, given.kafka_version)
    version = given.kafka_version or (DEFAULT_VERSION if live is None else live.version)
    client = _client(given.client, producer, consumer, version)
    return Parts(
        _servers(given, version, live),
        None if producer is None else translate_producer(producer, client, version),
        None if consumer is None else translate_consumer(consumer, client, version, commits=given.commits),
        version,
    )


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


def _refuse_two_sources(given: Given) -> None:
    of_brokers = [name for name in ("broker", "compose", "cluster") if getattr(given, name) is not None]
    if len(of_brokers) > 1:
        told = " and ".join(f"--{name}" for name in of_brokers)
        raise BadInput(f"{told} each say what the brokers are. Give one of them.")
    if given.cluster_topic is not None and given.cluster is None:
        raise BadInput(
            f"--cluster-topic {given.cluster_topic!r} is read from a running cluster. Give --cluster HOST:PORT."
        )
    if given.cluster_topic is not None and given.topic is not None:
        raise BadInput("--topic and --cluster-topic both say what the topic is. Give one of them.")


def _servers(given: Given, version: str, live: Live | None) -> Translated:
    topic = read_settings(given.topic, "topic") if given.topic else None
    broker = read_settings(given.broker, "broker") if given.broker else None
    brokers = None
    if live is not None:
        topic = topic if live.topic is None else live.topic
        found = translate_servers(topic, live.broker, version, live.brokers)
        found.notes[:0] = live.notes
        return found
    if given.compose is not None:
        services = compose_services(given.compose)
        brokers = len(services)
        broker = _service(services, given)
    return translate_servers(topic, broker, version, given.brokers or brokers)


def _service(services: dict[str, Settings], given: Given) -> dict[str, Setting]:
    if given.service is not None and given.service not in services:
        raise BadInput(
            f"{given.compose} has no service {given.service!r} with KAFKA_* variables: {', '.join(services)}."
        )
    return dict(services[given.service or next(iter(services))])


def _run(prediction: Prediction, budget: Budget, options: Options) -> list[tuple[Conducted, Observed]]:
    """Trials of the same configuration, seed by seed, until the time is over. At least one."""
    clock, done = SystemClock(), []
    deadline_ns = clock.monotonic_ns() + int(budget.seconds * NS_PER_S)
    for number in range(budget.trials):
        if number and clock.monotonic_ns() >= deadline_ns:
            break
        plan = prediction.parts.plan(seed=budget.seed + number, backend=budget.backend)
        conducted = conduct_trial(plan, options)
        done.append((conducted, observe(conducted.verdict, _own_cells(prediction, plan.cells))))
        if conducted.exit_code == ExitCode.UNKNOWN and conducted.verdict is None:
            break  # interrupted
    return done


def _own_cells(prediction: Prediction, cells: Sequence[object]) -> frozenset[int]:
    """Those of the user: the control comes last."""
    return frozenset(range(len(prediction.plan.cells))) & frozenset(range(len(cells)))
