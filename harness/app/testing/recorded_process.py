"""The process that a test starts for an application: it records what the application does with Kafka.

    python -P -m prozess.harness.app.testing.recorded_process application MODULE:FUNCTION | FILE.py ARGUMENTS…
    python -P -m prozess.harness.app.testing.recorded_process command KIND PROPERTIES WORDS…

`application` runs Python code with recorded clients in place of its Kafka clients; `sys.argv` is as if the code had been
started by itself. `command` runs any program, and records the client whose doings the program prints in lines of JSON. KIND
is `producer` or `consumer`; PROPERTIES is a JSON object with the configuration of that client.
"""

import json
import runpy
import sys
from importlib import import_module
from pathlib import Path

from prozess.harness.interfaces.application import ClientKind

_KINDS: dict[str, ClientKind] = {"producer": "producer", "consumer": "consumer"}


def main() -> int:
    """Runs what the command line says; returns the exit code of a command. An application ends this process by itself."""
    what, *rest = sys.argv[1:]
    if what == "application":
        _run_application(rest)
        return 0
    assert what == "command", what
    return _run_command(rest)


def _run_application(words: list[str]) -> None:
    from prozess.workloads.recorded.application import record_clients

    target = words[0]
    sys.argv = words
    record_clients()
    if target.endswith(".py"):
        sys.path.insert(0, str(Path(target).resolve().parent))
        runpy.run_path(target, run_name="__main__")
        return
    module, _, function = target.partition(":")
    sys.argv[0] = module
    sys.exit(getattr(import_module(module), function)())


def _run_command(words: list[str]) -> int:
    from prozess.workloads.recorded.command import record_command

    kind, properties, *command = words
    return record_command(_KINDS[kind], json.loads(properties), command)


if __name__ == "__main__":
    raise SystemExit(main())
