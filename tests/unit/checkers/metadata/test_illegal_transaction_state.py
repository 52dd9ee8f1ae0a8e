"""Tests of rules for the transaction log: each by a log that breaks it and one that nearly does, all by a second model."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.metadata.illegal_transaction_state import RULES, illegal_transaction_state
from prozess.harness.columns import empty_rows
from prozess.harness.interfaces.checking import KernelResult
from prozess.harness.interfaces.witnesses import GIVEN_UP_NS
from prozess.harness.interfaces.witnesses import TransactionCase as Case
from prozess.harness.schema import NONE, OBSERVATIONS, TRANSACTION_STATES
from prozess.harness.schema import TransactionState as State
from tests.support.cells.transactions import A, B, cell_of, columns_of, instance

ID, OTHER = 1, 2
Row = dict[str, int]


def judged(rows: Sequence[Row], transactions: Sequence[Row] = (), own: Sequence[int] = (ID, OTHER)) -> KernelResult:
    nothing = {"sends": [], "reads": []}
    cell = cell_of(nothing, nothing, transactions, clients=[{"client": n, "planned": n} for n in own])
    states = columns_of(TRANSACTION_STATES, rows)
    made = replace(cell, tables={**cell.tables, "transaction_states": states, "asked": empty_rows(OBSERVATIONS)})
    result = illegal_transaction_state(made)
    assert result.count == len(result.witnesses)
    assert all(w["partition"] in (A, B) and w["client"] in own for w in result.witnesses)
    return result


def broken(rows: Sequence[Row]) -> list[tuple[Case, int]]:
    """The rules that a log breaks, each with the offset of the record."""
    return [(Case(int(w["case"])), int(w["log_offset"])) for w in judged(rows).witnesses]


def log(*records: Row) -> list[Row]:
    """Records of one id at the offsets 0, 1, …, a microsecond after one another, unless they say otherwise."""
    return [{"log_offset": n, "time_ns": n * 1000} | record for n, record in enumerate(records)]


def record(state: State, epoch: int = 3, partitions: int | None = None, *, version: int = 0, **more: int) -> Row:
    in_it = 2 if state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT) else 0
    row = {"transactional_id": ID, "state": int(state), "producer_id": 7, "producer_epoch": epoch}
    return row | {"partitions": in_it if partitions is None else partitions, "client_version": version} | more


EMPTY, ONGOING = record(State.EMPTY), record(State.ONGOING)
COMMITS, COMMITTED = record(State.PREPARE_COMMIT), record(State.COMPLETE_COMMIT)
ABORTS, ABORTED = record(State.PREPARE_ABORT), record(State.COMPLETE_ABORT)
FORGOTTEN = record(State.FORGOTTEN, NONE, producer_id=NONE)


def test_a_transaction_of_each_end_follows_the_rules():
    assert (
        broken(log(EMPTY, ONGOING, ONGOING, COMMITS, COMMITTED, ONGOING, ABORTS, ABORTED, EMPTY, FORGOTTEN, EMPTY))
        == []
    )
    fenced = [record(state, 4) for state in (State.PREPARE_ABORT, State.COMPLETE_ABORT)]
    assert broken(log(EMPTY, ONGOING, *fenced, record(State.EMPTY, 5))) == []


def test_with_an_epoch_for_each_transaction_its_end_raises_it_and_nothing_can_be_aborted():
    second = [record(state, 4, version=2) for state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT, State.ONGOING)]
    none = [record(state, 5, 0, version=2) for state in (State.PREPARE_ABORT, State.COMPLETE_ABORT)]
    assert broken(log(EMPTY, ONGOING, *second[:2], *none)) == []
    assert broken(log(EMPTY, ONGOING, *second)) == []
    again = record(State.COMPLETE_COMMIT, 0, version=2, producer_id=8)
    assert broken(log(EMPTY, ONGOING, second[0], again)) == [], "its epochs have run out: the next producer id"


@pytest.mark.parametrize(
    ("rule", "before", "breaks", "keeps"),
    [
        (Case.TAKEN_BACK, [ONGOING, COMMITS], ONGOING, COMMITTED),
        (Case.TAKEN_BACK, [ONGOING, ABORTS], EMPTY, ABORTED),
        (Case.TAKEN_BACK, [ONGOING, COMMITS], FORGOTTEN, COMMITS),
        (Case.UNDECIDED, [ONGOING], COMMITTED, ABORTS),
        (Case.UNDECIDED, [ONGOING], ABORTED, COMMITS),
        (Case.DECIDED_NOTHING, [], record(State.PREPARE_COMMIT, partitions=0), EMPTY),
        (
            Case.DECIDED_NOTHING,
            [],
            record(State.PREPARE_ABORT, partitions=0),
            record(State.PREPARE_ABORT, 4, 0, version=2),
        ),
        (Case.DROPPED, [ONGOING], EMPTY, ONGOING),
        (Case.DROPPED, [ONGOING], FORGOTTEN, ABORTS),
        (Case.NEVER_INITIALISED, [FORGOTTEN], ONGOING, EMPTY),
        (Case.EPOCH_FELL, [], record(State.EMPTY, 2), record(State.EMPTY, 4)),
        (Case.EPOCH_FELL, [], record(State.EMPTY, 2), record(State.EMPTY, 0, producer_id=8)),
        (Case.EPOCH_IN_TRANSACTION, [], record(State.ONGOING, 4), ONGOING),
        (Case.EPOCH_IN_TRANSACTION, [ONGOING, COMMITS], record(State.COMPLETE_COMMIT, 4), COMMITTED),
        (Case.PRODUCER_CHANGED, [], record(State.ONGOING, producer_id=8), record(State.EMPTY, producer_id=8)),
        (Case.PARTITIONS_CHANGED, [ONGOING], record(State.ONGOING, partitions=1), record(State.ONGOING, partitions=3)),
        (Case.PARTITIONS_CHANGED, [ONGOING], record(State.PREPARE_COMMIT, partitions=3), COMMITS),
        (Case.PARTITIONS_CHANGED, [ONGOING], record(State.PREPARE_ABORT, 4, 1), record(State.PREPARE_ABORT, 4)),
        (Case.PARTITIONS_LEFT, [ONGOING, COMMITS], record(State.COMPLETE_COMMIT, partitions=1), COMMITTED),
        (Case.EPOCH_NOT_RAISED, [ONGOING], record(State.PREPARE_COMMIT, version=2), COMMITS),
    ],
)
def test_a_rule_forbids_a_record_and_not_the_one_beside_it(rule, before, breaks, keeps):
    begun = [EMPTY, *before]
    assert broken(log(*begun, breaks)) == [(rule, len(begun))]
    assert broken(log(*begun, keeps)) == []


def test_the_first_record_of_an_id_initialises_it():
    assert broken(log(ONGOING)) == [(Case.NEVER_INITIALISED, 0)]
    assert broken(log(COMMITS)) == [(Case.DECIDED_NOTHING, 0)]
    assert broken(log(record(State.PREPARE_ABORT, version=2))) == [(Case.DECIDED_NOTHING, 0)]


def later(row: Row, ns: int, **more: int) -> Row:
    return row | {"time_ns": ns} | more


def test_a_decision_whose_append_may_have_failed_may_be_taken_back():
    begun, fenced = [EMPTY, ONGOING, COMMITS], record(State.PREPARE_ABORT, 4)
    assert broken(log(*begun, fenced)) == [(Case.TAKEN_BACK, 3)]
    assert broken(log(*begun, later(fenced, 2000 + GIVEN_UP_NS - 1))) == [(Case.TAKEN_BACK, 3)]
    assert broken(log(*begun, later(fenced, 2000 + GIVEN_UP_NS))) == []
    assert broken(log(*begun, later(fenced, 1500))) == [], "a clock that was set back says nothing"
    other_leader = later(fenced, 2000 + GIVEN_UP_NS, leader_epoch=1)
    assert broken(log(*begun, other_leader)) == [(Case.TAKEN_BACK, 3)], "it has read the log, and knows the decision"


def test_an_append_that_failed_explains_nothing_that_its_coordinator_had_not_decided_before():
    begun = [EMPTY, ONGOING, COMMITS]
    assert broken(log(*begun, later(ABORTED, 2 * GIVEN_UP_NS))) == [(Case.TAKEN_BACK, 3), (Case.UNDECIDED, 3)]
    two = [*begun, later(COMMITS, 2 * GIVEN_UP_NS), later(record(State.PREPARE_ABORT, 4), 4 * GIVEN_UP_NS)]
    assert broken(log(*two)) == [], "it failed twice"
    assert broken(log(later(EMPTY, 0), later(EMPTY, GIVEN_UP_NS), later(record(State.EMPTY, 2), 2 * GIVEN_UP_NS))) == []


def test_behind_a_hole_in_the_log_nothing_is_judged_and_said_to_be():
    assert broken([{**row, "log_offset": n + (n > 0)} for n, row in enumerate(log(EMPTY, COMMITTED))]) == []
    result = judged([{**EMPTY, "log_offset": 5}, {**ONGOING, "log_offset": 6}])
    assert (result.count, result.judged) == (0, 1)
    assert result.incomplete == "records of the transaction log are missing in front of 1 others"
    anothers = {**EMPTY, "log_offset": 0, "transactional_id": NONE}
    assert judged([anothers, {**EMPTY, "log_offset": 1}]).incomplete is None
    elsewhere = [
        {**EMPTY, "log_offset": 0, "number": 1},
        {**EMPTY, "log_offset": 4, "number": 2, "transactional_id": OTHER},
    ]
    assert judged(elsewhere).judged == 1


def test_an_id_that_was_initialised_and_is_not_in_the_log_makes_it_incomplete():
    there = [instance(ID, called=0, returned=5)]
    assert judged(log(EMPTY), there).incomplete is None
    assert (
        judged([], there).incomplete == "the transaction log says nothing of 1 transactional.ids that were initialised"
    )
    assert judged(log(EMPTY), there, own=(OTHER,)).incomplete is None, "of another cell"
    assert judged(log(COMMITS), own=(OTHER,)).count == 0


def test_every_rule_names_a_kip_and_has_a_case_of_its_own():
    assert all(rule.source.startswith("KIP-") for rule in RULES)
    assert {rule.case for rule in RULES} == set(Case)


# --- a second model, which goes through the log record by record


def naive(rows: Sequence[Row]) -> list[tuple[Case, int]]:
    """What a coordinator may have had in memory is a list of records: the last one, and those in front of what may have
    failed."""
    memory: dict[int, list[Row]] = {}
    found = list[tuple[Case, int]]()
    for k, row in enumerate(rows):
        name = row["transactional_id"]
        if name == NONE:
            continue
        held = memory.setdefault(name, [FORGOTTEN | {"partitions": NONE}])
        if seen(rows, k):
            cases = [list(forbidden(before, row)) for before in held]
            if all(cases):
                found += [(case, row["log_offset"]) for case in cases[0]]
        after = next((other for other in rows[k + 1 :] if other["transactional_id"] == name), None)
        memory[name] = [row, *held] if after is not None and may_have_failed(row, after) else [row]
    return sorted(found)


def seen(rows: Sequence[Row], k: int) -> bool:
    own = [n for n in range(k) if rows[n]["transactional_id"] == rows[k]["transactional_id"]]
    first, offset = (own[-1], rows[own[-1]]["log_offset"]) if own else (0, 0)
    return rows[k]["log_offset"] - offset == k - first


def may_have_failed(row: Row, after: Row) -> bool:
    waited = after["time_ns"] - row["time_ns"]
    return after["leader_epoch"] == row["leader_epoch"] and (waited < 0 or waited >= GIVEN_UP_NS)


ENDS = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}
RESTING = {State.EMPTY, *ENDS.values()}


def forbidden(before: Row, after: Row) -> Iterator[Case]:
    was, now = State(before["state"]), State(after["state"])
    same = before["producer_id"] == after["producer_id"] != NONE
    bumps, raised = after["client_version"] >= 2, after["producer_epoch"] - before["producer_epoch"]
    if not (same and was == now and raised == 0):
        yield from of_decisions(was, now)
    raises = now == State.PREPARE_ABORT and bumps and was in RESTING
    if was in RESTING | {State.FORGOTTEN} and now in ENDS and not raises:
        yield Case.DECIDED_NOTHING
    if was == State.FORGOTTEN and now == State.ONGOING:
        yield Case.NEVER_INITIALISED
    if same:
        yield from of_epochs(was, now, raised, bumps, before["producer_epoch"])
    elif was != State.FORGOTTEN and now not in (State.FORGOTTEN, State.EMPTY) and not (bumps and now in ENDS.values()):
        yield Case.PRODUCER_CHANGED
    grown = after["partitions"] - before["partitions"]
    if was == State.ONGOING and ((now == State.ONGOING and grown < 0) or (now in ENDS and grown)):
        yield Case.PARTITIONS_CHANGED
    if now in RESTING and after["partitions"] > 0:
        yield Case.PARTITIONS_LEFT


def of_decisions(was: State, now: State) -> Iterator[Case]:
    if was in ENDS and now != ENDS[was]:
        yield Case.TAKEN_BACK
    if now in ENDS.values() and ENDS.get(was) != now:
        yield Case.UNDECIDED
    if was == State.ONGOING and now in (State.EMPTY, State.FORGOTTEN):
        yield Case.DROPPED


def of_epochs(was: State, now: State, raised: int, bumps: bool, epoch: int) -> Iterator[Case]:
    if raised < 0:
        yield Case.EPOCH_FELL
    keeps = {State.ONGOING, *ENDS.values()} | (set() if bumps else {State.PREPARE_COMMIT})
    if raised and now in keeps:
        yield Case.EPOCH_IN_TRANSACTION
    if was == State.ONGOING and now in ENDS and bumps and raised == 0 and epoch < 32767:
        yield Case.EPOCH_NOT_RAISED


@st.composite
def logs(draw):
    """One partition of the log, with records of three ids, one of them of nobody in the plan; sometimes with a hole."""
    rows, offset, now_ns = list[Row](), draw(st.sampled_from([0, 0, 0, 2])), 0
    for _ in range(draw(st.integers(1, 12))):
        now_ns += draw(st.sampled_from([1000, 1000, GIVEN_UP_NS, -1000]))
        state = draw(st.sampled_from(State))
        row = record(
            state,
            draw(st.integers(3, 5) | st.just(32767)),
            draw(st.integers(0, 2)),
            version=draw(st.sampled_from([0, 2])),
            producer_id=draw(st.integers(7, 8)),
            transactional_id=draw(st.sampled_from([ID, ID, OTHER, NONE])),
            leader_epoch=draw(st.sampled_from([0, 0, 1])),
            log_offset=offset,
            time_ns=now_ns,
        )
        rows.append(
            row | {"producer_id": NONE, "producer_epoch": NONE, "partitions": 0} if state == State.FORGOTTEN else row
        )
        offset += draw(st.sampled_from([1, 1, 1, 1, 2]))
    return rows


@given(logs())
def test_the_rules_agree_with_a_model_that_goes_record_by_record(rows):
    assert sorted(broken(rows)) == naive(rows)
