"""Judges the expectations that a test states about its application, beside Kafka's promises: which records are the same, and
which outputs each input must have. Pure.

They are judged by the contents of the topics when the test is over. The user's functions are called once for each record.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from prozess.harness.interfaces.application import Contents, Record, RegisteredClient, RegisteredTopic
from prozess.harness.recording.codes import identity_text
from prozess.harness.schema import FaultPhase, MetadataKind
from prozess.harness.verdict import (
    AnomalyOutcome,
    ApplicationAnomaly,
    ApplicationGap,
    ApplicationVerdict,
    ApplicationWitness,
)
from prozess.testing.plans import RecordedTest, group_of

WITNESSES_MAX = 100
"""The number of witnesses that are kept of each finding."""
MISSING, UNEXPECTED, DOUBLED, REPEATED = "missing-output", "unexpected-output", "doubled-output", "repeated"
UNORDERED, WRONG_STATE, OPEN_TRANSACTION = "unordered-output", "wrong-state", "open-transaction"
OUTPUTS = (MISSING, UNEXPECTED, DOUBLED, UNORDERED, WRONG_STATE)
COMMIT_FIRST = "commit-first"
OF_APPLICATIONS = (COMMIT_FIRST, REPEATED, *OUTPUTS, OPEN_TRANSACTION)
"""Anomalies that only a test knows: no checker has them, and no configuration promises or permits them."""
_SHOWN_MAX = 60
Identity = Callable[[Record], Any]


@dataclass(frozen=True, slots=True)
class Expectation:
    """Describes the records of `output` that an application makes of each record of `input`. `identity`: the function that
    identifies an output, in place of its value."""

    input: str
    output: str
    function: Callable[[Record], Any]
    identity: Identity | None = None
    at_least_once: bool = False
    order: Literal["key"] | None = None
    """key: outputs of records with one key must be in the order of these. None: if they are not, it is only shown."""
    dead_letters: bool = False
    """The output has the records of the input that failed, and no others."""

    @property
    def name(self) -> str:
        """Returns the name of the expectation for a person."""
        return f"{self.input} → {self.output}" + (" (dead letters)" if self.dead_letters else "")


@dataclass(frozen=True, slots=True)
class StateExpectation:
    """Describes a table that an application derives from `input`: for each key, the fold of its records."""

    input: str
    table: str
    fold: Callable[[Any, Record], Any]
    """(state before, record) → state after. None: there is no state yet, or no longer."""
    key: Callable[[Record], Any] | None = None
    """The key in the table for a record of the input; None = the record's own key."""
    identity: Identity | None = None
    """The part of a record of the table that is compared, in place of its value."""
    any_order: bool = False
    """The fold gives the same state for every order of the records."""

    @property
    def name(self) -> str:
        """Returns the name of the expectation for a person."""
        return f"{self.input} ⇒ {self.table}"


@dataclass(frozen=True, slots=True)
class ApplicationFinding:
    """Something that an application did, or a reason why the answer is `unknown`."""

    anomaly: str
    where: str
    count: int
    reason: str
    witnesses: tuple[ApplicationWitness, ...] = ()
    unknown: bool = False
    fails: bool = True
    """False: it is reported, and fails only a test that forbids it."""


class UserFunction(Exception):
    """A function of the user raised, or returned a value that cannot be compared."""


def judge_expectation(
    wanted: Expectation, contents: Mapping[str, Contents], committed: Callable[[Record], str]
) -> list["ApplicationFinding | Unjudged"]:
    """Checks that every input has exactly the outputs that the function gives, as multisets, and that they are in order by
    key. `committed`: whether a group committed past an input, as a clause."""
    source, target = contents[wanted.input], contents[wanted.output]
    why = source.incomplete or target.incomplete
    if why:
        return [ApplicationFinding(MISSING, wanted.name, 0, f"cannot be judged: {why}", unknown=True)]
    owed: dict[bytes, list[Record]] = defaultdict(list)
    found: dict[bytes, list[Record]] = defaultdict(list)
    try:
        for record in source.records:
            for thing in _outputs(wanted, record):
                owed[thing].append(record)
        for record in target.records:
            found[_of_output(wanted, record)].append(record)
    except UserFunction as error:
        return [ApplicationFinding(MISSING, wanted.name, 0, f"cannot be judged: {error}", unknown=True)]
    every: list[ApplicationFinding | Unjudged | None] = [
        _missing(wanted, owed, found, committed),
        _doubled(wanted, owed, found),
        _strange(wanted, owed, found),
    ]
    if not wanted.dead_letters:
        every += judge_order(wanted, owed, found)
    return [one for one in every if one is not None]


