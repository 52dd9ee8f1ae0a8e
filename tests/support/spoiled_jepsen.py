"""Histories as Jepsen's workload makes them, of a Kafka that does everything wrong now and then."""

import random

from tests.support.edn_histories import Jepsen

KEYS = 3
PROCESSES = 4
_WRONG = 0.03
"""How likely each kind of mistake is, each time that it could be made."""


class SpoiledKafka:
    """A log for each key, and the clients that write to it and read it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.logs: dict[int, list[int | None]] = {key: [] for key in range(KEYS)}
        self.positions: dict[tuple[int, int], int] = {}
        self.sent = 0
        self.written = Jepsen()

    def wrong(self) -> bool:
        return self.rng.random() < _WRONG

    def append(self, key: int, value: int, *, stands: bool) -> int:
        """Returns the offset that a producer is reported, whether the record stands there or not."""
        log = self.logs[key]
        offset = len(log)
        log.append(value if stands else None)
        if stands and self.wrong():
            log.append(value)
        if stands and self.wrong() and offset:
            log[offset], log[offset - 1] = log[offset - 1], log[offset]
        return offset

    def poll(self, process: int) -> dict[int, list[list[int]]]:
        """Returns what a process is given next, of each key."""
        given = {}
        for key, log in self.logs.items():
            at = self.positions.get((process, key), 0)
            at = max(0, at + (self.rng.choice((-2, 2)) if self.wrong() else 0))
            places = range(at, min(len(log), at + self.rng.randint(0, 6)))
            shown = [[place, value] for place in places if (value := log[place]) is not None]
            if shown and self.wrong():
                shown[-1][1] = self.rng.choice((shown[0][1], 100_000 + self.sent))
            self.positions[process, key] = places.stop if len(places) else at
            if shown:
                given[key] = shown
        return given

    def operation(self, process: int, *, transactions: bool) -> None:
        """One operation of a process: a send, a poll, or a transaction of both."""
        kind = self.rng.choices(("ok", "fail", "info"), (90, 5, 5))[0]
        steps = self.rng.choices(("send", "poll"), (2, 3), k=self.rng.randint(1, 4) if transactions else 1)
        asked, done = [], []
        for step in steps:
            if step == "poll":
                asked.append([":poll"])
                done.append([":poll", self.poll(process)])
                continue
            key, self.sent = self.rng.randrange(KEYS), self.sent + 1
            stands = self.wrong() if kind == "fail" else not self.wrong() and (kind == "ok" or self.rng.random() < 0.5)
            offset = self.append(key, self.sent, stands=stands)
            asked.append([":send", key, self.sent])
            done.append([":send", key, [offset, self.sent] if kind == "ok" else self.sent])
        f = "txn" if transactions else steps[0]
        self.written.line(process, "invoke", f, asked)
        self.written.line(process, kind, f, done)


def spoiled_jepsen(seed: int, *, transactions: bool, operations: int = 600) -> Jepsen:
    """Returns a history of sends and polls, or of transactions."""
    kafka = SpoiledKafka(seed)
    for number in range(operations):
        process = kafka.rng.randrange(PROCESSES)
        if number % 90 == 89:
            kafka.written.assign(process, list(range(KEYS)))
        kafka.operation(process, transactions=transactions)
    return kafka.written
