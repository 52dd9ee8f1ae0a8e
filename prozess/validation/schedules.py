"""Has the schedules that show weaknesses: their steps, and which rule is shown by which schedule. Pure.

Every schedule leaves a whole cluster behind, so that the next one, or any fault after it, begins where it did. What others
need an ISR or a count for, here is an elapsed time, wherever a weak configuration may never get there: a wait in vain
would end the trial. How surely such steps show such anomalies is in docs/scenarios.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prozess.harness.config.configuration import GroupConfiguration
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.schedule import Between, Elapsed, FaultAction, Step

WHOLE_S = 120.0
"""The limit of a wait until every ISR is whole."""
RECORD_MS = 10
"""How long a member takes for a record, where its client can be known."""
RATE_HZ = 20
"""Records per second that are sent to each partition."""
BATCH = 2_000
"""Records per poll at most: what piled up is handed over at once."""
AWAY_MAX_S = 40.0
"""Longest time that members stay away, so that records accumulate."""
COMMITS_WITHIN_S = 8.0
"""Longest commit interval at which a failed commit is visible."""
_SESSION_MS = {"zookeeper": ("zookeeper.session.timeout.ms", "18000")}
"""For brokers; in KRaft broker.session.timeout.ms. Kafka's defaults. [documentation of 3.9 and 4.3, broker configuration]"""
_FOR_STEP_S = 1.0
_FOR_WAIT_S = 5.0
"""What a deed, and a wait for a condition, take on a machine that has time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleInputs:
    """The facts of a configuration that the times of schedules depend on."""

    replicas: int
    """The number of copies of a partition."""
    brokers: int
    combined: bool
    """The brokers are the controllers, too."""
    broker_session_s: float
    """How long a dead broker counts as alive."""
    groups: tuple[int, ...] = ()
    """Cells with a consumer group."""
    group_session_s: float = 0.0
    static: bool = False
    commit_interval_s: float | None = None
    """For automatic commits; None = the members commit by themselves."""
    unseen_commits: str = ""
    """Why nobody sees when the group commits, as a clause; empty: it is seen."""
    poll_interval_s: float = 300.0
    partitions: int = 3
    """For the group's topic."""
    transactions: tuple[int, ...] = ()
    """Cells with transactional.ids."""
    fatal: bool = False
    """A producer that a lost sequence ends for good: librdkafka's idempotent one."""

    @classmethod
    def of(cls, plan: Plan) -> "ScheduleInputs":
        """Returns the inputs of a plan whose cells are the user's."""
        topic, variant = plan.cells[0].topic, plan.variant
        name, default = _SESSION_MS.get(variant.metadata_mode, ("broker.session.timeout.ms", "9000"))
        grouped = [(cell, work) for cell in plan.cells if (work := cell.group) is not None]
        common = cls(
            replicas=topic.replication_factor,
            brokers=variant.brokers,
            combined=variant.metadata_mode == "kraft-combined",
            broker_session_s=_seconds(variant.properties.get(name, default)),
            transactions=tuple(cell.cell for cell in plan.cells if cell.transaction is not None),
            fatal=any(c.producer.client == "librdkafka" and c.producer.enable_idempotence for c in plan.cells),
        )
        if not grouped:
            return common
        cell, work = grouped[0]
        group = work.configuration
        automatic = group.commit in ("auto", "auto-stored")
        return replace(
            common,
            groups=tuple(cell.cell for cell, _ in grouped),
            group_session_s=work.session.timeout_ms / 1000,
            static=group.static_membership,
            commit_interval_s=group.auto_commit_interval_ms / 1000 if automatic else None,
            unseen_commits=_unseen_commits(group),
            poll_interval_s=group.max_poll_interval_ms / 1000,
            partitions=len(cell.partitions),
        )


@dataclass(frozen=True, slots=True)
class WeaknessSchedule:
    """A named list of steps that can show a weakness."""

    name: str
    """The first part of its steps' names."""
    does: str
    """For a person, as the end of a sentence: "tried 2 times: a leader dies …"."""
    make: Callable[[ScheduleInputs], Sequence[Mapping[str, Any]]]
    refusal: Callable[[ScheduleInputs], str | None] = lambda _: None
    """Why it can show nothing with these inputs, as a clause; None = it can."""

    def steps(self, inputs: ScheduleInputs) -> tuple[Step, ...]:
        """Returns its steps, each named after the schedule."""
        made = self.make(inputs)
        named = {step["name"]: f"{self.name}: {step['name']}" for step in made}
        return tuple(Step.model_validate(_renamed(step, named)) for step in made)

    def lasts_s(self, inputs: ScheduleInputs) -> float:
        """Returns about how many seconds the schedule lasts."""
        return lasting_s(self.steps(inputs))


