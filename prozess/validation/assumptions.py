"""Finds the settings that a prediction needs and that no file has, and reads the file of accepted risks. Such settings are
unknown, unless the user says that they are defaults; risks that somebody has accepted are named in a file."""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from prozess.harness import inputs
from prozess.harness.config.known_properties import default_of, properties_of
from prozess.harness.errors import BadInput
from prozess.harness.guarantees.table.cell_configuration import TRANSACTIONS_V2, parse_version
from prozess.validation.availability import OFFSETS, TRANSACTIONS
from prozess.validation.lifetimes import OF_RECORDS
from prozess.validation.trial import ConfigurationParts

_WAY_OUT = "or say --kafka-defaults if your cluster has Kafka's own defaults"
TOPIC = "the topic"
_BROKER = "--broker, --compose or --cluster"
_UNCLEAN = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class MissingSettings:
    """Settings of one thing, such as the topic, that no file has."""

    of: str
    """ "the topic" """
    settings: tuple[str, ...]
    """With Kafka's defaults: "replication.factor=1"."""
    anomalies: tuple[str, ...]
    """The anomalies that depend on these settings; empty: no promise does, and `question` alone is open."""
    question: str
    """What else depends on them, as the end of a sentence that begins with "whether"."""
    give: str
    """The options that would give these settings, for a person."""
    by_default: bool = True
    """Is the user's word enough that Kafka's own defaults hold?"""

    def unknown(self) -> str:
        """Returns a sentence for people, for the case that Kafka's defaults may not hold."""
        can = f"whether {'they' if len(self.anomalies) > 1 else 'it'} can happen"
        if not self.by_default:
            return f"{', '.join(self.anomalies)}: {can} depends on {self.question}. No file says this. Give {self.give}"
        names = [setting.partition("=")[0] for setting in self.settings]
        listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        what = f"{', '.join(self.anomalies)}: {can}" if self.anomalies else f"whether {self.question}"
        which = "them" if len(names) > 1 else "it"
        return f"{what} depends on {listed} of {self.of}. No file sets {which}. Give {self.give}, {_WAY_OUT}"

    def assumed(self) -> str:
        """Returns a sentence for people, for the case that the user says that Kafka's defaults hold."""
        return f"{', '.join(self.settings)} of {self.of}: Kafka's defaults, because you say so (--kafka-defaults)"


def missing_settings(parts: ConfigurationParts, resting: tuple[str, ...]) -> Iterator[MissingSettings]:
    """Yields the settings of topic and brokers that no file has. `resting`: the anomalies that would be possible with fewer
    copies, or with an unclean election."""
    found = []
    if "topic.replication_factor" not in parts.origins:
        found.append("replication.factor=1")
    if parts.servers.broker is None:
        if "topic.min_insync_replicas" not in parts.origins:
            found.append("min.insync.replicas=1")
        if "topic.unclean_leader_election_enable" not in parts.origins:
            found.append(f"{_UNCLEAN}=false")
    if found:
        yield MissingSettings(
            TOPIC,
            tuple(found),
            resting,
            "a partition accepts writes while a broker is down, and survives the loss of a disk,",
            "--topic with them, or --cluster and --cluster-topic",
        )
    if parts.servers.broker is not None:
        return
    yield from _retention(parts)
    if parts.consumer is not None:
        yield MissingSettings(
            "the brokers (for __consumer_offsets)",
            (*_defaults(parts, *OFFSETS.settings, "offsets.retention.minutes"), f"{_UNCLEAN}=false"),
            OFFSETS.rests,
            "your groups go on while a broker is down, and keep their offsets when a disk is lost,",
            _BROKER,
        )
    if parts.transactional:
        yield MissingSettings(
            "the brokers (for __transaction_state)",
            _defaults(parts, *TRANSACTIONS.settings),
            (),
            "your transactions go on while a broker is down, and keep their outcome when a disk is lost,",
            _BROKER,
        )


