"""`harness/data/known_properties.json`, from the programs themselves: `python -m clusters.known_properties` writes it anew.

Kafka's own configuration classes print their documentation as HTML when run; librdkafka prints its CONFIGURATION.md. From
both: name, default, type of every property, so that a misspelt one is noticed and an unset one has its true default.
"""

import ctypes
import json
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import confluent_kafka

from clusters.jars import class_path, ensure_jars
from clusters.java import find_java
from harness.errors import HarnessFailed

DATA = Path(__file__).resolve().parents[1] / "harness" / "data" / "known_properties.json"
VERSIONS = ("3.9.2", "4.3.1")
CLASSES = {
    "producer": "org.apache.kafka.clients.producer.ProducerConfig",
    "consumer": "org.apache.kafka.clients.consumer.ConsumerConfig",
    "topic": "org.apache.kafka.storage.internals.log.LogConfig",
    "broker": "kafka.server.KafkaConfig",
}
PRINT_TIMEOUT_S = 60.0
Properties = dict[str, dict[str, str]]
"""Name → `default`, `type`, and of topics' `server` (the broker's property that is its default)."""


class _Documentation(HTMLParser):
    """Kafka's `ConfigDef.toHtml`: a heading per property, a table of facts below it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Properties = {}
        self._within, self._name, self._key, self._text = "", "", "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("h4", "th", "td"):
            self._within, self._text = tag, ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag != self._within:
            return
        self._within, text = "", self._text.strip()
        if tag == "h4":
            self._name = text
            self.found[text] = {}
        elif tag == "th":
            self._key = text.rstrip(":")
        elif kept := {"Default": "default", "Type": "type", "Server Default Property": "server"}.get(self._key):
            self.found[self._name][kept] = _value(text)


def _value(text: str) -> str:
    """ "604800000 (7 days)" → "604800000"; "" stays empty, "null" is none."""
    return "" if text == "null" else re.sub(r" \([^()]*\)$", "", text).strip('"')


def of_kafka(version: str) -> dict[str, Properties]:
    """Scope → properties. HarnessFailed if a class prints nothing."""
    java, jars = find_java(), ensure_jars(version)
    found = {}
    for scope, name in CLASSES.items():
        done = subprocess.run(
            [str(java.executable), "-cp", class_path(jars), name],
            capture_output=True,
            text=True,
            timeout=PRINT_TIMEOUT_S,
            check=False,
        )
        parser = _Documentation()
        parser.feed(done.stdout)
        if not parser.found:
            raise HarnessFailed(f"{name} of Kafka {version} printed no properties: {done.stderr.strip()[-300:]}")
        found[scope] = dict(sorted(parser.found.items()))
    return found


def of_librdkafka() -> dict[str, Properties]:
    """`producer` and `consumer`, global and topic properties together, as its clients take them."""
    (library,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*.so*")
    with tempfile.NamedTemporaryFile() as file:
        libc = ctypes.CDLL(None)
        libc.fopen.restype = ctypes.c_void_p
        stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
        ctypes.CDLL(str(library)).rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        text = Path(file.name).read_text(encoding="utf-8")
    found: dict[str, Properties] = {"producer": {}, "consumer": {}}
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        if len(cells) < 6 or cells[1] not in ("*", "C", "P"):
            continue
        name, whose, _, default, _, description = cells[:6]
        kind = re.search(r"\*Type: ([^*]+)\*", description)
        entry = {"default": default, "type": kind[1] if kind else "string"}
        if alias := re.match(r"Alias for `([^`]+)`", description):
            entry["alias"] = alias[1]
        for scope, letter in (("producer", "P"), ("consumer", "C")):
            if whose in ("*", letter):
                found[scope].setdefault(name, entry)  # of global and topic properties of one name, the global one
    return {scope: dict(sorted(entries.items())) for scope, entries in found.items()}


def collect() -> dict[str, Any]:
    """Everything that the file holds."""
    return {
        "kafka": {version: of_kafka(version) for version in VERSIONS},
        "librdkafka": {"version": confluent_kafka.libversion()[0], **of_librdkafka()},
    }


def main() -> None:
    """Write the file."""
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text(json.dumps(collect(), indent=0, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write(f"wrote {DATA}\n")


if __name__ == "__main__":
    main()
