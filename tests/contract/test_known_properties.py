"""What `prozess validate` knows of properties is what the programs say of theirs, and what it refuses they refuse."""

import itertools
import json
import os

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from py4j.protocol import Py4JJavaError

from prozess.clusters.install.locks import locked_versions
from prozess.harness.config.client_settings import translate_consumer, translate_producer
from prozess.harness.config.known_properties import Setting, problem, properties_of
from prozess.harness.config.releases import NEWEST_PATCHES
from prozess.harness.errors import BadInput
from tools.known_properties import (
    CLASSES,
    answer,
    definition_of,
    kafka_classes,
    librdkafka,
    of_kafka,
    of_librdkafka,
)

NEWEST = NEWEST_PATCHES[-1]
ASKED = [
    version if version == NEWEST else pytest.param(version, marks=pytest.mark.long)
    for version in NEWEST_PATCHES
    if version in locked_versions() or os.environ.get("PROZESS_EVERY_VARIANT")
]
"""Of the others the jars are fetched first, 55 MB each."""
VALUES = (
    *(
        "",
        " ",
        "0",
        "1",
        "-1",
        "5",
        "5.0",
        " 7 ",
        "+3",
        "-5",
        "-7",
        "1e3",
        "0.5",
        "1.5",
        "NaN",
        "0x10",
        "010",
        "1_000",
        "５",
    ),
    *(
        "12 3",
        "5s",
        "2147483647",
        "2147483648",
        "4294967297",
        "99999999999",
        "9223372036854775808",
        "-2",
        "2",
        "9",
        "10",
    ),
    *(
        "true",
        "TRUE",
        " false ",
        "yes",
        "t",
        "all",
        "ALL",
        "banana",
        "zip",
        "gzip",
        "GZIP",
        "none",
        "snappy,lz4",
        "foo",
    ),
    *("a,b", "a,a", "a,,b", "compact", "delete", "compact,delete", "delete, compact", "compact,compact", "ssl", "SSL"),
    *("read_committed", "READ_COMMITTED", "earliest", "smallest", "by_duration:PT1H", "by_duration:P1D", "CreateTime"),
    *("by_duration:-PT1H", "by_duration:x", "by_duration:PT", "consumer", "CONSUMER", "classic"),
)
OF_THE_MACHINE = {"plugin.library.paths", "ssl.ca.certificate.stores"}
"""Of librdkafka: a file that can be loaded, and Windows."""


@pytest.mark.parametrize("version", ASKED)
def test_kafkas_own_classes_tell_the_properties_that_are_on_file(version):
    assert of_kafka(version) == {scope: properties_of(scope, "java", version) for scope in CLASSES}


def test_librdkafka_tells_the_properties_that_are_on_file():
    """By name: a newer librdkafka than the one on file may have more, and other defaults."""
    told = of_librdkafka()
    for scope, properties in told.items():
        assert set(properties_of(scope, "librdkafka", NEWEST_PATCHES[-1])) <= set(properties)


@pytest.mark.long  # 25,000 calls into a JVM; which properties there are, and how Kafka's clients start, is asked each time
@pytest.mark.parametrize("version", ASKED)
def test_a_value_is_refused_exactly_where_kafkas_configdef_refuses_it(version):
    asked, different = 0, []
    with kafka_classes(version) as jvm:
        parse = jvm.org.apache.kafka.common.config.ConfigDef.parseType
        for scope in CLASSES:
            keys = definition_of(jvm, scope).configKeys()
            for name, known in properties_of(scope, "java", version).items():
                if known["type"] == "class" or "other" in known:
                    continue
                for value in (*VALUES, *known.get("values", ()), *known.get("members", ())):
                    asked += 1
                    if _takes(parse, keys[name], value) == bool(problem(name, value, known)):
                        different.append((scope, name, value))
    assert not different
    assert asked > 25_000  # 2.8 has the fewest


def _takes(parse, key, value):
    try:
        parsed = parse(key.name, value, key.type)
        if key.validator is not None:
            key.validator.ensureValid(key.name, parsed)
    except Py4JJavaError:
        return False
    return True


def test_a_value_is_refused_exactly_where_librdkafka_refuses_it():
    library, asked, different = librdkafka(), 0, []
    for scope, properties in of_librdkafka().items():
        for name, known in properties.items():
            if name in OF_THE_MACHINE or known["type"] == "pattern list":
                continue
            for value in (*VALUES, *known.get("values_of_any_case", ()), *known.get("values", ())):
                asked += 1
                if (answer(library, name, value) is None) == bool(problem(name, value, known, client="librdkafka")):
                    different.append((scope, name, value))
    assert not different
    assert asked > 15_000


# --- settings that are each right by themselves

PRODUCERS = [
    *({"acks": "1"}, {"retries": "0"}, {"retries": "3"}, {"max.in.flight.requests.per.connection": "6"}),
    *({"enable.idempotence": "false"}, {"enable.idempotence": "true"}, {"transactional.id": "a"}),
]
PRODUCER_MIXES = [
    dict(itertools.chain.from_iterable(part.items() for part in parts))
    for size in range(4)
    for parts in itertools.combinations(PRODUCERS, size)
]
TIMES = [
    {
        name: value
        for name, value in zip(("delivery.timeout.ms", "linger.ms", "request.timeout.ms"), values, strict=True)
        if value
    }
    for values in itertools.product(("", "1000", "40000"), ("", "0", "1000", "200000"), ("", "500", "39000"))
]
SERIALIZERS = dict.fromkeys(
    ("key.serializer", "value.serializer"), "org.apache.kafka.common.serialization.StringSerializer"
)
DESERIALIZERS = dict.fromkeys(
    ("key.deserializer", "value.deserializer"), "org.apache.kafka.common.serialization.StringDeserializer"
)
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
CONSUMERS = [
    *({"session.timeout.ms": "10000"}, {"heartbeat.interval.ms": "2000"}, {"heartbeat.interval.ms": "45000"}),
    *({"group.protocol": "consumer"}, {"group.protocol": "classic"}, {"group.instance.id": "a"}),
    *({"group.instance.id": "a b"}, {"max.poll.interval.ms": "1000"}),
]
CONSUMER_MIXES = [
    dict(itertools.chain.from_iterable(part.items() for part in parts))
    for size in range(4)
    for parts in itertools.combinations(CONSUMERS, size)
]


