"""The name of a setting in what is printed: the one that the user's files have. Pure.

Kafka has two names for many settings of a topic: the topic's own, and the brokers' for all topics without one (LogConfig,
TopicConfigSynonyms). A reader who wrote `log.retention.ms` into server.properties looks for that name:

    server.properties: log.flush.interval.messages=1, no topic's file
    "flush.messages=1: acknowledged records survive …"  →  "log.flush.interval.messages=1: acknowledged records survive …"
"""

import re
from collections.abc import Iterator

from prozess.harness.config.known_properties import properties_of
from prozess.validation.servers import REPLICATION
from prozess.validation.trial import ConfigurationParts


def brokers_names(version: str) -> dict[str, tuple[str, ...]]:
    """Maps each setting of a topic to the brokers' names of it, where they are other ones."""
    known, brokers = properties_of("topic", "java", version), properties_of("broker", "java", version)
    names: dict[str, tuple[str, ...]] = {REPLICATION[0]: ("default.replication.factor",)}
    for name, facts in known.items():
        server = facts.get("server") or name
        # One time may have three units: log.retention.ms, log.retention.minutes, log.retention.hours.
        stem = server.removesuffix(".ms")
        units = (server, f"{stem}.minutes", f"{stem}.hours") if server.endswith(".ms") else (server,)
        names[name] = tuple(each for each in units if each in brokers and each != name)
    return {name: others for name, others in names.items() if others}


class SettingNames:
    """Writes sentences with the settings' names as the files have them."""

    def __init__(self, parts: ConfigurationParts) -> None:
        topic, broker = parts.servers.topic or {}, parts.servers.broker or {}
        own = set(topic) | ({REPLICATION[0]} if any(name in topic for name in REPLICATION) else set())
        self._given = {
            name: given
            for name, others in brokers_names(parts.version).items()
            if name not in own and (given := next((each for each in others if each in broker), None))
        }
        names = "|".join(re.escape(name) for name in sorted(self._given, key=len, reverse=True))
        # A name that is the end or the beginning of a longer one is another setting's.
        self._pattern = re.compile(rf"(?<![\w.-])(?:{names})(?=[=:, ;)]|$)") if names else None

    def sentence(self, text: str) -> str:
        """Returns the text with each setting's name as the files have it. A setting that only its unit tells from the files'
        (`log.retention.hours`) keeps its own name where a value follows: 168 hours are not 168 ms.
        """
        return text if self._pattern is None else self._pattern.sub(self._name, text)

    def lines(self, lines: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yields lines of a word and a sentence, with the sentences' names as the files have them."""
        for word, text in lines:
            yield word, self.sentence(text)

    def _name(self, found: "re.Match[str]") -> str:
        given = self._given[found[0]]
        other_unit = found[0].endswith(".ms") and not given.endswith(".ms")
        return found[0] if other_unit and found.string[found.end() :].startswith("=") else given
