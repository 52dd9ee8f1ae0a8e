"""Jepsen's lines read many at once give what they give one by one: the same rows, or a refusal to say."""

import random
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.exchange.imported_run import stable_order
from prozess.exchange.jepsen import block_reader
from prozess.exchange.jepsen.block_reader import BlockReader, blocks_of
from prozess.exchange.jepsen.blocks import Gaps, TokenRole, meanings_of, read_lines_at_once
from prozess.exchange.jepsen.history import read_at_once, read_jepsen, read_one_by_one
from prozess.harness.errors import BadInput
from tests.support.edn_histories import edn
from tests.support.examples import examples

HEAD = "{:index 0, :time 5, :type :invoke, :process 3, :f :txn, "
SCRAPS = (
    *(
        "",
        " ",
        ",",
        "0",
        "-",
        "5",
        "[",
        "]",
        "{",
        "}",
        ":",
        '"a"',
        "nil",
        ":send ",
        "[:poll]",
        "9" * 19,
        ";",
        "\t",
        "\r",
        "+",
    ),
    *("é", "\x00", "N", ".5", "#_", "#{1}", "\\", '"', "\n", " :type :ok", ", :time 7", "true", "/"),
)


class Drawn:
    """A history of some processes: mostly of the usual kind, and now and then of every other kind."""

    def __init__(self, seed, *, usual=False):
        self.rng = random.Random(seed)
        rng = self.rng
        self.time_ns, self.index, self.lines, self.values = 0, 0, [], 0
        self.invoked = {}
        self.odd = 0 if usual else rng.choice((0, 0, 0, 0.01, 0.05))
        """So many lines are spoiled."""
        self.rebalanced = 0 if usual else rng.choice((0, 0, 0.05))
        self.strange = 0 if usual else rng.choice((0, 0, 0.1))
        """So many keys and values are no small numbers."""
        self.printed = str if usual else rng.choice((str, str, self.spaced, self.without_commas))
        self.keys = rng.choice((2, 3, 5))
        self.functions = ("assign", "crash") if usual else ("assign", "subscribe", "crash", "debug-topic-partitions")

    def steps(self, count):
        for _ in range(count):
            self.step()
        return self

    def step(self):
        rng = self.rng
        process = rng.randrange(4)
        if rng.random() < 0.03:
            return self.line(":nemesis", "info", "kill", rng.choice((None, ["n1"])))
        if process not in self.invoked and rng.random() < 0.1:
            f = rng.choice(self.functions)
            value = None if f == "crash" else rng.sample(range(self.keys), rng.randrange(self.keys + 1))
            more = ", :seek-to-beginning? true" if rng.random() < 0.1 else ""
            self.line(process, "invoke", f, value, more)
            return self.line(process, rng.choice(("ok", "ok", "ok", "fail", "info")), f, value, more)
        if process not in self.invoked:
            f = rng.choice(("send", "poll", "txn"))
            micro = [self.send() if rng.random() < 0.6 else [":poll"] for _ in range(rng.randrange(4))]
            self.invoked[process] = f, micro
            return self.line(process, "invoke", f, micro)
        f, micro = self.invoked.pop(process)
        kind = rng.choice(("ok", "ok", "ok", "fail", "info"))
        value = None if rng.random() < 0.02 else [self.done(one) for one in micro]
        return self.line(process, kind, f, value)

    def send(self):
        self.values += 1
        return [":send", self.key(), self.value(self.values)]

    def key(self):
        key = self.rng.randrange(self.keys)
        return self.rng.choice(("a", ":b", -5, 2**30, 2**62)) if self.rng.random() < self.strange else key

    def value(self, value):
        return self.rng.choice((f"v{value}", -value, 2**40 + value)) if self.rng.random() < self.strange else value

    def done(self, micro):
        rng = self.rng
        if micro[0] == ":send":
            offset = rng.choice((None, rng.randrange(50), 10 ** rng.randrange(15)))
            return [":send", micro[1], rng.choice(([offset, micro[2]], [offset, micro[2]], micro[2]))]
        shown = {}
        for _ in range(rng.randrange(3)):
            shown[self.key()] = [
                [rng.randrange(50), self.value(rng.randrange(self.values + 2))] for _ in range(rng.randrange(4))
            ]
        return rng.choice(([":poll", shown], [":poll", shown], [":poll"]))

    def line(self, process, kind, f, value, more=""):
        rng = self.rng
        self.time_ns += rng.randrange(5)
        head = {":index": self.index, ":time": self.time_ns, ":type": f":{kind}", ":process": process, ":f": f":{f}"}
        self.index += 1
        written = rng.choice(("", "#jepsen.history.Op", "#jepsen.history.Op ")) + edn(head | {":value": value})
        if kind != "invoke" and rng.random() < 0.1:
            more += rng.choice(
                (', :error [:crash "a, :error "]', ", :error 5", ", :error [:timeout 5]", ", :error {:a 1}")
            )
        if kind != "invoke" and rng.random() < self.rebalanced:
            more += f", :rebalance-log [{{:keys [{rng.randrange(3)}]}} {{:keys []}}]"
        written = self.printed(written[:-1] + more + "}")
        if rng.random() < self.odd:
            place = rng.randrange(len(written))
            written = written[:place] + rng.choice(SCRAPS) + written[place + rng.randrange(3) :]
        if rng.random() < self.odd:
            self.lines.append(rng.choice(("", "; a remark", "  ", "{}", "{:process :nemesis}")))
        self.lines.append(written)

    def spaced(self, line):
        return "".join(self.rng.choice((one, one, "  ", ", ")) if one == " " else one for one in line)

    def without_commas(self, line):
        return line.replace(",", "")

    def text(self):
        return self.rng.choice(("\n", "\n", "\r\n")).join(self.lines) + self.rng.choice(("", "\n"))


