"""The known defects of Kafka and of its clients that break what their documentation promises.

Rules of the guarantee table name them where a history shows their signature: the facts that a rule asks for stand in
`prozess.harness.guarantees.facts`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Owner = Literal["librdkafka", "java", "brokers", "transactions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """A known defect of Kafka or of a client."""

    id: str
    owner: Owner
    """What has to be fixed. `transactions` means the client and the brokers together."""
    newest: str = ""
    """The newest version that is known to have it; empty: it is fixed, and `fixed` says since when."""
    fixed: str = ""
    avoided: str = ""
    """A setting that avoids the defect without an upgrade."""
    outside_transactions: bool = False
    """It does not concern producers with a transactional.id."""
    source: str

    @property
    def status(self) -> str:
        """Returns the status of the defect in words: "open in 2.16.0", "fixed in 3.6.0"."""
        return f"open in {self.newest}" if self.newest else f"fixed {self.fixed}"

    @property
    def description(self) -> str:
        """ "librdkafka#4953, open in 2.16.0; a transactional.id avoids it" """
        return f"{self.id}, {self.status}" + (f"; {self.avoided} avoids it" if self.avoided else "")


DEFECTS: Mapping[str, Defect] = {
    defect.id: defect
    for defect in (
        Defect(
            id="librdkafka#4953",
            owner="librdkafka",
            newest="2.16.0",
            avoided="a transactional.id",
            outside_transactions=True,
            source="librdkafka issue 4953 and pull request 4972, both open; there: only a transaction is exactly once in "
            "every case",
        ),
        Defect(
            id="librdkafka#4844",
            owner="librdkafka",
            fixed="in 2.13.2",
            avoided="enable.partition.eof=false",
            source="librdkafka issue 4844 and pull request 5213; CHANGELOG of 2.13.2",
        ),
        Defect(
            id="librdkafka#4898",
            owner="librdkafka",
            newest="2.16.0",
            source="librdkafka issue 4898, open; seen with 2.16.0: no producer and no reader found, within 60 s, a topic "
            "that was made again with leader epoch 0 after 1, led by another broker",
        ),
        Defect(
            id="KAFKA-12257",
            owner="java",
            fixed="in 2.8.1 and 3.0.0",
            source="KAFKA-12257; apache/kafka pull requests 10952 and 11004: until then a client compared leader epochs of a "
            "topic's name (KIP-320), and did not know its id",
        ),
        Defect(
            id="KAFKA-13488",
            owner="java",
            fixed="in 2.8.2, 3.0.1 and 3.1.0",
            source="KAFKA-13488; apache/kafka pull request 11552: of a missing topic a client forgets the id, and not "
            "the epochs of its leaders, so it refuses the metadata of the next topic of that name",
        ),
        Defect(
            id="KAFKA-19012",
            owner="java",
            fixed="in 3.9.2, 4.0.2, 4.1.2 and 4.2.0",
            source="KAFKA-19012 (CVE-2026-35554); apache/kafka pull requests 21065 and 21286 to 21288: since 2.8.0 a request "
            "is written from the memory of its batches, which goes back to the pool when they expire",
        ),
        Defect(
            id="KAFKA-18641",
            owner="java",
            newest="4.4.0",
            avoided="group.protocol=classic",
            source="KAFKA-18641; apache/kafka pull request 18737, which mended it in 4.0; seen again: 4.2.2 and 4.4.0, not "
            "4.1.2, trial auto-commit-java",
        ),
        Defect(
            id="KAFKA-14034",
            owner="java",
            newest="4.4.0",
            avoided="a transactional.id",
            outside_transactions=True,
            source="KAFKA-14034; apache/kafka pull request 13796, closed unmerged",
        ),
        Defect(
            id="KAFKA-13598",
            owner="java",
            fixed="in 3.0.1 and 3.1.1",
            avoided="enable.idempotence=true",
            outside_transactions=True,
            source="KAFKA-13598; apache/kafka pull request 11691: ProducerConfig.idempotenceEnabled asks whether "
            "enable.idempotence was set at all",
        ),
        Defect(
            id="KAFKA-18991",
            owner="brokers",
            fixed="after 3.9.0 and 4.0.0",
            source="KAFKA-18991; apache/kafka pull request 19223: committed records may be removed from a follower's log",
        ),
        Defect(
            id="KAFKA-15591",
            owner="brokers",
            fixed="in 4.5.0",
            avoided="max.in.flight.requests.per.connection=1",
            source="KAFKA-15591; apache/kafka pull request 23234: brokers take any first sequence of a producer that they do "
            "not know (KIP-360)",
        ),
        Defect(
            id="KAFKA-15489",
            owner="brokers",
            fixed="in 3.7.0",
            source="KAFKA-15489; apache/kafka pull request 14428: until then no leader of the quorum asked itself whether a "
            "majority still fetches from it (KIP-595, 'Leader Progress Timeout')",
        ),
        Defect(
            id="KAFKA-14617",
            owner="brokers",
            fixed="in 3.5.0",
            source="KAFKA-14617; KIP-903: a replica that was started again, with an older broker epoch, may join the ISR",
        ),
        Defect(
            id="KAFKA-13141",
            owner="brokers",
            fixed="in 2.7.2, 2.8.1 and 3.0.0",
            source="KAFKA-13141; apache/kafka pull request 11136: a leader took the fetch offset of a follower whose log "
            "diverges for what that follower has",
        ),
        Defect(
            id="KAFKA-20322",
            owner="brokers",
            fixed="in 4.2.1",
            source="KAFKA-20322; apache/kafka pull request 21782: the channel of transaction markers asks no broker for its "
            "versions, and sends WriteTxnMarkers of version 2 (KIP-1228) to brokers before 4.2, which know version 1",
        ),
        Defect(id="KAFKA-14704", owner="brokers", fixed="after 3.4.0", source="KAFKA-14704"),
        Defect(id="KAFKA-14402", owner="brokers", fixed="in 3.6.0", source="KAFKA-14402; KIP-890 part 1"),
        Defect(
            id="KAFKA-17754",
            owner="transactions",
            fixed="by transaction.version=2 with a Java client from 4.0",
            source="KAFKA-17754; KIP-890 part 2; librdkafka#5423",
        ),
    )
}
"""Known defects by id, which is the label of their rules in the table. The facts of these rules say which brokers have
them."""
