"""The guarantee table, part copies: what is promised of a topic that a copier derives from another.

Left out because nothing can bring them about yet: copiers that do not go back after an abort (KAFKA-17582), or that
commit without the metadata of their group (KIP-447).
"""

from harness.guarantees.rules import Guarantee, Rule
from harness.guarantees.table_transactions import delayed, state_lost

KINDS = ("exactly-once", "application")
"""The workloads that have copiers."""
_DELIVERY = "Kafka documentation, design, 'Message Delivery Semantics'"

_NOT_EXACTLY_ONCE = Guarantee(
    anomaly="not-exactly-once",
    promise="What the copiers' group has committed past stands in the derived topic, once.",
    found=("1 record was not copied exactly once", "{n} records were not copied exactly once"),
    did=("did not copy 1 record exactly once", "did not copy {n} records exactly once"),
    undone="would have copied them exactly once",
    nothing="the copiers committed nothing",
    source=f"KIP-98; KIP-447; {_DELIVERY}",
    workloads=KINDS,
    rules=(
        Rule(
            id="not-exactly-once/at-most-once",
            when=("copies at most once", "no copy"),
            label="committing before producing",
            reason="a copier committed records before it had copied them, and ended in between (at most once)",
            change="the offsets in the transaction of the copies",
            found=("1 record was never copied", "{n} records were never copied"),
            did=("left out 1 record", "left out {n} records"),
            source=_DELIVERY,
        ),
        Rule(
            id="not-exactly-once/at-least-once",
            when=("copies at least once", "a copy too many"),
            label="committing after producing",
            reason="a copier had copied records, and ended before a commit of them was accepted (at least once)",
            change="the offsets in the transaction of the copies",
            found=("1 record was copied again", "records were copied again {n} times"),
            did=("copied 1 record again", "copied records again {n} times"),
            source=_DELIVERY,
        ),
        Rule(
            id="not-exactly-once/offsets-outside",
            when=("offsets outside the transaction", "a copy too many"),
            label="offsets outside the transaction",
            reason="a transaction of copies was committed, and its copier ended before a commit of their offsets was "
            "accepted: a transactional.id gives atomicity and fencing, and knows nothing of what was sent before",
            change="the offsets in the transaction of the copies",
            found=("1 record was copied again", "records were copied again {n} times"),
            did=("copied 1 record again", "copied records again {n} times"),
            source="KIP-98, 'Transactional Guarantees'; KIP-447",
        ),
        Rule(
            id="not-exactly-once/unclean",
            when=("a partition of the cell was elected unclean",),
            label="unclean elections",
            reason="an unclean election took records away from the source, the copies or the offsets",
            change="unclean.leader.election.enable=false",
            source="Kafka documentation, design, 'Unclean leader election: what if they all die?'",
        ),
        state_lost("not-exactly-once"),
        delayed("not-exactly-once"),
    ),
)
COPIES = (_NOT_EXACTLY_ONCE,)
"""In the order of reports."""