def _missing(
    wanted: Expectation,
    owed: Mapping[bytes, Sequence[Record]],
    found: Mapping[bytes, Sequence[Record]],
    committed: Callable[[Record], str],
) -> ApplicationFinding | None:
    short = Counter({thing: len(inputs) - len(found.get(thing, ())) for thing, inputs in owed.items()})
    lacking = [(thing, record) for thing, count in (+short).items() for record in owed[thing][-count:]]
    if not lacking:
        return None
    lacking.sort(key=lambda pair: (pair[1].partition, pair[1].offset))
    lines = [
        witness_of(record, f"{record.position} ({committed(record)}): {shown(thing)}")
        for thing, record in lacking[:WITNESSES_MAX]
    ]
    inputs = len({(record.partition, record.offset) for _, record in lacking})
    records = counted(inputs, "record")
    reason = f"For {records} of {wanted.input}, the output that the test expects is missing in {wanted.output}."
    if wanted.dead_letters:
        reason = (
            f"{records} of {wanted.input} failed, by what the test says, and left no dead letter in {wanted.output}."
        )
    return ApplicationFinding(MISSING, wanted.name, len(lacking), reason, tuple(lines))


def _doubled(
    wanted: Expectation, owed: Mapping[bytes, Sequence[Record]], found: Mapping[bytes, Sequence[Record]]
) -> ApplicationFinding | None:
    if wanted.at_least_once:
        return None
    more = {thing: outputs[len(owed[thing]) :] for thing, outputs in found.items() if thing in owed}
    extra = [(thing, record) for thing, outputs in more.items() for record in outputs]
    if not extra:
        return None
    lines = [
        witness_of(
            record,
            f"{record.position}: {shown(thing)} again; first at offset {found[thing][0].offset} of partition "
            f"{found[thing][0].partition}, made of {owed[thing][0].position}",
        )
        for thing, record in extra[:WITNESSES_MAX]
    ]
    reason = f"{wanted.output} has {counted(len(extra), 'output')} more than once."
    return ApplicationFinding(DOUBLED, wanted.name, len(extra), reason, tuple(lines))


def _strange(
    wanted: Expectation, owed: Mapping[bytes, Sequence[Record]], found: Mapping[bytes, Sequence[Record]]
) -> ApplicationFinding | None:
    strange = [(thing, record) for thing, outputs in found.items() if thing not in owed for record in outputs]
    if not strange:
        return None
    lines = [witness_of(record, f"{record.position}: {shown(thing)}") for thing, record in strange[:WITNESSES_MAX]]
    source = "no failed record" if wanted.dead_letters else "no record"
    reason = f"{wanted.output} has {counted(len(strange), 'record')} that {source} of {wanted.input} accounts for."
    return ApplicationFinding(UNEXPECTED, wanted.name, len(strange), reason, tuple(lines))


# Order by key. For the records of one key in one partition of the input, which have an order, the outputs must have that
# order. A reader of the output sees no order between two partitions, so they must be in one.
#
#     input    k=1 at offset 0, k=2 at offset 1, k=3 at offset 2
#     output   1 at offset 0, 3 at offset 1, 2 at offset 2: `2` comes behind the output of a later record
#
# Equal outputs of several records of one key are paired with them in order: if any pairing is in order, this one is.


