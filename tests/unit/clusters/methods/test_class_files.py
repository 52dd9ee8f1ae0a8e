"""Class files are read as javac writes them: here by a small writer of class files, in jars of a version of Kafka."""

import re
import struct
import zipfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.methods.class_files import (
    ABSTRACT,
    BRIDGE,
    INTERFACE,
    PUBLIC,
    KafkaClasses,
    NotAClassFile,
    arguments_of,
    read_class,
)
from prozess.harness.config.methods import MethodName


class Pool:
    """A constant pool that is being written. A long, which takes two places, stands first."""

    def __init__(self):
        self.content, self.count, self.known = b"\x05" + bytes(8), 3, {}

    def text(self, text):
        return self._once(("text", text), b"\x01" + struct.pack(">H", len(text.encode())) + text.encode())

    def class_named(self, name):
        index = self.text(name.replace(".", "/"))
        return self._once(("class", name), b"\x07" + struct.pack(">H", index))

    def _once(self, key, entry):
        if key not in self.known:
            self.known[key] = self.count
            self.content += entry
            self.count += 1
        return self.known[key]


def class_file(name, *methods, parent="java.lang.Object", access=PUBLIC):
    """The bytes of a class. `methods`: (name, descriptor, access, exceptions)."""
    pool = Pool()
    field = struct.pack(">HHHH", 0, pool.text("field"), pool.text("J"), 1) + attribute(pool, "ConstantValue", b"\0\1")
    body = struct.pack(">HHHHH", access, pool.class_named(name), pool.class_named(parent), 0, 1) + field
    body += struct.pack(">H", len(methods))
    for called, descriptor, of_method, throws in methods:
        body += struct.pack(">HHH", of_method, pool.text(called), pool.text(descriptor))
        declared = struct.pack(">H", len(throws)) + b"".join(struct.pack(">H", pool.class_named(t)) for t in throws)
        attributes = [attribute(pool, "Code", b"some code")]
        attributes += [attribute(pool, "Exceptions", declared)] if throws else []
        body += struct.pack(">H", len(attributes)) + b"".join(attributes)
    return struct.pack(">IHHH", 0xCAFEBABE, 0, 61, pool.count) + pool.content + body + struct.pack(">H", 0)


def attribute(pool, name, content):
    return struct.pack(">HI", pool.text(name), len(content)) + content


