"""Reads class files: which classes a version of Kafka has, which methods they have, and what these declare to throw.

A trial is refused for a method that the version does not have. A Java runtime has no javap, so the class files are read
here (https://docs.oracle.com/javase/specs/jvms/se17/html/jvms-4.html).
"""

import difflib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from prozess.harness.config.methods import MethodName
from prozess.harness.errors import HarnessFailed

PUBLIC, BRIDGE, NATIVE, INTERFACE, ABSTRACT = 0x0001, 0x0040, 0x0100, 0x0200, 0x0400
_MAGIC = 0xCAFEBABE
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""The tag of an entry of the constant pool → its bytes. Utf8 (1) and Class (7) are read."""
_PRIMITIVES = {
    "B": "byte", "C": "char", "D": "double", "F": "float", "I": "int", "J": "long", "S": "short", "Z": "boolean",
    "V": "void",
}  # fmt: skip
_OF_KAFKA = ("kafka.", "org.apache.kafka.")
NEAR_MAX = 4


@dataclass(frozen=True, slots=True)
class ClassMethod:
    """A method as its class declares it: name, argument types, access flags (JVMS 4.6) and exceptions."""

    name: str
    arguments: tuple[str, ...]
    """The types of its arguments, as Java names them."""
    access: int
    throws: tuple[str, ...]
    """The exceptions that it declares. Scala's methods declare none."""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"


@dataclass(frozen=True, slots=True)
class ClassFile:
    """A class as its file declares it: names with dots, access flags (JVMS 4.1), and its methods in the order of the file."""

    name: str
    parent: str | None
    access: int
    methods: tuple[ClassMethod, ...]


class NotAClassFile(HarnessFailed):
    """Says that a file is no class file that can be read."""