def plain(columns):
    values = {field.name: as_lists(getattr(columns, field.name)) for field in fields(columns)}
    records = list(zip(values.pop("offsets"), values.pop("values"), strict=True))
    counts = values["runs"]["count"]
    # Where the records of a run stand among all others is nobody's business.
    values["records"] = [
        records[start : start + count] for start, count in zip(values["runs"].pop("start"), counts, strict=True)
    ]
    assert sum(counts) == len(records)
    return values


def as_lists(value):
    if isinstance(value, dict):
        return {name: as_lists(one) for name, one in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, range) else value


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("drawn")


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((300, 3000, 1 << 19)))
def test_at_once_and_one_by_one_the_same_is_read(folder, seed, block_bytes):
    drawn = Drawn(seed)
    path = folder / "history.edn"
    path.write_bytes(drawn.steps(drawn.rng.randrange(90)).text().encode())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(block_reader, "BLOCK_BYTES", block_bytes)
        at_once = read_at_once(path)
    try:
        one_by_one = read_one_by_one(path)
    except BadInput:
        assert at_once is None
        return
    if at_once is None:
        assert drawn.odd, "whatever is right and has times is read at once"
    else:
        assert plain(at_once.columns) == plain(one_by_one.columns)
        assert at_once.nemesis == one_by_one.nemesis


def test_lines_of_the_usual_kind_are_read_at_once(tmp_path):
    path = tmp_path / "history.edn"
    drawn = Drawn(3, usual=True).steps(3_000)
    path.write_text("\n".join(drawn.lines))
    reader = BlockReader(path)
    left = [line for block in blocks_of(path) for _, line in reader.take(block)]
    assert sum(":nemesis" not in line and ":error" not in line for line in left) == 0
    assert sum(":f :assign" in line for line in drawn.lines) > 100
    assert len(left) < 0.1 * len(drawn.lines)


