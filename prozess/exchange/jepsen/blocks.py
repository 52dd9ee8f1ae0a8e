"""Reads the lines of a Jepsen history many at once, as arrays: sends, polls, transactions and assignments of numbers. Pure.

A text has tokens: numbers, and the ends of lines. Between two of them stands a gap, such as `] [` or `, :type :ok, :f `.
Jepsen's text has few different gaps. Therefore each is understood once, by `_Grammar`, for every role that the number in
front of it can have: it says which role the next number has, and what the gap says on the way. Then all gaps of a block
are looked up.

A line is taken only if each of its gaps was understood, byte by byte, and if together they say everything that an operation
needs, once. Any other line is left to the reader that takes lines one by one (`lines`).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum, unique

import numpy as np

from prozess.harness.schema import NONE

TYPES = (":invoke", ":ok", ":fail", ":info")
OPERATIONS = (":send", ":poll", ":txn")
MOVES = (":assign", ":subscribe", ":crash")
FUNCTIONS = (*OPERATIONS, *MOVES)
OTHER = len(FUNCTIONS)
"""The index of any other :f."""
NUMBER_MAX = 2**62
_DIGITS_MAX = 18
"""Numbers of so many digits are below NUMBER_MAX."""
_GAP_MAX = 128
"""Lines with longer gaps are read one by one."""
_WORD = 8
_BETWEEN = "] ["
"""Stands between two records."""
_KNOWN_MAX, _REFUSED_MAX, _NEW_MAX = 4096, 1 << 16, 512
"""At most this many gaps are remembered, so many that are not understood, and so many new ones are looked at in one block."""
_RARE_MAX = 1024
"""Lines with more unusual gaps than this are read one by one, so that no sum of their facts overflows."""
_BEFORE, _BEHIND = 24, _GAP_MAX + 8
"""Zeros around a text, so that words may reach over its ends."""


@unique
class TokenRole(IntEnum):
    """Says what a token is. Two tokens between which a space stands are both items, or the first one's role is 2, 4 or 6, and
    the second one's is the next."""

    UNKNOWN = 0
    SEND_KEY = 2
    BARE_VALUE = 3
    """The value of a send without an offset: [:send key value]."""
    SEND_OFFSET = 4
    PAIR_VALUE = 5
    """The value of a send with an offset, or nil: [:send key [offset value]]."""
    OFFSET = 6
    VALUE = 7
    """For a record that a poll gave."""
    POLL_KEY = 9
    ITEM = 10
    """A number that stands in an operation's value by itself: a key that is assigned."""
    TIME = 11
    PROCESS = 12
    IGNORED = 13
    """The index, or another number of which nothing is kept."""
    LINE = 14
    """No number, but the end of a line."""


_ROLES = 16
"""A power of two above all roles."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a gap: the role of the token after it, and how often it contains each keyword."""

    role: TokenRole
    types: int = 0
    type: int = 0
    """Place in TYPES."""
    functions: int = 0
    f: int = 0
    """Place in FUNCTIONS, or OTHER."""
    values: int = 0
    nothing: int = 0
    """:value nil"""
    micro_operations: int = 0
    seeks: int = 0
    """:seek-to-beginning? true"""


class _NotUnderstood(Exception):
    pass


_TOKEN = re.compile(
    r"""(?P<space>[\s,]+)
    |(?P<punctuation>[\[\]{}])
    |(?P<keyword>:[A-Za-z][A-Za-z*!_?<>=.+/-]*)
    |(?P<word>nil|true|false)
    |(?P<string>"[^"\\]*")
    |(?P<tag>\#jepsen\.history\.Op)""",
    re.VERBOSE,
)
_ENDS_WORD = re.compile(r"[\s,\[\]{}]")
_RECORD_TAG = "#jepsen.history.Op"


