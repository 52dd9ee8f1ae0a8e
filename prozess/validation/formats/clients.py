"""Reads the settings of sarama, franz-go, kafka-go, kafkajs, kafka-python and aiokafka: the options that
client_libraries.toml has, and what a library decides from several of them at once."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from prozess.harness.errors import BadInput
from prozess.validation.formats.client_libraries import (
    LIBRARIES,
    PARTS,
    Library,
    Sections,
    read_library,
    stand_in_sentence,
)
from prozess.validation.formats.filing import ClientScope, Filing, documents_of, unwrapped_document
from prozess.validation.reading import FileMapping, FileValue, Reading, Scope


class LibraryFormat:
    """Options of a library in a JSON or YAML file: flat, below the names of parts, or below the library's name."""

    below: tuple[str, ...]
    """Names of the library, below which the options may be."""
    parts: Mapping[str, ClientScope] = PARTS

    def __init__(self, name: str) -> None:
        self.name, self.library = name, LIBRARIES[name]

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file says that it is the library's, or has names that only the library has."""
        sections = self._sections(document)
        return sections is not None and (bool(sections.above) or self._has_own_names(sections))

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads producer and consumer, with what the library takes by default."""
        sections = self._sections(document) or Sections({}, "", self.library, self.parts)
        filing = read_library(self.library, sections, path, wanted)
        self._decide(filing, sections)
        return filing.reading

    def _sections(self, document: FileValue) -> Sections | None:
        found = self._options(document)
        return None if found is None else Sections(found[1], found[0], self.library, self.parts)

    def _options(self, document: FileValue) -> tuple[str, FileMapping] | None:
        """Returns where the options are in the file, and the options."""
        return unwrapped_document(document, *self.below)

    def _has_own_names(self, sections: Sections) -> bool:
        return bool(sections.names() & self.library.own)

    def _decide(self, filing: Filing, sections: Sections) -> None:
        """Sets defaults that depend on other options, and refuses what the library refuses."""


_SARAMA = "config.go, sarama 1.61.1"


class Sarama(LibraryFormat):
    """Fields of the struct, nested or in dotted names, whatever their case (encoding/json takes any)."""

    below = ("sarama",)
    parts: Mapping[str, ClientScope] = {}

    def _has_own_names(self, sections: Sections) -> bool:
        known = [name for name in sections.names() if self.library.knows(name)]
        pascal = bool(known) and not sections.keys.isdisjoint(("Producer", "Consumer", "Net"))
        return pascal or any(name.endswith(tuple(self.library.own)) for name in known)

    def _decide(self, filing: Filing, sections: Sections) -> None:
        """Refuses what Config.Validate refuses beyond what any client does: idempotence with more than one request in
        flight, and transactions without idempotence."""
        idempotent = filing.value("producer", "enable.idempotence")
        in_flight = filing.value("producer", "max.in.flight.requests.per.connection")
        if idempotent is not None and in_flight is not None and idempotent.value == "true" and in_flight.value != "1":
            raise BadInput(
                f"{idempotent.origin}: sarama refuses Producer.Idempotent with Net.MaxOpenRequests={in_flight.value} "
                f"({in_flight.origin}): an idempotent producer needs 1 ({_SARAMA}, Validate). Set Net.MaxOpenRequests to 1."
            )
        transactional = filing.value("producer", "transactional.id")
        if transactional is not None and (idempotent is None or idempotent.value != "true"):
            raise BadInput(
                f"{transactional.origin}: sarama refuses Producer.Transaction.ID without Producer.Idempotent ({_SARAMA}, "
                "Validate). Set Producer.Idempotent to true."
            )


_FRANZ_GO = "pkg/kgo/config.go, franz-go 1.22.2"


class FranzGo(LibraryFormat):
    """Options by name: a mapping, or a list of calls as they are in the code: `["RequiredAcks(AllISRAcks())", …]`."""

    below = ("franz-go", "franz_go", "kgo")

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file says that it is franz-go's, or has only names of franz-go's options."""
        try:
            return super().recognises(document, path)
        except BadInput:  # an option that is there twice
            return True

    def _options(self, document: FileValue) -> tuple[str, FileMapping] | None:
        documents = documents_of(document)
        if len(documents) == 1 and isinstance(documents[0], list):
            documents = documents[0]
        if documents and all(isinstance(each, str) for each in documents):  # a JSON file that is a list
            return "", _calls(documents)
        found = super()._options(document)
        if found is None:
            return None
        return found[0], {str(key).removeprefix("kgo."): value for key, value in found[1].items()}

    def _has_own_names(self, sections: Sections) -> bool:
        return any(re.match(r"[A-Z]", name) and self.library.knows(name) for name in sections.names())

    def _decide(self, filing: Filing, sections: Sections) -> None:
        """Five with idempotence, whatever is set; one without, unless it is set (MaxProduceRequestsInflightPerBroker).
        franz-go refuses an option to the contrary, or acks other than all, with idempotence (cfg.validate)."""
        idempotent = filing.value("producer", "enable.idempotence")
        if idempotent is None:
            return
        number_ = "max.in.flight.requests.per.connection"
        if idempotent.value == "false":
            filing.default("producer", number_, "1", f"franz-go's default without idempotence ({_FRANZ_GO})")
            return
        acks, in_flight = filing.value("producer", "acks"), filing.value("producer", number_)
        if in_flight is not None and in_flight.value != "1":
            raise BadInput(
                f"{in_flight.origin}: franz-go refuses MaxProduceRequestsInflightPerBroker with idempotence "
                f"({_FRANZ_GO}, validate). Leave it out, or set DisableIdempotentWrite."
            )
        if acks is not None and acks.value != "all":
            raise BadInput(
                f"{acks.origin}: franz-go refuses RequiredAcks other than AllISRAcks with idempotence "
                f"({_FRANZ_GO}, validate). Set RequiredAcks to AllISRAcks, or DisableIdempotentWrite."
            )
        filing.default("producer", number_, "5", f"franz-go's default with idempotence ({_FRANZ_GO})")


