"""The search for a smaller plan: passes over cells, steps, clients and waiting, until none of them finds anything. Pure: what
is tried is tried by whoever is given."""

from collections.abc import Callable, Collection, Iterator

from harness.plan import Plan
from harness.shrink.reduce import ddmin
from harness.shrink.smaller import halved, spare_clients, valid, waits, with_cells, with_steps, without_clients

Try = Callable[[Plan, str], bool]
"""(candidate, what was done to get it) → does it still fail?"""
HALVINGS_MAX = 6


def shrink(plan: Plan, still_fails: Try, targets: Collection[int]) -> Iterator[Plan]:
    """Smaller and smaller plans that fail; the last one is what no pass makes smaller. `targets`: cells of `plan` in which it
    may come back: one of them is enough."""
    before: Plan | None = None
    for smaller in _cells(plan, still_fails, targets):
        plan = smaller
        yield plan
    while plan != before:
        before = plan
        for of in (_steps, _clients, _durations):
            smaller = of(plan, still_fails)
            if smaller != plan:
                plan = smaller
                yield plan


def _cells(plan: Plan, still_fails: Try, targets: Collection[int]) -> Iterator[Plan]:
    """One cell alone, where that is enough; else as few as it takes."""
    every = [cell.cell for cell in plan.cells]
    if len(every) < 2:
        return
    for alone in list(targets)[:3]:
        made = valid(with_cells(plan, {alone}))
        if made is not None and still_fails(made, f"1 of {len(every)} cells"):
            yield made
            return

    def fails(kept: tuple[int, ...]) -> bool:
        made = valid(with_cells(plan, kept))
        return made is not None and still_fails(made, f"{len(kept)} of {len(every)} cells")

    kept = ddmin(every, fails)
    if len(kept) < len(every):
        made = with_cells(plan, kept)
        assert made is not None, kept
        yield made


def _steps(plan: Plan, still_fails: Try) -> Plan:
    every = tuple(range(len(plan.steps)))

    def fails(kept: tuple[int, ...]) -> bool:
        made = valid(with_steps(plan, kept))
        return made is not None and still_fails(made, f"{len(made.steps)} of {len(every)} steps")

    return with_steps(plan, ddmin(every, fails))


def _clients(plan: Plan, still_fails: Try) -> Plan:
    spare = spare_clients(plan)

    def fails(kept: tuple[str, ...]) -> bool:
        made = valid(without_clients(plan, set(spare) - set(kept)))
        return made is not None and still_fails(made, f"{len(kept)} of {len(spare)} spare clients")

    needed = ddmin(spare, fails)
    return without_clients(plan, set(spare) - set(needed)) if spare else plan


def _durations(plan: Plan, still_fails: Try) -> Plan:
    """All waiting halved as often as that goes; then each wait by itself."""
    for _ in range(HALVINGS_MAX):
        numbers = waits(plan)
        if not numbers or not still_fails(made := halved(plan, numbers), "all waiting halved"):
            break
        plan = made
    for number in waits(plan):
        for _ in range(HALVINGS_MAX):
            if number not in waits(plan) or not still_fails(made := halved(plan, [number]), "one wait halved"):
                break
            plan = made
    return plan