class _Grammar:
    """Reads one gap, from the role of the token in front of it."""

    def __init__(self, gap: str) -> None:
        self._gap = gap
        self._tokens: list[str] = []
        position, whole = 0, True
        while position < len(gap):
            match = _TOKEN.match(gap, position)
            if match is None:
                raise _NotUnderstood
            if match.lastgroup != "space":
                # Words and texts stand by themselves: what follows one directly belongs to it.
                if not whole and match.lastgroup != "punctuation":
                    raise _NotUnderstood
                self._tokens.append(match[0])
            whole = match.lastgroup in ("space", "punctuation")
            position = match.end()
        self._next = 0

    def meaning(self, role: TokenRole) -> Meaning:
        """Returns what the gap says after a token of this role. _NotUnderstood if that is not known."""
        self._next = 0
        self._numbers: dict[str, int] = {}
        if role not in _AFTER or (role is not TokenRole.LINE and self._gap and not _ENDS_WORD.match(self._gap)):
            raise _NotUnderstood
        tokens, go_on = _AFTER[role]
        self._take(*tokens)
        found = go_on(self)
        assert self._next == len(self._tokens), self._gap
        if found is not TokenRole.LINE and not _BEGINS_NUMBER.search(self._gap):
            raise _NotUnderstood
        return Meaning(role=found, **self._numbers)

    # Each of these takes tokens, and returns the role of the number where the gap ends.

    def operation(self) -> TokenRole:
        """Parses the beginning of an operation."""
        if self._peek() == _RECORD_TAG:
            self._take(_RECORD_TAG)
        self._take("{")
        return self.map()

    def map(self) -> TokenRole:
        """Parses a key of an operation, after `{` or a value."""
        while (key := self._token()) != "}":
            if key == ":process":
                return self.ends(TokenRole.PROCESS)
            if key == ":time":
                return self.ends(TokenRole.TIME)
            if key == ":type":
                self._count("types")
                self._numbers["type"] = _index(self._token(), TYPES)
            elif key == ":f":
                self._count("functions")
                f = self._keyword()
                self._numbers["f"] = FUNCTIONS.index(f) if f in FUNCTIONS else OTHER
            elif key == ":value":
                self._count("values")
                if self._peek() != "nil":
                    self._take("[")
                    return self.vector()
                self._take("nil")
                self._count("nothing")
            elif not key.startswith(":") or key == ":rebalance-log":
                raise _NotUnderstood
            elif self._peek() is None and key != ":seek-to-beginning?":
                return TokenRole.IGNORED
            else:
                self._extra(key)
        return self.ends(TokenRole.LINE)

    def _extra(self, key: str) -> None:
        """The value of a key of which nothing is kept, or nearly nothing: a word, or a vector of words."""
        value = self._token()
        if key == ":seek-to-beginning?":
            if value == "true":
                self._count("seeks")
            elif value not in ("false", "nil"):
                raise _NotUnderstood
        depth = 0
        while True:
            depth += (value == "[") - (value == "]")
            if depth < 0 or value in "{}" or value == _RECORD_TAG:
                raise _NotUnderstood
            if depth == 0:
                return
            value = self._token()

    def vector(self) -> TokenRole:
        """Parses a micro-operation of a value, after `[` or another one."""
        while (token := self._peek()) != "]":
            if token is None:
                return TokenRole.ITEM
            self._take("[")
            self._count("micro_operations")
            kind = self._token()
            if kind == ":send":
                return self.ends(TokenRole.SEND_KEY)
            if kind != ":poll":
                raise _NotUnderstood
            if self._peek() == "{":
                self._take("{")
                return self.polled()
            self._take("]")
        self._take("]")
        return self.map()

    def sent(self) -> TokenRole:
        if self._peek() is None:
            return TokenRole.BARE_VALUE
        self._take("[")
        if self._peek() == "nil":
            self._take("nil")
            return self.ends(TokenRole.PAIR_VALUE)
        return self.ends(TokenRole.SEND_OFFSET)

    def polled(self) -> TokenRole:
        """Parses a key of a poll, after `{` or the records of another key."""
        if self._peek() is None:
            return TokenRole.POLL_KEY
        self._take("}", "]")
        return self.vector()

    def records(self) -> TokenRole:
        """Parses a record of a key, after `[` or another record."""
        if self._peek() == "]":
            self._take("]")
            return self.polled()
        self._take("[")
        return self.ends(TokenRole.OFFSET)

    # Tokens.

    def _count(self, what: str) -> None:
        self._numbers[what] = self._numbers.get(what, 0) + 1
        if what != "micro_operations" and self._numbers[what] > 1:
            raise _NotUnderstood

    def _peek(self) -> str | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _token(self) -> str:
        token = self._peek()
        if token is None:
            raise _NotUnderstood
        self._next += 1
        return token

    def _keyword(self) -> str:
        token = self._token()
        if not token.startswith(":"):
            raise _NotUnderstood
        return token

    def _take(self, *wanted: str) -> None:
        for token in wanted:
            if self._token() != token:
                raise _NotUnderstood

    def ends(self, role: TokenRole) -> TokenRole:
        """Returns the role of the token behind the gap, which ends here."""
        if self._peek() is not None:
            raise _NotUnderstood
        return role