def lasting_s(steps: Sequence[Step]) -> float:
    """Returns about how many seconds steps take if nothing goes wrong."""
    return sum(_elapsed_s(step) + _extra_s(step) for step in steps)


def bound_s(steps: Sequence[Step]) -> float:
    """Returns how many seconds steps may take at most before a wait ends in vain; what a deed takes has limits of its own."""
    return sum(_elapsed_s(step) + step.timeout_s for step in steps)


def _elapsed_s(step: Step) -> float:
    if not isinstance(step.after, Elapsed):
        return 0.0
    seconds = step.after.seconds
    return seconds.between[1] if isinstance(seconds, Between) else seconds


def _extra_s(step: Step) -> float:
    waits = _FOR_WAIT_S if step.after is not None and not isinstance(step.after, Elapsed) else 0.0
    return waits + (_FOR_STEP_S if isinstance(step.do, FaultAction) else 0.5)


def _seconds(text: str) -> float:
    """Returns milliseconds as seconds. The cluster refuses what is no number; it counts as Kafka's longest default."""
    return int(text) / 1000 if text.isdecimal() else 18.0


def _unseen_commits(group: GroupConfiguration) -> str:
    if group.client == "java" and group.commit in ("auto", "auto-stored"):
        return "Kafka's own consumer does not say when it commits by itself, so nobody sees when it cannot"
    seldom = group.commit in ("auto", "auto-stored") and group.auto_commit_interval_ms > COMMITS_WITHIN_S * 1000
    if seldom or group.commit in ("none", "on-revoke"):
        return "the members commit too seldom to see when they cannot"
    return ""


def _renamed(step: Mapping[str, Any], named: Mapping[str, str]) -> dict[str, Any]:
    do = step.get("do")
    if do is not None and do["kind"] == "heal" and do.get("step"):
        do = {**do, "step": named[do["step"]]}
    return {**step, "name": named[step["name"]], "do": do}


# Steps.


def _step(name: str, after_s: float = 0.0, **do: object) -> dict[str, Any]:
    return {"name": name, "after": {"condition": "elapsed", "seconds": after_s}, "do": do or None}


def _fault(name: str, fault: str, *targets: str, after_s: float = 0.0, **parameters: object) -> dict[str, Any]:
    return _step(name, after_s, kind="fault", fault=fault, targets=targets, parameters=parameters)


def _heal(name: str, step: str | None = None, *, after_s: float = 0.0) -> dict[str, Any]:
    return _step(name, after_s, kind="heal", step=step)


def _whole() -> dict[str, Any]:
    return {"name": "every replica is in sync", "after": {"condition": "isr"}, "timeout_s": WHOLE_S, "do": None}


def _decided_s(here: ScheduleInputs) -> float:
    """After a death: the session is over, and another leads if one may."""
    return here.broker_session_s + 4


def _steady(_: ScheduleInputs) -> list[dict[str, Any]]:
    return [_step("no fault", 6)]


def _one_down(here: ScheduleInputs) -> list[dict[str, Any]]:
    """Long enough that any other broker that may lead has led, and taken records, before it returns."""
    return [
        _fault("a broker dies", "kill", "leader(0)", after_s=2),
        _heal("it returns", after_s=here.broker_session_s + 12),
        _whole(),
    ]


def _lost_answers(here: ScheduleInputs) -> list[dict[str, Any]]:
    """Returns the steps of the trial `lost-answers`; the leader dies besides, because clients wait for an answer for 30 s and
    longer, and for a connection that ended not at all. Its records are on the followers, or on its disk, by then."""
    cut = {"others": "clients", "direction": "from-targets"}
    return [
        _fault("what a leader answers is lost", "partition", "leader(0)", after_s=2, **cut),
        _fault("it dies", "kill", "leader(0)", after_s=2),
        _heal("its connections are seen to have ended", "what a leader answers is lost", after_s=0.5),
        _heal("it returns", after_s=_decided_s(here)),
        _whole(),
    ]