@pytest.mark.parametrize("version", ASKED)
def test_a_java_producer_starts_and_is_idempotent_exactly_where_it_is_said_to(version):
    with kafka_classes(version) as jvm:
        for mix in PRODUCER_MIXES + TIMES:
            told = _ours(translate_producer, mix, "java", version)
            found = _started(jvm, "org.apache.kafka.clients.producer", "Producer", mix | SERIALIZERS)
            assert (told is None) == (found is None), mix
            if told is not None:
                assert told.base["producer.enable_idempotence"] == bool(found.get("enable.idempotence")), mix
                acks = {"-1": "all"}.get(found.get("acks"), found.get("acks"))
                assert told.base["producer.acks"] == acks, mix
                assert told.base["producer.retries"] == {2**31 - 1: "max"}.get(
                    found.get("retries"), str(found.get("retries"))
                )


@pytest.mark.parametrize("version", ASKED)
def test_a_java_consumer_starts_exactly_where_it_is_said_to(version):
    with kafka_classes(version) as jvm:
        for mix in CONSUMER_MIXES:
            told = _ours(translate_consumer, mix, "java", version, commits="none")
            settings = mix | DESERIALIZERS | {"group.id": "g"}
            found = _started(jvm, "org.apache.kafka.clients.consumer", "Consumer", settings)
            assert (told is None) == (found is None), mix


def _started(jvm, package, kind, settings):
    """The configuration of a client that starts; None: it refuses to."""
    classes = jvm
    for part in package.split("."):
        classes = getattr(classes, part)
    given = jvm.java.util.HashMap()
    for name, value in (settings | NOWHERE).items():
        given.put(name, value)
    try:
        getattr(classes, f"Kafka{kind}")(given).close(jvm.java.time.Duration.ZERO)
        return getattr(classes, f"{kind}Config")(given).values()
    except Py4JJavaError:
        return None


LIBRDKAFKA_PRODUCERS = [
    *PRODUCER_MIXES,
    *({name: value for name, value in mix.items() if name != "request.timeout.ms"} for mix in TIMES),
    # request.timeout.ms: with a property of topics all is looked at when the client starts, not with its first record
    *({"transactional.id": "a", "request.timeout.ms": "500"} | mix for mix in TIMES),
    {"transactional.id": "a", "socket.timeout.ms": "70000"},
    {"transactional.id": "a", "socket.timeout.ms": "60100"},
    {"enable.idempotence": "true", "queue.buffering.backpressure.threshold": "2"},
    {"enable.idempotence": "true", "queuing.strategy": "lifo"},
    {"queuing.strategy": "lifo"},
    {"enable.gapless.guarantee": "true"},
    {"enable.gapless.guarantee": "true", "enable.idempotence": "true"},
    {"reconnect.backoff.ms": "20000"},
    {"reconnect.backoff.max.ms": "50"},
    {"acks": "ALL"},
    {"linger.ms": "0.5"},
    {"retries": "0x3"},
]
LIBRDKAFKA_CONSUMERS = [
    *({name: value for name, value in mix.items() if value != "a b"} for mix in CONSUMER_MIXES),
    *({"fetch.max.bytes": "1000"}, {"fetch.max.bytes": "60000000"}, {"fetch.max.bytes": "2000000000"}),
    *({"receive.message.max.bytes": "1000"}, {"receive.message.max.bytes": "52429312"}),
]


@pytest.mark.parametrize("mix", LIBRDKAFKA_PRODUCERS, ids=str)
def test_a_producer_of_librdkafka_starts_exactly_where_it_is_said_to(mix):
    assert (_ours(translate_producer, mix, "librdkafka", NEWEST_PATCHES[-1]) is None) == _refused(Producer, mix)


@pytest.mark.parametrize("mix", LIBRDKAFKA_CONSUMERS, ids=str)
def test_a_consumer_of_librdkafka_starts_exactly_where_it_is_said_to(mix):
    told = _ours(translate_consumer, mix, "librdkafka", NEWEST_PATCHES[-1], commits="none")
    assert (told is None) == _refused(Consumer, mix | {"group.id": "g"})


def _refused(client, settings):
    try:
        made = client(settings | {"log_level": 0})
    except KafkaException:
        return True
    if client is Consumer:
        made.close()
    return False


def _ours(translate, mix, client, version, **more):
    settings = {name: Setting(value, "here") for name, value in mix.items()}
    try:
        return translate(settings, client, version, **more)
    except BadInput:
        return None


def test_the_file_is_small():
    """It comes with the package: of each version only what differs from the one before it."""
    from tools.known_properties import DATA

    assert DATA.stat().st_size < 200_000
    assert set(json.loads(DATA.read_text(encoding="utf-8"))["kafka"]) == set(NEWEST_PATCHES)
