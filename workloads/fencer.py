"""The role `fencer`: before the audit, every transactional.id is initialised once more. What was open is aborted, what was
prepared is completed (KIP-98, InitProducerId), and who still had it can write no more."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from harness.rows import RowWriter
from harness.schema import TRANSACTIONS
from workloads.client import Client
from workloads.producer import NS_PER_S, POLL_S
from workloads.transaction_calls import SLICE_S
from workloads.transaction_rows import TransactionRows


class Fencer:
    """On `fence`: initialises each id and tells `fenced` with those it could not, and why. Option: transactional_ids, pairs
    of (number, text)."""

    def __init__(self, client: Client) -> None:
        self._client, self._ids = client, client.spec.options["transactional_ids"]
        self._writer = RowWriter(client.rows, TRANSACTIONS, client.spec.client)
        self._stopped = False

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopped:
            self._breathe(POLL_S)

    def issued(self) -> int:
        """It sends nothing."""
        return 0

    def close(self) -> None:
        """Flush `transactions`."""
        self._writer.close()

    def _breathe(self, wait_s: float) -> None:
        self._client.heartbeat(self._client.now_ns())
        for command in self._client.control.until(timeout_s=wait_s):
            self._obey(command)

    def _obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "fence":
                self._fence_all(command["timeout_s"])
            case "stop":
                self._stopped = True
            case unknown:
                raise AssertionError(unknown)
        self._client.control.tell("done", number=command["number"])

    def _fence_all(self, timeout_s: float) -> None:
        """One after the other: each takes milliseconds unless its coordinator is gone."""
        until_ns = self._client.now_ns() + int(timeout_s * NS_PER_S)
        problems: dict[str, str] = {}
        for number, text in self._ids:
            rows = TransactionRows(self._writer, self._client.now_ns, transactional_id=number)
            problem = self._fence(text, rows, until_ns)
            if problem is not None:
                problems[text] = problem
        self._client.control.tell("fenced", problems=problems)

    def _fence(self, text: str, rows: TransactionRows, until_ns: int) -> str | None:
        producer = Producer(
            {**self._client.spec.properties, "transactional.id": text, "error_cb": self._client.on_error}
        )
        rows.initialising()
        while True:
            try:
                producer.init_transactions(SLICE_S)
            except KafkaException as error:
                told: KafkaError = error.args[0]
                if not told.retriable() or self._client.now_ns() >= until_ns or self._stopped:
                    return f"{told.name()}: {told.str()}"
                self._breathe(0)
                continue
            rows.initialised()
            return None