def _lost_requests(here: ScheduleInputs) -> list[dict[str, Any]]:
    """Several requests are under way, none is handled, and all are sent again. A Java producer without idempotence puts
    each batch that failed before the others, so that they change places [RecordAccumulator.reenqueue]."""
    cut = {"others": "clients", "direction": "to-targets"}
    return [
        _fault("what is sent to a leader is lost", "partition", "leader(1)", after_s=2, **cut),
        _fault("it dies", "kill", "leader(1)", after_s=3),
        _heal("its connections are seen to have ended", "what is sent to a leader is lost", after_s=0.5),
        _heal("it returns", after_s=_decided_s(here)),
        _whole(),
    ]


def _moves(_: ScheduleInputs) -> list[dict[str, Any]]:
    """Returns the steps of the trial `kafka`: leaders change while nothing is wrong with any broker."""
    steps = []
    for number in (1, 2, 3):
        changed = f"other leaders are preferred, round {number}"
        steps += [
            _fault(changed, "reassign", "partition(*)", after_s=1, how="rotate"),
            _fault(f"they lead, round {number}", "elect-preferred", "partition(*)", after_s=0.5),
            _heal(f"the old ones are preferred, round {number}", changed, after_s=1),
            _fault(f"and lead, round {number}", "elect-preferred", "partition(*)", after_s=0.5),
        ]
    return [*steps, _whole()]


def _unreplicated(here: ScheduleInputs) -> list[dict[str, Any]]:
    """Returns the steps of the trials `smoke` and `failovers`: what the leader alone has dies with its leadership."""
    still = "its followers stand still"
    return [
        _fault(still, "pause", "followers(0)", after_s=2),
        _fault("a leader dies", "kill", "leader(0)", after_s=1),
        _heal("they go on", still),
        _heal("it returns", after_s=_decided_s(here)),
        _whole(),
    ]


def _unanswered(here: ScheduleInputs) -> list[dict[str, Any]]:
    return [
        _fault("a leader dies", "kill", "leader(2)", after_s=2),
        _heal("it returns", after_s=_decided_s(here)),
        _whole(),
    ]


def _unfinished(here: ScheduleInputs) -> list[dict[str, Any]]:
    """Records pile up, a member is given them, commits (by itself after its interval, or as it likes), and dies amid them."""
    (group, *_) = here.groups
    interval_s = here.commit_interval_s or 1.0
    needed_s = (interval_s + 4) / (here.partitions * RATE_HZ * RECORD_MS / 1000)
    away_s = round(min(max(8.0, needed_s), AWAY_MAX_S, max(2.0, here.poll_interval_s / 2)), 1)
    session_s = 3.0 if here.static else here.group_session_s + 3
    return [
        _step("the members are stopped", 2, kind="client", do="stop", client="member(*,*)"),
        _step("one member returns to the backlog", away_s, kind="client", do="start", client=f"member({group},0)"),
        _fault(
            "that member dies before it has caught up", "kill", f"member({group},0)", after_s=min(interval_s, 20) + 1.5
        ),
        _heal("a new member takes its place", after_s=1),
        _step("and the other", 0, kind="client", do="start", client=f"member({group},1)"),
        _step("the session of the dead one is over", session_s),
    ]


def _uncommitted(here: ScheduleInputs) -> list[dict[str, Any]]:
    """Between two automatic commits, at any moment: a record comes every few milliseconds. One death may come right after
    a commit, when there is hardly anything to repeat; of two, each at its own time of two members' intervals, hardly both
    do. Seen: one of 1 s, 50 ms after the commit, and a single record was repeated."""
    (group, *_) = here.groups
    half_s = min((here.commit_interval_s or 1.0) / 2, AWAY_MAX_S)
    return [
        _fault("a member dies", "kill", f"member({group},1)", after_s=2),
        _fault("and the other, half an interval later", "kill", f"member({group},0)", after_s=half_s),
        _heal("new members take their places", after_s=1),
        _step("the session of the dead one is over", 3.0 if here.static else here.group_session_s + 3),
    ]


def _deleted(_: ScheduleInputs) -> list[dict[str, Any]]:
    """Returns steps of the trial `group-offsets`: retention takes what the group has not read."""
    cells = {"workload": "group"}
    return [
        _step("the members are stopped", 2, kind="client", do="stop", client="member(*,*)"),
        _step("what they have not read is deleted", 6, kind="delete_records", keep=20, cells=cells),
        _step("they return", 0, kind="client", do="start", client="member(*,*)"),
        _step("they read on", 5),
    ]


