"""Lists the formats in which people keep Kafka's settings. The first one that recognises a file reads it."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from prozess.validation.formats.clients import FranzGo, KafkaGo, Kafkajs, PythonClients, Sarama
from prozess.validation.formats.confluent import ConfluentForKubernetes
from prozess.validation.formats.connect import Connector, Worker
from prozess.validation.formats.containers import EnvironmentFile, Kubernetes
from prozess.validation.formats.dotnet import DotNet
from prozess.validation.formats.helm import Helm
from prozess.validation.formats.managed import Msk, Strimzi
from prozess.validation.formats.plain import Librdkafka, Others, Plain
from prozess.validation.formats.quarkus import Quarkus
from prozess.validation.formats.spring import Spring
from prozess.validation.formats.streams import Streams
from prozess.validation.formats.wrapped import WrappedFiles
from prozess.validation.reading import Format

PLAIN: Format = Plain()
"""The format of files that no other format recognises."""
FORMATS: tuple[Format, ...] = (
    Strimzi(),
    ConfluentForKubernetes(),
    Kubernetes(),
    WrappedFiles(lambda: FORMATS, PLAIN),
    Msk(),
    Spring(),
    Quarkus(),
    Connector(),
    Worker(),
    Streams(),
    Helm(),
    EnvironmentFile(),
    DotNet(),
    Librdkafka(),
    Sarama("sarama"),
    FranzGo("franz-go"),
    KafkaGo("kafka-go"),
    Kafkajs("kafkajs"),
    PythonClients(),
)
"""What says itself what it is (an API group, a vendor's key) comes before what is shown by its names alone."""
BY_SIGHT: Format = Others()
"""Formats that prozess recognises by name, and does not read."""
WITH_CLIENTS_NAMES: tuple[type, ...] = (Librdkafka,)
"""Formats that are shown by the names of clients' properties alone: a file that was given for brokers or a topic, which have
some of these names, too, is none of them."""


@runtime_checkable
class OfProfiles(Protocol):
    """A format that has profiles, such as Spring Boot's."""

    def in_profiles(self, profiles: Sequence[str]) -> Format:
        """Returns the format with these profiles active."""
        ...


@runtime_checkable
class OfTopics(Protocol):
    """A format whose files may describe several topics, of which one is judged."""

    def of_topic(self, topic_name: str) -> Format:
        """Returns the format that reads the topic of this name."""
        ...