def _retention(parts: ConfigurationParts) -> Iterator[MissingSettings]:
    """Yields how long the topic keeps records, where a consumer depends on it and the topic does not say it."""
    if parts.consumer is None or parts.compacted or "retention.ms" in (parts.servers.topic or {}):
        return
    yield MissingSettings(
        TOPIC,
        (f"retention.ms={default_of('retention.ms', properties_of('topic', 'java', parts.version))}",),
        OF_RECORDS,
        "a consumer that was away gets what was written meanwhile",
        "--topic with it, or --cluster and --cluster-topic",
    )


def of_application(parts: ConfigurationParts) -> Iterator[MissingSettings]:
    """Yields what no file of brokers can say: which client library it is, and how the application commits."""
    commit = parts.base.get("group.commit")
    by_default = "producer.enable_idempotence" not in parts.origins and not parts.transactional
    if parts.producer is not None and not parts.client_given and by_default:
        yield MissingSettings(
            "the client",
            ("enable.idempotence=true",),
            ("duplicate", "reordered"),
            "which client reads your file: enable.idempotence is true by default in Kafka's own, and false in librdkafka",
            "--client java or --client librdkafka, or set enable.idempotence",
            by_default=False,
        )
    if parts.consumer is not None and not parts.client_given and commit == "auto":
        yield MissingSettings(
            "the client",
            ("enable.auto.commit=true",),
            ("unprocessed",),
            "which client reads your file: Kafka's own commits what the last poll returned, and librdkafka what it has "
            "delivered, processed or not",
            "--client java or --client librdkafka",
            by_default=False,
        )
    if parts.consumer is not None and commit == "sync-after" and "commits" not in parts.origins:
        yield MissingSettings(
            "the application",
            ("enable.auto.commit=false",),
            ("unprocessed",),
            "how your application commits, before it has processed a record or after",
            "--commits sync-after if it is after, or sync-before",
            by_default=False,
        )


def assumptions(parts: ConfigurationParts) -> Iterator[str]:
    """Yields what the prediction takes for granted, as sentences."""
    if not parts.version_given:
        yield f"brokers of Kafka {parts.version}: no file says their version. Older ones have more defects (--kafka-version)"
    if parts.servers.topic is None and parts.servers.broker is not None:
        yield (
            "the topic has no settings of its own, so those of the brokers count: neither --topic nor "
            "--cluster-topic says otherwise"
        )
    if parts.transactional and not transactions_before_v2(parts):
        yield (
            "transaction.version=2, which a cluster has that was created with Kafka 4.0 or later. An upgraded "
            "cluster has it only after you ask for it (kafka-features.sh upgrade --feature "
            "transaction.version=2); until then it has the defect KAFKA-17754"
        )


def transactions_before_v2(parts: ConfigurationParts) -> bool:
    """Returns whether the producer has transactions that are not of version 2 (KIP-890). librdkafka's never are. [KIP-890;
    librdkafka#5423]"""
    client = parseable(parts.client_version) if parts.client_version is not None else None
    brokers = parseable(parts.version)
    java = parts.base.get("producer.client") == "java"
    old = brokers[:2] < TRANSACTIONS_V2 or (client is not None and client[:2] < TRANSACTIONS_V2)
    return parts.transactional and (not java or old)


