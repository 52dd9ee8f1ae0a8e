"""The properties of Kafka's clients, topics and brokers, each with its default and its allowed values, as the program
itself defines them: Kafka's `ConfigDef`, or librdkafka's table.

Java: `ConfigDef.parseType` reads the text, and the property's validator judges it. librdkafka:
`rd_kafka_anyconf_set_prop` reads numbers with `strtol` and `strtod`, which stop where the number ends.
"""

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from prozess.harness.config.configuration import version_numbers
from prozess.harness.errors import BadInput

Property = Mapping[str, Any]
"""What is known of one property; see `tools.known_properties`."""

PLACEHOLDERS = ("${", "{{", "$(", "%{", "#{", "<%")
"""The beginnings of placeholders, which Spring, Compose, Helm, Jinja, Kubernetes, Quarkus or Connect's configuration
providers fill in later."""

_BITS = {"int": 32, "long": 64, "short": 16}
_INT_MAX = 2**31
_SPACE = "".join(chr(code) for code in range(33))
"""The characters that Java's `String.trim` removes."""
_C_SPACE = " \t\n\v\f\r"
_JAVA_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)[fFdD]?)", re.ASCII)
_C_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|\d+)", re.ASCII)
_C_DOUBLE = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:inf(?:inity)?|nan|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?\d+)?"
    r"|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))",
    re.ASCII | re.IGNORECASE,
)
_DURATION = re.compile(r"P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?", re.ASCII | re.IGNORECASE)
"""An ISO-8601 duration as `java.time.Duration.parse` reads it, unless it is negative."""


def is_placeholder(value: str) -> bool:
    """Says whether something in this value is filled in later. Then nothing is known of the value."""
    return any(mark in value for mark in PLACEHOLDERS)


def problem(name: str, value: str, known: Property, *, client: str = "java") -> str:
    """Returns why the program refuses this value, with the rule and the way out. Empty if it accepts the value.
    `client` says whose table counts."""
    rule = _java(value, known) if client == "java" else _librdkafka(value, known)
    if not rule:
        return ""
    instead = f", or leave it out (default {known['default']})" if known.get("default") else ""
    return f"{name} = {value!r} {rule}: {_WHO[client]} refuses it. Change the value{instead}."


_WHO = {"java": "Kafka", "librdkafka": "librdkafka"}


def trimmed(value: str) -> str:
    """Returns a string as Java reads it: without spaces and control characters around it (`String.trim`)."""
    return value.strip(_SPACE)


def is_true(value: str, *, client: str = "java") -> bool:
    """Returns a boolean as the program reads it. `problem` must not refuse the value."""
    return trimmed(value).lower() == "true" if client == "java" else value.lower() in ("true", "t", "1")


def number(value: str, *, client: str = "java") -> int | float:
    """Returns a number as the program reads it. `problem` must not refuse the value, and it must be a number."""
    if client == "java":
        text = trimmed(value)
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text.rstrip("fFdD"))
    whole, parts = c_integer(value), c_double(value)
    assert whole is not None, value
    return whole if parts is None or parts == whole else parts


# How Java clients and brokers read values.


def _java(value: str, known: Property) -> str:
    text, kind = trimmed(value), known.get("type", "")
    if kind == "boolean":
        return "" if text.lower() in ("true", "false") else "must be true or false"
    if kind in _BITS:
        limit = 2 ** (_BITS[kind] - 1)
        if not re.fullmatch(r"[+-]?\d+", text) or any(
            ord(c) > 0xFFFF for c in text
        ):  # as Integer.parseInt: any script's
            return "must be a whole number"
        if not -limit <= int(text) < limit:
            return f"must be a number of {_BITS[kind]} bits"
        return _within(int(text), known)
    if kind == "double":
        if not _JAVA_DOUBLE.fullmatch(text):
            return "must be a number"
        return _within(float(text.rstrip("fFdD")), known)
    if kind == "list":
        return _list([] if not text else re.split(r"\s*,\s*", text, flags=re.ASCII), known)
    return _text(text, known)


def _within(value: float, known: Property) -> str:
    least, most = known.get("range", (None, None))
    beside = known.get("beside")
    if value == beside or ((least is None or not value < least) and (most is None or not value > most)):
        return ""  # "not less": NaN passes Kafka's comparison
    bounds = f"at least {least}" if most is None else f"at most {most}" if least is None else f"{least} to {most}"
    return f"must be {bounds}{'' if beside is None else f', or {beside}'}"


def _list(members: Sequence[str], known: Property) -> str:
    if known.get("distinct"):  # ValidList since KIP-1161
        if known.get("not_empty") and not members:
            return "must not be empty"
        if len(set(members)) < len(members):
            return "must not have a member twice"
        if any(not member for member in members):
            return "must not have an empty member"
    allowed = known.get("members")
    if allowed and any(member not in allowed for member in members):
        return f"must be a list of {', '.join(allowed)}"
    if "members_most" in known and len(members) > known["members_most"]:
        return f"must have at most {known['members_most']} members"
    return ""


