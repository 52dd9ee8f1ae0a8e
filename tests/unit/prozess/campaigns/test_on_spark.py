"""How trials are handed to Spark: without a barrier, and none any more when the time is over."""

from itertools import count, islice

import pytest

from prozess.app.run_process import StopRequest
from prozess.campaigns.on_spark import LOOK_S, SparkCluster, follow
from tests.support.clock import FakeClock

ROOM = 4


class Machines:
    """Two machines, each with one trial at a time that takes so many looks. It notes how many were begun when one of
    them had none."""

    def __init__(self, clock, takes):
        self.clock, self.takes = clock, takes
        self.waiting, self.running, self.over, self.idle = [], {}, [], []
        self.open, self.cancelled = True, False

    def has_room(self, cores):
        return len(self.waiting) + len(self.running) < ROOM

    def begin(self, numbers):
        self.waiting += numbers

    def wait(self, seconds):
        self.clock.sleep(seconds)
        self.running = {number: left - 1 for number, left in self.running.items()}
        self.over += [number for number, left in self.running.items() if not left]
        self.running = {number: left for number, left in self.running.items() if left}
        if not self.open:
            self.waiting = []
        while self.waiting and len(self.running) < 2:
            number = self.waiting.pop(0)
            self.running[number] = self.takes(number)
        if len(self.running) < 2:
            self.idle.append(len(self.over) + len(self.running))
        return bool(self.running or self.waiting)

    def close(self):
        self.open = False

    def cancel(self):
        self.cancelled = True


def followed(trials, *, takes=lambda number: 1, seconds=None, stop=None):
    clock = FakeClock()
    machines, numbers = Machines(clock, takes), iter(trials)
    done = follow(
        machines, SparkCluster("m", 2, seconds), lambda: list(islice(numbers, 2)), stop or StopRequest(), clock
    )
    return machines, done


@pytest.mark.parametrize("slow", [0, 1, 5])
def test_no_machine_waits_for_a_slow_trial_while_others_are_left(slow):
    machines, done = followed(range(20), takes=lambda number: 10 if number == slow else 1)
    assert done
    assert sorted(machines.over) == list(range(20))
    assert set(machines.idle) == {20}, "only when every trial was begun"


def test_no_trial_begins_when_the_time_is_over_and_those_that_run_end():
    machines, done = followed(count(), takes=lambda number: 3, seconds=7 * LOOK_S)
    assert done
    assert not machines.open
    assert machines.over == list(range(len(machines.over)))
    assert 4 <= len(machines.over) < 10


def test_without_trials_nothing_is_handed_to_spark():
    machines, done = followed([])
    assert (done, machines.over, machines.open) == (True, [], True)


def test_an_interruption_ends_every_job():
    stop = StopRequest()
    stop.ask()
    machines, done = followed(range(20), stop=stop)
    assert not done
    assert machines.cancelled
    assert machines.over == []