_AFTER: dict[TokenRole, tuple[tuple[str, ...], Callable[[_Grammar], TokenRole]]] = {
    TokenRole.LINE: ((), _Grammar.operation),
    TokenRole.IGNORED: ((), _Grammar.map),
    TokenRole.TIME: ((), _Grammar.map),
    TokenRole.PROCESS: ((), _Grammar.map),
    TokenRole.SEND_KEY: ((), _Grammar.sent),
    TokenRole.SEND_OFFSET: ((), lambda gap: gap.ends(TokenRole.PAIR_VALUE)),
    TokenRole.PAIR_VALUE: (("]", "]"), _Grammar.vector),
    TokenRole.BARE_VALUE: (("]",), _Grammar.vector),
    TokenRole.POLL_KEY: (("[",), _Grammar.records),
    TokenRole.OFFSET: ((), lambda gap: gap.ends(TokenRole.VALUE)),
    TokenRole.VALUE: (("]",), _Grammar.records),
    TokenRole.ITEM: ((), _Grammar.vector),
}
"""The role of a token → the method that parses the gap behind it."""
_BEGINS_NUMBER = re.compile(r"[\s,\[{]\Z")


def _index(token: str, known: Sequence[str]) -> int:
    if token not in known:
        raise _NotUnderstood
    return known.index(token)


def meanings_of(gap: str) -> dict[TokenRole, Meaning]:
    """Returns what a gap says after a token of each role; a role is left out if that is not understood."""
    if ":nemesis" in gap:
        return {}
    try:
        grammar = _Grammar(gap)
    except _NotUnderstood:
        return {}
    found = {}
    for role in TokenRole:
        try:
            found[role] = grammar.meaning(role)
        except _NotUnderstood:
            continue
    return found


