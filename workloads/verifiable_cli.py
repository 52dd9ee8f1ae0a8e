"""What our verifiable clients share with each other, so that they can stand in for Kafka's: options, properties, JSON lines.

As the Java tools: one JSON object per line on standard output, `timestamp` and `name` first, whatever is for people on
standard error, and SIGTERM or SIGINT end them in order. https://github.com/apache/kafka/tree/trunk/tools
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

JAVA_ONLY = frozenset({
    "key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "buffer.memory", "max.block.ms",
    "group.remote.assignor", "default.api.timeout.ms", "max.poll.records",
})  # fmt: skip
"""Properties of Java clients that librdkafka does not have: passed over, and said so."""
_RENAMED = {
    "retries": "message.send.max.retries",
    "max.in.flight.requests.per.connection": "max.in.flight",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
}


class Emitter:
    """Writes events."""

    def __init__(self) -> None:
        self._write = sys.stdout.write

    def __call__(self, name: str, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        """One line, flushed: a reader waits for it."""
        stamped = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
        self._write(json.dumps(stamped, separators=(",", ":")) + "\n")
        sys.stdout.flush()


class StopSignal:
    """True once SIGTERM or SIGINT came; `code` is the exit code the Java tools have then."""

    def __init__(self) -> None:
        self.code = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.code = 128 + number

    def __bool__(self) -> bool:
        return self.code != 0


def complain(text: str) -> None:
    """For people, not for the reader of events."""
    sys.stderr.write(f"{text}\n")


def read_properties(path: str | None) -> dict[str, str]:
    """A Java .properties file, as far as configurations of clients use them: comments, `key=value`, `key: value`. SystemExit
    1 if it cannot be read, as the Java tools do."""
    if path is None:
        return {}
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        complain(f"{path} cannot be read: {error.strerror}")
        raise SystemExit(1) from error
    found = {}
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        at = min((i for i in (line.find("="), line.find(":")) if i >= 0), default=len(line))
        found[line[:at].strip()] = line[at + 1 :].strip()
    return found


def for_librdkafka(properties: Mapping[str, str]) -> dict[str, str]:
    """The same, without what only Java clients know."""
    ignored = sorted(JAVA_ONLY & properties.keys())
    if ignored:
        complain(f"not known to librdkafka, passed over: {', '.join(ignored)}")
    return {_RENAMED.get(key, key): value for key, value in properties.items() if key not in JAVA_ONLY}


class Parser(argparse.ArgumentParser):
    """Wrong arguments are exit code 1, and none at all is the help, as with argparse4j."""

    def error(self, message: str) -> Any:  # noqa: ANN401 - never returns
        self.print_usage(sys.stderr)
        complain(f"{self.prog}: error: {message}")
        raise SystemExit(1)

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """The options; SystemExit 0 after the help if there are no arguments."""
        if not argv:
            self.print_help()
            raise SystemExit(0)
        return self.parse_args(argv)


def finish(code: int) -> None:
    """End with this code at once: librdkafka's threads need not be waited for, everything was said."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