@pytest.mark.parametrize(
    "line",
    [
        HEAD + ":value [[:send5 3]]}",
        HEAD + ":value [[:send 5 3] [:poll] [:poll {1 [0 1]}]]}",
        HEAD + ":value [[:send 05 3]]}",
        HEAD + ":value [[:send -5 3]]}",
        HEAD + ":value [[:send 5 3]]} {",
        HEAD + ":value [[:send 5 3]]}}",
        HEAD + ":value [[:send 5 3]]",
        HEAD + ":value [[:send 5 1.5]]}",
        HEAD + ":value [[:send 5 3N]]}",
        HEAD + ":value [[:send 5 3]] ; a remark}",
        HEAD + ":value [[:send 5 3 4]]}",
        HEAD + ":value [[:send 5 [3]]]}",
        HEAD + ":value [[:poll {5 [[3 4] [5]]}]]}",
        HEAD + ":value [[:poll {5 [[3 4]]]]}",
        HEAD + ":value [5 6]}",
        HEAD + f":value [[:send 5 {2**62}]]}}",
        HEAD + f":value [[:send 5 {10**30}]]}}",
        HEAD + ":value #foo [[:send 5 3]]}",
        HEAD + ':value "[[:send 5 3]]"}',
        HEAD + ":time 6, :value [[:send 5 3]]}",
        HEAD + ":value [[:send 5 3]], :value [[:send 5 3]]}",
        HEAD + ":value [[:send 5 3]], :rebalance-log [{:keys []}]}",
        HEAD + ":error é, :value []}",
        HEAD.replace(":type :invoke", ":type :okay") + ":value []}",
        HEAD.replace(":type :invoke", ":type :ok5") + ":value []}",
        HEAD.replace(":process 3", ":process3 3") + ":value []}",
        HEAD.replace(":process 3", ":process :nemesis") + ":value []}",
        HEAD.replace(", :process 3", "") + ":value []}",
        HEAD.replace(", :time 5", "") + ":value []}",
        HEAD.replace("5, :type", "5:type") + ":value []}",
        HEAD.replace("{", "#{") + ":value []}",
        HEAD + "}",
        "",
        "; a remark",
    ],
)
def test_a_line_that_is_a_little_different_is_left_to_be_read_by_itself(line):
    usual = HEAD + ":value [[:send 5 3] [:poll]]}"
    read = read_lines_at_once(f"{usual}\n{line}\n{usual}\n".encode(), Gaps())
    assert read.taken.tolist() == [True, False, True]
    assert (read.send_line.tolist(), read.send_key.tolist(), read.send_value.tolist()) == ([0, 2], [5, 5], [3, 3])
    assert len(read.run_line) == len(read.item_line) == len(read.offset) == 0


@pytest.mark.parametrize(
    "line",
    [
        HEAD + ":value nil}",
        HEAD + ":value [[:send 5 3]], :error 5}",
        HEAD + ':value [[:send 5 3]], :error [:crash "it was closed" nil true]}',
        HEAD.replace(",", "") + ":value [[:send 5 3]]}",
        HEAD.replace(" ", "   ").replace("{", "  { ") + ":value [ [ :send  5\t3 ] ] } ",
        "#jepsen.history.Op" + HEAD + ":value [[:poll {5 [[3 4] [5 6]], 6 []} ] [:poll {}]]}\r",
        "{:value [1 2 3], :f :assign, :process 3, :type :ok, :time 17, :index 5, :more 7}",
        "{:value [1 2 3], :f :debug-topic-partitions, :process 3, :type :ok, :time 17, :index 5, :more 7}",
        f"{{:type :ok, :f :crash, :time {10**17}, :process {10**18 - 1}, :value nil}}",
    ],
)
def test_these_lines_are_read_at_once(line):
    assert read_lines_at_once(f"{line}\n{line}\n".encode(), Gaps()).taken.all()


