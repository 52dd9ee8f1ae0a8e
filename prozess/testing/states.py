"""Judges a table that an application keeps, by the fold of its input records. Pure.

    orders   a: 2, b: 5, a: 3         fold: (total or 0) + amount
    totals   a: 2, b: 5, a: 5         the last of a is 5, of b 5: right
    totals   a: 2, b: 5, a: 3         the last of a is 3: the application began again from nothing

Only the last record of each key counts, so the table may be compacted.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from prozess.harness.interfaces.application import Contents, Record
from prozess.harness.verdict import ApplicationWitness
from prozess.testing.expectations import (
    WITNESSES_MAX,
    WRONG_STATE,
    ApplicationFinding,
    StateExpectation,
    UserFunction,
    call_identity,
    counted,
    shown,
    text_to_compare,
    witness_of,
)


def judge_state(wanted: StateExpectation, contents: Mapping[str, Contents]) -> list[ApplicationFinding]:
    """Checks that for each key the last record of the table is what the fold of the input's records gives."""
    source, table = contents[wanted.input], contents[wanted.table]
    try:
        if why := source.incomplete or table.incomplete:
            raise UserFunction(why)
        inputs, last = _by_key(wanted, source), _last_of_each_key(wanted, table)
        expected = {key: _folded(wanted, records) for key, records in inputs.items()}
        there = {key: _compared(wanted, record) for key, record in last.items()}
    except UserFunction as error:
        return [ApplicationFinding(WRONG_STATE, wanted.name, 0, f"cannot be judged: {error}", unknown=True)]
    wrong = [key for key in dict.fromkeys([*expected, *there]) if expected.get(key) != there.get(key)]
    if not wrong:
        return []
    witnesses = [_witness(key, inputs.get(key, []), last.get(key), expected.get(key), there.get(key)) for key in wrong]
    reason = (
        f"For {counted(len(wrong), 'key')}, the last record of {wanted.table} is not what the records of {wanted.input} "
        "give, by the fold of the test: the application counted some of them twice, or not at all, or began again from "
        "nothing."
    )
    return [ApplicationFinding(WRONG_STATE, wanted.name, len(wrong), reason, tuple(witnesses[:WITNESSES_MAX]))]


def _by_key(wanted: StateExpectation, source: Contents) -> dict[bytes, list[Record]]:
    found: dict[bytes, list[Record]] = defaultdict(list)
    for record in source.records:
        try:
            key = record.key if wanted.key is None else wanted.key(record)
        except Exception as error:
            raise UserFunction(f"key raised {type(error).__name__}: {error} for {record.position}") from error
        key = key.encode() if isinstance(key, str) else key
        if not isinstance(key, bytes):
            raise UserFunction(f"the key of {record.position} is {key!r}; give key=…, which returns text or bytes")
        found[key].append(record)
    for key, records in found.items():
        if not wanted.any_order and len({record.partition for record in records}) > 1:
            raise UserFunction(
                f"records of the key {key!r} are in several partitions of {wanted.input}, and nothing orders those; give "
                "any_order=True if their order does not matter"
            )
    return found


def _last_of_each_key(wanted: StateExpectation, table: Contents) -> dict[bytes, Record]:
    found: dict[bytes, Record] = {}
    for record in table.records:
        if record.key is None:
            raise UserFunction(f"{record.position} has no key, so it is no row of a table")
        before = found.get(record.key)
        if before is not None and before.partition != record.partition:
            raise UserFunction(
                f"the key {record.key!r} is in several partitions of {wanted.table}, and nothing orders those"
            )
        if before is None or record.offset > before.offset:
            found[record.key] = record
    return found


def _folded(wanted: StateExpectation, records: list[Record]) -> bytes | None:
    state: Any = None
    for record in records:
        try:
            state = wanted.fold(state, record)
        except Exception as error:
            raise UserFunction(f"fold raised {type(error).__name__}: {error} for {record.position}") from error
    if state is None:
        return None
    if wanted.identity is None:
        state = state.encode() if isinstance(state, str) else state
        if not isinstance(state, bytes):
            raise UserFunction(
                f"fold gave {state!r}. Without identity=, which says what of a record of the table is compared, it gives "
                "the record's value: text or bytes"
            )
    return text_to_compare(state, "fold", records[-1])


def _compared(wanted: StateExpectation, record: Record) -> bytes | None:
    """Returns what is compared of a record of the table; None if it is a tombstone."""
    if record.value is None:
        return None
    if wanted.identity is None:
        return text_to_compare(record.value, "the value", record)
    return call_identity(wanted.identity, record, "identity")


def _witness(
    key: bytes, inputs: list[Record], last: Record | None, expected: bytes | None, there: bytes | None
) -> ApplicationWitness:
    has = "has nothing" if there is None or last is None else f"has {shown(there)} ({last.position})"
    if not inputs:
        gives = "no record of the input has this key"
    else:
        wanted = "nothing" if expected is None else shown(expected)
        gives = f"its {counted(len(inputs), 'record')} give {wanted} (the last is {inputs[-1].position})"
    return witness_of(last or inputs[-1], f"{shown(repr(key).encode())}: the table {has}, and {gives}")
