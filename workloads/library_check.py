"""Client libraries are asked, before a run, for what only they know: their version, their own defaults, and whether they
take the properties that the plan has for them.

librdkafka of another version is asked in a process of its own, whose import path has it first. Kafka's Java client prints
its own documentation (`ProducerConfig.main`).
"""

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka

from prozess.harness import installation
from prozess.harness.config.library_defaults import (
    MEMBER_PROPERTY_OF,
    PROPERTY_OF,
    contradictions,
    members_contradictions,
)
from prozess.harness.errors import BadInput, HarnessFailed
from prozess.harness.plan.cell_work import GroupWork, TransactionsWork
from prozess.harness.plan.plan import ClientLibrary, Plan, PlannedClient
from prozess.workloads.librdkafka import library_version
from prozess.workloads.roles import ADDRESS_OF_NOBODY, CONSUMERS, ROLES, RUN_TOOLS, why_refused
from prozess.workloads.settings import LaunchContext, Toolbox

ANSWER_TIMEOUT_S = 60.0
Defaults = Mapping[str, Mapping[str, str]]
"""Scope (producer, consumer) → Kafka's name of a property → the library's own value."""
_ENTRY = re.compile(r'<h4><a id="(?P<name>[^"]+)"></a>.*?<tr><th>Default:</th><td>(?P<default>[^<]*)</td>', re.DOTALL)
"""One property in what `ConfigDef.toHtml` makes."""


def check_libraries(plan: Plan, *, toolbox: Toolbox) -> None:
    """Asks every client library on trial that the plan does not know by itself.

    BadInput if a library refuses what the plan has for it, has other defaults than the plan took it to have, or is of
    another version than its package; HarnessFailed if it does not answer.
    """
    for library in plan.libraries:
        clients = [client for client in plan.clients if _same(plan, client, library)]
        left = [client for client in clients if _left(client)]
        if library.client == "java":
            if left:
                assert library.version is not None, library
                _compare(library, left, java_defaults(library.version, toolbox))
        elif library.version is not None or left:
            _check_librdkafka(plan, library, clients, toolbox)


def _same(plan: Plan, client: PlannedClient, library: ClientLibrary) -> bool:
    mine = client.library
    if mine is None or mine.client != library.client:
        return False
    return (plan.java_version(client) if mine.client == "java" else mine.version) == library.version


def _left(client: PlannedClient) -> tuple[str, ...]:
    """Returns the settings of a client that are left to its library."""
    work = client.work
    if isinstance(work, GroupWork):
        return work.configuration.left_to_client
    return () if client.producer is None else client.producer.left_to_client


def _compare(library: ClientLibrary, clients: Iterable[PlannedClient], defaults: Defaults) -> None:
    for client in clients:
        work, version = client.work, library.version or ""
        if isinstance(work, GroupWork):
            answers, names = defaults["consumer"], MEMBER_PROPERTY_OF
        else:
            answers, names = defaults["producer"], PROPERTY_OF
        if lacking := [names[name] for name in _left(client) if names[name] not in answers]:
            raise BadInput(
                f"{library} does not say what it takes for {', '.join(lacking)}, so nobody knows what {client.name} "
                'promises. Set these in `base`, or set defaults = "prozess".'
            )
        if isinstance(work, GroupWork):
            wrong = members_contradictions(work.configuration, answers)
        else:
            assert client.producer is not None, client
            timeout_ms = _transaction_timeout_ms(client)
            wrong = contradictions(client.producer, answers, version=version, transaction_timeout_ms=timeout_ms)
        if wrong:
            raise BadInput(
                f"{library} has other defaults than prozess knows: {'; '.join(wrong)}. Set these in `base`, so that the "
                "verdict knows what the client does."
            )


def _transaction_timeout_ms(client: PlannedClient) -> int | None:
    """Returns the timeout of a client's transactions; None if the plan has it as a producer without."""
    work = client.work
    return work.configuration.transaction_timeout_ms if isinstance(work, TransactionsWork) else None


# librdkafka.


