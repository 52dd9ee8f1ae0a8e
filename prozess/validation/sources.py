"""Reads the files that somebody gave, or the settings of a running cluster: each file by its format, one over the other where
the format says so, and nothing passed over that was not understood."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prozess.harness.config.client_settings import Unclear
from prozess.harness.config.configuration import LAST_WITH_ZOOKEEPER, Variant, version_numbers
from prozess.harness.config.existing_clusters import OF_LOGGING_IN, Login, login_here, refuse_bad_servers
from prozess.harness.config.known_properties import Client, Setting, Settings, check, properties_of, versions
from prozess.harness.errors import BadInput
from prozess.validation import formats
from prozess.validation import reading as documents
from prozess.validation.formats.differing_brokers import weakest
from prozess.validation.lines import with_lines
from prozess.validation.neighbour_files import look_beside
from prozess.validation.reading import SCOPES, Reading, Scope, is_foreign, of_no_promise, placeholder_in
from prozess.validation.servers import REPLICATION
from prozess.validation.tiers import OF_STORE, of_plugin


def read_file(
    path: Path, wanted: Iterable[Scope], profiles: Sequence[str] = (), topic_name: str | None = None
) -> Reading:
    """Reads the wanted parts of a file with the first format that recognises it. BadInput for a file that
    is not there, is not what its ending says, or breaks its format's rules."""
    document = documents.load(path)
    of_servers = set(wanted) <= {"topic", "broker"}
    known = (each for each in formats.FORMATS if not (of_servers and isinstance(each, formats.WITH_CLIENTS_NAMES)))
    try:
        chosen = next((each for each in (*known, formats.BY_SIGHT) if each.recognises(document, path)), formats.PLAIN)
        if profiles and isinstance(chosen, formats.OfProfiles):
            chosen = chosen.in_profiles(profiles)
        if topic_name is not None and isinstance(chosen, formats.OfTopics):
            chosen = chosen.of_topic(topic_name)
        reading = chosen.read(document, path, tuple(wanted))
        with_lines(reading, document)
        return reading
    except RecursionError as error:
        raise BadInput(documents.too_deep(path)) from error


def read_all(
    parts: Mapping[Scope, Path | None],
    applications: Sequence[Path] = (),
    profiles: Sequence[str] = (),
    topic_name: str | None = None,
) -> list[Reading]:
    """Reads every file once, for all parts that it was given for; an application's for all that it has. Files that lie one
    over the other are one reading. BadInput where two files say the same, or one has nothing of what it was given for."""
    wanted: dict[Path, list[Scope]] = {}
    for scope, path in parts.items():
        if path is not None:
            wanted.setdefault(path, []).append(scope)
    readings = [
        read_file(path, scopes, profiles, topic_name) for path, scopes in wanted.items() if path not in applications
    ]
    readings += [read_file(path, SCOPES, profiles, topic_name) for path in dict.fromkeys(applications)]
    _refuse_what_is_not_read(readings)
    if profiles and not any(reading.profiles for reading in readings):
        raise BadInput(
            f"--profile {profiles[0]!r}: none of the files is of a format that has profiles (Spring Boot, Quarkus). "
            "Leave --profile out."
        )
    if topic_name is not None and not any("topic" in reading.scopes for reading in readings):
        raise BadInput(
            f"--topic-name {topic_name!r}: none of the files describes topics (Strimzi, Helm). Leave it out."
        )
    look_beside(readings, profiles)
    readings = _one_over_the_other(readings)
    _take_what_is_created(readings)
    _refuse_settings_given_twice(readings)
    for scope, path in parts.items():
        if path is not None and not any(scope in reading.scopes for reading in readings):
            raise BadInput(_nothing_of(scope, path, readings))
    return readings


def _refuse_what_is_not_read(readings: Sequence[Reading]) -> None:
    for reading in readings:
        if reading.unclear and not reading.scopes and not reading.aside and not reading.own:
            raise BadInput(nothing_understood(reading))


def _take_what_is_created(readings: Sequence[Reading]) -> None:
    """Takes what a framework makes its topics with for the topic's settings, unless a file says what the topic is set to."""
    topic_file = next((reading for reading in readings if "topic" in reading.scopes), None)
    for reading in readings:
        for name, setting in reading.creates.items():
            if topic_file is None:
                reading.put("topic", name, setting.value, setting.origin)
            elif (other := topic_file.scopes["topic"].get(name)) is None or other.value != setting.value:
                has = "does not" if other is None else f"has {other.value}"
                why = f"makes topics with {name}={setting.value}, and {topic_file.path} {has}: a new topic gets it"
                reading.doubt(f"topic.creation.default.{name}", setting.origin, why)
            else:
                reading.aside.append(f"topic.creation.default.{name}")