class _Numbers:
    """Reads numbers of a class file one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def number(self, size: int) -> int:
        """Reads an unsigned number of so many bytes."""
        return int.from_bytes(self.take(size), "big")

    def take(self, size: int) -> bytes:
        """Reads so many bytes."""
        found = self._content[self._at : self._at + size]
        if len(found) != size:
            raise NotAClassFile(f"The class file ends at byte {len(self._content)}, in the middle of something.")
        self._at += size
        return found


def read_class(content: bytes) -> ClassFile:
    """Reads a class file. NotAClassFile if it is none."""
    reader = _Numbers(content)
    if reader.number(4) != _MAGIC:
        raise NotAClassFile("The file does not begin as class files do.")
    reader.take(4)
    try:
        return _read_after_version(reader)
    except (KeyError, IndexError, ValueError) as error:
        raise NotAClassFile(f"The class file has something that cannot be read: {error!r}.") from error


def _read_after_version(reader: _Numbers) -> ClassFile:
    texts, classes = _constants(reader)

    def class_at(index: int) -> str:
        return texts[classes[index]].replace("/", ".")

    access = reader.number(2)
    name, parent = class_at(reader.number(2)), reader.number(2)
    reader.take(2 * reader.number(2))  # interfaces
    for _ in range(reader.number(2)):  # fields
        reader.take(6)
        _skip_attributes(reader)
    methods = []
    for _ in range(reader.number(2)):
        of_method, called, descriptor = reader.number(2), texts[reader.number(2)], texts[reader.number(2)]
        throws: list[str] = []
        for _ in range(reader.number(2)):
            attribute, size = texts[reader.number(2)], reader.number(4)
            if attribute == "Exceptions":
                throws = [class_at(reader.number(2)) for _ in range(reader.number(2))]
            else:
                reader.take(size)
        methods.append(ClassMethod(called, arguments_of(descriptor), of_method, tuple(throws)))
    return ClassFile(name, class_at(parent) if parent else None, access, tuple(methods))


def _constants(reader: _Numbers) -> tuple[dict[int, str], dict[int, int]]:
    """Reads the constant pool: index → text, and index of a class → index of its name."""
    texts: dict[int, str] = {}
    classes: dict[int, int] = {}
    count, index = reader.number(2), 1
    while index < count:
        tag = reader.number(1)
        if tag == 1:
            texts[index] = reader.take(reader.number(2)).decode("utf-8", errors="replace")
        elif tag == 7:
            classes[index] = reader.number(2)
        else:
            reader.take(_SIZES[tag])
        index += 2 if tag in (5, 6) else 1
    return texts, classes


def _skip_attributes(reader: _Numbers) -> None:
    for _ in range(reader.number(2)):
        reader.take(2)
        reader.take(reader.number(4))


def arguments_of(descriptor: str) -> tuple[str, ...]:
    """Returns the types of the arguments of a descriptor such as `(J[Ljava/lang/String;)V`, as Java names them."""
    found: list[str] = []
    rest = descriptor[1 : descriptor.index(")")]
    while rest:
        element = rest.lstrip("[")
        dimensions = len(rest) - len(element)
        if element[0] == "L":
            name, _, rest = element[1:].partition(";")
            name = name.replace("/", ".")
        else:
            name, rest = _PRIMITIVES[element[0]], element[1:]
        found.append(name + "[]" * dimensions)
    return tuple(found)


# The classes of a version of Kafka, which are in its jars.


class KafkaClasses:
    """The classes in the jars of a version. Jars are opened when something is asked."""

    def __init__(self, version: str, jars: Sequence[Path]) -> None:
        self._version, self._jars = version, tuple(jars)

    @cached_property
    def _addresses(self) -> dict[str, Path]:
        """Returns the name of each class of Kafka → its jar."""
        found: dict[str, Path] = {}
        for jar in self._jars:
            with zipfile.ZipFile(jar) as opened:
                for entry in opened.namelist():
                    if entry.endswith(".class") and not entry.startswith("META-INF/"):
                        found.setdefault(entry.removesuffix(".class").replace("/", "."), jar)
        return found

    def find(self, name: str) -> ClassFile | None:
        """Returns what the class file of that class says; None if the version has no such class."""
        jar = self._addresses.get(name)
        if jar is None:
            return None
        with zipfile.ZipFile(jar) as opened:
            return read_class(opened.read(f"{name.replace('.', '/')}.class"))

    def methods(self, wanted: MethodName) -> tuple[ClassMethod, ...]:
        """Returns the methods that the name means. LookupError, with why there is none and what is near."""
        found = self.find(wanted.class_name)
        if found is None:
            raise LookupError(
                f"Kafka {self._version} has no class {wanted.class_name}.{_near_text(self._near_classes(wanted.class_name))}"
            )
        if found.access & INTERFACE:
            raise LookupError(
                f"{wanted.class_name} of Kafka {self._version} is an interface. Name a class that implements it."
            )
        named = [m for m in found.methods if m.name == wanted.method and not m.access & BRIDGE]
        if not named:
            raise LookupError(self._no_such_method(found, wanted))
        taken = [m for m in named if wanted.arguments is None or _fits(m.arguments, wanted.arguments)]
        if not taken:
            there = ", ".join(map(str, named))
            raise LookupError(f"Kafka {self._version} has no {wanted}. There is {there}.")
        with_code = [method for method in taken if not method.access & (ABSTRACT | NATIVE)]
        if not with_code:
            raise LookupError(
                f"{wanted} of Kafka {self._version} has no code of its own: it is abstract or native. Name a class that "
                "implements it."
            )
        return tuple(with_code)

    def _no_such_method(self, found: ClassFile, wanted: MethodName) -> str:
        parent = found.parent
        while parent is not None and (above := self.find(parent)) is not None:
            if any(method.name == wanted.method for method in above.methods):
                return (
                    f"{wanted.class_name} of Kafka {self._version} has no {wanted.method} of its own: it has that of "
                    f"{above.name}. Name that class."
                )
            parent = above.parent
        names = list(dict.fromkeys(m.name for m in found.methods if not m.name.startswith(("<", "$", "lambda$"))))
        near = difflib.get_close_matches(wanted.method, names, n=NEAR_MAX, cutoff=0.4) or sorted(names)[:NEAR_MAX]
        return f"{wanted.class_name} of Kafka {self._version} has no method {wanted.method}.{_near_text(near)}"

    def _near_classes(self, name: str) -> list[str]:
        """Returns the names of Kafka's classes that are near: first those that another package has."""
        simple = name.rpartition(".")[2]
        of_kafka = [n for n in self._addresses if n.startswith(_OF_KAFKA) and not n.rpartition("$")[2].isdigit()]
        same = [n for n in of_kafka if n.rpartition(".")[2] == simple]
        by_simple: dict[str, str] = {}
        for each in of_kafka:
            by_simple.setdefault(each.rpartition(".")[2], each)
        near = difflib.get_close_matches(simple, list(by_simple), n=NEAR_MAX, cutoff=0.75)
        return [*same, *(by_simple[n] for n in near if by_simple[n] not in same)][:NEAR_MAX]

    def why_not_thrown(self, exception: str, methods: Sequence[ClassMethod]) -> str | None:
        """Returns why these methods cannot throw an exception, or None if they can: a RuntimeException or an Error, or one
        that each of them declares."""
        line = list(self._ancestors(exception))
        if "java.lang.Throwable" not in line:
            if line or exception in self._addresses:
                return f"{exception} of Kafka {self._version} is no exception"
            near = difflib.get_close_matches(exception, [*JDK_EXCEPTIONS, *self._near_classes(exception)], n=NEAR_MAX)
            return f"neither Kafka {self._version} nor Java has an exception {exception}.{_near_text(near)}".rstrip(".")
        if self.message_taken(exception) is None:
            return f"{exception} cannot be made with a message alone, nor without anything"
        if UNCHECKED.intersection(line):
            return None
        for method in methods:
            if not set(method.throws).intersection(line):
                declared = f"it declares {', '.join(method.throws)}" if method.throws else "it declares none"
                return (
                    f"{method} cannot throw {exception}, a checked exception: {declared}. Give one that it declares, or a "
                    "RuntimeException such as org.apache.kafka.common.errors.KafkaStorageException"
                )
        return None

    def message_taken(self, exception: str) -> bool | None:
        """Says whether an exception is made with a message; None if it can be made neither with one nor without."""
        if exception in JDK_EXCEPTIONS:
            return JDK_EXCEPTIONS[exception][1]
        found = self.find(exception)
        if found is None or not found.access & PUBLIC or found.access & ABSTRACT:
            return None
        made = {m.arguments for m in found.methods if m.name == "<init>" and m.access & PUBLIC}
        if ("java.lang.String",) in made:
            return True
        return False if () in made else None

    def _ancestors(self, name: str) -> Iterator[str]:
        """Yields the class and all that it extends, as far as they are known."""
        at: str | None = name
        while at is not None:
            if at in JDK_EXCEPTIONS:
                yield at
                at = JDK_EXCEPTIONS[at][0]
            elif (found := self.find(at)) is not None:
                yield at
                at = found.parent
            else:
                return


