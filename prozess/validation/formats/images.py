"""Says what an image runs from its name and tag: a broker or something beside it, whose image it is, and Kafka's version."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from prozess.validation.reading import placeholder_in

Maker = Literal["apache", "confluent", "bitnami", "strimzi", "another"]
"""The publisher of the image: each has rules of its own for variables, directories and tags."""
CONFLUENT: Mapping[str, str] = {
    **{"5.4": "2.4", "5.5": "2.5", "6.0": "2.6", "6.1": "2.7", "6.2": "2.8"},
    **{f"7.{minor}": f"3.{minor}" for minor in range(10)},
    **{f"8.{minor}": f"4.{minor}" for minor in range(4)},
}
"""Minor release of Confluent Platform → that of Kafka in it.

Source: docs.confluent.io/platform/current/installation/versions-interoperability.html: 5.4 and 5.5 as in its page of release
5.5.15, 7.5 to 8.3 as quoted from it in September 2026. For 6.1 to 7.2 also releases of projects that bundle both
(mmolimar/kukulcan v0.2.0, conduktor/kafka-stack-docker-compose). 6.0, 7.3 and 7.4 stand between these, one minor each."""
_MAKERS: tuple[tuple[Maker, re.Pattern[str]], ...] = (
    ("apache", re.compile(r"(?:.*/)?apache/kafka(?:-native)?")),
    ("confluent", re.compile(r"(?:.*/)?(?:cp-kafka|cp-server|cp-enterprise-kafka|confluent-local)")),
    ("bitnami", re.compile(r"(?:.*/)?(?:bitnami|bitnamilegacy|bitnamisecure)/kafka")),
    ("strimzi", re.compile(r"(?:.*/)?strimzi/kafka")),
)
_OTHERS = re.compile(r"(?:.*/)?(?:redpanda|warpstream\S*|automq|kop|pulsar\S*|tansu|bufstream)")
"""Programs that speak Kafka's protocol, and are none of Kafka's releases."""
_BESIDE_BROKERS = re.compile(
    r"(?:.*/)?(?:kafka-ui|kafbat-ui|kafdrop|akhq|console|cmak|kafka-manager|burrow|kcat|kafkacat|kafka[-_]exporter|"
    r"cp-(?:kafka|server)-connect(?:-base)?|cp-kafka-(?:rest|mqtt)|cp-schema-registry|cp-ksqldb-\w+|cp-kcat|cp-zookeeper|"
    r"cp-enterprise-\w+-?center\S*|cp-enterprise-replicator\S*|connect|kafka-connect|debezium\S*|schema-registry|apicurio\S*|"
    r"karapace\S*|ksqldb-\w+|zookeeper|kafka-topics-ui|kafka-lag-exporter|cruise-control)"
)
"""The last part of names of images that use brokers, and are none."""
_NUMBERS = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?![\d.])")


@dataclass(frozen=True, slots=True)
class KafkaImage:
    """What the name of an image says."""

    name: str
    maker: Maker
    runs_broker: bool | None
    """None: the name does not say."""
    version: str | None
    """Kafka's version. If the tag leaves the patch release open, it is the oldest possible one."""
    why: str
    """Why there is no version, or how exact it is, as the end of a sentence whose subject is the image; empty: exactly it."""


def image_named(name: str) -> KafkaImage:
    """Returns what a name such as `apache/kafka:3.9.0` says. Empty: no image is named.

    Example: confluentinc/cp-kafka:7.9.3 is a broker of Kafka 3.9, and is judged as 3.9.0, since Confluent's patch releases
    are its own."""
    repository, tag = _parts(name)
    another: Maker = "another"
    maker = next((maker for maker, sign in _MAKERS if sign.fullmatch(repository)), another)
    broker = True if maker != "another" else False if _BESIDE_BROKERS.fullmatch(repository) else None
    version, why = _version(maker, tag)
    if _OTHERS.fullmatch(repository):
        why = "is another program than Kafka, has no version of it, and no promise here is of it"
    elif (unset := placeholder_in(name)) is not None:
        version, why = None, f"has {unset} in its name, which no file sets"
    if not name:
        why = "is not named, so nothing says which version of Kafka runs"
    return KafkaImage(name, maker, broker, version, why)


def _parts(name: str) -> tuple[str, str]:
    """The repository and the tag; a digest is neither."""
    plain = re.sub(r":\$\{[^}]*\}", ":$", name.partition("@")[0])
    before, colon, tag = plain.rpartition(":")
    return (before, tag) if colon and "/" not in tag else (plain, "")


def _version(maker: Maker, tag: str) -> tuple[str | None, str]:
    if maker == "strimzi":
        found = re.search(r"kafka-(\d+\.\d+\.\d+)", tag)
        return (found[1], "") if found else (None, "has a tag that does not say which version of Kafka it holds")
    found = _NUMBERS.match(tag)
    if maker == "another":
        return None, "is none whose tags prozess knows, so nothing says which version of Kafka runs"
    if found is None:
        return (
            None,
            f"has {f'the tag {tag!r}' if tag else 'no tag'}, which is another version of Kafka from time to time",
        )
    major, minor, patch = found.groups()
    if re.match(r"-?(rc|alpha|beta|SNAPSHOT)", tag[found.end() :], re.IGNORECASE):
        return None, f"has the tag {tag!r}, which is no release, and what it lacks of one is not known"
    if maker == "confluent":
        line = CONFLUENT.get(f"{major}.{minor}")
        if line is None:
            return None, f"is Confluent Platform {major}.{minor}, and prozess does not know which Kafka is in it"
        return f"{line}.0", f"holds Kafka {line} with patches of Confluent's own, and is judged as {line}.0"
    if patch is None:
        return f"{major}.{minor}.0", f"may be any patch release of {major}.{minor}, and is judged as the oldest"
    return f"{major}.{minor}.{patch}", ""