class Gaps:
    """The gaps that occurred so far, and their meanings. Gap 0 stands for every gap that is not understood."""

    SPACE = 1

    def __init__(self) -> None:
        self.count = 1
        self._refused: set[int] = set()
        self._hashes = np.zeros(1, dtype=np.uint64)
        """Ascending, and the gap of each."""
        self._gaps = np.zeros(1, dtype=np.intp)
        self.words = np.zeros((1, _GAP_MAX // _WORD), dtype=np.uint64)
        """The text of each gap, zeros behind it."""
        self.length = np.zeros(1, dtype=np.int64)
        self.only = np.zeros(1, dtype=np.uint8)
        """The role of the token after each gap, if it is the same after every role; else UNKNOWN."""
        self.roles = np.zeros((1, _ROLES), dtype=np.uint8)
        """The role of the token after each gap, by that of the token before; UNKNOWN = not understood."""
        self.facts = np.zeros((2, 1, _ROLES), dtype=np.int64)
        """The facts in the gap, as `_packed` returns them."""
        self.learn([b" "], np.array([1], dtype=np.uint64))
        assert self.count == self.SPACE + 1

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """intp[n]: the gap with each hash, 0 = none has. The text is not compared."""
        at = np.searchsorted(self._hashes, hashes)
        at[at == len(self._hashes)] = 0
        return np.asarray(self._gaps[at] * (self._hashes[at] == hashes))

    def learn(self, texts: Sequence[bytes], hashes: np.ndarray) -> None:
        """Adds gaps with these hashes, those that are understood after any role."""
        rows = list[tuple[np.uint64, np.ndarray, int, int, np.ndarray, np.ndarray]]()
        for text, number in zip(texts, hashes, strict=True):
            if int(number) in self._refused or number in self._hashes or self.count + len(rows) == _KNOWN_MAX:
                continue
            found = meanings_of(text.decode()) if text.isascii() else {}
            if not found:
                if len(self._refused) < _REFUSED_MAX:
                    self._refused.add(int(number))
                continue
            words = np.zeros(_GAP_MAX, dtype=np.uint8)
            words[: len(text)] = np.frombuffer(text, dtype=np.uint8)
            roles, facts = np.zeros(_ROLES, dtype=np.uint8), np.zeros((2, _ROLES), dtype=np.int64)
            for role, meaning in found.items():
                roles[role] = meaning.role
                facts[:, role] = _packed(meaning)
            every = {meaning.role for meaning in found.values()}
            only = every.pop() if len(every) == 1 else TokenRole.UNKNOWN
            rows.append((number, words.view(np.uint64), len(text), only, roles, facts))
        if not rows:
            return
        of_hash, of_words, of_length, of_only, of_roles, of_facts = (
            np.array(column) for column in zip(*rows, strict=True)
        )
        self.words, self.length = np.concatenate([self.words, of_words]), np.append(self.length, of_length)
        self.only = np.append(self.only, of_only.astype(np.uint8))
        self.roles = np.concatenate([self.roles, of_roles])
        self.facts = np.concatenate([self.facts, of_facts.transpose(1, 0, 2)], axis=1)
        every_hash = np.append(self._hashes, of_hash)
        every_gap = np.append(self._gaps, self.count + np.arange(len(rows)))
        order = np.argsort(every_hash)
        self._hashes, self._gaps = every_hash[order], every_gap[order]
        self.count += len(rows)


_FIELD = 11
"""Bits of a fact that a gap says at most once. Sums over a line stay below: see _RARE_MAX."""
_F, _NOTHING, _SEEKS, _MICRO_OPERATIONS = 12, 25, 36, 47
"""Where other facts begin."""


def _packed(meaning: Meaning) -> tuple[int, int]:
    """Returns the facts of a gap as two numbers of bit fields, which can be summed over a line."""
    once = (
        meaning.types,
        meaning.functions,
        meaning.values,
        int(meaning.role is TokenRole.TIME),
        int(meaning.role is TokenRole.PROCESS),
    )
    others = (
        meaning.type
        | meaning.f << _F
        | meaning.nothing << _NOTHING
        | meaning.seeks << _SEEKS
        | meaning.micro_operations << _MICRO_OPERATIONS
    )
    return sum(fact << index * _FIELD for index, fact in enumerate(once)), others


_ONE_EACH = sum(1 << index * _FIELD for index in range(5))


def _field(facts: np.ndarray, begin: int, end: int) -> np.ndarray:
    return np.asarray(facts >> begin & (1 << end - begin) - 1)


@dataclass(frozen=True, slots=True)
class Lines:
    """The content of some lines, in arrays. `line`s are indices of the given lines; entries of one line are adjacent, in
    the order of the text."""

    taken: np.ndarray
    """bool[lines]: False = left to the reader that takes lines one by one; what follows is not about this line."""
    type: np.ndarray
    """int8[lines]: index in TYPES."""
    f: np.ndarray
    """int8[lines]: index in FUNCTIONS, or OTHER."""
    process: np.ndarray
    """int64[lines]"""
    time_ns: np.ndarray
    """int64[lines]"""
    micro_operations: np.ndarray
    """int64[lines]"""
    nothing: np.ndarray
    """bool[lines]: its value is nil."""
    seeks: np.ndarray
    """bool[lines]: `:seek-to-beginning? true`"""
    send_line: np.ndarray
    send_field: np.ndarray
    """Where the key stands in the text."""
    send_key: np.ndarray
    send_offset: np.ndarray
    """NONE = not stated."""
    send_value: np.ndarray
    run_line: np.ndarray
    """A run is the records of one key that one poll gave."""
    run_field: np.ndarray
    run_key: np.ndarray
    run_count: np.ndarray
    item_line: np.ndarray
    item_field: np.ndarray
    item_key: np.ndarray
    offset: np.ndarray
    """For each record, run after run."""
    value: np.ndarray
    bounds: np.ndarray
    """int64[lines + 1]: where each line begins in the text."""


def read_lines_at_once(text: bytes, gaps: Gaps) -> Lines:
    """Reads lines, each with its end. What is met for the first time is added to `gaps`."""
    buffer = np.zeros(_BEFORE + len(text) + _BEHIND, dtype=np.uint8)
    buffer[_BEFORE:-_BEHIND] = np.frombuffer(text, dtype=np.uint8)
    return _Reading(buffer, gaps).lines()


class _Reading:
    """One text while it is read. `buffer`: the text with zeros around it."""

    def __init__(self, buffer: np.ndarray, gaps: Gaps) -> None:
        self._buffer, self._gaps = buffer, gaps
        digit = buffer - np.uint8(ord("0")) < 10
        newline = buffer == ord("\n")
        begins, ends = digit.copy(), ~digit
        begins[1:] &= ~digit[:-1]
        begins |= newline
        ends[1:] &= digit[:-1]
        ends[0] = False
        ends[1:] |= newline[:-1]
        self._begin, self._end = np.flatnonzero(begins), np.flatnonzero(ends)
        """Where each token begins and ends."""
        self._gap_begin = np.empty_like(self._begin)
        """Where the gap before each token begins."""
        self._gap_begin[0], self._gap_begin[1:] = _BEFORE, self._end[:-1]
        self._words = np.ndarray(shape=(len(buffer) - _WORD + 1,), dtype="<u8", buffer=buffer.data, strides=(1,)).copy()
        """The eight bytes from each index on."""
        self._newline = np.flatnonzero(newline[self._begin])
        """The tokens that end lines."""
        self._number = self._numbers()

    def lines(self) -> Lines:
        gaps, newline = self._gaps, self._newline
        length = self._begin - self._gap_begin
        space, between = self._usual(length)
        rare = np.flatnonzero(~(space | between))
        gap = self._looked_up(rare, length[rare])
        role = between * np.uint8(TokenRole.OFFSET)
        role[rare] = gaps.only[gap]
        role[newline] = TokenRole.LINE
        self._depending(role, space, rare, gap)
        before = role[rare - 1]
        before[rare == 0] = TokenRole.LINE
        known = gap * _ROLES + before
        of_rare = role[rare]
        ends = self._buffer[self._begin[rare]] == ord("\n")
        understood = (gaps.roles.ravel()[known] == of_rare) & (of_rare != TokenRole.UNKNOWN)
        understood &= ends == (of_rare == TokenRole.LINE)
        wrong = (rare[~understood], _misplaced(role, space, between), self._odd_numbers())
        bounds = np.flatnonzero(ends) + 1  # a newline is the last token of its line
        once, others = (np.add.reduceat(table.ravel()[known], np.append(0, bounds[:-1])) for table in gaps.facts)
        taken = (once == _ONE_EACH) & (np.diff(bounds, prepend=0) < _RARE_MAX)
        taken[np.searchsorted(newline, np.concatenate(wrong))] = False
        f = _field(others, _F, _NOTHING).astype(np.int8)
        micro_operations, seeks = others >> _MICRO_OPERATIONS, _field(others, _SEEKS, _MICRO_OPERATIONS)
        operates = f < len(OPERATIONS)
        item = np.flatnonzero(role == TokenRole.ITEM)
        of_items = np.searchsorted(newline, item)
        taken &= (operates | (micro_operations == 0)) & (seeks < 2)
        taken[of_items[operates[of_items]]] = False
        if not taken.all():
            role[np.repeat(~taken, np.diff(newline, prepend=-1))] = TokenRole.UNKNOWN
            of_rare = role[rare]
            item = item[role[item] == TokenRole.ITEM]
        return self._lines(
            role,
            rare[of_rare == TokenRole.PROCESS],
            rare[of_rare == TokenRole.TIME],
            rare[of_rare == TokenRole.SEND_KEY],
            rare[of_rare == TokenRole.POLL_KEY],
            item,
            taken=taken,
            type=_field(others, 0, _F).astype(np.int8),
            f=f,
            micro_operations=micro_operations,
            nothing=_field(others, _NOTHING, _SEEKS) > 0,
            seeks=seeks > 0,
        )

    def _usual(self, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns two bool[tokens]: is the gap before it a space; is it what stands between two records?"""
        buffer = self._buffer
        between = np.zeros(len(buffer), dtype=bool)
        between[:-2] = (buffer[:-2] == ord("]")) & (buffer[1:-1] == ord(" ")) & (buffer[2:] == ord("["))
        is_space = (length == 1) & (buffer == ord(" "))[self._gap_begin]
        is_between = (length == len(_BETWEEN)) & between[self._gap_begin]
        is_space[self._newline] = is_between[self._newline] = False
        return is_space, is_between

    def _looked_up(self, tokens: np.ndarray, length: np.ndarray) -> np.ndarray:
        """intp[n]: the gap before each of these tokens. It is looked up by a hash, and then every byte is compared."""
        begin = self._gap_begin[tokens]
        gap = np.zeros(len(tokens), dtype=np.intp)
        short, long = np.flatnonzero(length <= _WORD), np.flatnonzero((length > _WORD) & (length <= _GAP_MAX))
        for chosen, samples in ((short, 1), (long, _SAMPLES)):
            if len(chosen):
                gap[chosen] = self._known(begin[chosen], length[chosen], samples)
        return gap

    def _known(self, begin: np.ndarray, length: np.ndarray, samples: int) -> np.ndarray:
        gaps, words = self._gaps, self._words
        first = words[begin] & _FIRST_BYTES[np.minimum(length, _WORD)]
        hashes = (first ^ length.view(np.uint64)) * _ODD
        for sample in range(1, samples):  # the last is the last word
            hashes ^= hashes >> np.uint64(29)
            hashes ^= words[begin + (length - _WORD) * sample // (samples - 1)]
            hashes *= _ODD
        gap = gaps.find(hashes)
        unknown = np.flatnonzero(gap == 0)
        if len(unknown):
            self._learn(hashes[unknown], begin[unknown], length[unknown])
            gap = gaps.find(hashes)
        same = (gaps.length[gap] == length) & (gaps.words[gap, 0] == first)
        for level in range(1, _GAP_MAX // _WORD if samples > 1 else 0):
            chosen = np.flatnonzero(length > level * _WORD)
            if not len(chosen):
                break
            rest = np.minimum(length[chosen] - level * _WORD, _WORD)
            word = words[begin[chosen] + level * _WORD] & _FIRST_BYTES[rest]
            same[chosen] &= gaps.words[gap[chosen], level] == word
        return np.asarray(gap * same)

    def _learn(self, hashes: np.ndarray, begin: np.ndarray, length: np.ndarray) -> None:
        """Learns the most frequent of these gaps."""
        numbers, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        chosen = np.argsort(-counts)[:_NEW_MAX]
        ends = begin + length
        texts = [self._buffer[begin[at] : ends[at]].tobytes() for at in first[chosen].tolist()]
        self._gaps.learn(texts, numbers[chosen])

    def _depending(self, role: np.ndarray, space: np.ndarray, rare: np.ndarray, gap: np.ndarray) -> None:
        """Sets the role of each token that depends on the one before: nearly all are the second of a pair."""
        is_first = ((role - np.uint8(2)) & np.uint8(0xF9)) == 0  # 2, 4 or 6
        role[1:] |= (space[1:] & is_first[:-1]) * (role[:-1] | np.uint8(1))
        spaces = np.flatnonzero(space & (role == TokenRole.UNKNOWN))
        others = np.flatnonzero((role[rare] == TokenRole.UNKNOWN) & (gap > 0))
        tokens = np.concatenate([spaces, rare[others]])
        which = np.concatenate([np.full(len(spaces), Gaps.SPACE), gap[others]])
        for _ in range(_DEPENDING_MAX):
            found = self._gaps.roles[which, role[tokens - 1]]
            found[tokens == 0] = TokenRole.UNKNOWN
            role[tokens] = found
            if not found.any():
                return
            tokens, which = tokens[found == TokenRole.UNKNOWN], which[found == TokenRole.UNKNOWN]

    def _numbers(self) -> np.ndarray:
        """int64[tokens]: the number that each is; anything for the ends of lines and for numbers that are too long."""
        digits = self._end - self._begin
        number = _digits(self._words[self._end - _WORD], digits)
        for level in range(1, _BEFORE // _WORD):
            chosen = np.flatnonzero(digits > level * _WORD)
            if not len(chosen):
                break
            higher = _digits(self._words[self._end[chosen] - (level + 1) * _WORD], digits[chosen] - level * _WORD)
            number[chosen] += higher * np.uint64(10 ** (level * _WORD))
        return number.view(np.int64)

    def _odd_numbers(self) -> np.ndarray:
        """intp[n]: the tokens that are too long, or begin with a zero that they do not need."""
        digits = self._end - self._begin
        return np.flatnonzero((digits > _DIGITS_MAX) | ((digits > 1) & (self._buffer[self._begin] == ord("0"))))

    def _lines(
        self,
        role: np.ndarray,
        process: np.ndarray,
        time: np.ndarray,
        send: np.ndarray,
        key: np.ndarray,
        item: np.ndarray,
        *,
        taken: np.ndarray,
        **facts: np.ndarray,
    ) -> Lines:
        """Collects what the tokens of lines that are taken say; others have no role any more. `process` to `item`: the tokens
        that are processes, times, keys that are sent to, keys of polls, and items."""
        number, newline = self._number, self._newline
        processes, times = np.zeros(len(newline), dtype=np.int64), np.zeros(len(newline), dtype=np.int64)
        processes[taken], times[taken] = number[process], number[time]
        paired = role[send + 1] == TokenRole.SEND_OFFSET
        record = np.flatnonzero(role == TokenRole.OFFSET)
        run_begin = np.searchsorted(record, key)
        return Lines(
            taken=taken,
            process=processes,
            time_ns=times,
            send_line=np.searchsorted(newline, send),
            send_field=self._begin[send] - _BEFORE,
            send_key=number[send],
            send_offset=np.where(paired, number[send + 1], NONE),
            send_value=number[send + 1 + paired],
            run_line=np.searchsorted(newline, key),
            run_field=self._begin[key] - _BEFORE,
            run_key=number[key],
            run_count=np.diff(run_begin, append=len(record)),
            item_line=np.searchsorted(newline, item),
            item_field=self._begin[item] - _BEFORE,
            item_key=number[item],
            offset=number[record],
            value=number[record + 1],
            bounds=np.append(0, self._end[newline] - _BEFORE),
            **facts,
        )


_SAMPLES = 4
"""At most this many words of a long gap make its hash."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], dtype=np.uint64)
_LAST_DIGITS = np.array([0x0F0F0F0F0F0F0F0F >> 8 * n << 8 * n for n in range(_WORD, -1, -1)], dtype=np.uint64)
"""Indexed by the number of digits, for a word that ends where the digits end."""
_DEPENDING_MAX = 1024
"""Longer vectors of keys are read one by one."""


def _digits(word: np.ndarray, digits: np.ndarray) -> np.ndarray:
    """uint64[n]: the number of the last digits, at most eight, of each word."""
    word &= _LAST_DIGITS[np.minimum(digits, _WORD)]
    for factor, shift, mask in ((10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF), (10_000, 32, 0xFFFFFFFF)):
        word *= np.uint64((factor << shift) + 1)
        word >>= np.uint64(shift)
        word &= np.uint64(mask)
    return word


def _misplaced(role: np.ndarray, space: np.ndarray, between: np.ndarray) -> np.ndarray:
    """intp[n]: tokens after a space that have no role, and those between records that follow something else."""
    wrong = space & (role == TokenRole.UNKNOWN)
    wrong[1:] |= between[1:] & (role[:-1] != TokenRole.VALUE)
    wrong[0] |= space[0] | between[0]
    return np.flatnonzero(wrong)
