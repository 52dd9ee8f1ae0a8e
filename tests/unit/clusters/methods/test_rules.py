"""The text of Byteman's rules, and the count that they write."""

import re
import zipfile

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prozess.clusters.methods.class_files import PUBLIC, KafkaClasses
from prozess.clusters.methods.rules import CallCount, RuleFiles, read_count, rules_text
from prozess.harness.config.impairments import MethodRule
from prozess.harness.config.methods import WAKING_CLASS, CallNumbers, MeantCalls
from prozess.harness.errors import HarnessFailed
from tests.unit.clusters.methods.test_class_files import class_file

LOG = "org.apache.kafka.log.Log"
CLASSES = {
    LOG: [("append", "(JLa/Records;)V", PUBLIC, ["java.io.IOException"]), ("append", "(I)V", PUBLIC, [])],
    "a.Other": [("called", "()V", PUBLIC, [])],
    WAKING_CLASS: [("poll", "(J)V", PUBLIC, []), ("poll", "()V", PUBLIC, [])],
}
PAUSE, DELAY = {"do": "pause"}, {"do": "delay", "seconds": 1.5}
IO_EXCEPTION = {"do": "throw", "exception": "java.io.IOException"}
STEP = 'a step; of "any" name\n'


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    jar = tmp_path_factory.mktemp("jars") / "kafka.jar"
    with zipfile.ZipFile(jar, "w") as opened:
        for name, methods in CLASSES.items():
            opened.writestr(f"{name.replace('.', '/')}.class", class_file(name, *methods))
    return KafkaClasses("9.9.9", [jar])


def rule(action, *, until=None, numbers=None, method=f"{LOG}#append", **meant):
    return MethodRule(
        rule=STEP,
        meant=MeantCalls(method=method, **meant),
        numbers=CallNumbers(**(numbers or {})),
        action=action,
        until=None if until is None else MeantCalls(method=until),
    )


def text_of(kafka, directory, *given, **more):
    return rules_text(rule(*given, **more), RuleFiles(directory, STEP), kafka)


def test_each_method_of_the_name_has_a_rule_with_its_own_arguments_and_they_count_together(kafka, tmp_path):
    text = text_of(kafka, tmp_path, DELAY)
    assert re.findall(r"^METHOD (.*)$", text, re.MULTILINE) == ["append(long,a.Records)", "append(int)", "poll(long)"]
    assert len(set(re.findall(r'incrementCounter\("([^"]*)"\)', text))) == 1
    assert text.count('waitFor("') == text.count(", 1500)") == 2


def test_a_step_of_any_name_is_a_rule_of_plain_letters_and_two_steps_are_two_rules(tmp_path):
    one, other = RuleFiles(tmp_path, STEP), RuleFiles(tmp_path, "another")
    assert re.fullmatch(r"prozess-[0-9a-f]{12}", one.key)
    assert one.key != other.key


@pytest.mark.parametrize(
    ("numbers", "tests"),
    [
        ({}, []),
        ({"nth": 3}, ["call <= 3", "call == 3"]),
        ({"every": 2, "until": 4}, ["call <= 4", "call % 2 == 0"]),
    ],
)
def test_calls_count_by_their_numbers(kafka, tmp_path, numbers, tests):
    text = text_of(kafka, tmp_path, IO_EXCEPTION, method=f"{LOG}#append(long, Records)", numbers=numbers)
    (condition,) = re.findall(r"^IF (.*)$", text, re.MULTILINE)
    assert [part for part in condition.split(" AND ") if re.match(r"call (<=|==|%)", part)] == tests


def test_the_rules_of_a_process_that_starts_again_go_on_counting(kafka, tmp_path):
    files = RuleFiles(tmp_path, "again")
    assert "+ 0 : 0" in rules_text(rule(PAUSE), files, kafka)
    files.count.write_text("call 1 5\ncall 2 6\nbegin 2 7\nstart\ncall 3 9\n")
    assert "+ 3 : 0" in rules_text(rule(PAUSE), files, kafka)


