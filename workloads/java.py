"""Starts a JVM inside a client's process (JPype), for Kafka's own Java clients. No thread of Java's enters Python: what Java
answers later is asked for."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from prozess.harness.errors import BadInput
from prozess.workloads.settings import LaunchContext, Property, RoleOptions

REQUEST_MS = 10_000
"""How long clients wait for an answer: the time for which librdkafka's wait in a trial (socket.timeout.ms)."""
JAVA_FOR_A_BROKEN_CLUSTER: dict[str, Property] = {
    "request.timeout.ms": REQUEST_MS,
    "socket.connection.setup.timeout.ms": 3_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 300,
    "metadata.max.age.ms": 1_000,
    "retry.backoff.ms": 100,
}
"""The properties of `prozess.workloads.settings.FOR_A_BROKEN_CLUSTER` in Java's spelling: the time to recover is to be
the cluster's."""
_FLAGS = ("-Xrs", "-Xmx96m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""Flags of the JVM. -Xrs: signals are Python's."""


JavaObject = Any
"""What Java made, as JPype shows it: it has the methods of its Java class, which no type of Python's names."""


class JavaClass(Protocol):
    """java.lang.Class, as JPype shows it."""

    def getSimpleName(self) -> object: ...


class JavaThrowable(Protocol):
    """java.lang.Throwable, as JPype shows it."""

    def getClass(self) -> JavaClass: ...
    def getMessage(self) -> object: ...


class JavaOptions(RoleOptions):
    """Describes what a Java client needs: `library` is libjvm, `properties` are as Java spells them."""

    library: str
    jars: tuple[str, ...]
    properties: dict[str, Property]


def java_machine(library: str, jars: Sequence[str]) -> ModuleType:
    """Returns JPype, with the JVM running. Only the first caller's jars count."""
    jpype = import_module("jpype")
    if not jpype.isJVMStarted():
        jpype.startJVM(library, *_FLAGS, classpath=list(jars), convertStrings=True, interrupt=False)
    return jpype


def java_properties(jpype: ModuleType, properties: Mapping[str, Property]) -> JavaObject:
    """Returns these properties as a java.util.Properties, with truths as Java spells them."""
    made = jpype.JClass("java.util.Properties")()
    for key, value in properties.items():
        made.setProperty(key, str(value).lower() if isinstance(value, bool) else str(value))
    return made


def java_list(jpype: ModuleType, items: Iterable[object]) -> JavaObject:
    """Returns these items as a java.util.ArrayList."""
    made = jpype.JClass("java.util.ArrayList")()
    for item in items:
        made.add(item)
    return made


def java_options(context: LaunchContext, properties: dict[str, Property], *, wanted_by: str) -> JavaOptions:
    """Returns what a Java client is made of. It is of the version of the variant, unless the trial names another. BadInput
    if JPype is missing; `wanted_by`: the setting that asks for it."""
    if find_spec("jpype") is None:
        raise BadInput(f'{wanted_by} needs JPype. Install it: pip install "prozess[java]".')
    runtime = context.toolbox.java()
    jars = context.toolbox.jars(context.plan.java_version(context.planned))
    library = Path(runtime.executable).resolve().parents[1] / "lib" / "server" / "libjvm.so"
    return JavaOptions(library=str(library), jars=tuple(str(jar) for jar in jars), properties=properties)