def test_lines_say_this():
    read = read_lines_at_once(
        b"#jepsen.history.Op{:index 0, :time 5, :type :invoke, :process 3, :f :txn, :value [[:send 9 4] [:poll]]}\n"
        b"{:time 7, :type :ok, :process 3, :index 1, :f :txn, :value [[:send 9 [nil 4]] [:poll {8 [[0 1] [2 3]], 9 []}]]}\n"
        b"{:index 2, :time 8, :type :info, :process 4, :f :send, :value [[:send 8 [6 4]]]}\n"
        b"{:index 2, :time 123456789012345678, :type :ok, :process 4, :f :assign, :value [8 9], :seek-to-beginning? true}\n",
        Gaps(),
    )
    assert read.taken.all()
    assert read.type.tolist() == [0, 1, 3, 1]
    assert read.process.tolist() == [3, 3, 4, 4]
    assert read.time_ns.tolist() == [5, 7, 8, 123456789012345678]
    assert read.f.tolist() == [2, 2, 0, 3]
    assert (read.micro_operations.tolist(), read.seeks.tolist()) == ([2, 2, 1, 0], [False, False, False, True])
    assert read.send_line.tolist() == [0, 1, 2]
    assert (read.send_key.tolist(), read.send_offset.tolist(), read.send_value.tolist()) == (
        [9, 9, 8],
        [-1, -1, 6],
        [4] * 3,
    )
    assert (read.run_line.tolist(), read.run_key.tolist(), read.run_count.tolist()) == ([1, 1], [8, 9], [2, 0])
    assert (read.offset.tolist(), read.value.tolist()) == ([0, 2], [1, 3])
    assert (read.item_line.tolist(), read.item_key.tolist()) == ([3, 3], [8, 9])


@given(st.lists(st.integers(0, 10**18 - 1), min_size=1), st.integers(1, 9))
def test_numbers_of_every_length_are_read(numbers, digits):
    numbers = [number % 10 ** (2 * digits) for number in numbers]
    line = f"{{:index 0, :time 5, :type :ok, :process 3, :f :assign, :value [{' '.join(map(str, numbers))}]}}\n"
    assert read_lines_at_once(line.encode(), Gaps()).item_key.tolist() == numbers


@given(st.text(st.sampled_from(tuple(' ,[]{}:"#;nilsendpoll')), max_size=12))
def test_a_gap_that_is_understood_ends_where_a_number_or_a_line_may_stand(gap):
    for before, meaning in meanings_of(gap).items():
        assert before is TokenRole.LINE or gap[0] in " ,[]{}"
        assert gap[-1] in " ,[{" if meaning.role is not TokenRole.LINE else gap.rstrip(" ,")[-1] == "}"


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3), st.integers(0, 2**31)), max_size=30))
def test_columns_are_sorted_the_first_one_first_and_what_is_equal_stays_in_its_order(rows):
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    for columns in (table.T, table.T[1:], table.T[1:2]):
        assert stable_order(list(columns)).tolist() == np.lexsort(columns[::-1]).tolist()


def test_a_history_that_cannot_be_read_at_once_is_read_one_by_one(tmp_path):
    path = tmp_path / "history.edn"
    path.write_text("{:type :ok, :process 0, :f :send, :value [[:send 1 [0 1]]]}\n")
    assert read_at_once(path) is None
    assert len(read_jepsen(path).sends) == 1


@pytest.mark.parametrize("value", ["[[:poll]]", "[[:poll {5 [[0 1]]}]]", "[]", "nil"])
def test_a_history_may_send_nothing(tmp_path, value):
    path = tmp_path / "history.edn"
    lines = "".join(
        f"{{:time {n}, :type :{kind}, :process 0, :f :poll, :value {value}}}\n"
        for n, kind in enumerate(("invoke", "ok"))
    )
    path.write_text(lines)
    imported = read_jepsen(path)
    assert (len(imported.sends), list(imported.sends.parts())) == (0, [])
    assert [rows["sent_partition"].tolist() for rows in imported.reads.parts()] == [[-1]] * ("5" in value)
