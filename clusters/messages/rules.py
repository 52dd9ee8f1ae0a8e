"""What is done to which messages: the rules of a proxy, and its journal of what it did.

A rule is armed for some links, and acts on the messages that it means until it is disarmed. The rules are asked in the order
in which they were armed, when the message comes. The first one that changes its fate decides; rules that only look on see
every message. A message that was held and goes on is shown only to rules that want such messages (`released`).

    rule       wants                   message 1          message 2
    first      Produce, hold           is held            passes behind it
    second     Produce, lose           not asked          is lost
    third      Produce, record         is recorded        is recorded

When `first` is disarmed, message 1 goes on, and `second` does not lose it. It would with `released`.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from prozess.clusters.messages.connections import EarlyAnswer, Link, Pending, Seen, Slot
from prozess.harness.clock import NS_PER_S
from prozess.harness.config.messages import schemas
from prozess.harness.config.messages.error_answers import error_answer, with_error
from prozess.harness.config.messages.facts import PartitionFacts, WantedMessage, facts_of, joined
from prozess.harness.config.messages.schemas import UnreadableMessage

SIZE_BYTES = 4
"""The size of a message stands before it."""
PARTITIONS_NOTED_MAX = 50
"""At most this many partitions of one message are journaled."""


@dataclass(eq=False, slots=True)
class ArmedRule:
    """One rule: what it means, what it does, and what came of it so far."""

    name: str
    wanted: WantedMessage
    action: Mapping[str, Any]
    links: set[Link] | None
    """None: every link."""
    matched: int = 0
    acted: int = 0
    unread: int = 0
    """Messages that could not be looked into, so that nobody knows whether they were meant."""
    failed: str = ""
    """Why it could not act once."""
    held: list["HeldMessage"] = field(default_factory=list)
    first: "HeldMessage | None" = None
    """For a swap: the message that waits for the next one."""
    until: WantedMessage | None = None
    serial: int = 0

    def concerns(self, link: Link) -> bool:
        """Says whether the rule is armed for the link."""
        return self.links is None or link in self.links


@dataclass(eq=False, slots=True)
class HeldMessage:
    """A message that waits for a rule. When it goes on, rules with a greater serial are asked that want such messages."""

    slot: Slot
    message: Seen
    rule: ArmedRule
    serial: int
    awaited: int = 0
    """How many messages were seen, while it waited, that its rule waits for."""


class Rules:
    """The rules of one proxy. `now_ns`: the monotonic clock. `note`: takes entries of the journal."""

    def __init__(self, now_ns: Callable[[], int], note: Callable[[Mapping[str, Any]], None]) -> None:
        self._now_ns, self._note = now_ns, note
        self._rules: list[ArmedRule] = []
        self._hits: set[str] = set()
        """The names of the rules that have acted, also of those that are armed no more."""
        self._wanted: dict[tuple[Link, bool], frozenset[int]] = {}
        self._due: list[tuple[int, int, HeldMessage]] = []
        self._serial = count()

    # Arming

    def arm(
        self,
        name: str,
        wanted: WantedMessage,
        action: Mapping[str, Any],
        link: Link | None,
        until: WantedMessage | None,
    ) -> None:
        """Arms a rule for one more link, or with None for every link. Safe to repeat."""
        rule = self.named(name)
        if rule is None:
            rule = ArmedRule(name, wanted, action, set(), until=until, serial=next(self._serial))
            self._rules.append(rule)
        if link is None:
            rule.links = None
        elif rule.links is not None:
            rule.links.add(link)
        self._wanted.clear()

    def disarm(self, name: str, link: Link | None, *, deliver: bool) -> None:
        """Disarms a rule for a link, or with None altogether. Messages of it that wait go on, or are dropped with their
        connections. A rule for every link is always disarmed altogether: else messages of other links would wait for ever.
        Safe to repeat."""
        rule = self.named(name)
        if rule is None:
            return
        if rule.links is None:
            link = None
        elif link is not None:
            rule.links.discard(link)
        if link is None or not rule.links:
            self._rules.remove(rule)
        for held in [one for one in rule.held if link is None or one.message.link == link]:
            self._release(held, deliver=deliver)
        self._wanted.clear()

    def named(self, name: str) -> ArmedRule | None:
        """Returns the rule with this name, if it is armed."""
        return next((rule for rule in self._rules if rule.name == name), None)

    # What connections ask

    def wants(self, link: Link, api: int, *, answer: bool) -> bool:
        """Says whether any rule may concern a message of this API on the link."""
        if not self._rules:
            return False
        key = (link, answer)
        apis = self._wanted.get(key)
        if apis is None:
            found: set[int] = set()
            for rule in self._rules:
                for wanted in (rule.wanted, rule.until):
                    here = wanted is not rule.wanted or rule.concerns(link)
                    if wanted is not None and wanted.answer == answer and here:
                        found |= wanted.apis
            apis = self._wanted[key] = frozenset(found)
        return api in apis

    def request(self, slot: Slot) -> None:
        """Decides about a request."""
        connection, frame = slot.half.connection, slot.frame
        pending = connection.pending.get(frame.correlation)
        try:
            head = schemas.request_head(frame.data, SIZE_BYTES)
        except UnreadableMessage:
            slot.data = frame.data
            return
        facts = None
        try:
            facts = facts_of(schemas.request_body(frame.data, head))
        except UnreadableMessage:
            self._note_unread(connection.link, head.api, head.client, answer=False)
        if pending is not None:
            pending.client, pending.facts = head.client, facts
        self._decide(slot, Seen(connection.link, head.api, head.version, False, head.client, facts, pending))

    def answer(self, slot: Slot, pending: Pending | None) -> None:
        """Decides about an answer. Without its request nobody can say what it answers, and it goes on."""
        if pending is None:
            slot.data = slot.frame.data
            return
        link, facts = slot.half.connection.link, None
        if self.wants(link, pending.api, answer=True):
            try:
                body = schemas.answer_body(memoryview(slot.frame.data)[SIZE_BYTES:], pending.api, pending.version)
                facts = joined(pending.facts, facts_of(body))
            except UnreadableMessage:
                self._note_unread(link, pending.api, pending.client, answer=True)
        message = Seen(link, pending.api, pending.version, True, pending.client, facts, pending)
        if pending.partner is None or not self._swap_answers(slot, message, pending.partner, pending.early):
            self._decide(slot, message)

    def _note_unread(self, link: Link, api: int, client: str, *, answer: bool) -> None:
        for rule in self._rules:
            if rule.concerns(link) and rule.wanted.reads_body and rule.wanted.header(api, answer, client):
                rule.unread += 1

    # Deciding

    def _decide(self, slot: Slot, message: Seen) -> None:
        """Asks the rules about a message that comes."""
        hits, rules, decided = frozenset(self._hits), list(self._rules), False
        for rule in rules:
            self._end_waits(rule, message, hits)
        for rule in rules:
            if not decided or rule.action["do"] == "record":
                decided = self._ask(rule, slot, message, hits) or decided
        if not decided:
            slot.data = slot.frame.data

    def _decide_again(self, slot: Slot, message: Seen, asked: int) -> None:
        """Asks the rules that were armed after the one with the number `asked` about a message that was held. It was seen
        when it came, so only a rule is asked that wants such messages."""
        hits = frozenset(self._hits)
        for rule in list(self._rules):
            if rule.serial > asked and rule.wanted.released and self._ask(rule, slot, message, hits):
                return
        slot.data = slot.frame.data

    def _ask(self, rule: ArmedRule, slot: Slot, message: Seen, hits: frozenset[str]) -> bool:
        """Asks one rule. Returns whether it decides about the message, for now."""
        meant = self._meant(rule, message, hits)
        if meant is None:
            return False
        rule.matched += 1
        if (first := rule.first) is not None:
            self._swap(first, slot, message)
            self._journal(rule, message, "swapped", meant)
            return True
        return rule.wanted.counts(rule.matched) and self._act(rule, slot, message, meant)

    def _meant(self, rule: ArmedRule, message: Seen, hits: frozenset[str]) -> tuple[PartitionFacts, ...] | None:
        if not _is_due(rule.wanted, hits):
            return None
        if not rule.concerns(message.link) or not rule.wanted.header(message.api, message.answer, message.client):
            return None
        if message.facts is None:
            return None if rule.wanted.reads_body else ()
        return rule.wanted.body(message.facts)

    def _end_waits(self, rule: ArmedRule, message: Seen, hits: frozenset[str]) -> None:
        """Lets messages go on that wait until this one was seen."""
        until = rule.until
        if until is None or not rule.held or not _is_due(until, hits):
            return
        if not until.header(message.api, message.answer, message.client):
            return
        if until.reads_body and (message.facts is None or until.body(message.facts) is None):
            return
        for held in list(rule.held):
            held.awaited += 1
            if until.counts(held.awaited):
                self._release(held, deliver=True)

    def _act(self, rule: ArmedRule, slot: Slot, message: Seen, meant: tuple[PartitionFacts, ...]) -> bool:
        """Does what the rule says. Returns whether that decides about the message, for now."""
        do, done = rule.action["do"], rule.action["do"]
        match do:
            case "record":
                decided = False
            case "wait" | "hold" | "swap":
                self._hold(rule, slot, message)
                decided = True
            case "lose":
                _lose(slot, ends=rule.action["connection"] == "close")
                decided = True
            case "close":
                slot.end_with(b"" if rule.action["when"] == "before" else slot.frame.data)
                decided = True
            case "truncate":
                slot.end_with(slot.frame.data[: rule.action["bytes"]])
                decided = True
            case "twice":
                slot.data, decided = slot.frame.data * 2, True
                if not message.answer and message.pending is not None:
                    message.pending.again = True
            case "answer":
                decided = self._answer_with_error(rule, slot, message)
                done = "answer" if decided else "not answered"
            case _:
                raise AssertionError(do)
        if done not in ("not answered", "swap"):  # a swap is done when the next one comes
            self._note_hit(rule)
        self._journal(rule, message, done, meant)
        return decided

    def _note_hit(self, rule: ArmedRule) -> None:
        rule.acted += 1
        self._hits.add(rule.name)

    def _hold(self, rule: ArmedRule, slot: Slot, message: Seen) -> None:
        assert slot.data is None, f"{rule.name}: a message that may be sent already cannot be held"
        held = HeldMessage(slot, message, rule, next(self._serial))
        rule.held.append(held)
        if rule.action["do"] == "swap":
            rule.first = held
        if (seconds := rule.action.get("seconds")) is not None:
            heapq.heappush(self._due, (self._now_ns() + int(seconds * NS_PER_S), held.serial, held))

    def _release(self, held: HeldMessage, *, deliver: bool) -> None:
        rule = held.rule
        if held not in rule.held:
            return
        rule.held.remove(held)
        assert held.slot.data is None, f"{rule.name}: a message was let go twice"
        if rule.first is held:
            rule.first = None
        if held.slot.gone:
            self._journal(rule, held.message, "connection gone", ())
            return
        self._journal(rule, held.message, "delivered" if deliver else "dropped", ())
        if deliver:
            self._decide_again(held.slot, held.message, rule.serial)
        else:
            held.slot.end_with(b"")
        held.slot.half.connection.resume(held.slot)

    def _swap(self, first: HeldMessage, slot: Slot, message: Seen) -> None:
        """Lets this message pass before the one that waits, which follows it."""
        self._note_hit(first.rule)
        one = first.slot
        if one.half is not slot.half or one.gone:
            slot.data = slot.frame.data
            slot.half.connection.resume(slot)
            self._release(first, deliver=True)
            return
        assert one.data is slot.data is None, "a message that may be sent already cannot change slots"
        first.rule.held.remove(first)
        first.rule.first = None
        one.data, slot.data = slot.frame.data, one.frame.data
        connection = one.half.connection
        if not message.answer:
            connection.swap_pending(one.frame.correlation, slot.frame.correlation)
        connection.resume(one)

    def _swap_answers(self, slot: Slot, message: Seen, partner: int, early: EarlyAnswer | None) -> bool:
        """Puts the answers to swapped requests into the order in which these were asked, on which clients rely. Returns
        whether that decides about this answer, for now.

        A client asked 1 and 2, and the server got 2 and 1. Its answer 2 comes, and waits in the first slot; answer 1 comes
        into the second slot. They change slots, and only then are the rules asked, about answer 1 and then about answer 2.
        """
        connection = slot.half.connection
        if early is None:
            if (other := connection.pending.get(partner)) is None:
                return False  # nobody will answer the partner
            other.early = EarlyAnswer(slot, message)
            return True
        first = early.slot
        if first.gone:
            return False  # the client is gone, and with it every order
        assert first.half is slot.half, "an early answer waits in the same direction"
        assert first.data is None, "an early answer waits until its partner has come"
        first.frame, slot.frame = slot.frame, first.frame
        self._decide(first, message)
        self._decide(slot, early.message)
        connection.resume(first)
        return True

    def _answer_with_error(self, rule: ArmedRule, slot: Slot, message: Seen) -> bool:
        code, connection = rule.action["code"], slot.half.connection
        data = memoryview(slot.frame.data)[SIZE_BYTES:]
        try:
            if message.answer:
                body = with_error(schemas.answer_body(data, message.api, message.version), code)
                slot.data = schemas.answer(message.api, message.version, slot.frame.correlation, body)
            else:
                asked = schemas.request_body(data, schemas.request_head(data))
                if asked.get("acks") == 0:  # a broker closes the connection then, which is all that it can say
                    slot.end_with(b"")
                    return True
                body = error_answer(message.api, message.version, asked, code)
                answer = schemas.answer(message.api, message.version, slot.frame.correlation, body)
                slot.data = b""
                connection.settle(slot.frame.correlation, answer)
        except UnreadableMessage as error:
            rule.failed = str(error)
            return False
        return True

    # Time, and the journal

    def next_due_ns(self) -> int | None:
        """Returns when the next message has waited long enough."""
        return self._due[0][0] if self._due else None

    def release_due(self) -> None:
        """Lets the messages go on that have waited long enough."""
        while self._due and self._due[0][0] <= self._now_ns():
            _, _, held = heapq.heappop(self._due)
            self._release(held, deliver=True)

    def _journal(self, rule: ArmedRule, message: Seen, did: str, meant: tuple[PartitionFacts, ...]) -> None:
        facts = message.facts
        self._note(
            {
                "kind": "message",
                "t": self._now_ns(),
                "rule": rule.name,
                "number": rule.matched,
                "did": did,
                "opener": message.link.opener,
                "server": message.link.server,
                "api": message.api,
                "version": message.version,
                "answer": message.answer,
                "client": message.client,
                "errors": list(facts.errors) if facts is not None else [],
                "producer_id": facts.producer_id if facts is not None else None,
                "producer_epoch": facts.producer_epoch if facts is not None else None,
                "partitions": [
                    [p.topic, str(p.topic_id) if p.topic_id else None, p.number, p.producer_id, p.producer_epoch,
                     p.first_sequence, p.error]
                    for p in meant[:PARTITIONS_NOTED_MAX]
                ],
            }
        )  # fmt: skip


def _lose(slot: Slot, *, ends: bool) -> None:
    """Loses a message, and with `ends` its connection. Nobody answers a request that is lost alone: what waits for its answer
    must not wait for ever."""
    if ends:
        slot.end_with(b"")
        return
    slot.data = b""
    if not slot.half.answers:
        slot.half.connection.settle(slot.frame.correlation)


def _is_due(wanted: WantedMessage, hits: frozenset[str]) -> bool:
    """Says whether a rule has acted already after whose deed alone a message is wanted."""
    return wanted.after is None or not hits.isdisjoint(wanted.after)
