"""Who has each transactional.id, and how another takes it over while the first still holds an open transaction."""

from collections.abc import Collection, Mapping

from harness.plan import Plan
from workloads.processes import ClientProcess, ClientProcesses

TAKE_OVER_LIMIT_S = 60.0
"""For init_transactions too: a coordinator may be moving."""


class TakeOvers:
    """Pairs of processes that share a transactional.id (`transaction.standby`)."""

    def __init__(self, plan: Plan) -> None:
        self._having: dict[str, int] = {}
        """transactional.id → client that has it."""
        self._waiting: dict[str, int] = {}
        self._cell: dict[str, int | None] = {}
        for client in plan.clients:
            if client.role == "transactor" and client.transactional_id is not None:
                who = self._waiting if client.instance else self._having
                who[client.transactional_id] = client.client
                self._cell[client.transactional_id] = client.cell

    def take_over(self, processes: ClientProcesses, cells: Collection[int], *, hold: bool) -> None:
        """The standby of each id of these cells initialises it; who had it goes on as a zombie, and stands by once fenced.

        `hold`: it begins a transaction first, and ends it afterwards; else it is left as it is, paused perhaps. NotReady if
        one of them does not answer in time.
        """
        ids = [text for text in self._waiting if self._cell[text] in cells]
        zombies = self._processes(processes, self._having, ids)
        successors = self._processes(processes, self._waiting, ids)
        if hold:
            processes.command(zombies, "hold", timeout_s=TAKE_OVER_LIMIT_S)
        processes.command(successors, "take_over", timeout_s=TAKE_OVER_LIMIT_S)
        # Not awaited: one that is paused reads it when it is resumed.
        processes.tell(zombies, "go_on")
        for text in ids:
            self._having[text], self._waiting[text] = self._waiting[text], self._having[text]

    @staticmethod
    def _processes(processes: ClientProcesses, of: Mapping[str, int], ids: Collection[str]) -> list[ClientProcess]:
        return [processes.clients[of[text]] for text in ids]