def _same_instance(here: ScheduleInputs) -> list[dict[str, Any]]:
    """Returns steps of the trial `group-offsets`: a second process has the group.instance.id of a member."""
    (group, *_) = here.groups
    return [
        _fault("a second process with a group.instance.id", "duplicate-member", f"member({group},1)", after_s=2),
        _heal("one of the two is left", after_s=5),
    ]


def _coordinator_cut(here: ScheduleInputs) -> list[dict[str, Any]]:
    (group, *_) = here.groups
    long_s = here.broker_session_s + here.group_session_s + 5
    return [
        _fault("the group's coordinator hears no broker", "partition", f"group-coordinator({group})", after_s=2),
        _heal("it is connected again", after_s=long_s),
        _whole(),
    ]


def _offsets_down(here: ScheduleInputs) -> list[dict[str, Any]]:
    """The broker that leads the group's partition of __consumer_offsets is away longer than a group needs to go on with
    another one: until that leads, until its members have found it and are together again, and until a member has worked
    through what it had been given. Seen with three copies: 27 s. Nothing is sent meanwhile: there is
    enough to commit by then, and nothing piles up that members would still work on when the next schedule stops them."""
    (group, *_) = here.groups
    away_s = here.broker_session_s + here.group_session_s + BATCH * RECORD_MS / 1000 + 15
    return [
        _fault("the group's coordinator dies", "kill", f"group-coordinator({group})", after_s=2),
        _step("nothing more is sent", 3, kind="pause_sends"),
        _heal("it returns", after_s=away_s),
        _whole(),
        _step("records are sent again", 0, kind="resume_sends"),
        _step("the group goes on", 10),
    ]


def _transactions_down(here: ScheduleInputs) -> list[dict[str, Any]]:
    """Returns the steps of `one broker down`, for the broker that leads a transactional.id's part of __transaction_state."""
    (cell, *_) = here.transactions
    return [
        _fault("the transactions' coordinator dies", "kill", f"transaction-coordinator({cell})", after_s=2),
        _heal("it returns", after_s=here.broker_session_s + 12),
        _whole(),
        _step("transactions go on", 5),
    ]


def _unclean(here: ScheduleInputs) -> list[dict[str, Any]]:
    """Returns the steps of the trial `unclean`: who dies first, and so has the least, returns first, and alone."""
    first = f"follower(0, {here.replicas - 1})"
    others = ("leader(0)", "in-sync-followers(0)") if here.replicas > 2 else ("leader(0)",)
    died = "a follower dies"
    steps = [
        _fault(died, "kill", first, after_s=2),
        _fault("every in-sync replica dies", "kill", *others, after_s=here.broker_session_s + 5),
        _heal("the replica that died first returns", died, after_s=here.broker_session_s + 2),
        _heal("the others return", after_s=here.broker_session_s + 6),
        _whole(),
    ]
    if here.fatal:
        anew = _fault(
            "producers that ended for good are started anew", "restart-clients", "producers", after_s=2, how="kill"
        )
        steps.append({**anew, "may_miss": True})
    return steps


# What they need.


def _needs_copies(here: ScheduleInputs) -> str | None:
    return "a partition with one copy has nobody else to lead it" if here.replicas == 1 else None


def _needs_quorum(here: ScheduleInputs) -> str | None:
    down = here.replicas - 1
    if here.combined and down > (here.brokers - 1) // 2:
        return f"{down} of {here.brokers} brokers must be down, and as they are the controllers, too, nobody is left to elect"
    return _needs_copies(here)


def _needs_interval(here: ScheduleInputs) -> str | None:
    return "the members commit by themselves" if here.commit_interval_s is None else None


def _needs_commits(here: ScheduleInputs) -> str | None:
    if not here.groups:
        return "no consumer was given, so no group is part of these trials"
    return here.unseen_commits or None


def _needs_transactions(here: ScheduleInputs) -> str | None:
    return None if here.transactions else "no producer with a transactional.id is part of these trials"


def _needs_static(here: ScheduleInputs) -> str | None:
    return None if here.static else "no group.instance.id is set"


# Every schedule.

