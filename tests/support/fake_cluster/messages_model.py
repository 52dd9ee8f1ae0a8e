"""A small model of the message proxy: what servers get, what clients get, and what rules count, for any order of events.

It has no bytes and no sockets. A direction of a connection is a queue of messages. A message whose `data` is None waits, and
with it everything behind it. Answers go to the client in the order in which it asked.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

PRODUCE, HEARTBEAT, END_TXN = 0, 12, 26
NO_ERROR, REFUSED = 0, 51


@dataclass(eq=False)
class Message:
    """A message on its way. `data`: what its receiver gets of it; None: it waits."""

    connection: "ModelConnection"
    correlation: int
    api: int
    answer: bool = False
    data: list | None = None
    resets: bool = False
    gone: bool = False

    @property
    def whole(self):
        return [(self.correlation, NO_ERROR) if self.answer else self.correlation]


@dataclass(eq=False)
class Asked:
    """A request that its client has sent, and that is still to be answered."""

    message: Message
    answer: Message | None = None
    again: bool = False
    partner: "Asked | None" = None
    early: Message | None = None
    """The answer, while that of the partner is still to come."""


@dataclass(eq=False)
class ModelConnection:
    link: str
    requests: deque = field(default_factory=deque)
    answers: deque = field(default_factory=deque)
    asked: list = field(default_factory=list)
    """In the order in which the client asked."""
    server_got: list = field(default_factory=list)
    client_got: list = field(default_factory=list)
    unanswered: list = field(default_factory=list)
    """What the server has got, and not answered yet."""
    seconds: set = field(default_factory=set)
    """Requests that arrived twice and were answered once."""
    open: bool = True
    client: str = "open"

    def close(self):
        self.open = False
        for message in (*self.requests, *self.answers):
            message.gone = True
        self.requests.clear()
        self.answers.clear()

    def reset_by_client(self):
        self.client = "reset"
        for message in self.answers:
            message.gone = True
        self.answers.clear()
        self.deliver()

    def of(self, correlation):
        return next((one for one in self.asked if one.message.correlation == correlation), None)

    def forget(self, message):
        """Nobody will answer this request."""
        self.asked = [one for one in self.asked if one.message is not message]
        self.flush()
        self.deliver_answers()

    def flush(self):
        """Queues the answers whose turn has come."""
        while self.asked and self.asked[0].answer is not None:
            answer = self.asked.pop(0).answer
            if self.client == "reset":
                answer.gone = True
            else:
                self.answers.append(answer)

    def deliver(self):
        """Sends on what waits for nothing."""
        if not self.open:
            return
        self._deliver(self.requests, self._server_receives)
        self.deliver_answers()
        if self.client == "reset" and not self.requests:
            self.close()

    def deliver_answers(self):
        if self.open:
            self._deliver(self.answers, self.client_got.extend)

    def _deliver(self, queue, received):
        while queue and queue[0].data is not None:
            message = queue.popleft()
            received(message.data)
            if message.resets:
                self.close()

    def _server_receives(self, correlations):
        self.server_got += correlations
        self.unanswered += [number for number in correlations if self.of(number) is not None]


@dataclass(eq=False)
class ModelRule:
    name: str
    apis: frozenset
    answer: bool
    action: dict
    links: set | None
    nth: int | None
    released: bool
    until: frozenset | None
    serial: int
    matched: int = 0
    acted: int = 0
    held: list = field(default_factory=list)
    """(message, when it goes on by itself)."""
    first: Message | None = None

    @property
    def do(self):
        return self.action["do"]

    def wants(self, message):
        here = self.links is None or message.connection.link in self.links
        return here and message.api in self.apis and message.answer == self.answer


class ModelProxy:
    def __init__(self):
        self.connections: list[ModelConnection] = []
        self.rules: list[ModelRule] = []
        self.journal = Counter()
        self.now_s = 0
        self.serial = 0

    # Rules

    def named(self, name):
        return next((one for one in self.rules if one.name == name), None)

    def arm(self, name, link, **given):
        """Arms a new rule, or one that is there for one more link."""
        found = self.named(name)
        if found is None:
            self.serial += 1
            self.rules.append(ModelRule(name, links=None if link is None else {link}, serial=self.serial, **given))
        elif link is None:
            found.links = None
        elif found.links is not None:
            found.links.add(link)

    def disarm(self, name, link, deliver):
        found = self.named(name)
        if found is None:
            return
        if found.links is None or link is None:
            found.links, link = set(), None
        found.links.discard(link)
        if not found.links:
            self.rules.remove(found)
        for message, _ in list(found.held):
            if link is None or message.connection.link == link:
                self.release(found, message, deliver)

    # Events

    def request(self, connection, correlation, api):
        """A client sends a request. `deliver` follows, once for all that it sent together."""
        message = Message(connection, correlation, api)
        if api != PRODUCE:
            connection.asked.append(Asked(message))
        if not connection.open or any(one.resets for one in connection.requests):
            return
        connection.requests.append(message)
        self.decide(message)

    def answer(self, connection, looked_at=True):
        """The server answers the first request that it has not answered. `looked_at`: the proxy sees the answer whole."""
        correlation = connection.unanswered.pop(0)
        if correlation in connection.seconds:
            connection.seconds.discard(correlation)
            return
        asked = connection.of(correlation)
        if asked is None:
            return
        if asked.again:
            connection.seconds.add(correlation)
        message = Message(connection, correlation, asked.message.api, answer=True)
        if any(one.resets for one in connection.answers):
            return
        if asked.partner is not None and asked.partner in connection.asked:
            if asked.partner.early is None:
                asked.early = message
                return
            pair = [(asked, message), (asked.partner, asked.partner.early)]
        else:
            pair = [(asked, message)]
        for one, its in sorted(pair, key=lambda each: connection.asked.index(each[0])):
            one.answer = its
        for _, its in pair:
            connection.flush()
            if looked_at:
                self.decide(its)
            else:
                its.data = its.whole
        connection.deliver()

    def pass_time(self, seconds):
        self.now_s += seconds
        due = [
            (at_s, rule, one)
            for rule in self.rules
            for one, at_s in rule.held
            if at_s is not None and at_s <= self.now_s
        ]
        for _, rule, message in sorted(due, key=lambda each: each[0]):
            self.release(rule, message, True)

    # Decisions

    def decide(self, message):
        for rule in self.rules:
            if rule.until is not None and not message.answer and message.api in rule.until:
                for held, _ in list(rule.held):
                    self.release(rule, held, True)
        decided = False
        for rule in list(self.rules):
            if not decided or rule.do == "record":
                decided = self.ask(rule, message) or decided
        if not decided:
            message.data = message.whole

    def ask(self, rule, message):
        if not rule.wants(message):
            return False
        rule.matched += 1
        if rule.first is not None:
            self.swap(rule, rule.first, message)
            return True
        if rule.nth is not None and rule.matched != rule.nth:
            return False
        return self.act(rule, message)

    def act(self, rule, message):
        if rule.do in ("hold", "wait", "swap"):
            seconds = rule.action.get("seconds")
            rule.held.append((message, None if seconds is None else self.now_s + seconds))
            if rule.do == "swap":
                rule.first = message
        elif rule.do == "answer":
            self.answer_with_error(message)
        else:
            self.change(rule, message)
        if rule.do != "swap":  # a swap is done when the next message comes
            rule.acted += 1
        self.journal[rule.name, rule.do] += 1
        return rule.do != "record"

    def answer_with_error(self, message):
        connection, refusal = message.connection, [(message.correlation, REFUSED)]
        if message.answer:
            message.data = refusal
            return
        message.data, message.resets = [], message.api == PRODUCE  # nobody answers that
        if (asked := connection.of(message.correlation)) is not None:
            asked.answer = Message(connection, message.correlation, message.api, True, refusal)
            connection.flush()
            connection.deliver_answers()

    def change(self, rule, message):
        connection = message.connection
        match rule.action:
            case {"do": "lose", "connection": ending}:
                message.data, message.resets = [], ending == "close"
                if ending == "keep" and not message.answer:
                    connection.forget(message)
            case {"do": "close", "when": when}:
                message.data, message.resets = [] if when == "before" else message.whole, True
            case {"do": "truncate"}:
                message.data, message.resets = [], True
            case {"do": "twice"}:
                message.data = message.whole * 2
                if not message.answer and (asked := connection.of(message.correlation)):
                    asked.again = True

    def release(self, rule, message, deliver):
        if message not in [one for one, _ in rule.held]:
            return
        rule.held = [each for each in rule.held if each[0] is not message]
        if rule.first is message:
            rule.first = None
        if message.gone:
            self.journal[rule.name, "connection gone"] += 1
            return
        self.journal[rule.name, "delivered" if deliver else "dropped"] += 1
        if not deliver:
            message.data, message.resets = [], True
        else:
            later = [one for one in self.rules if one.serial > rule.serial and one.released]
            if not any(self.ask(one, message) for one in later):
                message.data = message.whole
        message.connection.deliver()

    def swap(self, rule, first, message):
        rule.acted += 1
        connection = message.connection
        if first.connection is not connection or first.gone:
            message.data = message.whole
            connection.deliver()
            self.release(rule, first, True)
        else:
            rule.held, rule.first = [], None
            queue = connection.answers if message.answer else connection.requests
            a, b = queue.index(first), queue.index(message)
            queue[a], queue[b] = message, first
            first.data, message.data = first.whole, message.whole
            if not message.answer:
                one, other = connection.of(first.correlation), connection.of(message.correlation)
                if one is not None and other is not None:
                    one.partner, other.partner = other, one
            connection.deliver()
        self.journal[rule.name, "swapped"] += 1