def _text(text: str, known: Property) -> str:
    if known.get("not_empty") and not text:
        return "must not be empty"
    if known.get("one_word") and re.search("[ ,]", text):
        return "must be one word"
    if known.get("no_control_characters") and any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text):
        return "must have no control characters"
    if "values" in known and text not in known["values"]:
        durations = known.get("or_by_duration", False)
        if durations and text.startswith("by_duration:") and _DURATION.fullmatch(text.removeprefix("by_duration:")):
            return ""
        more = " or by_duration: and an ISO-8601 duration such as by_duration:PT1H" if durations else ""
        return f"must be one of {', '.join(known['values'])}{more}"
    return _of_any_case(text, known)


def _of_any_case(text: str, known: Property) -> str:
    allowed = known.get("values_of_any_case")
    if allowed is None or text.upper() in {word.upper() for word in allowed}:
        return ""
    return f"must be one of {', '.join(word.lower() for word in allowed)}"


# How librdkafka reads values.


def _librdkafka(value: str, known: Property) -> str:
    kind = known.get("type", "")
    if kind == "see dedicated API":
        return "is set by a function of the library alone"
    if not value:  # rd_kafka_conf_set takes it for no value at all
        words = known.keys() & {"values_of_any_case", "values", "not_empty"}
        return "must not be empty" if kind in _NEEDS_VALUE or words else ""
    return _C_RULES[kind](value, known) if kind in _C_RULES else ""


def _c_boolean(value: str, _: Property) -> str:
    return "" if value.lower() in ("true", "t", "1", "false", "f", "0") else "must be true or false"


def _c_whole(value: str, known: Property) -> str:
    whole = c_integer(value)
    if whole is not None:
        return _within(whole, known)
    return "" if "values_of_any_case" in known and not _of_any_case(value, known) else "must be a whole number"


def _c_number(value: str, known: Property) -> str:
    found = c_double(value)
    return "must be a number" if found is None else _within(found, known)


def _c_word(value: str, known: Property) -> str:
    text = value.strip(_C_SPACE)
    return _of_any_case(text, known) if text else ""  # nothing is set, and nothing stated


def _c_flags(value: str, known: Property) -> str:
    words = [word.strip(_C_SPACE).lstrip("+-") for word in value.split(",")]
    return next((why for word in words if word and (why := _of_any_case(word, known))), "")


def _c_text(value: str, known: Property) -> str:
    return _text(value.lstrip(_C_SPACE), {rule: demanded for rule, demanded in known.items() if rule != "not_empty"})


_C_RULES = {
    "boolean": _c_boolean,
    "integer": _c_whole,
    "float": _c_number,
    "enum value": _c_word,
    "CSV flags": _c_flags,
    "string": _c_text,
}
_NEEDS_VALUE = ("boolean", "integer", "float", "enum value", "CSV flags", "see dedicated API")


def c_integer(value: str) -> int | None:
    """Reads text as `(int) strtol(value, &end, 0)` does, or returns None if it finds no number.

    A number beyond 64 bits counts as their limit, and of 64 bits the lower 32 are kept.
    """
    found = _C_NUMBER.match(value)
    if found is None:
        return None
    digits = found[2]
    if digits[:2] in ("0x", "0X"):
        whole = int(digits, 16)
    elif digits[0] == "0":
        octal = re.match("[0-7]*", digits)
        assert octal is not None
        whole = int(octal[0], 8)
    else:
        whole = int(digits)
    whole = -whole if found[1] == "-" else whole
    whole = min(max(whole, -(2**63)), 2**63 - 1)
    return (whole + _INT_MAX) % (2 * _INT_MAX) - _INT_MAX


def c_double(value: str) -> float | None:
    """Reads text as `strtod` does, or returns None if it finds no number."""
    found = _C_DOUBLE.match(value)
    if found is None:
        return None
    text = found[1].lower()
    if "x" in text:
        return float.fromhex(text)
    return math.nan if "nan" in text else float(text)


# Every property that Kafka's clients, topics and brokers have, with its default and what it may be: what is misspelt
# is noticed, what is not set has its true value, and no value is taken that the program would refuse. From
# `harness/config/known_properties.json`, which the programs themselves have reported.


DATA = Path(__file__).with_suffix(".json")
Client = Literal["java", "librdkafka"]
CLIENTS: tuple[Client, ...] = ("java", "librdkafka")
_MISSPELT = 0.84
"""How alike an unknown name and a known one must be to take the one for a misspelling of the other."""
_MISSPELT_SHORT = 0.75
"""The same for names of up to `_SHORT` characters, where one wrong character of four weighs more (`ackz`)."""
_SHORT = 5
_NEAR = 0.6
"""How alike a known name must be to be shown as the nearest one."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One property as you set it somewhere."""

    value: str
    origin: str
    """Where it was set, for people: file and line, or variable."""
    note: str = ""
    """What you should know about how it came to this value."""