SCHEDULES: Mapping[str, WeaknessSchedule] = {
    schedule.name: schedule
    for schedule in (
        WeaknessSchedule("steady traffic", "no fault is needed", _steady),
        WeaknessSchedule("unreplicated", "a leader dies whose followers stand still", _unreplicated, _needs_copies),
        WeaknessSchedule("unanswered", "a leader dies under load", _unanswered),
        WeaknessSchedule("one broker down", "a broker is down longer than others need to lead", _one_down),
        WeaknessSchedule(
            "offsets down", "the broker of the group's committed offsets is down", _offsets_down, _needs_commits
        ),
        WeaknessSchedule(
            "transactions down",
            "the broker of a transaction's state is down",
            _transactions_down,
            _needs_transactions,
        ),
        WeaknessSchedule("lost answers", "a leader whose answers are lost dies", _lost_answers),
        WeaknessSchedule("lost requests", "a leader that hears no client dies", _lost_requests),
        WeaknessSchedule("moves", "leaders change under load, three times there and back", _moves, _needs_copies),
        WeaknessSchedule("deleted", "what the group has not read is deleted", _deleted),
        WeaknessSchedule("unfinished", "a member dies while it processes a batch", _unfinished),
        WeaknessSchedule("uncommitted", "two members die between automatic commits", _uncommitted, _needs_interval),
        WeaknessSchedule("same instance", "a second process with a group.instance.id", _same_instance, _needs_static),
        WeaknessSchedule("coordinator cut", "the group's coordinator hears no broker for a session", _coordinator_cut),
        WeaknessSchedule(
            "unclean", "every in-sync replica dies, and one that is out of sync returns first", _unclean, _needs_quorum
        ),
    )
}
"""In the order in which they are carried out: what needs members that commit steadily comes before what leaves them with
much to catch up on, and what may end clients for good comes last."""


# Which schedule shows what: rules of the guarantee table and of availability → the schedule under which what they
# permit is seen, or why there is none. Pure. A rule that can be predicted has one of the two.


_OF_ANOMALY_RULE: Mapping[str, str] = {
    "aborted-read/read-uncommitted": "steady traffic",
    "early-read/read-uncommitted": "steady traffic",
    "own-read/read-uncommitted": "steady traffic",
    "information-cycle/read-uncommitted": "steady traffic",
    "write-cycle/not-isolated": "steady traffic",
    "reordered/lifo": "steady traffic",
    "time-travel/acks-0": "unreplicated",
    "duplicate/not-idempotent": "lost answers",
    "duplicate/librdkafka-resends": "moves",
    "reordered/acks-0": "lost requests",
    "reordered/given-up": "lost requests",
    "reordered/not-idempotent": "lost requests",
    "reordered/librdkafka-retries": "lost requests",
    "reordered/librdkafka-resends": "moves",
    "unprocessed/commit-first": "unfinished",
    "reprocessed/uncommitted": "uncommitted",
    "unprocessed/replaced": "unclean",
    "unprocessed/reset-to-latest": "deleted",
    "two-owners/same-instance": "same instance",
    "two-owners/coordinator-out": "coordinator cut",
    "unclean/enabled": "unclean",
    "availability/replication-factor-1": "one broker down",
    "availability/min-insync-equals-replication-factor": "one broker down",
    "availability/min-insync-above-replication-factor": "one broker down",
    "internal-offsets/replication-factor-1": "offsets down",
    "internal-offsets/min-insync-equals-replication-factor": "offsets down",
    "internal-offsets/min-insync-above-replication-factor": "offsets down",
    "internal-transactions/replication-factor-1": "transactions down",
    "internal-transactions/min-insync-equals-replication-factor": "transactions down",
    "internal-transactions/min-insync-above-replication-factor": "transactions down",
}
UNAVAILABLE = (
    "availability/replication-factor-1",
    "availability/min-insync-equals-replication-factor",
    "availability/min-insync-above-replication-factor",
)
"""Weaknesses that no anomaly says: a partition takes no records until the broker is back."""
INTERNAL_DOWN: Mapping[str, str] = {
    "offsets down: the group's coordinator dies": "internal-offsets",
    "transactions down: the transactions' coordinator dies": "internal-transactions",
}
"""Step that takes an internal topic's broker away → the first part of the ids of the rules that it shows."""
_ELSE: Mapping[str, str] = {"uncommitted": "unfinished"}
"""What shows the same where a schedule can show nothing."""
_OF_CAUSE: Mapping[str, str] = {"acks-1": "unreplicated", "acks-0": "unanswered", "unclean": "unclean"}
"""The part of a rule's id after the anomaly, where it is the same of several."""

