"""The text of Byteman's rules for a fault of methods, and the count that these rules write.

A rule acts only while its *sign* is there, a file of the node. Therefore taking that file away ends a fault at once, whatever
becomes of the JVM: no call acts any more, and a call that stands still goes on. Byteman's agent takes the rule out of the JVM
then. Each call is a line in another file, the *count*: so nothing of it is lost when the node is killed, and the rules of the
next process go on counting where it ends.

https://downloads.jboss.org/byteman/4.0.27/byteman-programmers-guide.html
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prozess.clusters.methods.class_files import ClassMethod, KafkaClasses
from prozess.harness.clock import NS_PER_S
from prozess.harness.config.impairments import MethodRule
from prozess.harness.config.methods import WAKING_CLASS, CallNumbers, MeantCalls, PauseCall, ThrowFromCall
from prozess.harness.errors import HarnessFailed

MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class RuleFiles:
    """The files of one rule in the directory of a node."""

    directory: Path
    rule: str

    @property
    def key(self) -> str:
        """Returns what the rule is called in the JVM: plain letters, whatever the step is called."""
        return f"prozess-{hashlib.sha256(self.rule.encode()).hexdigest()[:12]}"

    @property
    def sign(self) -> Path:
        """The file that is there while the rule acts. It holds the rule."""
        return self.directory / f"{self.key}.json"

    @property
    def count(self) -> Path:
        """The file with a line for each call."""
        return self.directory / f"{self.key}.calls"

    @property
    def script(self) -> Path:
        """The file with the rules' text, as a JVM that starts reads it."""
        return self.directory / f"{self.key}.btm"


@dataclass(frozen=True, slots=True)
class CallCount:
    """What the rules have written of their calls."""

    called: int = 0
    acted: int = 0
    standing: int = 0
    """Calls that stand still now, in the process that runs."""
    longest_s: float = 0.0
    """For how long a call that has gone on stood still."""


def read_count(text: str) -> CallCount:
    """Reads the lines of a count: `call N NS`, `begin N NS`, `end N NS`, and `start` where another process begins. A torn
    last line counts for nothing."""
    called = acted = 0
    longest_ns = 0
    standing: dict[str, int] = {}
    for line in text.splitlines(keepends=True):
        match line.split() if line.endswith("\n") else ():
            case ["call", _, _]:
                called += 1
            case ["begin", number, moment_ns] if moment_ns.isdigit():
                acted += 1
                standing[number] = int(moment_ns)
            case ["end", number, moment_ns] if moment_ns.isdigit():
                longest_ns = max(longest_ns, int(moment_ns) - standing.pop(number, int(moment_ns)))
            case ["start"]:
                standing.clear()
            case _:
                pass
    return CallCount(called, acted, len(standing), longest_ns / NS_PER_S)


def rules_text(rule: MethodRule, files: RuleFiles, classes: KafkaClasses) -> str:
    """Returns the rules of Byteman that do what the rule says. LookupError with the reason if the version has not what it
    names."""
    methods = classes.methods(rule.meant.name)
    thrown = rule.action.exception if isinstance(rule.action, ThrowFromCall) else None
    if thrown is not None and (why := classes.why_not_thrown(thrown, methods)) is not None:
        raise LookupError(f"{why}.")
    before = read_count(files.count.read_text(encoding="utf-8")).called if files.count.exists() else 0
    parts = [_acting(rule, files, method, number, before, classes) for number, method in enumerate(methods)]
    if rule.until is not None:
        ends = classes.methods(rule.until.name)
        parts += [_waking(f"{files.key} until {n}", files, rule.until, m, gone=False) for n, m in enumerate(ends)]
    if rule.seconds is not None:
        wake = MeantCalls(method=f"{WAKING_CLASS}#poll(long)")
        parts += [_waking(f"{files.key} wake", files, wake, m, gone=True) for m in classes.methods(wake.name)]
    return "\n".join(parts)