def _nothing_of(scope: Scope, path: Path, readings: Sequence[Reading]) -> str:
    mine = next((reading for reading in readings if path in (reading.path, *reading.over)), None)
    what = f", {mine.format}," if mine is not None else ""
    why = f" What was not understood of it: {mine.unclear[0].sentence()}." if mine is not None and mine.unclear else ""
    return (
        f"{path}{what} was given as --{scope} and has no setting of a {scope} that prozess understands.{why} Give the file "
        f"that has them, or write those that matter down with Kafka's names in a .properties file."
    )


def _one_over_the_other(readings: Sequence[Reading]) -> list[Reading]:
    """Files of one family, those of a lower rank first; with the defaults of all, which the settings of any are over."""
    found: list[Reading] = []
    for reading in sorted(readings, key=lambda each: each.rank):
        below = next((each for each in found if each.family and each.family == reading.family), None)
        if below is None or below.rank == reading.rank:
            found.append(reading)
            continue
        found[found.index(below)] = below.under(reading)
    for reading in found:
        if reading.finish is not None:
            reading.finish(reading)
        for scope, settings in reading.scopes.items():
            reading.scopes[scope] = {**reading.defaults.get(scope, {}), **settings}
    return found


def _refuse_settings_given_twice(readings: Sequence[Reading]) -> None:
    for scope in SCOPES:
        several = [reading for reading in readings if scope in reading.scopes]
        if len(several) > 1:
            paths = " and ".join(str(reading.path) for reading in several)
            raise BadInput(f"{paths} each say what the {scope} is set to, and only one can be meant. Give one of them.")


def settle(reading: Reading, clients: Mapping[Scope, Client], version: str, releases: Mapping[Scope, str]) -> None:
    """Removes from the settings what is not a setting: names that nobody knows and placeholders, which are unclear, and what
    is known to be somebody else's. BadInput for a misspelt name, a value of another type, and a file of which nothing is
    left. `version`: of the brokers; `releases`: of the clients."""
    for scope, settings in reading.scopes.items():
        client, release = clients.get(scope, "java"), releases.get(scope, version)
        known = properties_of(scope, client, release)
        more = (
            REPLICATION
            if scope == "topic"
            else (*properties_of("topic", client, version), *OF_STORE)
            if scope == "broker"
            else ()
        )
        for name, setting in list(settings.items()):
            placeholder = placeholder_in(setting.value)
            foreign = is_foreign(name) or (scope == "broker" and of_plugin(name))
            if (foreign and name not in known) or (placeholder and of_no_promise(name)):
                reading.aside.append(name)
            elif placeholder:
                why = f"is a placeholder: what {placeholder} stands for is not in the file"
                reading.doubt(name, setting.origin, why)
            elif check(scope, {name: setting}, known, more=more, client=client):
                whose = "librdkafka" if client == "librdkafka" else f"Kafka {release}"
                why = f"is no {scope} property of {whose}, and no setting of a serializer that prozess knows"
                reading.doubt(name, setting.origin, why, f"unknown-property:{name}")
            else:
                continue
            del settings[name]
    for one in reading.of_releases:
        numbers = version_numbers(next((releases[s] for s in reading.scopes if s in releases), version))
        if not one.since <= numbers < one.removed:
            reading.doubt(one.name, one.setting.origin, one.why)
    if not reading.understood and not any(reading.defaults.values()):
        raise BadInput(nothing_understood(reading))


def nothing_understood(reading: Reading) -> str:
    """Returns the error message for a file in which nothing was understood."""
    reasons = "; ".join(each.sentence() for each in reading.unclear[:3])
    more = f" ({len(reading.unclear) - 3} more)" if len(reading.unclear) > 3 else ""
    return (
        f"{reading.path} is read as {reading.format}, and nothing in it is a setting that prozess understands"
        f"{f': {reasons}{more}' if reasons else ''}. Write the settings that matter down with Kafka's names in a "
        ".properties file."
    )