def judge_order(
    wanted: Expectation, owed: Mapping[bytes, Sequence[Record]], found: Mapping[bytes, Sequence[Record]]
) -> Iterator["ApplicationFinding | Unjudged"]:
    """Yields the outputs that are out of order by key, and those whose order is unknown. Where the test asks for no order,
    only outputs that kept their record's key are looked at, and what is found fails nothing."""
    pairs: dict[tuple[bytes, int], list[tuple[Record, Record]]] = defaultdict(list)
    unclear: list[Record] = []
    for thing, inputs in owed.items():
        outputs = found.get(thing, ())
        keys = {(record.key, record.partition) for record in inputs}
        if not outputs or keys == {(None, inputs[0].partition)}:
            continue  # the output is missing, or has no order
        key, partition = inputs[0].key, inputs[0].partition
        one_partition = len({record.partition for record in outputs}) == 1
        alone = len(inputs) == 1 and (one_partition or len(outputs) == 1)
        if key is not None and (alone or (len(keys) == 1 and one_partition and len(inputs) == len(outputs))):
            placed = zip(inputs, outputs[: len(inputs)], strict=True)
            pairs[key, partition] += [pair for pair in placed if wanted.order is not None or pair[1].key == pair[0].key]
        else:
            unclear.append(inputs[0])
    late = [witness for (key, _), made in pairs.items() if made for witness in _late(key, made)]
    if late:
        what = f"{counted(len(late), 'output')} of {wanted.output}"
        reason = (
            f"{what} {'is' if len(late) == 1 else 'are'} out of order: behind the output of a later record of {wanted.input} "
            "with the same key, or in another partition than that. A reader takes the older one for the newest."
        )
        yield ApplicationFinding(
            UNORDERED,
            wanted.name,
            len(late),
            reason,
            tuple(late[:WITNESSES_MAX]),
            fails=wanted.order is not None,
        )
    if unclear:
        first = unclear[0].position
        why = f"records of several keys give the same output, or it is there more than once (the first is {first})"
        if wanted.order is not None:
            yield ApplicationFinding(UNORDERED, wanted.name, 0, f"cannot be judged: {why}", unknown=True)
        else:
            yield Unjudged((UNORDERED,), wanted.name, why, ADD_DISTINCT)


def _late(key: bytes, pairs: Sequence[tuple[Record, Record]]) -> Iterator[ApplicationWitness]:
    """Yields the outputs of one key that do not come behind those of all earlier records, each with one that it should
    precede."""
    home = min(pairs, key=lambda pair: pair[0].offset)[1].partition
    newest: tuple[Record, Record] | None = None
    for pair in sorted(pairs, key=lambda pair: (pair[1].partition != home, pair[1].offset, pair[0].offset)):
        record, output = pair
        if newest is not None and (output.partition != home or record.offset < newest[0].offset):
            other = f"{newest[0].position} → {newest[1].position}"
            yield witness_of(output, f"{shown(repr(key).encode())}: {record.position} → {output.position}, but {other}")
        elif newest is None or record.offset > newest[0].offset:
            newest = pair


def judge_identities(topic: str, contents: Contents, identity: Identity | None) -> list[ApplicationFinding]:
    """Checks that no two sends with one identity are in the topic. `identity`: the test's; None = the identity header that
    producers wrote. One send that stands there twice is `duplicate`, and none of this."""
    if contents.incomplete:
        return [ApplicationFinding(REPEATED, topic, 0, f"cannot be judged: {contents.incomplete}", unknown=True)]
    sends: dict[bytes, dict[tuple[int, ...], Record]] = defaultdict(dict)
    try:
        for record in contents.records:
            thing = record.identity if identity is None else call_identity(identity, record, "identity")
            if thing is not None:
                ours = record.sender >= 0
                who = (record.sender, record.sequence) if ours else (-1, record.partition, record.offset)
                sends[thing].setdefault(who, record)
    except UserFunction as error:
        return [ApplicationFinding(REPEATED, topic, 0, f"cannot be judged: {error}", unknown=True)]
    again = [(thing, list(of.values())) for thing, of in sends.items() if len(of) > 1]
    if not again:
        return []
    count = sum(len(records) - 1 for _, records in again)
    lines = [
        witness_of(records[1], f"{shown(thing)}: {' and '.join(f'{_sent(record)}' for record in records[:3])}")
        for thing, records in again[:WITNESSES_MAX]
    ]
    reason = (
        f"{counted(count, 'send')} to {topic} had the same identity as another send, and both are in the log: "
        "the application "
        "sent it again. A retry by hand cannot know whether the first send arrived; leave retries to the client "
        "(enable.idempotence=true, delivery.timeout.ms)."
    )
    return [ApplicationFinding(REPEATED, topic, count, reason, tuple(lines))]


