"""The command that checks a configuration before a rollout: validate."""

from pathlib import Path
from typing import Annotated

import typer

from prozess.app.commands.options import (
    CONFIGURATION,
    ClientConfigOption,
    QuietOption,
    RunsOption,
    TablesAsJsonOption,
    finite,
    use_login,
)

app = typer.Typer()


def _file_option(owner: str) -> object:
    return typer.Option(help=f"The settings of your {owner}: a .properties, .json or .yaml file.")


@app.command(rich_help_panel=CONFIGURATION)
def validate(  # noqa: PLR0913 - the options of a command
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files whose content says whose settings they are: a framework's, or names of one part alone."
        ),
    ] = None,
    producer: Annotated[Path | None, _file_option("producer")] = None,
    consumer: Annotated[Path | None, _file_option("consumer")] = None,
    topic: Annotated[Path | None, _file_option("topic")] = None,
    broker: Annotated[Path | None, _file_option("brokers")] = None,
    application: Annotated[
        list[Path] | None,
        typer.Option(
            help="A configuration file of a framework (Spring Boot, Quarkus, Streams, Connect). All its clients are judged."
        ),
    ] = None,
    profile: Annotated[
        list[str] | None, typer.Option(help="An active profile of Spring Boot or Quarkus. You may repeat it.")
    ] = None,
    topic_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The topic to take from a file that has several (Strimzi, Helm).")
    ] = None,
    compose: Annotated[
        Path | None, typer.Option(help="A Compose file that sets its brokers by KAFKA_* variables.")
    ] = None,
    service: Annotated[str | None, typer.Option(help="The service of the Compose file to take.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="A running cluster. prozess reads its brokers' settings and changes nothing."
        ),
    ] = None,
    cluster_topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="A topic of that cluster. prozess reads its settings.")
    ] = None,
    client: Annotated[
        str, typer.Option(help="The client that the properties are for: auto, java or librdkafka.")
    ] = "auto",
    kafka_version: Annotated[
        str | None, typer.Option(help="The version of the brokers. Default: the version of --cluster, else 4.4.0.")
    ] = None,
    client_version: Annotated[
        str | None,
        typer.Option(
            help="The version of the clients. Default: for Java the brokers' version, for librdkafka the installed one."
        ),
    ] = None,
    commits: Annotated[
        str | None,
        typer.Option(
            help="How the application commits offsets, such as sync-after. Give it if the application commits itself."
        ),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(
            min=0, callback=finite, help="About how long the trials take together. 0 predicts and runs nothing."
        ),
    ] = 5,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the first trial.")] = 1,
    backend: Annotated[str, typer.Option(help="Where Kafka runs: local or compose.")] = "local",
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Fail if a change of settings would rule out a weakness, or if a known defect is open."
        ),
    ] = False,
    provoke: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="A weakness to try, such as lost/acks-1, and no other. You may repeat it. Default: all.",
        ),
    ] = None,
    accept: Annotated[
        Path | None, typer.Option(help="A .toml file of the risks that you accept. They do not fail --strict.")
    ] = None,
    kafka_defaults: Annotated[
        bool,
        typer.Option(
            "--kafka-defaults", help="Assume Kafka's defaults for all topic and broker settings that no file has."
        ),
    ] = False,
    old: Annotated[
        Path | None,
        typer.Option(
            help="The directory with the files of a configuration before a change (producer.*, consumer.*, topic.*, "
            "server.*, compose.*, application.*), to be compared with --new."
        ),
    ] = None,
    new: Annotated[Path | None, typer.Option(help="The directory with the files after the change.")] = None,
    output: Annotated[
        str, typer.Option("--format", help="What to print: text, github, sarif, junit or markdown.")
    ] = "text",
    client_config: ClientConfigOption = None,
    runs: RunsOption = Path("runs"),
    quiet: QuietOption = False,
    as_json: TablesAsJsonOption = False,
) -> None:
    """Predict what your settings promise, and put them on trial. The trials run exactly this configuration under every
    fault."""
    use_login(client_config)
    from prozess.app.run_options import RunOptions
    from prozess.validation.command import ValidationInput, compare, refuse_contradictions
    from prozess.validation.command import validate as carry_out
    from prozess.validation.comparison import Budget

    given = ValidationInput(
        producer, consumer, topic, broker, compose, service, client, kafka_version, commits,
        cluster=cluster, cluster_topic=cluster_topic, applications=(*(application or ()), *(files or ())),
        profiles=tuple(profile or ()),
        client_version=client_version, kafka_defaults=kafka_defaults, accept=accept, topic_name=topic_name,
    )  # fmt: skip
    options = RunOptions(runs, "auto", 2, "auto", quiet, as_json)
    refuse_contradictions(given, old, new, output, as_json=as_json)
    if old is not None and new is not None:
        raise typer.Exit(compare(given, old, new, options, format=output))
    budget = Budget(minutes * 60, seed=seed, backend=backend, strict=strict, provoke=tuple(provoke or ()))
    raise typer.Exit(carry_out(given, budget, options, format=output))
