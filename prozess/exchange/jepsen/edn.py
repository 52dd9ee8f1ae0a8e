"""EDN (https://github.com/edn-format/edn) as Jepsen prints it: a whole reader, and a fast one for lines of plain operations.

A value becomes a Python value: nil, true, false, integers and floats as in Python; vectors and lists are lists; a map is the
list [MAP, key, value, …], a set [SET, element, …], a tagged element [TAG, tag, element]. The first character of a text is its
kind: `:keyword`, `"string` (without the closing quote), `'symbol`, `\\character`. A record of Jepsen's
(`#jepsen.history.Op{…}`) is its map. Pure; nothing recurses, so that depth is no danger.
"""

import json
import re
from functools import lru_cache
from typing import TypeAlias

EdnValue: TypeAlias = "bool | int | float | str | list[EdnValue] | None"
"""A value of EDN as the first paragraph of this module says."""
MAP, SET, TAG = "{", "#{", "#"
_RECORD = "jepsen.history.Op"
_TOKEN = re.compile(
    r"""(?P<skip>[\s,]+|;[^\n]*)
    |(?P<open>\#\{|[\[({])|(?P<close>[\])}])
    |"(?P<string>(?:[^"\\]|\\.)*)"
    |\#"(?P<regex>(?:[^"\\]|\\.)*)"
    |(?P<discard>\#_)
    |(?P<namespaced>\#:[^\s,;()\[\]{}"]+)
    |(?P<special>\#\#[A-Za-z]+)
    |\#(?P<tag>[A-Za-z][^\s,;()\[\]{}"]*)
    |(?P<character>\\(?:[^\s,;()\[\]{}"]+|.))
    |(?P<word>[^\s,;()\[\]{}"\\\#]+(?:\#[^\s,;()\[\]{}"\\]*)?)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSES = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)N?")
_FLOAT = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?M?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]+")
_RATIO = re.compile(r"[+-]?[0-9]+/[0-9]+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"'}
_SPECIALS = {"##Inf": float("inf"), "##-Inf": float("-inf"), "##NaN": float("nan")}
_DIGITS_MAX = 4000
"""Python refuses longer numbers (sys.set_int_max_str_digits); nobody means them."""


class EdnError(ValueError):
    """The text is not EDN. The message has the reason and the column, from 1."""

    def __init__(self, what: str, column: int) -> None:
        super().__init__(what)
        self.what, self.column = what, column


class _Prefix:
    """A tag, or a discard: takes the value after it."""

    def __init__(self, tag: str | None, column: int) -> None:
        self.tag, self.column = tag, column


class _Nesting:
    """The collections that are open, the innermost last, and what was read into them."""

    def __init__(self) -> None:
        self.items: list[EdnValue | _Prefix] = []
        self._outer: list[tuple[list[EdnValue | _Prefix], str, int]] = []
        self.opener, self.column = "", 0

    def open(self, opener: str, column: int) -> None:
        self._outer.append((self.items, self.opener, self.column))
        self.items, self.opener, self.column = [], opener, column

    def close(self) -> EdnValue:
        made = _applied(self.items)
        if self.opener == "{":
            made = [MAP, *made]
        elif self.opener == "#{":
            made = [SET, *made]
        self.items, self.opener, self.column = self._outer.pop()
        return made


def read_edn(text: str) -> EdnValue:
    """Returns the only value in a text. EdnError if there is none, more than one, or something else."""
    nesting, position = _Nesting(), 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise EdnError(f"{_near(text, position)} cannot be read", position + 1)
        kind, column, position = str(match.lastgroup), position + 1, match.end()
        token = match[kind]
        if kind == "skip":
            continue
        if kind == "open":
            nesting.open(token, column)
        elif kind == "close":
            if not nesting.opener or _CLOSES[nesting.opener] != token:
                raise EdnError(f"{token} closes nothing" if not nesting.opener else _unclosed(nesting), column)
            if nesting.opener == "{" and (len(_applied(nesting.items)) % 2):
                raise EdnError("a map has a key without a value", column)
            made = nesting.close()
            nesting.items.append(made)
        else:
            nesting.items.append(_atom(kind, token, column))
    if nesting.opener:
        raise EdnError(_unclosed(nesting), len(text) + 1)
    items = _applied(nesting.items)
    if len(items) != 1:
        raise EdnError("there is nothing to read" if not items else "there is more than one value", len(text) + 1)
    return items[0]


def _applied(items: "list[EdnValue | _Prefix]") -> list[EdnValue]:
    """Values with tags and discards applied, from the last to the first."""
    values = [item for item in items if not isinstance(item, _Prefix)]
    if len(values) == len(items):
        return values
    out: list[EdnValue] = []  # backwards
    for item in reversed(items):
        if not isinstance(item, _Prefix):
            out.append(item)
            continue
        if not out:
            raise EdnError("a tag, or #_, has no value after it", item.column)
        value = out.pop()
        if item.tag == _RECORD:
            out.append(value)
        elif item.tag is not None:
            out.append([TAG, item.tag, value])
    return out[::-1]


def _unclosed(nesting: _Nesting) -> str:
    return f"{nesting.opener} of column {nesting.column} is not closed by {_CLOSES[nesting.opener]}"


def _near(text: str, position: int) -> str:
    return repr(text[position : position + 20])


def _atom(kind: str, token: str, column: int) -> "EdnValue | _Prefix":
    match kind:
        case "string":
            return '"' + _ESCAPE.sub(_unescaped, token)
        case "regex":
            return '"' + token
        case "character":
            return token
        case "discard":
            return _Prefix(None, column)
        case "tag":
            return _Prefix(token, column)
        case "namespaced":
            return _Prefix(token, column)
        case "special":
            if token not in _SPECIALS:
                raise EdnError(f"{token} cannot be read", column)
            return _SPECIALS[token]
        case _:
            return _word(token, column)


def _unescaped(match: re.Match[str]) -> str:
    if match[1] is not None:
        return chr(int(match[1], 16))
    return _ESCAPES.get(match[2], match[2])


def _word(token: str, column: int) -> EdnValue:
    if token.startswith(":"):
        return token
    if token in ("nil", "true", "false"):
        return {"nil": None, "true": True, "false": False}[token]
    if token.lstrip("+-")[:1].isdigit():
        if len(token) > _DIGITS_MAX:
            raise EdnError(f"a number of {len(token)} digits", column)
        if _INTEGER.fullmatch(token):
            return int(token.rstrip("N"))
        if _FLOAT.fullmatch(token):
            return float(token.rstrip("M"))
        if _HEXADECIMAL.fullmatch(token):
            return int(token, 16)
        if not _RATIO.fullmatch(token):
            raise EdnError(f"{token!r} is no number", column)
    return "'" + token


# Many plain lines at once.

_RECORD_HEAD = r"(?:#jepsen\.history\.Op ?)?\{"
_LINE = re.compile(_RECORD_HEAD + r"((?::[a-z-]+ :?[a-z0-9-]+, )*):value (.*)\}\s*")
_PLAIN_STRING = re.compile(r'"([A-Za-z0-9_.-]*)"')
_KEYWORD = re.compile(r"(?<=[\[,]):([A-Za-z0-9_.*!?<>=/+-]+)(?=[\],])")
_NIL = re.compile(r"(?<=[\[,])nil(?=[\],])")
_USUAL = (("[:send,", '[":send",'), ("[:poll]", '[":poll"]'), ("[:poll,", '[":poll",'))
_UNUSUAL = re.compile(r"[\x00\\;#()^@`~'%]|//|null")
"""Not in plain values; `null` is a symbol in EDN, and another thing in JSON."""
_EMPTY = "\x00"
"""Stands for an empty map for a moment."""
Plain = tuple[tuple[str, ...], tuple[str, ...], list[EdnValue]]
"""The keys before `:value`, their texts as they stand, and the value, followed by the keys and values after it."""


def read_lines(lines: list[str]) -> list[Plain | None]:
    """Operations of the usual form, one per line. None where a line is anything else: it is for `read_edn`. For operations of
    the nemesis the value is left out.

    About twenty times as fast: the values of all lines are turned into one JSON text.
    """
    found: list[Plain | None] = [None] * len(lines)
    heads, tails, indices = [], [], []
    keys: tuple[str, ...] = ()
    shape, nemesis = _shape(keys), -1
    for index, line in enumerate(lines):
        match = shape.fullmatch(line)
        if match is None:  # keys in another order
            match = _LINE.fullmatch(line)
            if match is None:
                continue
            keys = tuple(match[1].replace(",", "").split()[::2])
            nemesis = keys.index(":process") if ":process" in keys else -1
            shape = _shape(keys)
            match = shape.fullmatch(line)
            assert match is not None, line
        *texts, tail = match.groups()
        if nemesis >= 0 and texts[nemesis] == ":nemesis":
            found[index] = keys, tuple(texts), []
            continue
        heads.append((keys, tuple(texts)))
        tails.append(tail)
        indices.append(index)
    return _with_values(found, heads, tails, indices)


@lru_cache(maxsize=64)
def _shape(keys: tuple[str, ...]) -> re.Pattern[str]:
    """Returns a line with these keys before `:value`, in this order."""
    return re.compile(_RECORD_HEAD + "".join(rf"{re.escape(k)} (:?[a-z0-9-]+), " for k in keys) + r":value (.*)\}\s*")


def _with_values(
    found: list[Plain | None],
    heads: list[tuple[tuple[str, ...], tuple[str, ...]]],
    tails: list[str],
    indices: list[int],
) -> list[Plain | None]:
    """Returns the plain lines among these at their indices, and None at the others."""
    text = "],[".join(tails)
    # Only where each value ends what it begins can none be taken for a part of another.
    if _UNUSUAL.search(text) or not all(map(_balanced, tails)):
        plain = [number for number, tail in enumerate(tails) if not _UNUSUAL.search(tail) and _balanced(tail)]
        heads, tails, indices = [heads[n] for n in plain], [tails[n] for n in plain], [indices[n] for n in plain]
        text = "],[".join(tails)
    values = _values(text)
    if values is not None and len(values) == len(indices):
        for index, (keys, texts), value in zip(indices, heads, values, strict=True):
            found[index] = keys, texts, value
    return found


def _balanced(text: str) -> bool:
    return text.count("[") == text.count("]") and text.count("{") == text.count("}")


def _values(text: str) -> list[list[EdnValue]] | None:
    """The values of texts that `],[` separates; None if one of them is not plain."""
    if '"' in text:
        if '"' in _PLAIN_STRING.sub("", text):
            return None
        text = _PLAIN_STRING.sub(r'"\\"\1"', text)
    # Printed as Clojure prints it: one space between values, a comma and a space after each pair of a map.
    values = _from_json(text.replace(", ", ",").replace(" ", ","))
    if values is None:
        spaced = text.replace(",", " ").replace("[", " [ ").replace("]", " ] ").replace("{", " { ").replace("}", " } ")
        text = ",".join(spaced.split())
        text = text.replace("[,", "[").replace(",]", "]").replace("{,", "{").replace(",}", "}")
        values = _from_json(text)
    return values


def _from_json(text: str) -> list[list[EdnValue]] | None:
    """Reads a text in which one comma stands between values."""
    text = f"[[{text}]]".replace("{}", _EMPTY).replace("{", '["{",').replace("}", "]").replace(_EMPTY, '["{"]')
    for word, quoted in _USUAL:
        text = text.replace(word, quoted)
    if ":" in text.replace('":', ""):
        text = _KEYWORD.sub(r'":\1"', text)
    if "nil" in text:
        text = _NIL.sub("null", text)
    try:
        values = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, list) else None


def _no_constant(name: str) -> None:
    raise ValueError(name)