# Parts.


def _outputs(wanted: Expectation, record: Record) -> list[bytes]:
    try:
        given = wanted.function(record)
    except Exception as error:
        raise UserFunction(f"function raised {type(error).__name__}: {error} for {record.position}") from error
    things = [] if given is None else given if isinstance(given, list) else [given]
    return [_comparable(thing, wanted, record) for thing in things]


def _comparable(thing: object, wanted: Expectation, record: Record) -> bytes:
    if wanted.identity is None:
        if isinstance(thing, str):
            thing = thing.encode()
        if not isinstance(thing, bytes):
            raise UserFunction(
                f"function gave {thing!r} for {record.position}. Without identity=, which says what is compared, "
                "give the output's value: text or bytes"
            )
    return text_to_compare(thing, "function", record)


def _of_output(wanted: Expectation, record: Record) -> bytes:
    if wanted.identity is None:
        return text_to_compare(record.value, "the value", record) if record.value is not None else b"None"
    return call_identity(wanted.identity, record, "identity") or b"None"


def call_identity(identity: Identity, record: Record, what: str) -> bytes | None:
    try:
        thing = identity(record)
    except Exception as error:
        raise UserFunction(f"{what} raised {type(error).__name__}: {error} for {record.position}") from error
    return None if thing is None else text_to_compare(thing, what, record)


def text_to_compare(thing: object, what: str, record: Record) -> bytes:
    try:
        return identity_text(thing) or b"None"
    except TypeError as error:
        raise UserFunction(f"{what} for {record.position}: {error}") from error


def witness_of(record: Record, text: str) -> ApplicationWitness:
    return ApplicationWitness(topic=record.topic, number=record.partition, log_offset=record.offset, text=text)


def _sent(record: Record) -> str:
    return record.position + (f" (record {record.sequence} of client {record.sender})" if record.sender >= 0 else "")


def shown(thing: bytes) -> str:
    text = thing.decode(errors="replace")
    text = text[1:] if text.startswith(("b'", 'b"')) else text
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# The promises about an application that a test could not judge, and the addition to the test that would make them judgeable.
# Pure.
#
# What is not judged passes nothing: the summary lists it, and a test that forbids it fails.