LOG, ERROR = "org.apache.kafka.log.Log", "org.apache.kafka.KafkaException"
CLASSES = (
    class_file(
        LOG,
        ("append", "(JLorg/apache/kafka/Records;)V", PUBLIC, ["java.io.IOException"]),
        ("append", "(Ljava/lang/Object;)V", PUBLIC | BRIDGE, []),
        ("append", "(I)V", PUBLIC, []),
        ("flush", "()V", PUBLIC | ABSTRACT, []),
        parent="org.apache.kafka.log.OldLog",
    ),
    class_file("org.apache.kafka.log.OldLog", ("roll", "()V", PUBLIC, [])),
    class_file("kafka.Store", ("append", "()V", PUBLIC, []), access=PUBLIC | INTERFACE),
    class_file(ERROR, ("<init>", "(Ljava/lang/String;)V", PUBLIC, []), parent="java.lang.RuntimeException"),
    class_file("org.apache.kafka.FencedException", ("<init>", "()V", PUBLIC, []), parent=ERROR),
    class_file("org.apache.kafka.OddException", ("<init>", "(I)V", PUBLIC, []), parent=ERROR),
    class_file("a.CheckedException", ("<init>", "(Ljava/lang/String;)V", PUBLIC, []), parent="java.lang.Exception"),
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    jar = tmp_path_factory.mktemp("jars") / "kafka-9.9.9.jar"
    with zipfile.ZipFile(jar, "w") as opened:
        for content in CLASSES:
            opened.writestr(f"{read_class(content).name.replace('.', '/')}.class", content)
        opened.writestr("META-INF/versions/11/org/apache/kafka/log/Log.class", b"of another Java")
    return KafkaClasses("9.9.9", [jar])


def test_a_class_file_says_what_it_extends_and_which_methods_throw_what(kafka):
    found = kafka.find(LOG)
    assert found.parent == "org.apache.kafka.log.OldLog"
    first = found.methods[0]
    assert (str(first), first.throws) == ("append(long, org.apache.kafka.Records)", ("java.io.IOException",))


@pytest.mark.parametrize(
    ("descriptor", "arguments"),
    [
        ("()V", ()),
        ("(BCDFIJSZ)V", ("byte", "char", "double", "float", "int", "long", "short", "boolean")),
        ("([[JLa/B$C;[La/D;)La/E;", ("long[][]", "a.B$C", "a.D[]")),
    ],
)
def test_descriptors_are_read_as_java_names_types(descriptor, arguments):
    assert arguments_of(descriptor) == arguments


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (f"{LOG}#append", ["append(long, org.apache.kafka.Records)", "append(int)"]),
        (f"{LOG}#append(int)", ["append(int)"]),
        (f"{LOG}#append(long, Records)", ["append(long, org.apache.kafka.Records)"]),
        ("org.apache.kafka.log.OldLog#roll()", ["roll()"]),
    ],
)
def test_a_name_means_the_methods_that_the_class_has_itself_and_no_bridge(kafka, wanted, found):
    assert [str(method) for method in kafka.methods(MethodName.parse(wanted))] == found


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("org.apache.kafka.log.Lo#append", r"Kafka 9\.9\.9 has no class .*The nearest: .*org\.apache\.kafka\.log\.Log"),
        ("kafka.log.Log#append", r"The nearest: org\.apache\.kafka\.log\.Log"),
        (f"{LOG}#apend", r"has no method apend\. The nearest: append"),
        (f"{LOG}#append(short)", r"There is append\(long, org\.apache\.kafka\.Records\), append\(int\)"),
        (f"{LOG}#roll", r"it has that of org\.apache\.kafka\.log\.OldLog\. Name that class"),
        (f"{LOG}#flush", "abstract or native"),
        ("kafka.Store#append", "is an interface"),
    ],
)
def test_what_there_is_not_is_told_with_what_is_near(kafka, wanted, why):
    with pytest.raises(LookupError, match=why):
        kafka.methods(MethodName.parse(wanted))


@pytest.mark.parametrize(
    ("exception", "method", "why"),
    [
        ("java.io.IOException", "append(long, Records)", None),
        ("java.io.EOFException", "append(long, Records)", None),
        ("java.io.IOException", "append", r"append\(int\) cannot throw .*, a checked exception: it declares none"),
        ("java.lang.Exception", "append(long, Records)", r"declares java\.io\.IOException"),
        ("java.lang.IllegalStateException", "append", None),
        (ERROR, "append", None),
        ("org.apache.kafka.FencedException", "append", None),
        ("org.apache.kafka.OddException", "append", "cannot be made with a message alone"),
        ("a.CheckedException", "append(int)", "checked exception"),
        ("org.apache.kafka.KafkaExeption", "append", rf"neither Kafka 9\.9\.9 nor Java has an exception .*{ERROR}"),
        (LOG, "append", "is no exception"),
    ],
)
def test_a_method_throws_what_it_declares_and_what_is_not_checked(kafka, exception, method, why):
    told = kafka.why_not_thrown(exception, kafka.methods(MethodName.parse(f"{LOG}#{method}")))
    assert told is None if why is None else re.search(why, told or "")


def test_an_exception_is_made_with_a_message_where_it_takes_one(kafka):
    assert kafka.message_taken("org.apache.kafka.KafkaException") is True
    assert kafka.message_taken("org.apache.kafka.FencedException") is False
    assert kafka.message_taken("java.nio.channels.ClosedChannelException") is False


@given(st.integers(0, len(CLASSES[0]) - 1), st.integers(0, 255))
def test_a_damaged_class_file_is_read_or_refused_and_nothing_else(place, value):
    damaged = bytearray(CLASSES[0])
    damaged[place] = value
    with suppress(NotAClassFile):
        read_class(bytes(damaged))


@given(st.integers(0, len(CLASSES[0]) - 3))
def test_a_class_file_that_is_cut_is_refused(length):
    with pytest.raises(NotAClassFile):
        read_class(CLASSES[0][:length])