def test_a_pause_ends_at_a_call_or_when_the_sign_is_gone_and_an_exception_needs_neither(kafka, tmp_path):
    paused = text_of(kafka, tmp_path, PAUSE, until="a.Other#called", method=f"{LOG}#append(int)")
    assert re.findall(r"^CLASS (.*)$", paused, re.MULTILINE) == [LOG, "a.Other", WAKING_CLASS]
    assert paused.count("(NOT sign.exists())") == 1
    thrown = text_of(kafka, tmp_path, {"do": "throw", "exception": "java.nio.BufferOverflowException"})
    assert "throw new java.nio.BufferOverflowException()" in thrown
    assert thrown.index('"end "') < thrown.index("throw new"), "a call that throws does not stand still"
    assert re.findall(r"^CLASS (.*)$", thrown, re.MULTILINE) == [LOG, LOG]


def test_a_message_of_an_exception_says_whose_it_is(kafka, tmp_path):
    thrown = text_of(kafka, tmp_path, IO_EXCEPTION, method=f"{LOG}#append(long, Records)")
    assert 'throw new java.io.IOException("by a trial of prozess: prozess-' in thrown


@pytest.mark.parametrize(
    ("action", "method", "why"),
    [
        (PAUSE, f"{LOG}#apend", "no method apend"),
        (IO_EXCEPTION, f"{LOG}#append(int)", "checked exception"),
        ({"do": "throw", "exception": "java.io.IOExeption"}, f"{LOG}#append", "nor Java has an exception"),
    ],
)
def test_what_the_version_does_not_have_makes_no_rule(kafka, tmp_path, action, method, why):
    with pytest.raises(LookupError, match=why):
        text_of(kafka, tmp_path, action, method=method)


def test_a_directory_that_cannot_stand_in_a_rule_is_refused(kafka, tmp_path):
    with pytest.raises(HarnessFailed, match="without quotes and commas"):
        text_of(kafka, tmp_path / "a,b", PAUSE)


topics = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True)
FORMS = (
    "[Log(dir=/x/{0}-{1}, a), 7]",
    "[{0}-{1}]",
    "[Topic: {0}; Partition: {1}; Leader: 1]",
    "[FileRecords(size=1, file=/d/{0}-{1}/0.log)]",
)
"""What Java's objects say of themselves."""


@given(topics, st.integers(0, 120), topics, st.integers(0, 120))
@example("a", 1, "a-1", 0)
@example("a", 1, "a-1.b", 0)
@example("b", 0, "a.b", 0)
@example("a.b", 1, "a-b", 1)
@example("a", 1, "a", 12)
def test_a_partition_is_known_by_its_name_and_no_other_is_taken_for_it(
    kafka, tmp_path_factory, topic, number, other, at
):
    text = text_of(kafka, tmp_path_factory.getbasetemp(), PAUSE, topic=topic, number=number)
    (pattern,) = set(re.findall(r'matches\("(.*?)"\)', text))
    means = re.compile(pattern.replace("(?s)", ""), re.DOTALL).fullmatch
    for form in FORMS:
        assert means(form.format(topic, number))
        if (other, at) != (topic, number):
            assert not means(form.format(other, at))


lines = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["call", "begin", "end"]), st.integers(1, 5), st.integers(0, 10**6)).map(
            lambda parts: " ".join(map(str, parts))
        ),
        st.just("start"),
        st.text(alphabet="abc 12", max_size=8),
    )
)


@given(lines, st.data())
def test_a_count_that_is_cut_has_no_more_than_the_whole_one(written, data):
    text = "".join(f"{line}\n" for line in written)
    whole, cut = read_count(text), read_count(text[: data.draw(st.integers(0, len(text)))])
    assert (cut.called <= whole.called, cut.acted <= whole.acted, cut.longest_s <= whole.longest_s) == (True,) * 3
    assert whole.called == sum(line.split()[:1] == ["call"] and len(line.split()) == 3 for line in written)


def test_a_count_tells_what_stands_still_now_and_for_how_long_others_did():
    text = "call 1 10\nbegin 1 10\ncall 2 20\nbegin 2 20\nend 1 2000000010\n"
    assert read_count(text) == CallCount(called=2, acted=2, standing=1, longest_s=2.0)
    assert read_count(f"{text}start\n").standing == 0, "what stood still in a process that was killed is gone"
    assert read_count(f"{text}end 2 3000").standing == 1, "a torn line counts for nothing"