UNPROCESSED = "unprocessed"
STUCK = "stuck"
Doubt = tuple[int, int, str]
"""(partition, offset, why)"""


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Anomalies that were not judged. `why` is a clause with its subject; `add`: the way out."""

    anomalies: tuple[str, ...]
    where: str
    why: str
    add: str

    def sentence(self) -> str:
        """Returns a sentence for a person."""
        return f"{', '.join(self.anomalies)} in {self.where}: {self.why}; {self.add}"


ADD_PROCESSING = "put `with consumer.processing(message):` around your code, or close the consumer where you use it"
ADD_EFFECT = "produce with recorded_producer, or use `with consumer.processing(message):`"
ADD_ANNOUNCED = "print producer_send before each send, or end the program when it has nothing more to send"
ADD_IDENTITY = "give recorded_producer(…, identity=…) or kafka_cluster.identity(topic, …)"
ADD_EXPECT = "add kafka_cluster.expect(input, output, function=…), or expect_state(input, table, fold=…)"
ADD_DISTINCT = "give expect(…, identity=…) that distinguishes outputs, and order='key' if it matters"


def unjudged_of(
    recorded: RecordedTest,
    *,
    identities: Collection[str],
    expectations: Sequence[Expectation],
    states: Sequence[StateExpectation] = (),
    doubts: Sequence[Doubt],
) -> list[Unjudged]:
    """Returns the gaps in the judgement, the most important first. `doubts`: records that were committed and may not have
    been processed."""
    inputs = {one.input for one in expectations if not one.dead_letters} | {one.input for one in states}
    outputs = {one.output for one in expectations if not one.at_least_once} | {one.table for one in states}
    found = [_doubtful(topic, doubts) for topic in recorded.topics]
    for topic in recorded.topics:
        writers = [client for client in recorded.clients if topic.name in client.wrote]
        found += [_committing(topic, client) for client in recorded.clients if _is_member(client, topic)]
        found += [_handed_over(topic, client) for client in recorded.clients if _is_member(client, topic)]
        members = {group_of(client): None for client in recorded.clients if _is_member(client, topic)}
        if members and topic.name not in inputs:
            why = f"nothing says what group {', '.join(map(repr, members))} must produce for a record"
            found.append(
                Unjudged(
                    OUTPUTS, topic.name, f"{why} (prozess does not see an error that your code catches)", ADD_EXPECT
                )
            )
        asked = topic.name in identities or topic.name in outputs or all("identity" in w.how for w in writers)
        if writers and not asked:
            why = (
                "nothing says which sends mean the same thing (a send that the application repeats is a new "
                "record for Kafka)"
            )
            found.append(Unjudged((REPEATED,), topic.name, why, ADD_IDENTITY))
    found += [_silent(client) for client in recorded.clients]
    return list(dict.fromkeys(one for one in found if one is not None))


def _silent(client: RegisteredClient) -> Unjudged | None:
    """Returns whether a program that reported no send for long had something to send."""
    if not client.silences:
        return None
    longest = max(int(text.partition("@")[0]) for text in client.silences)
    name = client.application or f"{client.kind}-{client.client}"
    why = f"{name} printed no send for the last {longest} s before it was ended, and nothing says whether it had one to make"
    return Unjudged((STUCK,), ", ".join(client.wrote), why, ADD_ANNOUNCED)


MADE_ANEW_NS = 5_000_000_000
"""For how long brokers may go on to acknowledge what is sent to a topic that was deleted."""


def never_again(recorded: RecordedTest, *, faults: np.ndarray, metadata: np.ndarray) -> list[str]:
    """Returns doubts about programs that reported no send after a topic of theirs was deleted, or a fault was undone: nothing
    shows that they went on. They take rows of `faults` and `metadata`, in monotonic times.

    Example: a topic is deleted at 60 s, and made anew. A program reported its last send at 61 s, and was ended at 100 s:
    it is unknown whether it could not send, or had nothing more to send.
    """
    found = []
    for client in recorded.clients:
        name = client.application or f"{client.kind}-{client.client}"
        mine = [p for topic in recorded.topics if topic.name in client.wrote for p in topic.partitions]
        deleted = metadata["time_ns"][
            (metadata["kind"] == MetadataKind.DELETED.value) & np.isin(metadata["partition"], mine)
        ]
        undone = faults["time_ns"][faults["phase"] == FaultPhase.UNDONE.value]
        for text in client.silences:
            seconds, _, since_ns = text.partition("@")
            what = "a topic of it was deleted" if (deleted + MADE_ANEW_NS > int(since_ns)).any() else ""
            what = what or ("a fault was healed" if (undone > int(since_ns)).any() else "")
            if what:
                found.append(
                    f"{STUCK} is not judged: {name} printed no send for the last {seconds} s before it was ended, none since "
                    f"{what}, and nothing says whether it had one to make; {ADD_ANNOUNCED}"
                )
    return found


def _is_member(client: RegisteredClient, topic: RegisteredTopic) -> bool:
    return topic.name in client.read and group_of(client) is not None


def _doubtful(topic: RegisteredTopic, doubts: Sequence[Doubt]) -> Unjudged | None:
    mine = [doubt for doubt in doubts if doubt[0] in topic.partitions]
    if not mine:
        return None
    reasons = Counter(why for _, _, why in mine)
    count = f"{len(mine):,} record{' was' if len(mine) == 1 else 's were'} committed"
    first = min(mine)
    at = f"the first is {topic.name}/{first[0] - topic.first}, offset {first[1]}"
    why = f"{count}, and prozess does not know whether your code was done: {', '.join(reasons)} ({at})"
    return Unjudged((UNPROCESSED,), topic.name, why, ADD_PROCESSING)


def _handed_over(topic: RegisteredTopic, client: RegisteredClient) -> Unjudged | None:
    """Returns whether a request for the next record proves that the one before was processed."""
    if "handed-over" not in client.how or "processing" in client.how:
        return None
    why = f"group {group_of(client)!r} commits in another thread than the one that polls, so the next poll shows"
    why += " nothing of the record before"
    return Unjudged((UNPROCESSED,), topic.name, why, ADD_PROCESSING)


def _committing(topic: RegisteredTopic, client: RegisteredClient) -> Unjudged | None:
    """Returns whether it commits before or after its effects."""
    automatic = _truth(client, "enable.auto.commit")
    group = f"group {group_of(client)!r}"
    if automatic and _truth(client, "enable.auto.offset.store"):
        why = (
            f"the client of {group} automatically commits the records that it has delivered, whether your code "
            "is done with them or not"
        )
        add = "set enable.auto.offset.store=false and call store_offsets after processing"
        return Unjudged((COMMIT_FIRST,), topic.name, why, add)
    if (automatic or "commit" in client.how) and not {"effects", "processing"} & set(client.how):
        why = f"nothing shows when {group} acts on a record"
        return Unjudged((COMMIT_FIRST,), topic.name, why, ADD_EFFECT)
    return None


def _truth(client: RegisteredClient, key: str) -> bool:
    """A property that is true by default."""
    return str(client.properties.get(key, True)).lower() == "true"


def commits_first(recorded: RecordedTest) -> list[ApplicationFinding]:
    """Finds commits that came before an effect of the records that they cover. This alone is no loss, but a crash in
    between would skip records."""
    names = {p: (topic.name, p - topic.first) for topic in recorded.topics for p in topic.partitions}
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for client in recorded.clients:
        for text in client.hazards:
            hazard = json.loads(text)
            found.setdefault((names[hazard["partition"]][0], str(group_of(client))), []).append(hazard)
    return [_commit_first(topic, group, hazards, names) for (topic, group), hazards in found.items()]


def _commit_first(
    topic: str, group: str, hazards: Sequence[Mapping[str, Any]], names: Mapping[int, tuple[str, int]]
) -> ApplicationFinding:
    lines = []
    for hazard in hazards[:WITNESSES_MAX]:
        number, offset = names[hazard["partition"]][1], int(hazard["offset"])
        text = f"{topic}/{number}, offset {offset}: committed, and then {hazard['what']}"
        lines.append(ApplicationWitness(topic=topic, number=number, log_offset=offset, text=text))
    reason = (
        f"Group {group!r} commits records before it is done with them (at most once). If it died in between, "
        "nobody would process them. Commit after their effects are acknowledged."
    )
    return ApplicationFinding(COMMIT_FIRST, topic, len(hazards), reason, tuple(lines), fails=False)


def application_verdict(
    found: Sequence[ApplicationFinding], unjudged: Sequence[Unjudged], forbid: Collection[str]
) -> ApplicationVerdict:
    """Returns the findings in the form that the run stores and its reports show. `forbid`: anomalies that fail the test."""
    return ApplicationVerdict(
        anomalies=tuple(
            ApplicationAnomaly(
                anomaly=one.anomaly,
                where=one.where,
                outcome=_outcome(one, forbid),
                count=one.count,
                reason=one.reason,
                witnesses=one.witnesses,
            )
            for one in found
        ),
        not_judged=tuple(
            ApplicationGap(
                anomalies=one.anomalies,
                where=one.where,
                why=one.why,
                add=one.add,
                forbidden=bool(set(one.anomalies) & set(forbid)),
            )
            for one in unjudged
        ),
    )


def _outcome(found: ApplicationFinding, forbid: Collection[str]) -> AnomalyOutcome:
    if found.unknown:
        return AnomalyOutcome.UNKNOWN
    return AnomalyOutcome.VIOLATED if found.fails or found.anomaly in forbid else AnomalyOutcome.PERMITTED