def parseable(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version; an empty tuple, which is older than any version, if it is no version."""
    return parse_version(version) or ()


def _defaults(parts: ConfigurationParts, *names: str) -> tuple[str, ...]:
    known = properties_of("broker", "java", parts.version)
    return tuple(f"{name}={default_of(name, known)}" for name in names)


# Risks that somebody has accepted, by a file that says which weakness, why, and until when. Pure but for the file.


OTHER_CLIENT = "other-client"
"""The rule of a client library that prozess does not run: its promises are taken from what its names mean."""
UNKNOWN_PROPERTY = "unknown-property:"
"""Begins the rule of a property that nobody knows; its name follows."""
_KEYS = ("rule", "reason", "until")
_ACCEPTING = 'Write [[accept]], rule = "…", reason = "…", until = 2027-01-31.'


@dataclass(frozen=True, slots=True)
class Risk:
    """One risk that somebody accepts: an entry of the file of risks."""

    rule: str
    """What is accepted: the id of a rule, or an anomaly, which stands for every rule of it."""
    reason: str
    until: date
    """The last day on which it counts."""
    origin: str
    """File and number of the entry: for a person."""

    def sentence(self) -> str:
        """ "accepted until 2027-01-31: clicks may be lost (risks.toml, entry 1)" """
        return f"accepted until {self.until}: {self.reason} ({self.origin})"


class Risks:
    """All entries of a file of risks, which remembers what the configuration really has."""

    def __init__(self, entries: Sequence[Risk] = ()) -> None:
        self.entries = tuple(entries)
        self._matched: set[Risk] = set()

    def accepted(self, rule: str, today: date, *, anomaly: str = "") -> Risk | None:
        """Returns the entry that accepts this rule on this day; None if nobody does, or no more. Ask for what the
        configuration really has: an entry that nobody asked for is stale. `anomaly`: the one that the rule is of, if any."""
        found = [entry for entry in self.entries if entry.rule in (rule, anomaly)]
        self._matched.update(found)
        return next((entry for entry in found if today <= entry.until), None)

    def remarks(self, today: date) -> list[str]:
        """Returns sentences about entries that accept nothing: their day has passed, or the configuration has no such
        weakness. To be called when everything was asked for."""
        lines = []
        for entry in self.entries:
            if today > entry.until:
                lines.append(
                    f"{entry.origin}: {entry.rule} was accepted until {entry.until}. That day has passed, so "
                    "it counts again. Change the configuration, or accept it until a later day"
                )
            elif entry not in self._matched:
                lines.append(
                    f"{entry.origin}: {entry.rule} is accepted, but your configuration does not have this "
                    "weakness: remove the entry"
                )
        return lines


def read_risks(path: Path, known: Collection[str]) -> Risks:
    """Reads the file of risks. BadInput for a rule that is not `known`, and for an entry without a reason or a date."""
    try:
        document = inputs.parse_toml(inputs.read_text(path))
    except (OSError, ValueError) as error:
        raise BadInput(f"--accept {path}: cannot be read ({error}). {_ACCEPTING}") from error
    found = document.pop("accept", [])
    if document:
        raise BadInput(
            f"--accept {path}: {', '.join(document)} is not known. The file may have [[accept]] entries only. "
            f"{_ACCEPTING}"
        )
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise BadInput(f"--accept {path}: accept must be a list of tables. {_ACCEPTING}")
    risks = [_risk(entry, f"{path}, entry {number}", known) for number, entry in enumerate(found, 1)]
    rules = [risk.rule for risk in risks]
    for number, rule in enumerate(rules, 1):
        if rule in rules[: number - 1]:
            raise BadInput(f"--accept {path}, entry {number}: {rule} is accepted twice. Leave one of the two entries.")
    return Risks(risks)


def _risk(entry: Mapping[str, Any], origin: str, known: Collection[str]) -> Risk:
    if unknown := [key for key in entry if key not in _KEYS]:
        raise BadInput(f"{origin}: {', '.join(unknown)} is not known. Known: {', '.join(_KEYS)}.")
    rule, reason, until = (entry.get(key) for key in _KEYS)
    if not isinstance(rule, str) or not _is_known(rule, known):
        near = difflib.get_close_matches(str(rule), list(known), n=3)
        meant = f"Did you mean {' or '.join(near)}?" if near else "The output of validate names every rule."
        raise BadInput(f"{origin}: rule = {rule!r} is no rule and no anomaly that can be accepted. {meant}")
    if not isinstance(reason, str) or not reason.strip():
        raise BadInput(f"{origin}: {rule} is accepted without a reason. Write reason = '…': why you can live with it.")
    if not isinstance(until, date) or isinstance(until, datetime):
        raise BadInput(
            f"{origin}: {rule} is accepted, and until = {until!r} is no date. Write until = 2027-01-31, without quotes: the "
            "last day on which you accept it."
        )
    return Risk(rule, " ".join(reason.split()), until, origin)


def _is_known(rule: str, known: Collection[str]) -> bool:
    return rule == OTHER_CLIENT or rule in known or (rule.startswith(UNKNOWN_PROPERTY) and rule != UNKNOWN_PROPERTY)
