"""Reads the SQL of the second opinion, which is in the `.sql` files beside this module, and fills in what it names.

A file begins with what it is about. Each text in it has a line `--- view NAME`, `--- anomaly NAME` or `--- fragment NAME`,
and below that, as a comment, what it means. A view is made of tables, facts and the views before it. In a text

    {NONE}                              is a constant,
    {GroupCase.CRASHED}                 is the number of a case,
    {metric.quorum_leader}              is the number of a metric,
    {cleaned(s; s.size = {NONE})}       is a fragment, with the values of what it calls {record} and {tombstone}.

The files are read as resources of the package, so that they may be in an archive.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib.resources import files

from prozess.harness.config.configuration import FIRST_CONTROLLER_ID
from prozess.harness.guarantees.facts.witnessed import BY_WRITES_CASES
from prozess.harness.interfaces import witnesses
from prozess.harness.interfaces.witnesses import ADMIN_LAG_NS, GIVEN_UP_NS, SHARE_WAY_NS, STALLED_NS
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.recording.metrics import MICRO, code_of
from prozess.harness.schema import (
    ELR_VERSION,
    METADATA_VERSION,
    MISSING,
    NONE,
    ORIGIN_SEQUENCE_BITS,
    READS,
    RECORDER_CLIENT,
    REMOTE_STORE,
    Acknowledgement,
    AdminOperation,
    ClusterRecord,
    GroupRecord,
    Isolation,
    MetadataKind,
    MetadataSource,
    ObservationKind,
    Outcome,
    ReadFlag,
    RemoteState,
    Role,
    ShareRecord,
    ShareState,
    TransactionState,
)

_READ_COLUMNS = ("client", *(name for name in READS.column_names if name != "client"), "row")
_REVEALED = {
    "client": "a.client",
    "read_ns": "w.time_ns",
    "log_offset": "w.log_offset",
    "sequence": "w.sequence",
    "key": "w.key",
    "sender": "w.sender",
    "partition": "w.partition",
    "sent_partition": "w.sent_partition",
    "span": "0",
    "flags": "0",
    "row": "(1L << 40) * (w.level + 1) + w.log_offset",
}
"""What a column of a read is of a record that stands there. The others are NONE. Rows are in the order of offsets."""

CONSTANTS = {
    # Outcomes, roles, levels and flags.
    "OK": int(Outcome.OK),
    "FAIL": int(Outcome.FAIL),
    "INFO": int(Outcome.INFO),
    "PRODUCER": int(Role.PRODUCER),
    "AUDIT": int(Role.AUDIT),
    "SENTINEL_ROLE": int(Role.SENTINEL),
    "READER": int(Role.READER),
    "MEMBER": int(Role.MEMBER),
    "OBSERVER": int(Role.OBSERVER),
    "UNCOMMITTED": int(Isolation.READ_UNCOMMITTED),
    "COMMITTED": int(Isolation.READ_COMMITTED),
    "CORRUPT": int(ReadFlag.CORRUPT),
    "ANONYMOUS": int(ReadFlag.ANONYMOUS),
    "FROM_START": int(ReadFlag.FROM_START),
    "GOES_ON": int(ReadFlag.GOES_ON),
    "TRUTH": int(MetadataSource.CONTROLLER_LOG),
    "SAMPLE": int(MetadataSource.SAMPLE),
    "OF_PARTITION": int(MetadataKind.PARTITION),
    "OF_CONTROLLER": int(MetadataKind.CONTROLLER),
    "DELETED": int(MetadataKind.DELETED),
    # Bits of a batch's attributes.
    "TRANSACTIONAL": 0x10,
    "CONTROL": 0x20,
    # Numbers that are not there, times that never came, and ids of our own.
    "NONE": NONE,
    "ELR_VERSION": ELR_VERSION,
    "METADATA_VERSION": METADATA_VERSION,
    "REMOTE_STORE": REMOTE_STORE,
    "MISSING": f"({MISSING + 1} - 1)",
    "FOREVER": 2**63 - 1,
    "FAR": 2**62,
    "SENTINEL": SENTINEL_CLIENT,
    "RECORDER": RECORDER_CLIENT,
    # Values of `assignments.event`, and of `positions.event`.
    "ASSIGN": 1,
    "REVOKE": 2,
    "LOST": 3,
    "CLOSE": 4,
    "ASSIGNED": 1,
    **{one.name: int(one) for one in Acknowledgement},
    "BY_WRITES_ALONE": BY_WRITES_CASES[1],
    "TOO_LATE": 121,
    "SOUGHT": 2,
    "RESET": 3,
    # Times. A process without a heartbeat for GAP_NS stood still, and where deliveries are measured, for STILL_NS. A send
    # that took less than LONG_NS did not wait. What a member hears within BACKLOG_NS after a silence may be older than it.
    "GAP_NS": 1_000_000_000,
    "STILL_NS": 500_000_000,
    "LONG_NS": 1_000_000_000,
    "BACKLOG_NS": 2_000_000_000,
    "STALLED_NS": STALLED_NS,
    "ADMIN_LAG_NS": ADMIN_LAG_NS,
    "FIRST_CONTROLLER_ID": FIRST_CONTROLLER_ID,
    "SHARE_WAY_NS": SHARE_WAY_NS,
    "GIVEN_UP_NS": GIVEN_UP_NS,
    "MICRO": MICRO,
    # What became of a record at a recipient.
    "OPEN": 1,
    "UNMEASURED": 2,
    "LATE": 3,
    "GONE": 4,
    # `reads.origin`, and the columns of `reads`.
    "SEQUENCE_BITS": ORIGIN_SEQUENCE_BITS,
    "READ_COLUMNS": ", ".join(_READ_COLUMNS),
    "REVEALED_COLUMNS": ", ".join(f"{_REVEALED.get(name, str(NONE))} as {name}" for name in _READ_COLUMNS),
}
"""What `{NAME}` in a text stands for."""
_CASES: Mapping[str, type[IntEnum]] = {
    one.__name__: one
    for one in (
        *(case for name, case in vars(witnesses).items() if name.endswith("Case")),
        AdminOperation,
        MetadataKind,
        ObservationKind,
        RemoteState,
        TransactionState,
        GroupRecord,
        ClusterRecord,
        ShareRecord,
        ShareState,
    )
}


@dataclass(frozen=True, slots=True)
class SqlTexts:
    """The texts of anomalies, and of the views that they use, each after those that it is made of. All are filled."""

    queries: Mapping[str, str]
    views: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Text:
    kind: str
    name: str
    parameters: tuple[str, ...]
    """What the body of a fragment calls the values that it is given."""
    body: str


_HEADING = re.compile(r"^--- (view|anomaly|fragment) ([\w-]+)(?:\(([\w; ]+)\))?$", re.MULTILINE)
_NAMED = re.compile(r"\{([\w.]+)(?:\(([^{}]*)\))?\}")


FILES = (
    *("recorded", "views", "revealed", "log", "unaudited_log", "keys", "errors", "snapshots", "transactions", "cycles"),
    *("unaudited_transactions", "copies", "reading", "unaudited_reading", "compaction", "replicas", "deletions"),
    *(
        "leadership",
        "leaders",
        "stalls",
        "ownership",
        "commits",
        "processing",
        "delivery",
        "shares",
        "tiers",
        "progress",
    ),
    *("time_lookups", "transitions", "transaction_states", "group_states", "share_states"),
)
"""All files with texts. A view stands behind those that it is made of."""


def texts_of(*names: str) -> SqlTexts:
    """Returns the texts of these files, in their order. A text of a later file replaces that of the same name, where it
    was."""
    found: dict[str, dict[str, str]] = {"anomaly": {}, "view": {}}
    for name in names:
        for text in _read(name):
            if text.kind != "fragment":
                found[text.kind][text.name] = fill(text.body)
    return SqlTexts(found["anomaly"], found["view"])


def fill(text: str) -> str:
    """Returns the text with everything filled in that it names in braces, the innermost first."""
    while (filled := _NAMED.sub(_value, text)) != text:
        text = filled
    assert "{" not in text, f"a text names what there is not: {text[text.index('{') :][:80]}"
    return text


def _value(named: re.Match[str]) -> str:
    name, values = named[1], named[2]
    if name in CONSTANTS:
        return str(CONSTANTS[name])
    of, _, member = name.partition(".")
    if member:
        return str(code_of(member) if of == "metric" else int(_CASES[of][member]))
    fragment = _fragments()[name]
    given = [] if values is None else [value.strip() for value in values.split(";")]
    assert len(given) == len(fragment.parameters), f"{name} has the parameters {fragment.parameters}, not {given}"
    body = fragment.body
    for parameter, value in zip(fragment.parameters, given, strict=True):
        body = body.replace("{" + parameter + "}", value)
    return body


@cache
def _fragments() -> Mapping[str, _Text]:
    found = [text for name in FILES for text in _read(name) if text.kind == "fragment"]
    assert len({text.name for text in found}) == len(found), "two fragments have one name"
    return {text.name: text for text in found}


@cache
def _read(name: str) -> tuple[_Text, ...]:
    """Returns the texts of one file, without comments: a word in a comment is no use of a view."""
    return tuple(_parsed(files(__package__).joinpath(f"{name}.sql").read_text("utf-8")))


def _parsed(content: str) -> Iterator[_Text]:
    _, *pieces = _HEADING.split(content)
    for kind, name, parameters, body in zip(pieces[0::4], pieces[1::4], pieces[2::4], pieces[3::4], strict=True):
        lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")]
        given = tuple(one.strip() for one in parameters.split(";")) if parameters else ()
        yield _Text(kind, name, given, "\n".join(lines))