_DESTROYS = "it takes destroyed disks or a loss of power, which the prediction leaves out"
_NO_COPIER = "no application that copies records is part of these trials"
_NO_RETRY_TOPIC = "the trials' members have no retry topic"
_NOT_THERE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("internal-shares", "undelivered", "two-holders", "miscounted", "given-up"),
            *("dead-letter-missing", "dead-letter-extra"),
        ),
        "no share group is part of these trials",
    ),
    "lifetime": "it takes somebody who is away for longer than a trial lasts",
    "client": "no send of a trial is left without somebody who looks at its report",
    "internal-remote-metadata": "these trials fill no segment, so nothing is copied to their remote store",
    "internal-framework": "neither Kafka Connect nor Kafka Streams is part of these trials",
}
"""The first part of a rule's id, where nothing of that kind is in a trial."""
_NO_SCHEDULE: Mapping[str, str] = {
    **dict.fromkeys(
        ("split-key/partitions-added", "split-key/keys-ignored", "split-key/unlike-partitioners"),
        "producers in these trials name the partition of each record (the trial `keys` leaves it to their libraries)",
    ),
    "internal-offsets/unclean": "these trials allow unclean elections of your topic only: prozess could not say what an "
    "unclean election of __consumer_offsets removes from a loss that Kafka does not permit",
    "unclean/asked": "the prediction leaves out an operator who asks for an unclean election",
    "reprocessed/sought": "the trials' members never seek, and no file says whether your application does",
    "commit-regression/sought": "the trials' members never seek, and no file says whether your application does",
    **dict.fromkeys(
        ("orphaned/session", "orphaned/waited-for"), "a trial goes on until the sessions of its dead members are over"
    ),
    "stalled/remote-store": "these trials fill no segment, so nothing is copied to their remote store",
    "orphaned/rejoined": "it takes an outage of every broker that is longer than a session, just before the end",
    **dict.fromkeys(
        ("unprocessed/committed-by-name", "commit-regression/committed-by-name"),
        "these trials delete no topic, and no file says whether yours is made again",
    ),
    "duplicate/forgot": "it takes a send that is repeated after producer.id.expiration.ms",
    "corrupt/unchecked": "it takes bits that change on the wire or on a disk, which the prediction leaves out",
    "skipped/deleted": "these trials delete only records that plain readers have read already",
    "tombstone-lost/slow-audit": "it takes a reader slower than delete.retention.ms",
    "tombstone-lost/replica-away": "it takes a broker that is away longer than delete.retention.ms",
    "collateral/batched": "no errors are provoked in these trials",
    "late/excepted-fault": "these trials set no limit for the time of a delivery",
    "unprocessed/left-behind": _NO_RETRY_TOPIC,
    "unprocessed/retry-unclean": _NO_RETRY_TOPIC,
    "reprocessed/sent-again": _NO_RETRY_TOPIC,
    "two-owners/group-lost": _DESTROYS,
    "two-owners/group-perhaps-lost": _DESTROYS,
    "stalled/transaction-state-lost": _DESTROYS,
}
_NO_SCHEDULE_OF_CAUSE: Mapping[str, str] = {
    "wiped": _DESTROYS,
    "store-forgotten": _DESTROYS,
    "state-lost": _DESTROYS,
    "offsets-lost": _DESTROYS,
    "offsets-expired": "it takes a group that is without members for offsets.retention.minutes",
    "min-insync-1": _DESTROYS,
    "fewer-brokers": "the cluster of a trial has as many brokers as a topic has copies",
    "topic-deleted": "nobody deletes a topic in these trials",
    "unreported-seek": "consumers in these trials are of librdkafka or of Kafka, and say where they are",
}


def schedule_of(rule: str, here: ScheduleInputs | None = None) -> WeaknessSchedule | None:
    """Returns the schedule that shows what this rule permits, with these inputs; None if there is none."""
    if rule in _NO_SCHEDULE or rule.startswith("not-exactly-once/") or rule.partition("/")[0] in _NOT_THERE:
        return None
    name = _OF_ANOMALY_RULE.get(rule) or _OF_CAUSE.get(rule.partition("/")[2])
    if name is None:
        return None
    if here is not None and name in _ELSE and SCHEDULES[name].refusal(here) is not None:
        name = _ELSE[name]
    return SCHEDULES[name]


def why_none(rule: str) -> str:
    """Returns why there is no schedule for this rule, as a clause; empty: nobody gave a reason."""
    if rule.startswith("not-exactly-once/"):
        return _NO_COPIER
    of, _, cause = rule.partition("/")
    return _NO_SCHEDULE.get(rule) or _NOT_THERE.get(of) or _NO_SCHEDULE_OF_CAUSE.get(cause, "")
