"""These guarantees say that the logs of controllers and coordinators go on as the KIPs say."""

from prozess.harness.guarantees.table.rules import Guarantee
from prozess.harness.guarantees.table.transactions import KINDS

_ILLEGAL_TRANSITION = Guarantee(
    anomaly="illegal-transition",
    meaning="A record of the controllers' log does not follow from those before it.",
    promise="What the controllers' log says of partitions, brokers, features and settings follows from what it stated "
    "before, by the rules of the KIPs.",
    found=(
        "1 record of the controllers' log breaks a rule of a KIP",
        "{n} records of the controllers' log break a rule of a KIP",
    ),
    nothing="the controllers' log says nothing about leaders",
    nothing_is_unknown=False,
    source="KIP-101, KIP-133, KIP-497, KIP-516, KIP-584, KIP-631, KIP-704, KIP-778, KIP-841, KIP-858, KIP-966, "
    "KIP-1022",
)
_ILLEGAL_TRANSACTION_STATE = Guarantee(
    anomaly="illegal-transaction-state",
    meaning="A record of the transaction log does not follow from those before it.",
    promise="What the transaction log says of a transactional.id follows from what it stated before, by the rules of the "
    "KIPs: what was decided is completed, and nothing else.",
    found=(
        "1 record of the transaction log breaks a rule of a KIP",
        "{n} records of the transaction log break a rule of a KIP",
    ),
    nothing="the transaction log says nothing about the transactional.ids of the cell",
    source="KIP-98, KIP-360, KIP-890",
    workloads=KINDS,
)
_ILLEGAL_GROUP_STATE = Guarantee(
    anomaly="illegal-group-state",
    meaning="A record of a consumer group in `__consumer_offsets` does not follow from those before it.",
    promise="What `__consumer_offsets` states of a consumer group follows from what it stated before, by the rules of the "
    "KIPs: epochs and generations do not fall, a generation keeps its members, and no two members have one partition.",
    found=(
        "1 record of a group coordinator breaks a rule of a KIP",
        "{n} records of group coordinators break a rule of a KIP",
    ),
    nothing="no coordinator's log says anything about the group",
    source="KIP-345, KIP-848",
    workloads=("group",),
)
_ILLEGAL_SHARE_STATE = Guarantee(
    anomaly="illegal-share-state",
    meaning="A record of a share group in `__share_group_state` does not follow from those before it.",
    promise="What `__share_group_state` states of a partition follows from what it stated before, by the rules of KIP-932: "
    "what was accepted or given up stays so, and neither delivery counts nor the start offset fall.",
    found=(
        "1 record of a share coordinator breaks a rule of KIP-932",
        "{n} records of share coordinators break a rule of KIP-932",
    ),
    nothing="no share coordinator kept anything of the group",
    source="KIP-932, KIP-1191",
    workloads=("share",),
)
CONTROLLERS_LOG = (_ILLEGAL_TRANSITION, _ILLEGAL_GROUP_STATE, _ILLEGAL_SHARE_STATE, _ILLEGAL_TRANSACTION_STATE)
"""These guarantees, in the order in which reports list them."""
