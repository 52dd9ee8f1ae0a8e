"""This module ends transactions that hang, as an operator does, before the audit."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from prozess.harness.clock import Clock, wait_until
from prozess.harness.errors import ClusterFailed, NotReady
from prozess.harness.interfaces import AdminProtocol, Targets
from prozess.harness.interfaces.cluster import CoordinatedTransaction, HangingTransaction, OpenTransaction
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.schedule import FaultAction
from prozess.harness.run_directory import RunDirectory, read_object, read_resolved, write_json

# Hanging transactions: open in a partition, although no coordinator knows them any more (KIP-664).
#
# If every broker lost its power, a partition whose topic has flush.messages=1 keeps records of a transaction that
# `__transaction_state` has lost. Its last stable offset then never moves again, and read_committed consumers get nothing
# that comes after it. This does what an operator does (`kafka-transactions.sh find-hanging`, `abort`), after every
# transactional.id was fenced and before the audit.
#
# A transaction for which no fault of the trial is an excuse is left open: that it hangs is what `stalled` has to show.


LIMIT_S = 15.0
"""How long coordinators may take to end transactions, and leaders to write markers."""
LOOK_S = 0.5
"""The time between two searches. Only transactions that hang in both are ended, because partitions of __transaction_state may
have moved."""
NOT_EXCUSED = (
    "it is left open: no fault destroyed __transaction_state on every broker, so its coordinator should end it"
)
UNDESCRIBED = "not every broker stated which transactions it coordinates"

Key = tuple[str, int]
Found = tuple[Key, OpenTransaction]


def end_hanging(
    plan: Plan,
    run: RunDirectory,
    cluster: Targets,
    admin: AdminProtocol,
    clock: Clock,
    *,
    absent: Collection[int] = (),
    unfenced: Mapping[str, str],
    emit: Callable[..., None],
) -> Sequence[HangingTransaction]:
    """Finds hanging transactions in every partition that transactions write to, ends them, and notes them in
    `hanging.json`.

    `absent`: partitions that do not exist yet; `unfenced`: transactional.ids that could not be fenced.
    """
    ids = {c.transactional_id for c in plan.clients if c.transactional_id is not None}
    written = {p for c in plan.clients if c.transactional_id is not None for p in c.partitions} - set(absent)
    if not written:
        return ()
    keys = {name: dense for name, dense in plan.recorded.items() if dense in written}
    search = _Search(admin, keys, ids - unfenced.keys(), excused=state_was_destroyed(plan, run, cluster))
    with suppress(NotReady):  # transactions that are still open then are recorded with the reason
        wait_until(search.look, awaited="an end of all transactions", timeout_s=LIMIT_S, clock=clock, interval_s=LOOK_S)
    found = search.found()
    write_json(run.hanging, [one.model_dump() for one in found])
    if found:
        emit("hanging-transactions", found=[one.text for one in found])
    return found


def state_was_destroyed(plan: Plan, run: RunDirectory, cluster: Targets) -> bool:
    """Returns whether one fault took from every broker what it had not synced, and with it __transaction_state."""
    brokers = {node.name for node in cluster.nodes if "broker" in node.roles}
    settings: Mapping[str, Any] = (read_object(run.cluster) if run.cluster.exists() else {}).get("settings", {})
    flushed = str(settings.get("log.flush.interval.messages", "")) == "1"
    hit: dict[int, set[str]] = {}
    for aim in read_resolved(run):
        hit.setdefault(int(aim["step_number"]), set()).update(aim["nodes"])
    for number, step in enumerate(plan.steps):
        nature = NATURES.get(step.do.fault) if isinstance(step.do, FaultAction) else None
        if nature is None or not brokers or not brokers <= hit.get(number, set()):
            continue
        if nature.destroys or (nature.loses_unflushed and not flushed):
            return True
    return False


class _Search:
    """Searches repeatedly until no open transaction can still be ended.

    `ids`: transactional.ids that were fenced a moment ago. Coordinators that do not name one of them do not report
    everything.
    """

    def __init__(self, admin: AdminProtocol, keys: Mapping[Key, int], ids: Collection[str], *, excused: bool) -> None:
        self._admin, self._keys, self._ids, self._excused = admin, keys, frozenset(ids), excused
        self._hung: frozenset[tuple[Key, int, int]] = frozenset()
        """The transactions that hung in the previous search."""
        self._ended: dict[tuple[Key, int, int], Found] = {}
        self._open: dict[tuple[Key, int, int], tuple[Found, str]] = {}
        """The open transactions, each with the reason why it is not ended."""

    def look(self) -> bool:
        """Ends the transactions that hung in the last search and in this one. Returns whether the search is finished."""
        try:
            return self._look()
        except ClusterFailed as error:
            self._open = {which: (found, str(error)) for which, (found, _) in self._open.items()}
            return False

    def _look(self) -> bool:
        opened = self._admin.open_transactions(list(self._keys))
        found = {
            (key, one.producer_id, one.start_offset): (key, one)
            for key, transactions in opened.items()
            for one in transactions
        }
        self._open = {which: self._open.get(which, (one, UNDESCRIBED)) for which, one in found.items()}
        if not found:
            return len(opened) == len(self._keys)
        coordinated = self._admin.coordinated_transactions()
        # Asked once more, afterwards: what its coordinator has ended meanwhile is not open any more.
        still = self._admin.open_transactions(sorted({key for key, _ in found.values()}))
        held = {(key, one.producer_id, one.start_offset) for key, transactions in still.items() for one in transactions}
        whys = {which: self._why_not(one, coordinated) for which, (_, one) in found.items() if which in held}
        hung = frozenset(which for which, why in whys.items() if not why)
        self._open = {which: (found[which], why or NOT_EXCUSED) for which, why in whys.items()}
        confirmed, self._hung = hung & self._hung, hung
        if self._excused:
            for which in sorted(confirmed):
                self._end(which, found[which])
            return False  # the next search shows that they are gone
        return hung == confirmed == frozenset(found)

    def _why_not(self, one: OpenTransaction, coordinated: Sequence[CoordinatedTransaction] | None) -> str:
        """Returns why the transaction must be left alone; "" if no coordinator knows it."""
        if coordinated is None:
            return UNDESCRIBED
        known = {transaction.transactional_id for transaction in coordinated}
        if not self._ids or not self._ids <= known:
            unknown = next(iter(sorted(self._ids - known)), None)
            if unknown is None:
                return f"{UNDESCRIBED}: no transactional.id was fenced a moment ago, to compare them with"
            return f"{UNDESCRIBED}: {unknown}, a transactional.id that was fenced a moment ago, is not among them"
        at_work = next((t for t in coordinated if t.producer_id == one.producer_id and not t.over), None)
        return "" if at_work is None else f"its coordinator knows it: {at_work.transactional_id} is {at_work.state}"

    def _end(self, which: tuple[Key, int, int], found: Found) -> None:
        problem = self._admin.abort_transaction(*found)
        if problem:
            self._open[which] = (found, problem)
        else:
            self._ended[which] = found

    def found(self) -> Sequence[HangingTransaction]:
        """Returns the transactions that were ended and those that are still open, by partition."""
        ended = [self._described(found, "") for found in self._ended.values()]
        left = [self._described(found, why) for which, (found, why) in self._open.items() if which not in self._ended]
        return sorted([*ended, *left], key=lambda one: (one.partition, one.start_offset))

    def _described(self, found: Found, why_not: str) -> HangingTransaction:
        (topic, number), one = found
        return HangingTransaction(
            partition=self._keys[topic, number],
            topic=topic,
            number=number,
            start_offset=one.start_offset,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            coordinator_epoch=one.coordinator_epoch,
            ended=not why_not,
            why_not=why_not,
        )