def _acting(
    rule: MethodRule, files: RuleFiles, method: ClassMethod, number: int, before: int, classes: KafkaClasses
) -> str:
    key, action = files.key, rule.action
    if isinstance(action, ThrowFromCall):
        text = f'"by a trial of prozess: {key}"' if classes.message_taken(action.exception) else ""
        done = [_line(key, "end"), f"throw new {action.exception}({text})"]  # it does not stand still
    else:
        done = [f'waitFor("{key}", {max(1, round(action.seconds * MS_PER_S))})', _line(key, "end")]
    counting = f'{_noticed(rule.meant)} ? incrementCounter("{key}") + {before} : 0'
    return _text(
        f"{key} {number}",
        rule.meant,
        method,
        bind=[f"call:int = ({counting})"],
        test=[
            "call > 0",
            *([f"call <= {rule.numbers.last}"] if rule.numbers.last is not None else []),
            f'(traceOpen("{key}", "{_quoted(files.count)}") OR true)',
            _line(key, "call"),
            *_numbers(rule.numbers),
        ],
        do=[_line(key, "begin"), *done],
        files=files,
    )


def _waking(name: str, files: RuleFiles, meant: MeantCalls, method: ClassMethod, *, gone: bool) -> str:
    """A rule by which calls that stand still go on: when a call comes, or with `gone` when the sign is gone."""
    waiting = f'waiting("{files.key}")'
    test = [waiting, "(NOT sign.exists())"] if gone else [waiting, f"({_noticed(meant)})"]
    return _text(name, meant, method, bind=[], test=test, do=[f'signalWake("{files.key}")'], files=files)


def _text(
    name: str,
    meant: MeantCalls,
    method: ClassMethod,
    *,
    bind: Sequence[str],
    test: Sequence[str],
    do: Sequence[str],
    files: RuleFiles,
) -> str:
    bound = [  # what a rule itself calls must not trigger rules
        "quiet:boolean = setTriggering(false)",
        f'sign:java.io.File = new java.io.File("{_quoted(files.sign)}")',
        *bind,
    ]
    bindings = ";\n".join(bound)
    return (
        f"RULE {name}\n"
        f"CLASS {meant.name.class_name}\n"
        f"METHOD {method.name}({','.join(method.arguments)})\n"
        f"AT {meant.at.upper()}\n"
        f"BIND {bindings}\n"
        f"IF {' AND '.join(test)}\n"
        f"DO {', '.join(do)}\n"
        "ENDRULE\n"
    )


def _line(key: str, word: str) -> str:
    return f'traceln("{key}", "{word} " + call + " " + System.nanoTime())'


def _noticed(meant: MeantCalls) -> str:
    """The condition under which a call is one of those that are meant."""
    tests = ["sign.exists()"]
    if meant.topic is not None:
        topic = meant.topic.replace(".", "[.]")
        # as TopicPartition has it, and Partition and TopicIdPartition
        names = (f"(?<!Topic: )(?<!topic=){topic}-{meant.number}", f"Topic: {topic}; Partition: {meant.number}")
        pattern = "|".join(f"(?<![A-Za-z0-9._-]){name}(?![A-Za-z0-9_-]|[.][A-Za-z0-9_-])" for name in names)
        tests.append(f'java.util.Arrays.toString($*).matches("(?s).*(?:{pattern}).*")')
    if meant.naming is not None:
        tests.append(f'java.util.Arrays.toString($*).contains("{meant.naming}")')
    return " && ".join(tests)


def _numbers(numbers: CallNumbers) -> Iterable[str]:
    if numbers.nth is not None:
        yield f"call == {numbers.nth}"
    if numbers.every is not None:
        yield f"call % {numbers.every} == 0"


def _quoted(path: Path) -> str:
    text = str(path)
    if re.search(r'["\\\n,]', text):
        raise HarnessFailed(
            f"{text!r} cannot stand in a rule of Byteman. Use --runs with a directory without quotes and commas."
        )
    return text


def done_in_words(rule: MethodRule, acted: int) -> str:
    """Returns what is done to calls, as words that follow a number (`acted`) "of the calls"."""
    match rule.action:
        case ThrowFromCall():
            return f"threw {rule.action.exception}"
        case PauseCall():
            return "stood still"
        case _:
            return "were delayed" if acted > 1 else "was delayed"
