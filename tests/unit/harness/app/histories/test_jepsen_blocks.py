"""Jepsen's lines taken in blocks give what they give one by one: the same rows, or the same refusal."""

import random
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.app.histories.imports import PartitionedRows
from prozess.harness.app.histories.jepsen import history
from prozess.harness.app.histories.jepsen.lines import read_block
from prozess.harness.errors import BadInput
from tests.support.edn_histories import edn
from tests.support.examples import examples

HEAD = "{:index 0, :time 5, :type :invoke, :process 3, :f :txn, "


class Drawn:
    """A history of some processes, mostly of the usual kind."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.time_ns, self.index, self.lines, self.values = 0, 0, [], 0
        self.invoked = {}
        self.odd = self.rng.choice((0, 0, 0.02, 0.1))
        self.rebalanced = self.rng.choice((0, 0.05))
        for _ in range(self.rng.randrange(90)):
            self.step()

    def step(self):
        rng = self.rng
        process = rng.randrange(4)
        if rng.random() < 0.04:
            return self.line(":nemesis", "info", "kill", rng.choice((None, ["n1"])))
        if process not in self.invoked and rng.random() < 0.06:
            f = rng.choice(("assign", "subscribe", "crash"))
            self.line(process, "invoke", f, [1, 2])
            return self.line(process, rng.choice(("ok", "info")), f, [1, 2])
        if process not in self.invoked:
            f = rng.choice(("send", "poll", "txn"))
            micro = [self.send() if rng.random() < 0.6 else [":poll"] for _ in range(rng.randrange(4))]
            self.invoked[process] = f, micro
            return self.line(process, "invoke", f, micro)
        f, micro = self.invoked.pop(process)
        return self.line(process, rng.choice(("ok", "ok", "fail", "info")), f, [self.done(one) for one in micro])

    def send(self):
        self.values += 1
        return [":send", self.rng.randrange(3), self.values]

    def done(self, micro):
        rng = self.rng
        if micro[0] == ":send":
            offset = rng.choice((None, rng.randrange(50)))
            return [":send", micro[1], rng.choice(([offset, micro[2]], micro[2]))]
        shown = {
            key: [[rng.randrange(50), rng.randrange(self.values + 2)] for _ in range(rng.randrange(4))]
            for key in rng.sample(range(3), rng.randrange(3))
        }
        return rng.choice(([":poll", shown], [":poll", shown], [":poll"]))

    def line(self, process, kind, f, value):
        rng = self.rng
        self.time_ns += rng.randrange(5)
        head = {":index": self.index, ":time": self.time_ns, ":type": f":{kind}", ":process": process, ":f": f":{f}"}
        self.index += 1
        written = rng.choice(("", "#jepsen.history.Op")) + edn(head | {":value": value})
        if kind != "invoke" and rng.random() < 0.1:
            written = written[:-1] + rng.choice((', :error [:crash "a, :error "]}', ", :error 5}"))
        if kind != "invoke" and rng.random() < self.rebalanced:
            written = written[:-1] + f", :rebalance-log [{{:keys [{rng.randrange(3)}]}}]}}"
        if rng.random() < self.odd:
            written = self.spoiled(written)
        self.lines.append(written)

    def spoiled(self, line):
        rng, place = self.rng, self.rng.randrange(len(line))
        scraps = (
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
        )
        return line[:place] + rng.choice(scraps) + line[place + rng.randrange(3) :]


def imported(path, least):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(history, "LINES_LEAST", least)
        try:
            made = history.read_jepsen(path)
        except BadInput as error:
            return str(error).partition(":")[0]  # the line; quick and careful readers say what is wrong in other words
    return [plain(getattr(made, field.name)) for field in fields(made)]


def plain(value):
    if isinstance(value, PartitionedRows):
        return len(value), [plain(part) for part in value.parts()]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return (value.tolist(), value.dtype) if isinstance(value, np.ndarray) else value


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("drawn")


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((2, 5, 20)))
def test_in_blocks_and_one_by_one_the_same_is_read(folder, seed, least):
    path = folder / "history.edn"
    path.write_text("\n".join(Drawn(seed).lines))
    assert imported(path, least) == imported(path, 10**9)


def test_nearly_every_history_of_the_usual_kind_is_taken_in_blocks(tmp_path, monkeypatch):
    rng, taken = random.Random(3), []
    drawn = Drawn(0)
    drawn.odd, drawn.rebalanced, drawn.lines, drawn.invoked = 0, 0, [], {}
    while len(drawn.lines) < 3_000:
        drawn.step()
    path = tmp_path / "history.edn"
    path.write_text("\n".join(drawn.lines))
    each = history._take_each
    monkeypatch.setattr(history, "_take_each", lambda *a: (taken.extend(a[3]), each(*a)))
    monkeypatch.setattr(history, "LINES_LEAST", 4)
    history.read_jepsen(path)
    moves = sum(f":f :{f}" in line for line in drawn.lines for f in ("assign", "subscribe", "crash"))
    assert moves > len(drawn.lines) / 50
    assert len(taken) < moves, rng


@pytest.mark.parametrize(
    "line",
    [
        HEAD + ":value [[:send5 3]]}",
        HEAD + ":value [[:send 5 3] [:poll] [:poll {1 [0 1]}]]}",
        HEAD + ":value [[:send 05 3]]}",
        HEAD + ":value [[:send -5 3]]}",
        HEAD + ":value [[:send 5 3]]} {",
        HEAD + ":value [[:send 5 1.5]]}",
        HEAD + f":value [[:send 5 {2**62}]]}}",
        HEAD + f":value [[:send 5 {10**30}]]}}",
        HEAD + ":value nil}",
        HEAD + ":value [[:send 5 3]], :error 5}",
        HEAD + ":time 6, :value [[:send 5 3]]}",
        HEAD.replace(":type :invoke", ":type :okay") + ":value []}",
        HEAD.replace(":type :invoke", ":type :ok5") + ":value []}",
        HEAD.replace(":process 3", ":process3 3") + ":value []}",
        HEAD.replace(", :process 3", "") + ":value []}",
        HEAD.replace("5, :type", "5:type") + ":value []}",
        "",
        "; a remark",
    ],
)
def test_a_line_that_is_a_little_different_is_no_block(line):
    usual = HEAD + ":value [[:send 5 3] [:poll]]}"
    assert read_block([usual, line, usual]) is None
    assert read_block([usual, usual]) is not None


def test_a_block_tells_what_its_lines_say():
    block = read_block(
        [
            "#jepsen.history.Op{:index 0, :time 5, :type :invoke, :process 3, :f :txn, :value [[:send 9 4] [:poll]]}",
            "{:time 7, :type :ok, :process 3, :index 1, :f :txn, :value [[:send 9 [nil 4]] [:poll {8 [[0 1] [2 3]], 9 []}]]}",
            "{:index 2, :time 8, :type :info, :process 4, :f :send, :value [[:send 8 [6 4]]]}",
        ]
    )
    assert block.type.tolist() == [0, 1, 3]
    assert (block.process.tolist(), block.time_ns.tolist(), block.f.tolist()) == ([3, 3, 4], [5, 7, 8], [2, 2, 0])
    assert (block.micro_operations.tolist(), block.polls.tolist()) == ([2, 2, 1], [False, True, False])
    assert block.send_line.tolist() == [0, 1, 2]
    assert (block.send_key.tolist(), block.send_offset.tolist(), block.send_value.tolist()) == (
        [9, 9, 8],
        [-1, -1, 6],
        [4] * 3,
    )
    assert (block.polled_line.tolist(), block.polled_key.tolist(), block.polled_records.tolist()) == (
        [1, 1],
        [8, 9],
        [2, 0],
    )
    assert (block.offset.tolist(), block.value.tolist(), block.keys) == ([0, 2], [1, 3], [9, 8])
