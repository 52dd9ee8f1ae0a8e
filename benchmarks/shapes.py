"""Writes histories of the shapes that jepsen.tests.kafka gives its checker: valid ones, with everything that moves clients.

    python benchmarks/shapes.py SHAPE OPERATIONS PATH [--seed 1]

An operation here is a line, as in Jepsen's own counts: an invocation or a completion. Ten clients work at the same time.
What crashes or ends as `:info` goes on under a new process id; a new process is assigned keys, and reads them from their
beginning. Keys are skewed as with `:key-dist :exponential`. At the end one client reads every key from its beginning.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Shape:
    """What a history is like."""

    keys: int
    """Keys that are written at one time."""
    transactions: bool
    """Operations of several micro-operations; else each is one send or one poll."""
    poll_max: int
    """At most this many records of a key are read at once."""
    assigned: int
    """At most this many keys a client reads."""
    writes_max: int | None = None
    """At most this many writes make a key give way to a new one (Jepsen's `:max-writes-per-key`); None = no key ever does."""
    aborts: float = 0.0
    crashes: float = 0.0
    """For all operations, how many end as `:info`."""
    assignments: float = 0.004
    """For all operations, how many assign keys anew."""
    early: float = 0.0
    """How many sends of a transaction get their offset when it is invoked; the others when it completes. Transactions that
    overlap then write two keys in different orders: write-cycles, which Kafka permits."""


SHAPES = {
    "one-key": Shape(keys=1, transactions=False, poll_max=4, assigned=1),
    "plain": Shape(keys=8, transactions=False, poll_max=4, assigned=4),
    "transactions": Shape(keys=8, transactions=True, poll_max=8, assigned=4, aborts=0.03),
    "rotating": Shape(keys=8, transactions=True, poll_max=32, assigned=6, writes_max=1024, aborts=0.03, crashes=0.0086),
    "write-cycles": Shape(keys=8, transactions=True, poll_max=8, assigned=4, aborts=0.03, early=0.5),
    "rotating-cycles": Shape(
        keys=8, transactions=True, poll_max=32, assigned=6, writes_max=1024, aborts=0.03, crashes=0.0086, early=0.5
    ),
    "keys": Shape(keys=1000, transactions=False, poll_max=16, assigned=60),
}
CLIENTS = 10


@dataclass(slots=True)
class _Client:
    """One of Jepsen's threads: the process that it is now, what it reads, and the operation that is under way."""

    process: int
    position: dict[int, int] | None = None
    """Key → the index of the next record; None = nothing was assigned yet."""
    under_way: tuple[str, list[tuple[int, int] | None]] | None = None
    """:f and its micro-operations: (key, value) of a send, None of a poll."""


class _Log:
    """What a key holds: offset and value of each record. None: its transaction is open; "": it was aborted."""

    def __init__(self) -> None:
        self.records: list[str | None] = []
        self.open: dict[int, tuple[int, int]] = {}
        """Value → the index and the offset of a record whose transaction is open."""
        self.end = self.issued = 0


class _History:
    """A history while it is made."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self._shape, self._rng = shape, random.Random(seed)
        self._clients = [_Client(number) for number in range(CLIENTS)]
        self._logs = {key: _Log() for key in range(shape.keys)}
        self._active = list(range(shape.keys))
        self._index = self._time_ns = 0
        # Each key is sent to a little less often than the one before it; the last, a tenth as often as the first.
        self._weights = [sum(0.1 ** (n / shape.keys) for n in range(end + 1)) for end in range(shape.keys)]

    def lines(self, count: int) -> Iterator[str]:
        """Yields every line, with its end."""
        while self._index < count:
            client = self._rng.choice(self._clients)
            if client.under_way is not None:
                yield self._complete(client)
            elif client.position is None or self._rng.random() < 2 * self._shape.assignments:
                yield from self._assign(client)
            else:
                yield self._invoke(client)
        for client in self._clients:
            if client.under_way is not None:
                yield self._complete(client)
        yield from self._read_everything(self._clients[0])

    def _line(self, kind: str, client: _Client, f: str, value: str, more: str = "") -> str:
        self._index, self._time_ns = self._index + 1, self._time_ns + self._rng.randrange(1_000, 200_000)
        return (
            f"{{:index {self._index - 1}, :time {self._time_ns}, :type :{kind}, :process {client.process}, "
            f":f :{f}, :value {value}{more}}}\n"
        )

    def _assign(self, client: _Client) -> Iterator[str]:
        chosen = sorted(self._rng.sample(self._active, self._shape.assigned))
        before = client.position or {}
        client.position = {key: before.get(key, 0) for key in chosen}
        text = f"[{' '.join(map(str, chosen))}]"
        yield self._line("invoke", client, "assign", text)
        yield self._line("ok", client, "assign", text)

    def _invoke(self, client: _Client) -> str:
        if self._shape.transactions:
            f = "txn"
            micro = [self._send() if self._rng.random() < 0.5 else None for _ in range(self._rng.randrange(1, 5))]
        else:
            send = self._send() if self._rng.random() < 0.5 else None
            f, micro = ("poll" if send is None else "send"), [send]
        client.under_way = f, micro
        late: set[int] = set()  # a producer's records keep their order in each key
        for sent in micro if self._shape.early else ():
            if sent is None:
                continue
            if sent[0] in late or self._rng.random() >= self._shape.early:
                late.add(sent[0])
            else:
                log = self._logs[sent[0]]
                log.open[sent[1]] = len(log.records), log.end
                log.records.append(None)
                log.end += 1
        return self._line(
            "invoke", client, f, f"[{' '.join('[:poll]' if m is None else f'[:send {m[0]} {m[1]}]' for m in micro)}]"
        )

    def _send(self) -> tuple[int, int]:
        chosen = self._rng.choices(range(self._shape.keys), cum_weights=self._weights)[0]
        key = self._active[chosen]
        log = self._logs[key]
        log.issued += 1
        if self._shape.writes_max is not None and log.issued == self._shape.writes_max:
            self._active[chosen] = max(self._logs) + 1
            self._logs[self._active[chosen]] = _Log()
        return key, log.issued - 1

    def _complete(self, client: _Client) -> str:
        assert client.under_way is not None
        f, micro = client.under_way
        client.under_way = None
        chance = self._rng.random()
        if chance < self._shape.crashes:
            return self._crash(client, f, micro)
        if chance < self._shape.crashes + self._shape.aborts:
            self._abort(micro)
            text = f"[{' '.join('[:poll]' if m is None else f'[:send {m[0]} {m[1]}]' for m in micro)}]"
            return self._line("fail", client, f, text)
        shown = [self._polled(client) if m is None else "" for m in micro]
        text = " ".join(
            text if m is None else f"[:send {m[0]} {self._append(*m)}]" for m, text in zip(micro, shown, strict=True)
        )
        self._mark(micro)
        return self._line("ok", client, f, f"[{text}]")

    def _crash(self, client: _Client, f: str, micro: list[tuple[int, int] | None]) -> str:
        """Nobody knows whether it was committed; in one of two cases it was."""
        if self._rng.random() < 0.5:
            for sent in micro:
                if sent is not None:
                    self._append(*sent)
            self._mark(micro)
        else:
            self._abort(micro)
        text = f"[{' '.join('[:poll]' if m is None else f'[:send {m[0]} {m[1]}]' for m in micro)}]"
        line = self._line("info", client, f, text, ', :error [:crash "the client was closed"]')
        client.process, client.position = client.process + CLIENTS, None
        return line

    def _append(self, key: int, value: int) -> str:
        log = self._logs[key]
        if value in log.open:
            index, offset = log.open.pop(value)
            text = log.records[index] = f"[{offset} {value}]"
            return text
        text = f"[{log.end} {value}]"
        log.records.append(text)
        log.end += 1
        return text

    def _abort(self, micro: list[tuple[int, int] | None]) -> None:
        for sent in micro:
            if sent is not None and sent[1] in self._logs[sent[0]].open:
                self._logs[sent[0]].records[self._logs[sent[0]].open.pop(sent[1])[0]] = ""

    def _mark(self, micro: list[tuple[int, int] | None]) -> None:
        """A transaction's end takes an offset in each partition that it wrote to."""
        for key in {sent[0] for sent in micro if sent is not None} if self._shape.transactions else ():
            self._logs[key].end += 1

    def _polled(self, client: _Client, most: int | None = None) -> str:
        assert client.position is not None
        shown = []
        for key in self._rng.sample(sorted(client.position), min(2, len(client.position))):
            begin, records = client.position[key], self._logs[key].records
            end = client.position[key] = min(
                len(records), begin + (most or self._rng.randrange(1, self._shape.poll_max + 1))
            )
            # Nobody is given what stands behind a record of an open transaction, or an aborted record.
            end = client.position[key] = next((i for i in range(begin, end) if records[i] is None), end)
            if there := [record for record in records[begin:end] if record]:
                shown.append(f"{key} [{' '.join(there)}]")
        return f"[:poll {{{', '.join(shown)}}}]"

    def _read_everything(self, client: _Client) -> Iterator[str]:
        for key in self._logs:
            for kind in ("invoke", "ok"):
                yield self._line(kind, client, "assign", f"[{key}]", ", :seek-to-beginning? true")
            client.position = {key: 0}
            f = "txn" if self._shape.transactions else "poll"
            while client.position[key] < len(self._logs[key].records):
                yield self._line("invoke", client, f, "[[:poll]]")
                yield self._line("ok", client, f, f"[{self._polled(client, 500)}]")


def write(shape: str, operations: int, path: Path, seed: int = 1) -> None:
    """Writes a history of so many operations and the final reads."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(_History(SHAPES[shape], seed).lines(operations))


def main() -> int:
    """Writes one history."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("operations", type=int)
    parser.add_argument("path", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    write(asked.shape, asked.operations, asked.path, asked.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
