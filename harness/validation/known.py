"""Every property that Kafka's clients, topics and brokers have, with its default: what is misspelt is noticed, and what is
not set has its true value. From `harness/data/known_properties.json`, which the programs themselves have told."""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from harness.errors import BadInput

DATA = Path(__file__).resolve().parents[1] / "data" / "known_properties.json"
Client = Literal["java", "librdkafka"]
CLIENTS: tuple[Client, ...] = ("java", "librdkafka")
_MISSPELT = 0.84
"""How alike an unknown name and a known one must be for the one to be taken for the other, misspelt."""
_MISSPELT_SHORT = 0.75
"""Of names of up to `_SHORT` characters, where one wrong character of four weighs more (`ackz`)."""
_SHORT = 5
_NEAR = 0.6
"""How alike a known name must be to be told as the nearest one."""
_NUMBERS = ("int", "long", "short", "integer", "double", "float")


@dataclass(frozen=True, slots=True)
class Setting:
    """One property as somebody set it."""

    value: str
    origin: str
    """File and line, or variable: for a person."""


Settings = Mapping[str, Setting]


@cache
def _data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


def versions() -> list[str]:
    """Versions of Kafka whose properties are known, oldest first."""
    return sorted(_data()["kafka"], key=lambda text: tuple(int(part) for part in text.split(".")))


def properties_of(scope: str, client: Client, version: str) -> Mapping[str, Mapping[str, str]]:
    """Name → what is known of it. `scope`: producer, consumer, topic, broker (the last two are Kafka's with either client).
    Of a version that is not known, the newest one of the same major version is asked, else the newest."""
    if client == "librdkafka" and scope in ("producer", "consumer"):
        return dict(_data()["librdkafka"][scope])
    known = versions()
    alike = [v for v in known if v.split(".")[0] == version.split(".")[0]]
    return dict(_data()["kafka"][version if version in known else (alike or known)[-1]][scope])


def canonical(name: str, known: Mapping[str, Mapping[str, str]]) -> str:
    """The name itself, or what it is an alias of (librdkafka has many)."""
    return known.get(name, {}).get("alias", name)


def default_of(name: str, known: Mapping[str, Mapping[str, str]]) -> str:
    """The program's own default; empty if it has none."""
    return known.get(canonical(name, known), known.get(name, {})).get("default", "")


def check(
    scope: str, settings: Settings, known: Mapping[str, Mapping[str, str]], *, more: Sequence[str] = ()
) -> list[str]:
    """Names that are nobody's, and resemble none: Kafka ignores them (with a warning). BadInput for those that look
    misspelt, and for values of another type. `more`: names that are known beside Kafka's."""
    ignored, wrong = [], []
    for name, setting in settings.items():
        if name in known:
            if problem := _wrong_type(name, setting.value, known[name].get("type", "")):
                wrong.append(f"{setting.origin}: {problem}")
        elif name not in more:
            cutoff = _MISSPELT_SHORT if len(name) <= _SHORT else _MISSPELT
            near = difflib.get_close_matches(name, [*known, *more], n=1, cutoff=cutoff)
            if near:
                wrong.append(f"{setting.origin}: {name!r} is no {scope} property; did you mean {near[0]!r}?")
            else:
                ignored.append(name)
    if wrong:
        raise BadInput(" ".join(wrong[:5]) + (f" ({len(wrong) - 5} more)" if len(wrong) > 5 else ""))
    return ignored


def does_nothing(name: str, known: Sequence[str]) -> str:
    """What to say of a name that is nobody's, with the nearest known one where there is one."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
    told = f" (the nearest one is {near[0]})" if near else ""
    return f"{name} is no property of Kafka's: it does nothing{told}"


@cache
def misspelt(scope: str, name: str) -> str | None:
    """The property that is probably meant by a name which no client and no version of Kafka has; None = it is one, or like
    none. `scope`: as of `properties_of`; of another, nothing is known."""
    tables = [_data()["librdkafka"].get(scope, {}), *(kafka.get(scope, {}) for kafka in _data()["kafka"].values())]
    known = {name for table in tables for name in table}
    return None if name in known else next(iter(difflib.get_close_matches(name, known, n=1, cutoff=_MISSPELT)), None)


def _wrong_type(name: str, value: str, kind: str) -> str | None:
    if kind == "boolean" and value.lower() not in ("true", "false"):
        return f"{name} = {value!r} must be true or false."
    if kind in _NUMBERS and not re.fullmatch(r"[+-]?\d+(\.\d+)?", value) and name not in _WORDS_TOO:
        return f"{name} = {value!r} must be a number."
    return None


_WORDS_TOO = ("acks", "request.required.acks")
"""Numbers to librdkafka, which takes `all` as well."""