Settings = Mapping[str, Setting]


@cache
def _data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


def versions() -> list[str]:
    """The versions of Kafka whose properties are known, oldest first: the newest patch release of each minor one."""
    return sorted(_data()["kafka"], key=version_numbers)


def librdkafka_version() -> str:
    """The only version of librdkafka whose properties are known."""
    return str(_data()["librdkafka"]["version"])


def alike(version: str) -> str | None:
    """Returns the known version that has the same properties as this one, which is the newest patch of the same minor
    release: patch releases are "Bug fixes only" (Kafka's "Release Plan"), and very seldom add one. None if its properties
    are not known."""
    return next((known for known in versions() if version_numbers(known)[:2] == version_numbers(version)[:2]), None)


@cache
def _kafka(version: str) -> Mapping[str, Mapping[str, Property]]:
    """Returns scope → properties of a known version: those of the oldest version with the changes of each later one."""
    found: dict[str, dict[str, Property]] = {}
    for known in versions():
        for scope, changes in _data()["kafka"][known].items():
            whole = found.get(scope, {}) | changes
            found[scope] = {name: entry for name, entry in whole.items() if entry is not None}
        if known == version:
            break
    return found


def properties_of(scope: str, client: Client, version: str) -> Mapping[str, Property]:
    """Returns the properties of a scope: name → what is known of it. `scope` is producer, consumer, topic or broker, of
    which the last two are Kafka's with either client.

    `version` is Kafka's. If it is not known (`alike`), the nearest older one is used, or else the oldest.
    """
    if client == "librdkafka" and scope in ("producer", "consumer"):
        return dict(_data()["librdkafka"][scope])
    older = [known for known in versions() if version_numbers(known)[:2] <= version_numbers(version)[:2]]
    return dict(_kafka((older or versions()[:1])[-1])[scope])


def canonical(name: str, known: Mapping[str, Property]) -> str:
    """Returns the name itself, or the name that it is an alias of. librdkafka has many aliases."""
    return str(known.get(name, {}).get("alias", name))


def default_of(name: str, known: Mapping[str, Property]) -> str:
    """Returns the program's own default. Empty if it has none."""
    return str(known.get(canonical(name, known), known.get(name, {})).get("default", ""))


def check(
    scope: str,
    settings: Settings,
    known: Mapping[str, Property],
    *,
    more: Sequence[str] = (),
    client: Client = "java",
) -> list[str]:
    """Returns the names that nobody has and that resemble none: Kafka ignores them with a warning. BadInput for names
    that look misspelt, and for values that the program refuses.

    Nothing is known of the value of a placeholder. `more` has names that are known beside Kafka's. `client` says whose
    table `known` is.
    """
    ignored, wrong = [], []
    for name, setting in settings.items():
        if name in known:
            if not is_placeholder(setting.value) and (why := problem(name, setting.value, known[name], client=client)):
                wrong.append(f"{setting.origin}: {why}")
        elif name not in more:
            cutoff = _MISSPELT_SHORT if len(name) <= _SHORT else _MISSPELT
            near = difflib.get_close_matches(name, [*known, *more], n=1, cutoff=cutoff)
            if near and name not in _ever(scope):
                wrong.append(f"{setting.origin}: {name!r} is no {scope} property; did you mean {near[0]!r}?")
            else:
                ignored.append(name)
    if wrong:
        raise BadInput(" ".join(wrong[:5]) + (f" ({len(wrong) - 5} more)" if len(wrong) > 5 else ""))
    return ignored


def notes_of(settings: Settings) -> list[str]:
    """Returns what people should know about these settings."""
    return [setting.note for setting in settings.values() if setting.note]


def does_nothing(name: str, known: Sequence[str]) -> str:
    """Returns what to say about a name that nobody has, with the nearest known name if there is one."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
    nearest = f" (the nearest one is {near[0]})" if near else ""
    return f"{name} is no property of Kafka's: it does nothing{nearest}"


def _ever(scope: str) -> frozenset[str]:
    """Returns all names that any client or any known version of Kafka has."""
    tables = [_data()["librdkafka"].get(scope, {}), *(kafka.get(scope, {}) for kafka in _data()["kafka"].values())]
    return frozenset(name for table in tables for name in table)


@cache
def misspelt(scope: str, name: str) -> str | None:
    """Returns the property that is probably meant by a name which no client and no version of Kafka has. None if the
    name exists, or resembles none. `scope` is one of `properties_of`; of another, nothing is known."""
    known = _ever(scope)
    return None if name in known else next(iter(difflib.get_close_matches(name, known, n=1, cutoff=_MISSPELT)), None)