def _check_librdkafka(plan: Plan, library: ClientLibrary, clients: Sequence[PlannedClient], toolbox: Toolbox) -> None:
    wanted = {}
    for client in clients:
        context = LaunchContext(plan=plan, planned=client, servers=ADDRESS_OF_NOBODY, limit_s=1.0, toolbox=toolbox)
        properties = ROLES[client.role].launch(context).properties
        if properties and client.role not in RUN_TOOLS:
            wanted[client.name] = {"consumer": client.role in CONSUMERS, "properties": properties}
    directory = None if library.version is None else toolbox.librdkafka(library.version)
    answer = _asked(directory, wanted, what=str(library))
    if library.version is not None and answer["version"] != library.version:
        raise BadInput(
            f"client_version = {library.version!r}: confluent-kafka {library.version} brings librdkafka "
            f"{answer['version']}. Give that version, if it is the one that you mean."
        )
    for name, why in answer["refused"].items():
        raise BadInput(
            f"Client {name} cannot be made, {library} refuses its configuration: {why}. Change it in the trial's `base` or "
            "`axes`, or exclude the combination."
        )
    _compare(library, [client for client in clients if _left(client)], answer["defaults"])


def _asked(library: Path | None, clients: Mapping[str, Any], *, what: str) -> dict[str, Any]:
    path = [str(library)] if library is not None else []
    path += [str(installation.SEARCH_PATH), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "prozess.workloads.library_check"],
            input=json.dumps(clients),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HarnessFailed(f"{what} did not answer within {ANSWER_TIMEOUT_S:g} s.") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise HarnessFailed(f"{what} cannot be used here: {last}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main() -> None:
    """Answers for the librdkafka of this process: its version, its defaults, and which clients on standard input it
    refuses, with its reasons."""
    clients = json.loads(sys.stdin.read())
    refused = {}
    for name, client in clients.items():
        if (why := why_refused(client["properties"], consumer=client["consumer"])) is not None:
            refused[name] = why
    values = {"version": library_version(), "defaults": librdkafka_defaults(), "refused": refused}
    sys.stdout.write(json.dumps(values))


def librdkafka_defaults() -> Defaults:
    """Returns what the librdkafka of this process takes for the settings of producers and consumers where nothing is set.
    Both are empty if the library is not the one that confluent_kafka brings along."""
    found = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*.so*")
    path = next(found, None)
    if path is None:
        return {"producer": {}, "consumer": {}}
    library = ctypes.CDLL(str(path))
    answers: dict[str, str] = {}
    for kind in ("rd_kafka_conf", "rd_kafka_topic_conf"):
        new, get = getattr(library, f"{kind}_new"), getattr(library, f"{kind}_get")
        new.restype = ctypes.c_void_p
        get.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)]
        configuration = new()
        for name in (*PROPERTY_OF.values(), *MEMBER_PROPERTY_OF.values()):
            text, size = ctypes.create_string_buffer(512), ctypes.c_size_t(512)
            if get(configuration, name.encode(), text, ctypes.byref(size)) == 0:  # RD_KAFKA_CONF_OK
                answers.setdefault(name, text.value.decode())
    scopes = {"producer": PROPERTY_OF, "consumer": MEMBER_PROPERTY_OF}
    return {scope: {n: answers[n] for n in names.values() if n in answers} for scope, names in scopes.items()}


# Kafka's Java client.


def java_defaults(version: str, toolbox: Toolbox) -> Defaults:
    """Returns the default of every property of Java producers and consumers, as the client itself prints them.
    HarnessFailed if it does not."""
    path = ":".join(map(str, toolbox.jars(version)))
    command = [str(toolbox.java().executable), "-XX:TieredStopAtLevel=1", "-cp", path]
    return {scope: _printed_by(version, [*command, main]) for scope, main in _DOCUMENTED.items()}


_DOCUMENTED = {
    "producer": "org.apache.kafka.clients.producer.ProducerConfig",
    "consumer": "org.apache.kafka.clients.consumer.ConsumerConfig",
}
"""Scope → the class whose `main` prints its properties."""


def _printed_by(version: str, command: Sequence[str]) -> dict[str, str]:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HarnessFailed(f"Kafka's Java client {version} did not answer within {ANSWER_TIMEOUT_S:g} s.") from error
    printed = defaults_printed(done.stdout)
    if done.returncode != 0 or not printed:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise HarnessFailed(f"Kafka's Java client {version} does not print its defaults: {last}")
    return printed


def defaults_printed(page: str) -> dict[str, str]:
    """Returns name → default of each property that `ConfigDef.toHtml` printed. Times have words behind them there."""
    return {match["name"]: match["default"].partition(" (")[0] for match in _ENTRY.finditer(page)}


if __name__ == "__main__":
    main()
