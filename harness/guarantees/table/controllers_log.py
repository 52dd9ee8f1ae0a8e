"""This guarantee says that the controllers' log goes on as the KIPs say."""

from prozess.harness.guarantees.table.rules import Guarantee

_ILLEGAL_TRANSITION = Guarantee(
    anomaly="illegal-transition",
    meaning="A record of the controllers' log does not follow from those before it.",
    promise="What the controllers' log says of a partition follows from what it stated before, by the rules of the KIPs.",
    found=(
        "1 record of the controllers' log breaks a rule of a KIP",
        "{n} records of the controllers' log break a rule of a KIP",
    ),
    nothing="the controllers' log says nothing about leaders",
    nothing_is_unknown=False,
    source="KIP-101, KIP-497, KIP-516, KIP-631, KIP-704, KIP-841, KIP-966",
)
CONTROLLERS_LOG = (_ILLEGAL_TRANSITION,)
"""These guarantees, in the order in which reports list them."""