# A running cluster as the place where brokers' and a topic's settings are read: `prozess validate --cluster`.


DEFAULT_VERSION = Variant().kafka_version


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """Describes what a running cluster says of its brokers and a topic."""

    version: str
    """The version that trials run, of the oldest release that a broker reports."""
    brokers: int
    broker: Settings
    """What its brokers promise together: where they differ, the weakest decides."""
    topic: Settings | None
    notes: tuple[str, ...]
    doubts: tuple[Unclear, ...] = ()


def read_cluster(servers: str, topic: str | None, clients: Mapping[str, Setting], version: str | None) -> LiveCluster:
    """Asks the cluster at `servers` for its settings. `clients`: settings of librdkafka's clients, of which how to log in is
    taken where no client configuration says it; `version`: what was asked for, which counts. ClusterFailed if it does not
    answer."""
    from prozess.clusters.existing.adoption import live_settings

    refuse_bad_servers(servers, "--cluster")
    live = live_settings(servers, topic, login_here() or _login_of(clients))
    found = brokers_together(live.brokers, live.releases, servers, version)
    of_topic = None if topic is None else _settings(live.topic, f"{servers}, topic {topic}")
    return replace(found, topic=of_topic, notes=(*found.notes, *live.notes))


def brokers_together(
    brokers: Mapping[int, Mapping[str, str]], releases: Mapping[int, str | None], servers: str, version: str | None
) -> LiveCluster:
    """Returns what the brokers of a cluster promise together: of settings that differ the weakest decides, and of releases
    the oldest. `version`: what was asked for, which counts."""
    zookeeper = any("zookeeper.connect" in settings for settings in brokers.values())
    known_releases = sorted({release for release in releases.values() if release is not None}, key=version_numbers)
    silent = [broker for broker in brokers if releases.get(broker) is None]
    oldest = None if silent or not known_releases else known_releases[0]
    run = version or version_to_run(oldest, zookeeper=zookeeper)
    known = {**properties_of("broker", "java", run), **properties_of("topic", "java", run)}
    of_each = {
        f"broker {number}": _settings(
            {name: value for name, value in settings.items() if name in known}, f"{servers}, broker {number}"
        )
        for number, settings in brokers.items()
    }
    together = weakest(of_each, run)
    notes = [f"{len(brokers)} brokers at {servers}, Kafka {oldest or 'of an unknown release'}: trials run {run}"]
    if len(known_releases) > 1:
        each = ", ".join(f"{release}: {_those_of(release, releases)}" for release in known_releases)
        notes.append(f"the brokers run different releases ({each}): the oldest decides")
    if passed_over := sorted({name for settings in brokers.values() for name in settings} - set(known)):
        notes.append(f"Apache Kafka {run} does not know these settings, so they are ignored: {', '.join(passed_over)}")
    if not any("controller" in settings.get("process.roles", "") for settings in brokers.values()) and not zookeeper:
        notes.append(
            "controllers that are no brokers report prozess nothing: whether they allow unclean elections is taken from the "
            "brokers, where the topic itself does not say it"
        )
    doubts = [Unclear(name, origin, why) for name, origin, why in together.doubts]
    if silent and version is None and not zookeeper:
        which = ", ".join(map(str, silent))
        why = f"is not known: of broker {which} nobody could learn its release. Say it with --kafka-version"
        doubts.append(Unclear("the version of Kafka", servers, why))
    return LiveCluster(run, len(brokers), together.settings, None, (*notes, *together.notes), tuple(doubts))


def _those_of(release: str, releases: Mapping[int, str | None]) -> str:
    return " ".join(str(broker) for broker, each in releases.items() if each == release)


def _login_of(clients: Mapping[str, Setting]) -> Login | None:
    """Returns the login that the files which are to be validated describe."""
    found = {name: setting.value for name, setting in clients.items() if name.startswith(OF_LOGGING_IN)}
    return Login(found, "--producer or --consumer") if found else None


def version_to_run(release: str | None, *, zookeeper: bool) -> str:
    """Returns a version of this release: one whose properties are known, else its first."""
    if release is None:
        return LAST_WITH_ZOOKEEPER if zookeeper else DEFAULT_VERSION
    return next((version for version in versions() if version.startswith(f"{release}.")), f"{release}.0")


def _settings(values: Mapping[str, str], origin: str) -> Settings:
    return {name: Setting(value, origin) for name, value in values.items()}