def _fits(there: Sequence[str], wanted: Sequence[str]) -> bool:
    """Says whether these are the types of the arguments. A type may be given without its package."""
    return len(there) == len(wanted) and all(
        type_name == given or type_name.replace("$", ".").endswith(f".{given.replace('$', '.')}")
        for type_name, given in zip(there, wanted, strict=True)
    )


def _near_text(near: Sequence[str]) -> str:
    return f" The nearest: {', '.join(near)}." if near else ""


JDK_EXCEPTIONS: dict[str, tuple[str | None, bool]] = {
    "java.lang.Throwable": (None, True),
    "java.lang.Exception": ("java.lang.Throwable", True),
    "java.lang.Error": ("java.lang.Throwable", True),
    "java.lang.VirtualMachineError": ("java.lang.Error", True),
    "java.lang.OutOfMemoryError": ("java.lang.Error", True),
    "java.lang.StackOverflowError": ("java.lang.Error", True),
    "java.lang.InternalError": ("java.lang.Error", True),
    "java.lang.InterruptedException": ("java.lang.Exception", True),
    "java.lang.RuntimeException": ("java.lang.Exception", True),
    "java.lang.ArithmeticException": ("java.lang.RuntimeException", True),
    "java.lang.ClassCastException": ("java.lang.RuntimeException", True),
    "java.lang.IllegalArgumentException": ("java.lang.RuntimeException", True),
    "java.lang.IllegalStateException": ("java.lang.RuntimeException", True),
    "java.lang.IndexOutOfBoundsException": ("java.lang.RuntimeException", True),
    "java.lang.NullPointerException": ("java.lang.RuntimeException", True),
    "java.lang.UnsupportedOperationException": ("java.lang.RuntimeException", True),
    "java.nio.BufferOverflowException": ("java.lang.RuntimeException", False),
    "java.nio.BufferUnderflowException": ("java.lang.RuntimeException", False),
    "java.util.ConcurrentModificationException": ("java.lang.RuntimeException", True),
    "java.util.NoSuchElementException": ("java.lang.RuntimeException", True),
    "java.util.concurrent.CancellationException": ("java.lang.RuntimeException", True),
    "java.util.concurrent.RejectedExecutionException": ("java.lang.RuntimeException", True),
    "java.util.concurrent.TimeoutException": ("java.lang.Exception", True),
    "java.io.IOException": ("java.lang.Exception", True),
    "java.io.EOFException": ("java.io.IOException", True),
    "java.io.FileNotFoundException": ("java.io.IOException", True),
    "java.net.SocketException": ("java.io.IOException", True),
    "java.net.SocketTimeoutException": ("java.io.IOException", True),
    "java.nio.channels.ClosedChannelException": ("java.io.IOException", False),
    "java.nio.file.FileSystemException": ("java.io.IOException", True),
    "java.nio.file.NoSuchFileException": ("java.nio.file.FileSystemException", True),
    "java.nio.file.AccessDeniedException": ("java.nio.file.FileSystemException", True),
}
"""Exceptions of Java itself, whose class files are in no jar → (what it extends, is it made with a message)."""
UNCHECKED = frozenset({"java.lang.RuntimeException", "java.lang.Error"})
"""What extends these may be thrown by every method."""