def _calls(calls: Iterable[FileValue]) -> FileMapping:
    found: dict[str, FileValue] = {}
    for call in map(str, calls):
        name, _, arguments = call.strip().removeprefix("kgo.").partition("(")
        value = arguments.removesuffix(")")
        if name in found:
            raise BadInput(f"franz-go's option {name} is there twice, and only one can be meant: remove the other.")
        found[name] = True if value == "" else value.strip('"')
    return found


_KAFKA_GO = "kafka-go 0.4"
_WRITER_AND_READER: Mapping[str, ClientScope] = {
    "Writer": "producer",
    "WriterConfig": "producer",
    "writer": "producer",
    "Reader": "consumer",
    "ReaderConfig": "consumer",
    "reader": "consumer",
}


class KafkaGo(LibraryFormat):
    """Fields of a Writer and a Reader."""

    below = ("kafka-go", "kafka_go", "segmentio")
    parts: Mapping[str, ClientScope] = {**PARTS, **_WRITER_AND_READER}

    def _decide(self, filing: Filing, sections: Sections) -> None:
        """A Writer whose RequiredAcks nobody sets waits for nobody. NewWriter makes RequireAll of it, from a WriterConfig,
        which has Brokers in place of Addr (writer.go)."""
        names = {*sections.of.get("producer", ()), *sections.both}
        if "producer" not in filing.reading.defaults or filing.is_given("producer", "acks") or "addr" in names:
            return
        if "brokers" in names:
            origin = f"NewWriter takes RequireAll where nobody sets RequiredAcks, {_KAFKA_GO}, writer.go"
            filing.default("producer", "acks", "all", origin)
        else:
            filing.unclear(
                "RequiredAcks", "is not set: a Writer then waits for nobody, and NewWriter for all replicas: set it"
            )


_CALLS: Mapping[str, ClientScope] = {
    "send": "producer",
    "sendBatch": "producer",
    "run": "consumer",
    "subscribe": "consumer",
}
"""Calls whose options are a part's: `producer.send({acks})`, `consumer.run({autoCommit})`."""
_KAFKA_NODE = frozenset(
    ("kafkaHost", "requireAcks", "ackTimeoutMs", "partitionerType", "fromOffset", "autoCommitIntervalMs")
)
"""Options of kafka-node, another library, which shares some names with kafkajs."""


class Kafkajs(LibraryFormat):
    """Options of kafkajs: flat, below `producer` and `consumer`, or below the calls that take them."""

    below = ("kafkajs",)
    parts: Mapping[str, ClientScope] = {**PARTS, **_CALLS}

    def _has_own_names(self, sections: Sections) -> bool:
        return super()._has_own_names(sections) and not sections.names() & _KAFKA_NODE


