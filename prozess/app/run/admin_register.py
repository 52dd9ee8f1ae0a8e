"""Administrators make, delete, alter and describe topics of their own while a trial runs, and record each call with its begin
and its end. What they were answered must have an order in which each call took effect at one moment."""

import random
from functools import partial
from itertools import count
from uuid import UUID

from prozess.app.run.samplers import Beside
from prozess.clusters.protocol.administrator import TOPIC_ALREADY_EXISTS, Administrator
from prozess.harness.clock import Clock
from prozess.harness.interfaces import Cluster
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import MISSING, NO_TOPIC, NONE, AdminOperation, AdminSetting, Outcome

TOPICS = ("prozess-administered-1", "prozess-administered-2")
"""The topics that come and go, as numbered in `admin_operations`; the one behind them stays, and is altered."""
ALTERED, ALTERED_TOPIC = len(TOPICS), "prozess-administered"
FIRST_RETENTION_MS = 3_600_000
"""Each value is set once, from here on: so an answer says which call set it."""
PAUSE_S = 0.15
"""The time between two calls of one administrator."""
CALL_S = 12.0
"""How long a call may take. A broker asks controllers until one answers, or request.timeout.ms is over."""


def value_of(topic_id: UUID) -> int:
    """Returns the upper 63 bits of a topic's id, which are its value in `admin_operations`."""
    return topic_id.int >> 65


class AdminRegister(Beside):
    """A context in which the trial's administrators work, each in a thread of its own."""

    def __init__(self, plan: Plan, cluster: Cluster, recorder: Recorder, clock: Clock) -> None:
        super().__init__(join_timeout_s=CALL_S)
        self._recorder, self._clock = recorder, clock
        self._brokers = sorted(cluster.observer_servers)
        self._controllers = sorted(cluster.controller_servers)
        self._values = count(FIRST_RETENTION_MS)
        self._ids: dict[int, UUID] = {}
        """The latest id of each topic that came and went, as far as anybody was answered."""
        self._administrators = [
            Administrator(cluster, clock=clock, timeout_s=CALL_S) for _ in range(plan.administrators)
        ]
        for number, administrator in enumerate(self._administrators):
            rng = random.Random(f"{plan.seed} administrator {number}")
            self.run_beside(partial(self._work, administrator, rng), f"administrator {number}")

    def closed(self) -> None:
        """Closes the connections of all administrators, once their threads have ended."""
        for administrator in self._administrators:
            administrator.close()

    def _work(self, of: Administrator, rng: random.Random) -> None:
        self._make(of, ALTERED, ALTERED_TOPIC, rng.choice(self._brokers))
        calls = (self._alter, self._describe, self._describe, self._make_or_delete, self._look, self._look)
        while not self.stopping.wait(PAUSE_S):
            rng.choice(calls)(of, rng)

    def _alter(self, of: Administrator, rng: random.Random) -> None:
        value, begun_ns = next(self._values), self._clock.monotonic_ns()
        error = of.set_retention(rng.choice(self._brokers), ALTERED_TOPIC, value)
        self._write(begun_ns, ALTERED, AdminSetting.RETENTION, AdminOperation.SET, value, done=error == 0)

    def _describe(self, of: Administrator, rng: random.Random) -> None:
        node = rng.choice([*self._brokers, *self._controllers])
        begun_ns = self._clock.monotonic_ns()
        found = of.retention(node, ALTERED_TOPIC)
        if found is not None and found.error == 0 and found.value is not None:
            self._write(begun_ns, ALTERED, AdminSetting.RETENTION, AdminOperation.FOUND, found.value, node=node)

    def _make_or_delete(self, of: Administrator, rng: random.Random) -> None:
        topic = rng.randrange(len(TOPICS))
        topic_id = self._ids.pop(topic, None)
        if topic_id is None:
            self._make(of, topic, TOPICS[topic], rng.choice(self._brokers))
            return
        begun_ns = self._clock.monotonic_ns()
        deleted = of.delete(rng.choice(self._brokers), topic_id) == 0
        if deleted:  # it was there until then
            self._write(begun_ns, topic, AdminSetting.TOPIC, AdminOperation.FOUND, value_of(topic_id))
        self._write(begun_ns, topic, AdminSetting.TOPIC, AdminOperation.SET, NO_TOPIC, done=deleted)

    def _make(self, of: Administrator, topic: int, name: str, broker: int) -> None:
        retention_ms, begun_ns = next(self._values), self._clock.monotonic_ns()
        answer = of.make(broker, name, retention_ms=retention_ms)
        made = answer is not None and answer.error == 0
        value = NONE
        if answer is not None and made:
            value = value_of(answer.topic_id)
            if topic != ALTERED:
                self._ids[topic] = answer.topic_id
        self._write(begun_ns, topic, AdminSetting.TOPIC, AdminOperation.SET, value, done=made)
        if topic == ALTERED:
            self._write(begun_ns, topic, AdminSetting.RETENTION, AdminOperation.SET, retention_ms, done=made)

    def _look(self, of: Administrator, rng: random.Random) -> None:
        """Asks a broker for its copy, or the active controller whether the topic could be made."""
        topic, broker, by_controller = rng.randrange(len(TOPICS)), rng.choice(self._brokers), rng.random() < 1 / 3
        begun_ns = self._clock.monotonic_ns()
        if by_controller:
            answer = of.make(broker, TOPICS[topic], retention_ms=FIRST_RETENTION_MS, only_try=True)
            if answer is not None and answer.error == 0:
                self._write(begun_ns, topic, AdminSetting.TOPIC, AdminOperation.FOUND, NO_TOPIC)
            elif answer is not None and answer.error == TOPIC_ALREADY_EXISTS:
                self._write(begun_ns, topic, AdminSetting.TOPIC, AdminOperation.FOUND, NONE)
            return
        ids = of.topic_id(broker, TOPICS[topic])
        if ids is not None:
            found = ids.get(TOPICS[topic])
            value = NO_TOPIC if found is None else value_of(found)
            self._write(begun_ns, topic, AdminSetting.TOPIC, AdminOperation.FOUND, value, node=broker)

    def _write(
        self,
        begun_ns: int,
        topic: int,
        setting: AdminSetting,
        operation: AdminOperation,
        value: int,
        *,
        done: bool = True,
        node: int = NONE,
    ) -> None:
        """Writes a call that ended now. One that was refused may have been carried out before, and then been repeated."""
        self._recorder.write(
            "admin_operations",
            invoked_ns=begun_ns,
            completed_ns=self._clock.monotonic_ns() if done else MISSING,
            value=value,
            topic=topic,
            setting=int(setting),
            operation=int(operation),
            node=node,
            outcome=int(Outcome.OK if done else Outcome.INFO),
        )