KAFKA_PYTHON, AIOKAFKA = LIBRARIES["kafka-python"], LIBRARIES["aiokafka"]
_DEPENDS = {
    "acks": ("acks", "1 up to 2.3 and all since 3.0"),
    "enable_idempotence": ("enable.idempotence", "false up to 2.3 and true since 3.0"),
    "retries": ("retries", "0 up to 2.1 and without limit since 2.2"),
}
"""What kafka-python's releases take differently, by their kafka/producer/kafka.py (2.0.2, 2.1.5, 2.2.15, 2.3.0, 3.0.0)."""
_AIO_PRODUCER = "aiokafka 0.14.0, producer/producer.py"
_EITHER = replace(
    LIBRARIES["python"],
    name="kafka-python or aiokafka",
    stands_in=stand_in_sentence("kafka-python's or aiokafka"),
    defaults={
        "producer": {},
        "consumer": {
            name: default
            for name, default in KAFKA_PYTHON.defaults["consumer"].items()
            if name in AIOKAFKA.defaults["consumer"] and default.value == AIOKAFKA.defaults["consumer"][name].value
        },
    },
    aside=KAFKA_PYTHON.aside | AIOKAFKA.aside,
    unclear=KAFKA_PYTHON.unclear,
)
_ONLY_KAFKA_PYTHON = frozenset(
    {
        *(KAFKA_PYTHON.options["producer"].keys() - _EITHER.options["producer"].keys()),
        *(KAFKA_PYTHON.aside - AIOKAFKA.aside),
        *KAFKA_PYTHON.unclear,
    }
)
_ONLY_AIOKAFKA = AIOKAFKA.aside - KAFKA_PYTHON.aside
_LOGSTASH = frozenset(
    ("topic_id", "codec", "decorate_events", "consumer_threads", "topics_pattern", "jaas_path", "message_key")
)
"""Options of Logstash's Kafka plugins, whose other names are those of kafka-python."""


def _library(document: FileValue) -> tuple[Library, Sections] | None:
    found = unwrapped_document(document, "kafka-python", "kafka_python", "aiokafka")
    if found is None:
        return None
    above, options = found
    if above:
        library = AIOKAFKA if above == "aiokafka." else KAFKA_PYTHON
        return library, Sections(options, above, library)
    sections = Sections(options, above, KAFKA_PYTHON)
    names = sections.names()
    if not any("_" in name and (KAFKA_PYTHON.knows(name) or AIOKAFKA.knows(name)) for name in names):
        return None  # acks and retries are Kafka's own names, too
    if names & _ONLY_AIOKAFKA and not names & _ONLY_KAFKA_PYTHON:
        return AIOKAFKA, sections
    if names & _ONLY_KAFKA_PYTHON and not names & _ONLY_AIOKAFKA:
        return KAFKA_PYTHON, sections
    return _EITHER, sections


class PythonClients:
    """Keyword arguments in JSON or YAML: flat, or below `producer` and `consumer`, or below the library's name."""

    name = "kafka-python, aiokafka"

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file has names with underscores that these libraries have, and is not Logstash's."""
        found = _library(document)
        return found is not None and not found[1].names() & _LOGSTASH

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads producer and consumer, with the library's defaults; where these depend on its release, they are not
        understood."""
        library, sections = _library(document) or (_EITHER, Sections({}, "", _EITHER))
        filing = read_library(library, sections, path, wanted)
        producer = filing.reading.scopes.get("producer")
        is_producer = producer is not None or any(name in sections.names() for name in _EITHER.options["producer"])
        if library is AIOKAFKA and producer is not None:
            _aiokafka_acks(filing)
        elif is_producer:
            _undecided(filing, library)
        if library is _EITHER and any(name in sections.names() for name in _EITHER.options["consumer"]):
            filing.unclear(
                "partition_assignment_strategy, enable_auto_commit",
                "are taken differently by kafka-python and by aiokafka: put the arguments below the library's name",
            )
        return filing.reading


def _aiokafka_acks(filing: Filing) -> None:
    """acks=1 unless idempotence is asked for, by itself or by a transactional id; acks other than all is refused then."""
    asked = filing.value("producer", "enable.idempotence")
    transactional = filing.is_given("producer", "transactional.id")
    if transactional:
        filing.default("producer", "enable.idempotence", "true", f"aiokafka's, of a transactional_id ({_AIO_PRODUCER})")
    if asked is None and not transactional:
        return
    idempotent = transactional or (asked is not None and asked.value == "true")
    filing.default("producer", "acks", "all" if idempotent else "1", f"aiokafka's default ({_AIO_PRODUCER})")
    acks_ = filing.value("producer", "acks")
    if idempotent and acks_ is not None and acks_.value != "all":
        raise BadInput(
            f"{acks_.origin}: aiokafka refuses acks={acks_.value} with enable_idempotence or a transactional_id "
            f"({_AIO_PRODUCER}). Leave acks out."
        )


def _undecided(filing: Filing, library: Library) -> None:
    for spelt, (name, values) in _DEPENDS.items():
        settled = name != "acks" and filing.is_given("producer", "transactional.id") and name == "enable.idempotence"
        if filing.is_given("producer", name) or settled or (spelt == "retries" and library is _EITHER):
            continue
        why = f"is not set, and kafka-python's default depends on its release ({values})"
        if library is _EITHER:
            why += ", aiokafka's is another: put the arguments below the library's name"
        filing.unclear(spelt, f"{why}: set it" if library is not _EITHER else why)
